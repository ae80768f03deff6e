//! Binds one program with its arguments: the program itself, its interpreter, and the code that it
//! gets to run.

use interlock_programs::inline::{HitKind, InterpreterCode, detect, interpreter_code};
use interlock_programs::names::program_name;
use interlock_programs::{
    Dispatch, Executable, FileKind, Inner, Lookup, MAX_WRAPPERS, Missing, Multiplexer, Resolver,
    ShellCall, dispatch, in_trusted_dir, is_shell, join, multiplexer, opaque_reason, shell_call,
    started_command, starts_others, trusted_dirs,
};

use super::NO_SHAPE;
use super::kind::{Binding, BindingKind, BoundFile, BoundRole};
use super::project::{self, CodeOrigin, ProgramPlaces, ProjectCall, Runs, Stores};
use super::{known, script_line};
use interlock_command::xargs_command;

/// How many levels of interpreters of interpreters, and of programs that start programs, are
/// followed.
const MAX_LEVELS: usize = 6;
/// The shell that runs an executable text without a `#!` line.
const DEFAULT_SHELL: &str = "/bin/sh";

/// Finds what can be bound.
pub(super) struct Binder<'a> {
    pub resolver: &'a dyn Resolver,
    pub stdin: ProgramStdin,
}

/// Whether the standard input of a program is visible in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramStdin {
    Hidden,
    /// A here-document whose text is completely known.
    Visible,
}

/// A call of a program that starts others.
pub(super) struct StarterCall<'a> {
    pub name: &'a str,
    pub executable: &'a Executable,
    pub argv: &'a [String],
    pub cwd: Option<&'a str>,
    pub offset: usize,
    pub level: usize,
}

impl<'a> Binder<'a> {
    pub fn new(resolver: &'a dyn Resolver) -> Self {
        Self {
            resolver,
            stdin: ProgramStdin::Hidden,
        }
    }

    /// The binding of only the file of a program.
    pub fn program(&self, executable: &Executable, cwd: &str, offset: usize) -> Binding {
        self.executed(executable, Some(cwd), offset, 0)
    }

    /// The binding of a command that Interlock starts. `offset` is the number of words before it.
    pub fn argv(
        &self,
        argv: &[String],
        lookup: Option<&Lookup>,
        cwd: &str,
        offset: usize,
    ) -> Binding {
        self.argv_at(argv, lookup, Some(cwd), offset, 0)
    }

    /// Like [`Self::argv`]. `cwd` is `None` if the directory is only known when the command runs.
    pub fn argv_at(
        &self,
        argv: &[String],
        lookup: Option<&Lookup>,
        cwd: Option<&str>,
        offset: usize,
        level: usize,
    ) -> Binding {
        let name = argv.first().map_or("", String::as_str);
        let place = cwd.unwrap_or("/");
        let looked_up;
        let lookup = if let Some(lookup) = lookup {
            lookup
        } else {
            looked_up = self.resolver.executable(name, place);
            &looked_up
        };
        if level > MAX_LEVELS {
            let found = "programs that start programs, too many of them";
            return Binding::unbound(name, lookup.found(), NO_SHAPE, found);
        }
        // The command that `xargs` or `sudo` starts is in its arguments, and is bound separately.
        let shows_command = level == 0
            && (started_command(argv).is_some()
                || names_xargs(name) && xargs_command(argv).is_some());
        if let Some(reason) = opaque_reason(name).filter(|_| !shows_command) {
            let found = format!("it {reason}");
            return Binding::unbound(name, lookup.found(), NO_SHAPE, found);
        }
        let executable = match lookup {
            Lookup::Found(executable) => executable,
            Lookup::Missing(missing) => {
                let binding = Binding::missing(name, missing.to_string());
                // Only a path may be created by an earlier command; a plain name must be in PATH.
                return if name.contains('/') {
                    binding.awaiting(missing)
                } else {
                    binding
                };
            }
        };
        if let Some(why) = disguise(name, executable).filter(|_| !shows_command) {
            return Binding::unbound(name, Some(executable), NO_SHAPE, why);
        }
        let own = self.executed(executable, cwd, offset, level);
        let call = StarterCall {
            name,
            executable,
            argv,
            cwd,
            offset,
            level,
        };
        // A link with another name still leads to the same program, so try the file's name too.
        let mut by_file = argv.to_vec();
        by_file[0].clone_from(&executable.canonical);
        if let Some(runs) = project::read(argv).or_else(|| project::read(&by_file)) {
            return own.and(self.runner(&call, &runs));
        }
        let code = interpreter_code(argv).or_else(|| interpreter_code(&by_file));
        match code {
            Some(code) => own.and(self.code(name, executable, code, cwd, offset)),
            None => match detect(argv).filter(|hit| hit.kind == HitKind::Code) {
                Some(hit) => own.and(Binding::new(
                    BindingKind::Text,
                    format!("inline code: {}", hit.label()),
                )),
                // An interpreter that a first line names gets a script, whose content is shown.
                None if level > 0 => own,
                None => own.and(known::note(argv, executable)),
            },
        }
    }

