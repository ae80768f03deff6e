//! Programs that start programs of a project: which word is the program, and where it lies.
//!
//! They are not looked through for trust. Here they only decide whether what they would start can
//! be held on to.

use crate::describe::DYNAMIC;
use crate::names::program_name;

/// What such a program would start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Runs {
    /// No code of the project.
    Nothing,
    /// The program at this index, with its arguments.
    Behind {
        index: usize,
        /// The word there is a file for this program.
        by: Option<&'static str>,
        places: Places,
        settings: &'static [&'static str],
    },
    Elsewhere {
        expected: &'static str,
        found: String,
    },
}

/// Where a program is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Places {
    /// `node_modules/.bin` of the directory and its parents, then PATH.
    NodeModules,
    /// The same, then the directory of the runner itself; what is in neither is fetched.
    NodeModulesOrFetched,
    /// `.venv/bin` of the directory and its parents, then PATH.
    VirtualEnvironment,
}

/// More parents than this are not searched.
const MAX_PARENTS: usize = 64;

/// The paths where `name` would be found before PATH, first ones first. `runner` is where the
/// program lies that looks for it.
pub(super) fn candidates(places: Places, name: &str, cwd: &str, runner: &str) -> Vec<String> {
    let folder = match places {
        Places::NodeModules | Places::NodeModulesOrFetched => "node_modules/.bin",
        Places::VirtualEnvironment => ".venv/bin",
    };
    let parents = std::path::Path::new(cwd).ancestors().take(MAX_PARENTS);
    let paths = parents.map(|parent| format!("{}/{folder}/{name}", parent.display()));
    let own = runner
        .rsplit_once('/')
        .map(|(own, _)| format!("{own}/{name}"));
    paths
        .chain(own.filter(|_| places == Places::NodeModulesOrFetched))
        .map(|path| path.replace("//", "/"))
        .collect()
}

struct Runner {
    names: &'static [&'static str],
    /// Options that stand alone.
    flags: &'static [&'static str],
    /// Options with a value.
    values: &'static [&'static str],
    verbs: &'static [(&'static [&'static str], Verb)],
    otherwise: Verb,
    places: Places,
    /// Files of the directory that can name programs or code to load.
    settings: &'static [&'static str],
    shape: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    /// Installs, lists or prints; starts nothing of the project.
    Plain,
    /// Starts what is written in project files that the request does not name.
    Scripts,
    /// Fetches a package and starts it.
    Fetches,
    /// Starts the program behind it.
    Starts,
    /// The word is itself the program that is started, such as `node`.
    IsProgram,
    /// `FILE.py` by Python, else the program behind it.
    PythonFile,
}

use Verb::{Fetches, IsProgram, Plain, PythonFile, Scripts, Starts};

const NODE_SETTINGS: &[&str] = &[".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs"];

