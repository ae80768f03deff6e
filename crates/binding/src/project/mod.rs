//! Programs whose code is decided by files of a project: build tools, test runners, package
//! scripts, task runners, modules, infrastructure tools. A table lists them by program and
//! subcommand.
//!
//! An approval of such a run pins the program and its words, but not the project's files, and it
//! must say so. Read [`Runs`] first, then `table` (the rows) and `scan` (how the words after the
//! deciding ones are read).

mod scan;
mod table;

use interlock_programs::DYNAMIC;
use interlock_programs::inline::fetched_go_package;
use interlock_programs::names::{program_name, without_version};

use scan::Scanned;
pub(super) use table::ProgramPlaces;
use table::{
    Does, Leads, ProjectOperands, ProjectOptionStyle, ProjectOptions, ProjectRow, Verb, find,
};

/// The code that a call of a known program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Runs {
    /// No code of the project.
    Nothing,
    Project(ProjectCall),
    /// The program at this index and its arguments.
    Behind {
        index: usize,
        /// The interpreter, if the word is a file for it and not a program.
        by: Option<&'static str>,
        places: ProgramPlaces,
        settings: &'static [&'static str],
        call: ProjectCall,
    },
    /// Code that is loaded from elsewhere.
    Loads {
        option: String,
    },
}

/// A call that runs project code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProjectCall {
    /// How many leading words, including the program, decide what runs.
    pub deciding: usize,
    /// A description of the files that decide what runs.
    pub decides: &'static str,
    pub markers: &'static [&'static str],
    pub manifests: &'static [&'static str],
    pub origin: CodeOrigin,
    pub stores: Stores,
    /// The index of a program that the call starts, if it starts one.
    pub carries: Option<usize>,
}

/// Where the code of a call comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CodeOrigin {
    /// The project around the working directory.
    Here,
    /// The project in the directory that an option names.
    Directory { option: String, path: String },
    /// The project that this file describes. The word at this index names the file.
    File {
        option: String,
        path: String,
        index: usize,
    },
    /// A package that is fetched.
    Fetched,
}

/// What *always for this project* may store of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stores {
    /// The deciding words. These operands after them must be beneath the project.
    Leading {
        paths: Vec<String>,
    },
    /// All words as they are.
    Words,
    Nothing(String),
}

/// How many parent directories are searched.
pub(super) const MAX_PARENTS: usize = 64;

/// Words that, alone, only print something.
const QUESTIONS: &[&str] = &[
    "--version",
    "-version",
    "-v",
    "-V",
    "--help",
    "-help",
    "-h",
    "help",
    "version",
    "--info",
    "--list-sdks",
    "--list-runtimes",
    "--list",
];

/// Options of Python before `-m` that do not change where code comes from.
const PYTHON_FLAGS: &[&str] = &[
    "-B", "-E", "-I", "-O", "-OO", "-P", "-R", "-S", "-b", "-bb", "-d", "-q", "-s", "-u", "-v",
];

/// Reads a call. Returns `None` if no row covers it, so that it is read like any other program.
pub(super) fn read(argv: &[String]) -> Option<Runs> {
    let name = program_name(argv.first()?);
    if is_python(&name) {
        return module(argv);
    }
    if matches!(&*name, "node" | "nodejs") {
        return node_tests(argv);
    }
    let row = find(&name)?;
    if matches!(argv, [_, only] if QUESTIONS.contains(&only.as_str())) {
        return Some(Runs::Nothing);
    }
    row.read(argv, 0)
}

/// Whether a row covers the program with this plain name.
pub(super) fn is_listed(name: &str) -> bool {
    find(name).is_some()
}

fn is_python(name: &str) -> bool {
    let bare = without_version(name).unwrap_or(name);
    matches!(
        bare,
        "python" | "python2" | "python3" | "pypy" | "pypy2" | "pypy3"
    )
}

