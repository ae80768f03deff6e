//! The programs, one row each.

use super::Places;

pub(super) struct Runner {
    pub names: &'static [&'static str],
    /// Options that stand alone.
    pub flags: &'static [&'static str],
    /// Options with a value.
    pub values: &'static [&'static str],
    pub verbs: &'static [(&'static [&'static str], Verb)],
    pub otherwise: Verb,
    pub places: Places,
    /// Files of the directory that can name programs or code to load.
    pub settings: &'static [&'static str],
    pub shape: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
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

pub(super) const RUNNERS: &[Runner] = &[
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
