//! Removes wrappers and shells until only the program to be judged is left.

use interlock_programs::builtins::Builtin;
use interlock_programs::names::program_name;
use interlock_programs::{
    Dispatch, Executable, Inner, Lookup, MAX_WRAPPERS, Multiplexer, ShellCall, TextOptions,
    dispatch, env_wrapper, multiplexer, shell_call,
};

use super::{
    AnalysisFindings, AnalysisStep, Closed, CommandNode, CommandParts, Host, MAX_TEXT_DEPTH,
    Program, WrapperLayer, expand_line, pipelines,
};
use crate::line::Line;
use crate::odd::{NotPlain, Odd};
use crate::{MAX_PLAIN_COMMANDS, Span, lex};

/// Appends what `parts` would start, either one command or those of a plain `sh -c` text, and
/// returns its node.
pub(super) fn commands(
    mut parts: CommandParts,
    mut wrappers: Vec<WrapperLayer>,
    host: Host<'_>,
    depth: usize,
    out: &mut AnalysisFindings,
) -> CommandNode {
    let mut looked_through = 0;
    loop {
        let (wrapper, inner, assigned) = match dispatch(&parts.argv) {
            Dispatch::NotWrapper => return program(parts, wrappers, host, depth, out),
            Dispatch::Unwrapped {
                wrapper,
                inner: Inner::At(inner),
                transparent,
            } if looked_through < MAX_WRAPPERS
                && !creates_a_file(&wrapper, inner, &parts, host) =>
            {
                let assigned = if transparent {
                    Some(Vec::new())
                } else if wrapper == "env" {
                    env_wrapper::only_assignments(&parts.argv)
                } else {
                    None
                };
                match assigned {
                    Some(assigned) => (wrapper, inner, assigned),
                    None => return close(parts, wrappers, Closed::Wrapper, host, out),
                }
            }
            Dispatch::Blocked { .. } | Dispatch::Unwrapped { .. } => {
                return close(parts, wrappers, Closed::Wrapper, host, out);
            }
        };
        let Some(executable) = trusted(&parts.argv[0], &parts.cwd, host) else {
            return close(parts, wrappers, Closed::UntrustedWrapper, host, out);
        };
        wrappers.push(WrapperLayer {
            name: wrapper,
            executable,
            arguments: parts.argv[..inner].to_vec(),
        });
        parts.skip(inner);
        // Inner assignments follow outer ones, because the innermost assignment wins.
        parts.assignments.extend(assigned);
        looked_through += 1;
    }
}

/// `flock FILE` creates a missing FILE and opens whatever exists. Only an existing regular file is
/// nothing but a lock.
fn creates_a_file(wrapper: &str, inner: usize, parts: &CommandParts, host: Host<'_>) -> bool {
    let lock = inner.checked_sub(1).and_then(|index| parts.argv.get(index));
    wrapper == "flock"
        && lock.is_none_or(|lock| host.resolver.file(lock, &parts.cwd).found().is_none())
}

fn trusted(name: &str, cwd: &str, host: Host<'_>) -> Option<Executable> {
    match host.resolver.executable(name, cwd) {
        Lookup::Found(executable) if host.trusts(name, &executable) => Some(executable),
        _ => None,
    }
}

fn close(
    parts: CommandParts,
    wrappers: Vec<WrapperLayer>,
    reason: Closed,
    host: Host<'_>,
    out: &mut AnalysisFindings,
) -> CommandNode {
    let name = parts.argv.first().map_or("", String::as_str);
    let lookup = host.resolver.executable(name, &parts.cwd);
    push(parts, wrappers, Program::Closed { lookup, reason }, out)
}

fn push(
    parts: CommandParts,
    wrappers: Vec<WrapperLayer>,
    program: Program,
    out: &mut AnalysisFindings,
) -> CommandNode {
    out.push(parts.into_command(wrappers, program))
}