/// Reads `python -m MODULE`: a module of the directory, which takes precedence, of the project or
/// of its environment.
fn module(argv: &[String]) -> Option<Runs> {
    let mut at = 1;
    let index = loop {
        let word = argv.get(at)?.as_str();
        if PYTHON_FLAGS.contains(&word) {
            at += 1;
        } else if word == "-W" {
            at += 2;
        } else if word == "-m" {
            break at + 1;
        } else {
            return None;
        }
    };
    let module = argv.get(index)?;
    if module.contains(DYNAMIC) {
        return None;
    }
    let row = find(module).filter(|_| !is_python(module));
    let known = row.and_then(|row| row.read(argv, index));
    let call = match known {
        Some(Runs::Project(call)) => call,
        Some(other @ Runs::Loads { .. }) => return Some(other),
        // The directory may have a module of the same name that runs instead, so even a harmless
        // program counts as project code.
        _ => ProjectCall {
            deciding: index + 1,
            decides: "the module, which is looked for in this directory first",
            markers: &[
                "pyproject.toml",
                "setup.py",
                "setup.cfg",
                "requirements.txt",
                "Pipfile",
            ],
            manifests: &[],
            origin: CodeOrigin::Here,
            stores: Stores::Words,
            carries: None,
        },
    };
    Some(Runs::Project(call))
}

/// `node --test` runs what it finds in the directory. Reporters that are files, and every other option, may
/// load code from elsewhere.
fn node_tests(argv: &[String]) -> Option<Runs> {
    let mut at = 1;
    let mut is_test = false;
    while let Some(word) = argv.get(at).filter(|word| word.starts_with('-')) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.as_str(), argv.get(at + 1).map(String::as_str)),
        };
        let takes_next = match name {
            "--test"
            | "--test-only"
            | "--test-force-exit"
            | "--experimental-test-coverage"
            | "--enable-source-maps"
            | "--experimental-strip-types"
            | "--no-warnings" => false,
            "--test-concurrency" | "--test-timeout" if word.contains('=') => false,
            "--test-name-pattern" | "--test-skip-pattern" => !word.contains('='),
            "--test-reporter" if matches!(value?, "spec" | "tap" | "dot" | "junit" | "lcov") => {
                !word.contains('=')
            }
            _ => return None,
        };
        is_test |= word == "--test";
        at += 1 + usize::from(takes_next);
    }
    let is_dynamic = argv.iter().any(|word| word.contains(DYNAMIC));
    (is_test && !is_dynamic).then_some(Runs::Project(ProjectCall {
        deciding: argv.len(),
        decides: "package.json and the tests that are found",
        markers: &["package.json"],
        manifests: &["package.json"],
        origin: CodeOrigin::Here,
        stores: Stores::Words,
        carries: None,
    }))
}

impl ProjectRow {
    /// Reads the words from `program` on, which is the index of this row's program.
    fn read(&'static self, argv: &[String], program: usize) -> Option<Runs> {
        if self.verbs.is_empty() && !matches!(self.otherwise.does, Does::Starts) {
            return self.verb(argv, program, &self.otherwise, Scanned::default());
        }
        let mut front = scan::options(argv, program + 1, &self.front, self.style);
        // `cargo +nightly` chooses a toolchain.
        if argv
            .get(front.next)
            .is_some_and(|word| word.starts_with('+'))
        {
            front.next += 1;
        }
        if self.verbs.is_empty() {
            return self.verb(argv, front.next.saturating_sub(1), &self.otherwise, front);
        }
        let Some(word) = argv.get(front.next) else {
            let alone = Verb {
                does: self.alone,
                ..self.otherwise
            };
            return match (self.alone, front.is_plain()) {
                (Does::Native | Does::Unlisted, false) if argv.len() > program + 1 => {
                    self.unclear(argv, program, front)
                }
                _ => self.verb(argv, program, &alone, front),
            };
        };
        let verb = self
            .verbs
            .iter()
            .find(|verb| verb.words.contains(&word.as_str()));
        let verb = verb.unwrap_or(&self.otherwise);
        // After an unknown option, this word may be the option's value and not the subcommand.
        if front.unknown.is_some() && matches!(verb.does, Does::Native) {
            return self.unclear(argv, program, front);
        }
        self.verb(argv, front.next, verb, front)
    }

    /// Reads a call whose subcommand is unknown.
    fn unclear(&'static self, argv: &[String], program: usize, front: Scanned) -> Option<Runs> {
        if matches!(self.otherwise.does, Does::Unlisted) {
            return None;
        }
        let verb = Verb {
            words: &[],
            does: Does::Project,
            rest: table::EXACT,
        };
        self.verb(argv, program, &verb, front)
    }