    /// The binding of the file itself: native, or a script with the interpreter of its first line.
    fn executed(
        &self,
        executable: &Executable,
        cwd: Option<&str>,
        offset: usize,
        level: usize,
    ) -> Binding {
        let name = executable.found.as_str();
        let script =
            |reason: &str| Binding::code(reason, executable, (level == 0).then_some(offset));
        match executable.kind {
            FileKind::Native => Binding::native(),
            FileKind::Unknown => {
                let shell = self.resolver.executable(DEFAULT_SHELL, "/");
                let own = script("a file that a shell reads");
                match shell {
                    Lookup::Found(shell) => own.with(interpreter(shell, None)),
                    Lookup::Missing(missing) => {
                        let found = format!("a script without an interpreter: {missing}");
                        own.and(Binding::missing(name, found))
                    }
                }
            }
            FileKind::Script => {
                let own = script("a script and its interpreter");
                match self.resolver.script_line(executable) {
                    Some(line) => own.and(self.script_line(executable, &line, cwd, level)),
                    None => own,
                }
            }
        }
    }

    /// The binding of a `#!` line as the kernel reads it: the interpreter, its one argument, and
    /// the script. Wrappers are followed as in a command, and everything on the way is bound. If a
    /// part stays opaque, the script is unbound.
    fn script_line(
        &self,
        script: &Executable,
        line: &str,
        cwd: Option<&str>,
        level: usize,
    ) -> Binding {
        match self.interpreted(script, line, cwd, level) {
            Ok(binding) => binding,
            Err(unbound) => *unbound,
        }
    }

    fn interpreted(
        &self,
        script: &Executable,
        line: &str,
        cwd: Option<&str>,
        level: usize,
    ) -> Result<Binding, Box<Binding>> {
        let name = script.found.as_str();
        let unbound = |found: String| {
            Box::new(Binding::unbound(
                name,
                Some(script),
                "#!/path/to/interpreter",
                found,
            ))
        };
        let in_line = |found: &str| unbound(format!("`#!{line}`: {found}"));
        if level > MAX_LEVELS {
            return Err(unbound("interpreters of interpreters, too many".to_owned()));
        }
        let mut argv = script_line::command(line, name).map_err(unbound)?;
        let mut binding = Binding::native();
        let trusted_dirs = trusted_dirs(&[]);
        let is_trusted = |executable: &Executable, name: &str| {
            let name = name.rsplit('/').next().unwrap_or(name);
            in_trusted_dir(
                &executable.found,
                &executable.canonical,
                name,
                &trusted_dirs,
            )
        };
        let mut wrappers = 0;
        let (lookup, executable) = loop {
            let program = argv[0].clone();
            if cwd.is_none() && program.contains('/') && !program.starts_with('/') {
                return Err(in_line(
                    "a relative path in a directory that is only known when it runs",
                ));
            }
            let lookup = self.resolver.executable(&program, cwd.unwrap_or("/"));
            let Lookup::Found(executable) = lookup.clone() else {
                let found = format!("`#!` names `{program}`, which is not there");
                return Err(Box::new(Binding::missing(name, found)));
            };
            let by_name = (!program.contains('/')).then(|| program.clone());
            binding = binding.with(interpreter(executable.clone(), by_name));
            let inner = if script_line::is_env(&argv) {
                script_line::behind_env(&argv).map_err(|found| in_line(&found))?
            } else {
                match dispatch(&argv) {
                    Dispatch::NotWrapper => break (lookup, executable),
                    // `flock` is excluded, because its lock file would have to be bound as well.
                    Dispatch::Unwrapped {
                        wrapper,
                        inner: Inner::At(index),
                        transparent: true,
                    } if wrapper != "flock" => argv[index..].to_vec(),
                    Dispatch::Blocked { .. } | Dispatch::Unwrapped { .. } => {
                        return Err(in_line("it starts another program"));
                    }
                }
            };
            if !is_trusted(&executable, &program) {
                return Err(in_line(
                    "it starts another program and is not in a trusted directory",
                ));
            }
            wrappers += 1;
            if wrappers > MAX_WRAPPERS {
                return Err(in_line("too many wrappers"));
            }
            argv = inner;
        };
        // `busybox sh` is a shell in the file of busybox.
        let is_multiplexed = multiplexer(&argv) == Multiplexer::Shell;
        if is_multiplexed {
            if !is_trusted(&executable, &argv[0]) {
                return Err(in_line("a shell outside of the trusted directories"));
            }
            argv.remove(0);
        }
        // The kernel puts the script last; the arguments of the call come after it.
        let at = argv.len() - 1;
        match shell_call(&argv) {
            ShellCall::File { index } if index == at => {}
            ShellCall::NotShell if !is_multiplexed => {
                let run = self.argv_at(&argv, Some(&lookup), cwd, 0, level + 1);
                return Ok(binding.and(run));
            }
            // The shell may read its start-up files first, but it still runs the script.
            ShellCall::Closed { text: None, .. } if at == 1 => {}
            _ => {
                return Err(in_line(
                    "a shell with options that read more than the script",
                ));
            }
        }
        if executable.kind == FileKind::Native {
            return Ok(binding);
        }
        // A script with the name of a shell has its own interpreter.
        Ok(binding.and(self.executed(&executable, cwd, 0, level + 1)))
    }

