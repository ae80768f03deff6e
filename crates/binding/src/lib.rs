//! The binder finds what an approval of a request can pin, so that what runs is what was approved.
//!
//! All callers use the same binding: the judge adds it to each verdict that asks, the plan pins the
//! files that it names, and `explain` shows it. The binder asks the [`Resolver`] and reads nothing
//! itself. Read [`Binding`] first, then [`of`]. The interpreters are in the inline tables of
//! `interlock_programs`, and the programs that run project code are in `project`.

#![forbid(unsafe_code)]

mod kind;
mod known;
mod program;
mod project;
mod project_run;
mod script_line;

use interlock_programs::builtins::{ShellWord, shell_word};
use interlock_programs::names::program_name;
use interlock_programs::{
    DYNAMIC, Dispatch, Executable, Lookup, Missing, Multiplexer, Resolver, ShellCall,
    StartedCommand, dispatch, is_dispatch_wrapper, is_shell, multiplexer, reads_only_stdin,
    shell_call, started_command, starts_others,
};

use interlock_command::{
    Analysis, Argv, Closed, Command, Program, SeenCommand, Shape, Sight, Source, seen_behind,
    started_by,
};
pub use kind::{Binding, BindingKind, BoundFile, BoundRole, ProjectRun, ProjectScope, Unbound};
use program::{Binder, ProgramStdin};

const SHELL_SHAPE: &str = "SHELL FILE, or SHELL -c TEXT without start-up files";
const NO_SHAPE: &str = "the program that it starts, by itself";

/// The binding of a whole request. `sight` is what was seen inside its text. Without it, text that
/// only a shell can read is not inspected, and the binding must not be used for an approval.
pub fn of(analysis: &Analysis, sight: Option<&Sight>, resolver: &dyn Resolver) -> Binding {
    let binder = Binder::new(resolver);
    let mut line = match &analysis.shape {
        Shape::Odd(odd) => Binding::new(
            BindingKind::Text,
            format!("the text is not plain: {}", odd.reason.message()),
        ),
        Shape::Plain(_) | Shape::Argv => Binding::native(),
    };
    if let Some(why) = analysis.shell_builtin() {
        let reason = format!("only a shell can run it: {why}");
        line = line.and(Binding::new(BindingKind::Text, reason));
    }
    for (index, command) in analysis.commands.iter().enumerate() {
        let own = binder.command(command);
        let earlier = own.is_awaiting().then(|| earlier_text(analysis, index));
        line = line.and(match earlier.flatten() {
            Some(earlier) => own.behind(earlier),
            None => own,
        });
    }
    match sight.filter(|_| is_hidden(analysis)) {
        Some(sight) => line.and(binder.hidden(sight, &analysis.cwd)),
        None => line,
    }
}

/// The text before a command of a plain line, if a program in it may create a file. The line cannot
/// be split between stages of a pipe, because they run at the same time.
fn earlier_text(analysis: &Analysis, index: usize) -> Option<String> {
    let Source::Text(text) = &analysis.source else {
        return None;
    };
    let (before, rest) = analysis.commands.split_at(index);
    let makes_files = |command: &Command| !matches!(command.program, Program::Builtin { .. });
    if !before.iter().any(makes_files) {
        return None;
    }
    let start = rest.first()?.span?.start;
    let text = text.get(..start)?.trim_end();
    let cut = text.trim_end_matches(['&', '|', ';']);
    let operator = &text[cut.len()..];
    let cut = cut.trim_end();
    (operator != "|" && !cut.is_empty()).then(|| cut.to_owned())
}

/// The binding of one command of a plain line.
pub fn of_command(command: &Command, resolver: &dyn Resolver) -> Binding {
    Binder::new(resolver).command(command)
}

/// The binding of only the program of a command, whatever its arguments are. Entries that trust the
/// project's files hold it.
pub fn of_program(command: &Command, resolver: &dyn Resolver) -> Binding {
    match command.executable() {
        Some(executable) => {
            Binder::new(resolver).program(executable, &command.cwd, words_in_front(command))
        }
        None => Binding::native(),
    }
}