const RUNNERS: &[Runner] = &[
    // Words that are not listed ask or write settings. Installing runs the scripts of packages.
    Runner {
        names: &["npm"],
        flags: &[
            "--silent",
            "-s",
            "--quiet",
            "-q",
            "--offline",
            "--no",
            "--no-install",
        ],
        values: &["--loglevel"],
        verbs: &[
            (&["exec", "x"], Starts),
            (&["init", "create", "innit"], Fetches),
            (
                &[
                    "run",
                    "run-script",
                    "rum",
                    "urn",
                    "test",
                    "tst",
                    "t",
                    "start",
                    "restart",
                    "stop",
                ],
                Scripts,
            ),
            (
                &[
                    "install",
                    "i",
                    "in",
                    "ins",
                    "add",
                    "ci",
                    "clean-install",
                    "rebuild",
                    "rb",
                    "update",
                    "up",
                    "install-test",
                    "it",
                    "pack",
                    "publish",
                    "version",
                    "explore",
                    "link",
                    "ln",
                ],
                Scripts,
            ),
        ],
        otherwise: Plain,
        places: Places::NodeModulesOrFetched,
        settings: NODE_SETTINGS,
        shape: "npm exec PROGRAM FILE",
    },
    // `--package` and a program that is not installed fetch code.
    Runner {
        names: &["npx", "pnpx", "pnx", "bunx"],
        flags: &[
            "--no",
            "--no-install",
            "--offline",
            "--quiet",
            "-q",
            "--silent",
            "--bun",
            "-y",
            "--yes",
        ],
        values: &[],
        verbs: &[],
        otherwise: Starts,
        places: Places::NodeModulesOrFetched,
        settings: NODE_SETTINGS,
        shape: "npx PROGRAM FILE",
    },
    // Any other word is a script of the project or a program of it.
    Runner {
        names: &["pnpm"],
        flags: &["--silent", "-s", "--offline", "--color", "--no-color"],
        values: &["--reporter", "--loglevel"],
        verbs: &[
            (&["exec"], Starts),
            (&["node"], IsProgram),
            (&["dlx", "create"], Fetches),
            (
                &[
                    "ls", "list", "ll", "la", "outdated", "why", "audit", "root", "bin",
                    "licenses", "store", "help", "view", "info", "show", "config", "get",
                ],
                Plain,
            ),
        ],
        otherwise: Scripts,
        places: Places::NodeModules,
        settings: NODE_SETTINGS,
        shape: "pnpm exec PROGRAM FILE",
    },
    Runner {
        names: &["yarn", "yarnpkg"],
        flags: &["--silent", "-s", "--offline"],
        values: &[],
        verbs: &[
            (&["exec"], Starts),
            (&["node"], IsProgram),
            (&["dlx", "create"], Fetches),
            (
                &[
                    "list", "outdated", "why", "audit", "licenses", "help", "info", "versions",
                    "config",
                ],
                Plain,
            ),
        ],
        otherwise: Scripts,
        places: Places::NodeModules,
        settings: NODE_SETTINGS,
        shape: "yarn exec PROGRAM FILE",
    },
    // `--with`, `--from` and scripts from an address fetch code; the project may be built first,
    // which `--no-sync` and `--no-project` prevent.
    Runner {
        names: &["uv"],
        flags: &[
            "--quiet",
            "-q",
            "--offline",
            "--no-sync",
            "--no-project",
            "--frozen",
            "--locked",
            "--no-config",
            "--no-cache",
            "-n",
            "--no-env-file",
            "--color",
        ],
        values: &["--extra", "--group", "--color"],
        verbs: &[
            (&["run"], PythonFile),
            (&["tool", "sync", "add", "build", "pip"], Scripts),
        ],
        otherwise: Plain,
        places: Places::VirtualEnvironment,
        settings: &["uv.toml"],
        shape: "uv run FILE.py",
    },
    // What they run is written in files of the project, or is fetched.
    Runner {
        names: &[
            "uvx", "pipx", "poetry", "pipenv", "pdm", "hatch", "tox", "nox", "bundle", "bundler",
            "rake", "just", "task", "gradle", "gradlew", "mvn", "mvnw", "ant", "sbt", "lein",
            "mix", "cabal", "stack",
        ],
        flags: &[],
        values: &[],
        verbs: &[],
        otherwise: Scripts,
        places: Places::NodeModules,
        settings: &[],
        shape: "the program that it starts, by itself",
    },
    // Building runs the build scripts of the project and of what it depends on.
    Runner {
        names: &["cargo"],
        flags: &[
            "-q",
            "--quiet",
            "--offline",
            "--locked",
            "--frozen",
            "-v",
            "--verbose",
        ],
        values: &["--color"],
        verbs: &[(
            &[
                "run", "r", "test", "t", "build", "b", "bench", "check", "c", "install", "clippy",
                "doc", "rustc", "fix", "package", "publish",
            ],
            Scripts,
        )],
        otherwise: Plain,
        places: Places::NodeModules,
        settings: &[],
        shape: "the program that it starts, by itself",
    },
    Runner {
        names: &["go"],
        flags: &[],
        values: &["-C"],
        verbs: &[(&["run", "generate", "test", "tool"], Scripts)],
        otherwise: Plain,
        places: Places::NodeModules,
        settings: &[],
        shape: "the program that it starts, by itself",
    },
];

/// They print something and end, standing alone.
const QUESTIONS: &[&str] = &["--version", "-v", "-V", "--help", "-h", "help", "version"];

/// `None`: no such program.
pub(super) fn read(argv: &[String]) -> Option<Runs> {
    let name = program_name(argv.first()?);
    let runner = RUNNERS
        .iter()
        .find(|runner| runner.names.contains(&name.as_str()))?;
    if matches!(argv, [_, only] if QUESTIONS.contains(&only.as_str())) {
        return Some(Runs::Nothing);
    }
    Some(runner.read(argv).unwrap_or_else(|found| Runs::Elsewhere {
        expected: runner.shape,
        found,
    }))
}