    /// The binding of the code that an interpreter gets to run.
    fn code(
        &self,
        name: &str,
        executable: &Executable,
        code: InterpreterCode,
        cwd: Option<&str>,
        offset: usize,
    ) -> Binding {
        let unbound = |expected: &str, found: String| {
            Binding::unbound(name, Some(executable), expected, found)
        };
        match code {
            InterpreterCode::Inline { label } => {
                Binding::new(BindingKind::Text, format!("inline code: {label}"))
            }
            InterpreterCode::Elsewhere { expected, found } => unbound(expected, found),
            InterpreterCode::Stdin { expected } => self.stdin_code(name, executable, expected),
            InterpreterCode::File {
                path,
                index,
                inline,
                settings,
                expected,
            } => {
                let Some(place) = cwd.or_else(|| path.starts_with('/').then_some("/")) else {
                    let found = "a relative path in a directory that is only known when it runs";
                    return unbound(expected, found.to_owned());
                };
                if is_stream(&join(place, &path)) {
                    return unbound(expected, format!("`{path}`, a stream and not a file"));
                }
                let bound = match self.resolver.file(&path, place) {
                    Lookup::Found(file) if is_stream(&file.canonical) => {
                        return unbound(expected, format!("`{path}`, a stream and not a file"));
                    }
                    Lookup::Found(file) => Binding::code(
                        &format!("`{name}` and the file that it runs"),
                        &file,
                        Some(offset + index),
                    ),
                    Lookup::Missing(missing) => {
                        return unbound(expected, format!("`{path}`: {missing}"))
                            .awaiting(&missing);
                    }
                };
                bound
                    .and(self.settings(settings, place))
                    .and(also_inline(inline))
            }
        }
    }

    /// Binds settings by their content, or as absent if they do not exist.
    fn settings(&self, names: &[&str], cwd: &str) -> Binding {
        let mut binding = Binding::native();
        for name in names {
            match self.resolver.file(name, cwd) {
                Lookup::Found(file) => {
                    binding = binding.with(BoundFile {
                        role: BoundRole::Settings,
                        file,
                        operand: None,
                        looked_up: None,
                    });
                }
                Lookup::Missing(_) => binding.absent.push(join(cwd, name)),
            }
        }
        binding
    }

    /// The first of these paths that leads to a file, and the paths before it, which must stay
    /// empty.
    fn first_of(
        &self,
        paths: impl Iterator<Item = String>,
    ) -> Result<(Executable, Vec<String>), Vec<String>> {
        let mut absent = Vec::new();
        for path in paths {
            match self.resolver.file(&path, "/") {
                Lookup::Found(file) => return Ok((file, absent)),
                Lookup::Missing(Missing::NotFound) => absent.push(path),
                // There is something that the program may use, so the search cannot go on.
                Lookup::Missing(_) => return Err(absent),
            }
        }
        Err(absent)
    }