fn program(
    mut parts: CommandParts,
    mut wrappers: Vec<WrapperLayer>,
    host: Host<'_>,
    depth: usize,
    out: &mut AnalysisFindings,
) -> CommandNode {
    // `busybox sh …` is a shell in the directory of busybox.
    let shell_token = parts.argv[0].clone();
    if multiplexer(&parts.argv) == Multiplexer::Shell {
        let Some(executable) = trusted(&shell_token, &parts.cwd, host) else {
            return close(parts, wrappers, Closed::UntrustedShell, host, out);
        };
        wrappers.push(WrapperLayer {
            name: "busybox".to_owned(),
            executable,
            arguments: vec![shell_token.clone()],
        });
        parts.skip(1);
    }
    match shell_call(&parts.argv) {
        ShellCall::NotShell => {
            let lookup = host.resolver.executable(&parts.argv[0], &parts.cwd);
            push(parts, wrappers, Program::File(lookup), out)
        }
        ShellCall::Closed {
            reason, is_whole, ..
        } => {
            let closed = if is_whole {
                Closed::ShellOptions(reason)
            } else {
                Closed::Shell(reason)
            };
            close(parts, wrappers, closed, host, out)
        }
        ShellCall::Text { index, options } => {
            let Some(shell) = trusted(&shell_token, &parts.cwd, host) else {
                return close(parts, wrappers, Closed::UntrustedShell, host, out);
            };
            match plain_text(&parts, index, options, &wrappers, depth) {
                Err(reason) => close(parts, wrappers, reason, host, out),
                // Commands of nested texts count together.
                Ok(line) if out.commands.len() + line.segments().count() > MAX_PLAIN_COMMANDS => {
                    let reason = Closed::ShellOptions("there are too many commands");
                    close(parts, wrappers, reason, host, out)
                }
                Ok(line) => match expand_line(&line, &parts.cwd, host, &mut out.globs) {
                    Err(odd) => close(parts, wrappers, Closed::ShellText(odd), host, out),
                    Ok(steps) if steps.iter().flatten().any(AnalysisStep::is_shell_builtin) => {
                        let whole = Span::new(0, parts.argv[index].len());
                        let odd = NotPlain {
                            reason: Odd::Builtin,
                            span: whole,
                        };
                        close(parts, wrappers, Closed::ShellText(odd), host, out)
                    }
                    Ok(steps) => {
                        wrappers.push(WrapperLayer {
                            name: program_name(&parts.argv[0]).into_owned(),
                            executable: shell,
                            arguments: parts.argv[..index].to_vec(),
                        });
                        let first = out.commands.len();
                        let group = pipelines(&line, steps, &wrappers, host, depth + 1, out);
                        for command in &mut out.commands[first..] {
                            command.span = parts.span;
                            let outer = parts.assignments.iter().cloned();
                            command.assignments.splice(..0, outer);
                        }
                        CommandNode::Group(group)
                    }
                },
            }
        }
        ShellCall::File { index } => {
            let Some(shell) = trusted(&shell_token, &parts.cwd, host) else {
                return close(parts, wrappers, Closed::UntrustedShell, host, out);
            };
            let file = host.resolver.file(&parts.argv[index], &parts.cwd);
            let options = parts.argv[..index].to_vec();
            parts.skip(index);
            let program = Program::Script {
                shell,
                options,
                file,
            };
            push(parts, wrappers, program, out)
        }
    }
}

/// Returns the text of `-c` if it is plain and running it directly means the same.
fn plain_text(
    parts: &CommandParts,
    index: usize,
    options: TextOptions,
    wrappers: &[WrapperLayer],
    depth: usize,
) -> Result<Line, Closed> {
    if depth >= MAX_TEXT_DEPTH {
        return Err(Closed::ShellOptions("shells are nested too deeply"));
    }
    if !parts.literal[index] {
        return Err(Closed::ShellOptions("the text behind `-c` was expanded"));
    }
    let line = lex(&parts.argv[index]).map_err(Closed::ShellText)?;
    let programs = line
        .segments()
        .filter(|segment| Builtin::named(segment.name()).is_none());
    if programs.count() != 1 && wrappers.iter().any(|layer| holds_all_at_once(&layer.name)) {
        return Err(Closed::ShellOptions(
            "a wrapper that holds several commands at once is not looked through",
        ));
    }
    if options == TextOptions::OneCommandOnly && line.segments().count() != 1 {
        return Err(Closed::ShellOptions(
            "an option in front of `-c` changes how the text runs",
        ));
    }
    Ok(line)
}

/// Whether the wrapper must hold the whole text at once. One time limit, measurement or lock cannot
/// be divided among the commands of a text; a priority or a buffering mode can apply to each.
fn holds_all_at_once(wrapper: &str) -> bool {
    matches!(
        wrapper,
        "timeout" | "time" | "flock" | "caffeinate" | "sandbox-exec"
    )
}