    /// Reads a subcommand. `at` is the index of the deciding word.
    fn verb(
        &'static self,
        argv: &[String],
        at: usize,
        verb: &Verb,
        front: Scanned,
    ) -> Option<Runs> {
        match verb.does {
            Does::Unlisted => None,
            Does::Native => Some(Runs::Nothing),
            Does::Sub(row) => {
                let runs = row.read(argv, at);
                match (runs, front.found.is_some() || front.unknown.is_some()) {
                    (Some(Runs::Project(call)), true) => {
                        let stores = front.refusal();
                        Some(Runs::Project(ProjectCall {
                            stores: stores.map_or(call.stores, Stores::Nothing),
                            ..call
                        }))
                    }
                    (runs, _) => runs,
                }
            }
            Does::Project | Does::Fetches | Does::Carries => self.project(argv, at, verb, front),
            Does::IsProgram => Some(self.behind(argv, at, None, &front)),
            Does::Starts | Does::PythonFile => Some(self.starts(argv, at, verb, front)),
        }
    }

    fn call(&'static self, deciding: usize, origin: CodeOrigin, stores: Stores) -> ProjectCall {
        ProjectCall {
            deciding,
            decides: self.decides,
            markers: self.markers,
            manifests: self.manifests,
            origin,
            stores,
            carries: None,
        }
    }

    fn project(
        &'static self,
        argv: &[String],
        at: usize,
        verb: &Verb,
        front: Scanned,
    ) -> Option<Runs> {
        let carries = matches!(verb.does, Does::Carries);
        let mut found = if carries {
            let mut words = scan::options(argv, at + 1, &verb.rest.options, self.style);
            words.operands.clear();
            words
        } else {
            scan::all(argv, at + 1, &verb.rest, self.style)
        };
        let begins = found.next;
        found.join(front);
        if let Some(loads) = found.loader() {
            return Some(Runs::Loads { option: loads });
        }
        // `bun run FILE` runs a file, like an interpreter.
        let is_file = |word: &String| word.starts_with(['.', '/']) || word.contains("://");
        let is_runtime = self.names.contains(&"bun");
        if is_runtime
            && argv[at] == "run"
            && argv
                .get(at + 1..)
                .is_some_and(|rest| rest.iter().any(is_file))
        {
            return None;
        }
        // `npm init -y` only writes a file, and `go install ./cmd/tool` builds local code.
        let fetches = matches!(verb.does, Does::Fetches);
        if fetches && found.operands.is_empty() && matches!(argv[at].as_str(), "init" | "innit") {
            return Some(Runs::Nothing);
        }
        let is_here = |word: &String| word.starts_with("./") || word == ".";
        // `go run PACKAGE@VERSION` has nothing to do with the project.
        let is_go_package = self.names.contains(&"go")
            && argv[at] == "run"
            && fetched_go_package(argv, at + 1).is_some();
        let is_all_here = found.operands.iter().all(is_here) && found.found.is_none();
        let origin = if is_go_package || (fetches && !is_all_here) {
            CodeOrigin::Fetched
        } else {
            found.origin()
        };
        // In `npm run WORD`, the word also decides what runs.
        let names_script = matches!(
            argv.get(at).map(String::as_str),
            Some("run" | "run-script" | "rum" | "urn" | "task")
        );
        let deciding = if carries || (names_script && argv.len() > at + 1) {
            (at + 2).min(argv.len())
        } else {
            at + 1
        };
        let stores = if origin == CodeOrigin::Fetched {
            Stores::Nothing("it fetches the code that it runs".to_owned())
        } else if let Some(why) = found.refusal() {
            Stores::Nothing(why)
        } else if verb.rest.is_open {
            match found.unknown {
                Some(word) => Stores::Nothing(format!(
                    "`{word}` is not in the table of what changes neither the code nor the project"
                )),
                None => Stores::Leading { paths: found.paths },
            }
        } else {
            Stores::Words
        };
        let mut call = self.call(deciding, origin, stores);
        let begins = match argv[at].as_str() {
            "dlx" => Some(scan::options(argv, at + 1, &self.front, self.style).next),
            _ => carries.then_some(begins),
        };
        call.carries = begins.filter(|begins| *begins < argv.len());
        Some(Runs::Project(call))
    }