impl Runner {
    fn read(&self, argv: &[String]) -> Result<Runs, String> {
        let scripts = || Err("what its project files say".to_owned());
        let fetched = || Err("a package that is fetched".to_owned());
        if self.flags.is_empty() && self.values.is_empty() && self.verbs.is_empty() {
            return scripts();
        }
        let (verb, at) = if self.verbs.is_empty() {
            (self.otherwise, 0)
        } else {
            let at = self.operand(argv, 1)?;
            let Some(word) = argv.get(at) else {
                // `pnpm` and `npm` alone print help; `yarn` alone installs.
                return if self.otherwise == Plain {
                    Ok(Runs::Nothing)
                } else {
                    scripts()
                };
            };
            let listed = self
                .verbs
                .iter()
                .find(|(words, _)| words.contains(&word.as_str()));
            (listed.map_or(self.otherwise, |(_, verb)| *verb), at)
        };
        match verb {
            Plain => Ok(Runs::Nothing),
            Scripts => scripts(),
            Fetches => fetched(),
            IsProgram => self.behind(argv, at),
            Starts => {
                let at = self.operand(argv, at + 1)?;
                let word = argv.get(at).ok_or("no program: it opens a shell")?;
                if is_package_spec(word) {
                    return fetched();
                }
                self.behind(argv, at)
            }
            PythonFile => {
                let at = self.operand(argv, at + 1)?;
                let word = argv.get(at).ok_or("no program")?;
                let is_python = |ending: &str| word.to_lowercase().ends_with(ending);
                if word == "-" {
                    Err("code from standard input".to_owned())
                } else if word.contains("://") {
                    Err(format!("`{word}`, an address and not a local file"))
                } else if is_python(".py") || is_python(".pyw") {
                    Ok(Runs::Behind {
                        index: at,
                        by: Some("python"),
                        places: self.places,
                        settings: self.settings,
                    })
                } else {
                    self.behind(argv, at)
                }
            }
        }
    }

    fn behind(&self, argv: &[String], index: usize) -> Result<Runs, String> {
        match argv[index].contains(DYNAMIC) {
            true => Err("a program that is only known when it runs".to_owned()),
            false => Ok(Runs::Behind {
                index,
                by: None,
                places: self.places,
                settings: self.settings,
            }),
        }
    }

    /// The first operand from `start` on.
    fn operand(&self, argv: &[String], start: usize) -> Result<usize, String> {
        let mut at = start;
        while let Some(word) = argv.get(at) {
            if word == "--" {
                return Ok(at + 1);
            }
            if !word.starts_with('-') || word == "-" {
                break;
            }
            let (option, attached) = match word.split_once('=') {
                Some((option, _)) => (option, true),
                None => (word.as_str(), false),
            };
            if self.values.contains(&option) && !self.flags.contains(&option) {
                at += if attached { 1 } else { 2 };
            } else if self.flags.contains(&option) {
                at += 1;
            } else {
                return Err(format!("`{option}`, an option that may name or fetch code"));
            }
        }
        Ok(at)
    }
}

/// A path, version, scope or address names a package, which need not be a program of the project.
fn is_package_spec(word: &str) -> bool {
    word.contains(['/', '@', ':']) || word.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Runs> {
        let argv: Vec<String> = text.split(' ').map(str::to_owned).collect();
        super::read(&argv)
    }

    #[test]
    fn the_program_behind_is_found() {
        for (text, expected) in [
            ("npx tsx ./run.ts", 1),
            ("npx --no-install tsx ./run.ts", 2),
            ("npm exec -- tsx ./run.ts", 3),
            ("npm --silent exec tsx ./run.ts", 3),
            ("pnpm --reporter silent exec tsx ./run.ts", 4),
            ("pnpm --reporter=silent exec tsx ./run.ts", 3),
            ("pnpm node ./run.js", 1),
            ("yarn node ./run.js", 1),
            ("uv run --no-sync python x.py", 3),
        ] {
            let Some(Runs::Behind { index, .. }) = read(text) else {
                panic!("{text}: {:?}", read(text));
            };
            assert_eq!(index, expected, "{text}");
        }
    }

    #[test]
    fn scripts_fetched_packages_and_unknown_options_are_elsewhere() {
        for text in [
            "npm run build",
            "npm test",
            "npm install",
            "npm --prefix /x exec tsx",
            "npm init foo",
            "npx --package=tsx tsx ./run.ts",
            "npx --package tsx tsx ./run.ts",
            "npx cowsay@1",
            "npx ./folder",
            "npx -c tsx",
            "npx",
            "pnpm dlx tsx ./run.ts",
            "pnpm build",
            "pnpm --dir x exec tsx",
            "pnpm",
            "yarn",
            "yarn build",
            "uv run --with x y",
            "uv run -",
            "uv run -m x",
            "uv run https://x.test/a.py",
            "uvx ruff",
            "cargo test",
            "go run x.go",
            "just all",
        ] {
            assert!(
                matches!(read(text), Some(Runs::Elsewhere { .. })),
                "{text}: {:?}",
                read(text)
            );
        }
    }

    #[test]
    fn questions_and_lists_start_nothing() {
        for text in [
            "npm --version",
            "npm ls",
            "npm view x",
            "pnpm outdated",
            "yarn why x",
            "cargo tree",
        ] {
            assert_eq!(read(text), Some(Runs::Nothing), "{text}");
        }
        assert_eq!(read("ls -l"), None);
    }
}