    /// The binding of a program that runs project code or starts the project's programs.
    fn runner(&self, call: &StarterCall<'_>, runs: &Runs) -> Binding {
        let StarterCall {
            name,
            executable,
            argv,
            cwd,
            offset,
            level,
        } = *call;
        let unbound = |found: String| Binding::unbound(name, Some(executable), NO_SHAPE, found);
        let (index, by, places, settings, behind) = match runs {
            Runs::Nothing => return Binding::native(),
            Runs::Loads { option } => {
                return unbound(format!("{option}: code or a program from elsewhere"));
            }
            Runs::Project(found) => return self.project(call, found),
            Runs::Behind {
                index,
                by,
                places,
                settings,
                call,
            } => (*index, *by, *places, *settings, call),
        };
        let Some(cwd) = cwd else {
            return self.project(call, behind);
        };
        let program = by.map(str::to_owned);
        let inner: Vec<String> = program.into_iter().chain(argv[index..].to_vec()).collect();
        if is_shell(&inner[0]) || opaque_reason(&inner[0]).is_some() {
            let found = format!("`{}`, which starts other programs", inner[0]);
            return unbound(found);
        }
        let index = index - usize::from(by.is_some());
        let settings = self.settings(settings, cwd);
        let (lookup, absent, by_name) = if inner[0].contains('/') {
            (self.resolver.executable(&inner[0], cwd), Vec::new(), None)
        } else {
            let candidates = project::candidates(places, &inner[0], cwd, &executable.found);
            match self.first_of(candidates.into_iter()) {
                Ok((file, absent)) => (Lookup::Found(file), absent, None),
                Err(absent) if places == ProgramPlaces::NodeModulesOrFetched => {
                    (Lookup::Missing(Missing::NotFound), absent, None)
                }
                Err(absent) => (
                    self.resolver.executable(&inner[0], cwd),
                    absent,
                    Some(inner[0].clone()),
                ),
            }
        };
        let Lookup::Found(found) = &lookup else {
            let why = format!("`{}` is not installed here and would be fetched", inner[0]);
            return self.project(
                call,
                &ProjectCall {
                    origin: CodeOrigin::Fetched,
                    stores: Stores::Nothing(why),
                    carries: by.is_none().then_some(index),
                    ..behind.clone()
                },
            );
        };
        let mut program = Binding::native().with(BoundFile {
            role: BoundRole::Program,
            file: found.clone(),
            operand: Some(offset + index),
            looked_up: by_name,
        });
        program.absent = absent;
        let run = self.argv_at(&inner, Some(&lookup), Some(cwd), offset + index, level + 1);
        settings.and(program).and(run)
    }

    /// The binding of code that is read from standard input.
    pub fn stdin_code(&self, name: &str, executable: &Executable, expected: &str) -> Binding {
        match self.stdin {
            ProgramStdin::Visible => Binding::new(
                BindingKind::Text,
                format!("`{name}` runs the text of the here-document"),
            ),
            ProgramStdin::Hidden => Binding::unbound(
                name,
                Some(executable),
                expected,
                "no file: the code is read from standard input",
            ),
        }
    }
}

fn names_xargs(name: &str) -> bool {
    matches!(&*program_name(name), "xargs" | "gxargs")
}

/// Why the file is not what its name says, if it is not.
fn disguise(name: &str, executable: &Executable) -> Option<&'static str> {
    if starts_others(name, executable).is_some() {
        return Some("it starts another program");
    }
    let is_hidden_shell = is_shell(&executable.canonical) && !is_shell(name);
    is_hidden_shell.then_some("it is a shell under another name")
}

fn interpreter(file: Executable, looked_up: Option<String>) -> BoundFile {
    BoundFile {
        role: BoundRole::Interpreter,
        file,
        operand: None,
        looked_up,
    }
}

pub(super) fn also_inline(label: Option<String>) -> Binding {
    match label {
        Some(label) => Binding::new(BindingKind::Text, format!("inline code: {label}")),
        None => Binding::native(),
    }
}

/// Whether a path names something that a process has open, which may be another file for each
/// reader.
pub(super) fn is_stream(path: &str) -> bool {
    ["/dev/", "/proc/", "/sys/"]
        .iter()
        .any(|root| path.starts_with(root))
}