/// Whether the request contains text that only a parser can inspect, so that the parser's findings
/// count.
pub fn is_hidden(analysis: &Analysis) -> bool {
    analysis.shape.odd().is_some()
        || analysis.shell_builtin().is_some()
        || analysis.commands.iter().any(|command| {
            let Program::Closed { reason, .. } = &command.program else {
                return false;
            };
            matches!(reason, Closed::ShellText(_) | Closed::ShellOptions(_))
        })
}

impl Binder<'_> {
    fn command(&self, command: &Command) -> Binding {
        let name = command.name();
        let executable = command.executable();
        let unbound =
            |expected: &str, found: &str| Binding::unbound(name, executable, expected, found);
        match &command.program {
            Program::Builtin { .. } => Binding::new(BindingKind::Native, "built into Interlock"),
            Program::File(lookup) => {
                let offset = words_in_front(command);
                let own = self.argv(&command.argv, Some(lookup), &command.cwd, offset);
                own.and(self.started(&command.argv, &command.cwd))
            }
            Program::Script {
                shell,
                options,
                file,
            } => script(name, shell, file, words_in_front(command) + options.len()),
            Program::Closed {
                reason: Closed::Wrapper,
                ..
            } if started_command(&command.argv).is_some() => {
                let offset = words_in_front(command);
                let own = self.argv(&command.argv, None, &command.cwd, offset);
                own.and(self.started(&command.argv, &command.cwd))
            }
            Program::Closed { reason, .. } => match reason {
                Closed::ShellText(odd) => Binding::new(
                    BindingKind::Text,
                    format!("the text is not plain: {}", odd.reason.message()),
                ),
                Closed::ShellOptions(reason) => Binding::new(BindingKind::Text, *reason),
                Closed::Shell(reason) => unbound(SHELL_SHAPE, reason),
                Closed::UntrustedShell => {
                    unbound(SHELL_SHAPE, "a shell outside of the trusted directories")
                }
                Closed::UntrustedWrapper => unbound(
                    NO_SHAPE,
                    "it starts another program and is not in a trusted directory",
                ),
                Closed::Wrapper => unbound(NO_SHAPE, "it starts another program"),
            },
        }
    }

    /// The binding of commands that `find -exec`, `xargs` and similar programs start.
    fn started(&self, argv: &Argv, cwd: &str) -> Binding {
        let name = program_name(&argv[0]);
        match started_command(argv) {
            Some(StartedCommand::Nothing) => return Binding::native(),
            Some(StartedCommand::At(index)) => return self.behind_starter(&name, argv, index, cwd),
            None => {}
        }
        if !matches!(
            &*name,
            "find" | "gfind" | "fd" | "fdfind" | "xargs" | "gxargs"
        ) {
            return Binding::native();
        }
        let sight = started_by(argv, cwd);
        let mut all = match sight.unbindable {
            Some(reason) => Binding::unbound(&name, None, "commands that can be seen", reason),
            None => Binding::native(),
        };
        for seen in &sight.commands {
            all = all.and(self.seen(seen, seen.cwd.as_deref()));
        }
        all
    }

    /// The binding of the command that an opaque program names in its own arguments. An approver sees
    /// all of it, and nothing of it is ever stored.
    fn behind_starter(&self, name: &str, argv: &Argv, index: usize, cwd: &str) -> Binding {
        let sight = seen_behind(argv.tail(index), cwd);
        let found = format!("`{name}` starts `{}`", argv[index]);
        let mut all = match sight.unbindable {
            Some(reason) => Binding::unbound(name, None, "commands that can be seen", reason),
            None => Binding::new(BindingKind::Text, found),
        };
        for seen in &sight.commands {
            all = all.and(self.seen(seen, seen.cwd.as_deref()));
        }
        all
    }

    /// The binding of commands inside text that a shell reads.
    fn hidden(&self, sight: &Sight, cwd: &str) -> Binding {
        // If the text changes the directory, a relative path may mean any file. The exception is a
        // `cd` before everything else, which leads to one known directory.
        let moves = sight.commands.iter().any(|seen| {
            let name = seen.argv.first().map_or("", String::as_str);
            !seen.is_leading_cd && matches!(name, "cd" | "pushd" | "popd" | "chdir")
        });
        let cwd = sight.leads_to.as_deref().unwrap_or(cwd);
        let mut all = match sight.unbindable {
            Some(reason) => Binding::unbound("text", None, "commands that can be seen", reason),
            None => Binding::new(BindingKind::Text, "text that a shell reads"),
        };
        for (index, seen) in sight.commands.iter().enumerate() {
            let unmoved = (!moves).then_some(cwd);
            let own = self.seen(seen, seen.cwd.as_deref().or(unmoved));
            // Its place in the text is unknown, so the text before it cannot be named.
            let is_later = index > 0 && own.is_awaiting();
            all = all.and(if is_later {
                own.behind(String::new())
            } else {
                own
            });
        }
        all
    }

    /// The binding of a command that another program starts. Everything that the command needs must
    /// be bound here, because nothing else pins it.
    fn seen(&self, seen: &SeenCommand, cwd: Option<&str>) -> Binding {
        let with_more;
        let argv = if seen.takes_more {
            with_more = Argv::from([seen.argv.to_vec(), vec![DYNAMIC.to_owned()]].concat());
            &with_more
        } else {
            &seen.argv
        };
        let name = argv.first().map_or("", String::as_str);
        if matches!(name, "source" | ".") && !seen.is_operand {
            return self.sourced(argv, cwd);
        }
        // A builtin has no code of its own. What it reads or starts is seen as a separate command.
        let is_builtin = matches!(
            shell_word(name),
            ShellWord::Builtin | ShellWord::Implemented
        );
        // What these wrappers start is also seen as a separate command.
        let is_looked_through = matches!(dispatch(argv), Dispatch::Unwrapped { .. })
            || multiplexer(argv) == Multiplexer::Shell;
        // This wrapper gets its command only when it runs.
        if seen.takes_more
            && is_dispatch_wrapper(name)
            && !matches!(dispatch(&seen.argv), Dispatch::Unwrapped { .. })
        {
            return Binding::unbound(
                name,
                None,
                NO_SHAPE,
                "it starts a program that is only known when it runs",
            );
        }
        if seen.is_operand || is_builtin || is_looked_through {
            return Binding::native();
        }
        let known_cwd = cwd.unwrap_or("/");
        if cwd.is_none() && name.contains('/') && !name.starts_with('/') {
            let found = "a relative path in a directory that is only known when it runs";
            return Binding::unbound(name, None, "an absolute path", found);
        }
        if is_dispatch_wrapper(name) {
            return Binding::unbound(name, None, NO_SHAPE, "it starts another program");
        }
        let lookup = self.resolver.executable(name, known_cwd);
        match shell_call(argv) {
            ShellCall::NotShell => {}
            // The commands of the text are seen separately. The shell itself may be any file of
            // that name, so it is bound.
            ShellCall::Text { .. } | ShellCall::Closed { is_whole: true, .. } => {
                return self.shell(name, &lookup, known_cwd);
            }
            // The commands of a here-document are also seen separately.
            ShellCall::Closed { .. } if seen.stdin.is_some() && reads_only_stdin(argv) => {
                return self.shell(name, &lookup, known_cwd);
            }
            ShellCall::Closed { reason, .. } => {
                return Binding::unbound(name, lookup.found(), SHELL_SHAPE, reason);
            }
            ShellCall::File { index } => {
                let operand = &argv[index];
                if cwd.is_none() && !operand.starts_with('/') {
                    let found = "a relative path in a directory that is only known when it runs";
                    return Binding::unbound(name, lookup.found(), "an absolute path", found);
                }
                return match &lookup {
                    Lookup::Found(shell) => {
                        let file = self.resolver.file(operand, known_cwd);
                        script(operand, shell, &file, index)
                    }
                    Lookup::Missing(missing) => Binding::missing(name, missing.to_string()),
                };
            }
        }
        let own = match lookup.found() {
            Some(file) => Binding::native().with(BoundFile {
                role: BoundRole::Program,
                file: file.clone(),
                operand: None,
                looked_up: (!name.contains('/')).then(|| name.to_owned()),
            }),
            None => Binding::native(),
        };
        let stdin = if seen.stdin.is_some() {
            ProgramStdin::Visible
        } else {
            ProgramStdin::Hidden
        };
        let binder = Self {
            resolver: self.resolver,
            stdin,
        };
        let bound = binder.argv_at(argv, Some(&lookup), cwd, 0, 0);
        own.and(bound)
    }

    /// The binding of a shell that a text starts, as a program.
    fn shell(&self, name: &str, lookup: &Lookup, cwd: &str) -> Binding {
        match lookup {
            Lookup::Found(file) => self.program(file, cwd, 0).with(BoundFile {
                role: BoundRole::Program,
                file: file.clone(),
                operand: None,
                looked_up: (!name.contains('/')).then(|| name.to_owned()),
            }),
            Lookup::Missing(missing) => Binding::missing(name, missing.to_string()),
        }
    }

    /// The binding of `source FILE` in a text: the file by its content. A file that an earlier
    /// command may still create, or in a directory that is only known when the command runs, counts
    /// as project code.
    fn sourced(&self, argv: &Argv, cwd: Option<&str>) -> Binding {
        let Some(path) = argv.get(1) else {
            return Binding::native();
        };
        let name = argv[0].as_str();
        if !path.contains('/') {
            let found = "a name without `/`, which is looked for in PATH";
            return Binding::unbound(name, None, "a path such as ./FILE", found);
        }
        if program::is_stream(path) {
            let found = format!("`{path}`, a stream and not a file");
            return Binding::unbound(name, None, "a path such as ./FILE", found);
        }
        let place = cwd.or_else(|| path.starts_with('/').then_some("/"));
        let file = place.map(|place| self.resolver.file(path, place));
        match file {
            Some(Lookup::Found(file)) if program::is_stream(&file.canonical) => {
                let found = format!("`{path}`, a stream and not a file");
                Binding::unbound(name, None, "a path such as ./FILE", found)
            }
            Some(Lookup::Found(file)) => {
                Binding::code("a file that the text reads as commands", &file, None)
            }
            Some(Lookup::Missing(Missing::NotFound)) | None => Binding::project(ProjectRun {
                label: format!("{name} {path}"),
                program: name.to_owned(),
                sentence: format!(
                    "`{name} {path}` runs the commands of a file that is not there yet, or in a directory that is only known when it runs. Approving trusts what is there when it runs."
                ),
                root: None,
                manifests: Vec::new(),
                scope: ProjectScope::Nothing("it is part of a text".to_owned()),
            }),
            Some(Lookup::Missing(missing)) => {
                let found = format!("`{path}`: {missing}");
                Binding::unbound(name, None, "a path such as ./FILE", found)
            }
        }
    }
}

/// The binding of `SHELL FILE`: the content of the file, and the shell.
fn script(name: &str, shell: &Executable, file: &Lookup, index: usize) -> Binding {
    match file {
        Lookup::Found(file) if starts_others(name, file).is_some() => {
            Binding::unbound(name, Some(file), NO_SHAPE, "it starts another program")
        }
        Lookup::Found(file) => {
            Binding::code("a script and its shell", file, Some(index)).with(BoundFile {
                role: BoundRole::Interpreter,
                file: shell.clone(),
                operand: None,
                looked_up: None,
            })
        }
        Lookup::Missing(missing) => {
            let found = format!("a script that cannot be bound: {missing}");
            Binding::unbound(name, Some(shell), "SHELL FILE", found).awaiting(missing)
        }
    }
}

/// How many words of wrappers are before the command, back to the last shell text.
/// [`BoundFile::operand`] is larger than the index in argv by this number.
pub fn words_in_front(command: &Command) -> usize {
    let layers = command.wrappers.iter().rev();
    layers
        .take_while(|layer| !is_shell(&layer.name))
        .map(|layer| layer.arguments.len())
        .sum()
}
