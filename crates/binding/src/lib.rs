//! The binder: what could an approval of this request pin, so that what runs is what was approved?
//!
//! There is one decision for all callers: the judge adds it to each verdict that asks, the plan
//! pins what it names, `explain` shows it. The binder asks the [`Resolver`] and reads nothing
//! itself. Read [`Binding`] first, then [`of`]. The interpreters stand in the inline tables of
//! `interlock_programs`, programs that run the code of a project in `project`.

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

/// The binding of a whole request. `sight` is what was seen in it; without it, text that only a
/// shell can read is not looked into, and the answer must not be used for an approval.
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

/// The text in front of a command of a plain line, if a program in it may make a file. A stage of a pipe runs
/// at the same time, so the line cannot be cut there.
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

/// The binding of the program of a command alone, whatever its arguments say: of what an entry holds that
/// trusts the project's files.
pub fn of_program(command: &Command, resolver: &dyn Resolver) -> Binding {
    match command.executable() {
        Some(executable) => {
            Binder::new(resolver).program(executable, &command.cwd, words_in_front(command))
        }
        None => Binding::native(),
    }
}

/// Some of it is text that only a parser can see into: what it finds there counts.
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

    /// What `find -exec`, `xargs` and the like start.
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

    /// What an opaque program starts by its own words: all of it is shown, and nothing is stored.
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

    /// Commands inside of text that a shell will read.
    fn hidden(&self, sight: &Sight, cwd: &str) -> Binding {
        // Once the text changes the directory, a relative path may mean any file; but for a `cd` in front
        // of everything else, which leads to one directory.
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
            // Where it stands in the text is not known.
            let is_later = index > 0 && own.is_awaiting();
            all = all.and(if is_later {
                own.behind(String::new())
            } else {
                own
            });
        }
        all
    }

    /// One command that another program starts. Everything it needs is held here: no other binding
    /// pins it.
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
        // A builtin brings no code of its own; what it reads or starts is seen by itself.
        let is_builtin = matches!(
            shell_word(name),
            ShellWord::Builtin | ShellWord::Implemented
        );
        // Behind these, what they start is seen by itself too.
        let is_looked_through = matches!(dispatch(argv), Dispatch::Unwrapped { .. })
            || multiplexer(argv) == Multiplexer::Shell;
        // A wrapper that gets its command when it runs.
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
            // The commands of the text are seen by themselves; the shell may be any file of that name.
            ShellCall::Text { .. } | ShellCall::Closed { is_whole: true, .. } => {
                return self.shell(name, &lookup, known_cwd);
            }
            // So are those of a here-document.
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

    /// A shell that a text starts: the program itself, whatever it is.
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

    /// `source FILE` in a text: the file by its content. What an earlier command of the text may still
    /// make, or what lies in a directory that is only known when it runs, is the project's.
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

/// `SHELL FILE`: the content of the file, and the shell.
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

/// How many words of wrappers stand in front of the command, back to the last shell text: so much
/// larger than an index into its argv is [`BoundFile::operand`].
pub fn words_in_front(command: &Command) -> usize {
    let layers = command.wrappers.iter().rev();
    layers
        .take_while(|layer| !is_shell(&layer.name))
        .map(|layer| layer.arguments.len())
        .sum()
}