    /// Reads `npx PROGRAM`, `npm exec PROGRAM` or `uv run FILE.py`.
    fn starts(&'static self, argv: &[String], at: usize, verb: &Verb, front: Scanned) -> Runs {
        let is_direct = self.verbs.is_empty();
        let options = if is_direct {
            &self.front
        } else {
            &verb.rest.options
        };
        // Options of `npm` are also accepted after `exec`.
        let both = ProjectOptions {
            flags: if options.flags.is_empty() {
                self.front.flags
            } else {
                options.flags
            },
            values: if options.values.is_empty() {
                self.front.values
            } else {
                options.values
            },
            elsewhere: if options.elsewhere.is_empty() {
                self.front.elsewhere
            } else {
                options.elsewhere
            },
        };
        let found = if is_direct {
            front
        } else {
            let mut found = scan::options(argv, at + 1, &both, self.style);
            found.join(front);
            found
        };
        if let Some(option) = found.loader() {
            return Runs::Loads { option };
        }
        let index = found.next;
        if let Some(option) = &found.unknown {
            let why = format!("`{option}` may name or fetch code");
            let deciding = (at + 1).min(argv.len());
            let call = self.call(deciding, found.origin(), Stores::Nothing(why));
            return Runs::Project(call);
        }
        let Some(word) = argv.get(index) else {
            return Runs::Loads {
                option: "no program is named".to_owned(),
            };
        };
        let deciding = index + 1;
        if found.origin() != CodeOrigin::Here {
            let why = found.refusal().unwrap_or_default();
            let call = self.call(deciding, found.origin(), Stores::Nothing(why));
            return Runs::Project(call);
        }
        if word.contains(DYNAMIC) {
            return Runs::Loads {
                option: "a program that is only known when it runs".to_owned(),
            };
        }
        if matches!(verb.does, Does::PythonFile) {
            let is_file = |ending: &str| word.to_lowercase().ends_with(ending);
            if word == "-" {
                return Runs::Loads {
                    option: "code from standard input".to_owned(),
                };
            }
            if word.contains("://") {
                let why = "it fetches the code that it runs".to_owned();
                let call = self.call(deciding, CodeOrigin::Fetched, Stores::Nothing(why));
                return Runs::Project(call);
            }
            if is_file(".py") || is_file(".pyw") {
                return self.behind(argv, index, Some("python"), &found);
            }
        } else if is_package_spec(word) {
            let why = "it fetches the code that it runs".to_owned();
            let call = self.call(deciding, CodeOrigin::Fetched, Stores::Nothing(why));
            return Runs::Project(call);
        }
        self.behind(argv, index, None, &found)
    }

    fn behind(
        &'static self,
        argv: &[String],
        index: usize,
        by: Option<&'static str>,
        found: &Scanned,
    ) -> Runs {
        let origin = found.origin();
        let stores = found.refusal().map_or(Stores::Words, Stores::Nothing);
        if argv[index].contains(DYNAMIC) {
            return Runs::Loads {
                option: "a program that is only known when it runs".to_owned(),
            };
        }
        Runs::Behind {
            index,
            by,
            places: self.places,
            settings: self.settings,
            call: self.call(index + 1, origin, stores),
        }
    }
}

/// The paths where `name` is looked up before PATH, in order. `runner` is the path of the program
/// that looks it up.
pub(super) fn candidates(
    places: ProgramPlaces,
    name: &str,
    cwd: &str,
    runner: &str,
) -> Vec<String> {
    let folder = match places {
        ProgramPlaces::NodeModules | ProgramPlaces::NodeModulesOrFetched => "node_modules/.bin",
        ProgramPlaces::VirtualEnvironment => ".venv/bin",
    };
    let parents = std::path::Path::new(cwd).ancestors().take(MAX_PARENTS);
    let paths = parents.map(|parent| format!("{}/{folder}/{name}", parent.display()));
    let own = runner
        .rsplit_once('/')
        .map(|(own, _)| format!("{own}/{name}"));
    paths
        .chain(own.filter(|_| places == ProgramPlaces::NodeModulesOrFetched))
        .map(|path| path.replace("//", "/"))
        .collect()
}

/// Whether a word with a path, version, scope or address names a package, which need not be a
/// program of the project.
fn is_package_spec(word: &str) -> bool {
    word.contains(['/', '@', ':']) || word.starts_with('.')
}

#[cfg(test)]
mod tests;
