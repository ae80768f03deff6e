//! Interpreters and package runners: which one file do they run, if it is one?

use interlock_command::names::program_name;
use interlock_command::{Lookup, Resolver};

use super::{Binding, BindingKind};

/// How an interpreter finds its code.
struct Runtime {
    /// Names, without a trailing version number.
    names: &'static [&'static str],
    /// Options that stand alone and change nothing about where the code comes from.
    flags: &'static [&'static str],
    /// Options with a separate value that does not name code.
    values: &'static [&'static str],
    /// A subcommand in front of the file.
    subcommands: &'static [&'static str],
}

/// Options that are not listed may load code: the run is then unbound.
const RUNTIMES: &[Runtime] = &[
    Runtime {
        names: &["python", "pypy"],
        flags: &[
            "-B", "-E", "-I", "-O", "-OO", "-P", "-R", "-s", "-S", "-u", "-q", "-v", "-b", "-bb",
            "-d",
        ],
        values: &["-W", "-X"],
        subcommands: &[],
    },
    Runtime {
        names: &["node", "nodejs"],
        flags: &[
            "--no-warnings",
            "--trace-warnings",
            "--enable-source-maps",
            "--test",
            "--check",
        ],
        values: &[],
        subcommands: &[],
    },
    Runtime {
        names: &["ruby"],
        flags: &["-w", "-W", "-W0", "-W1", "-W2", "-c", "--yjit", "--jit"],
        values: &[],
        subcommands: &[],
    },
    Runtime {
        names: &["perl"],
        flags: &["-w", "-W", "-X", "-c", "-t", "-T"],
        values: &[],
        subcommands: &[],
    },
    Runtime {
        names: &["php"],
        flags: &["-n", "-q", "-l"],
        values: &[],
        subcommands: &[],
    },
    Runtime {
        names: &[
            "lua",
            "luajit",
            "rscript",
            "julia",
            "guile",
            "raku",
            "elixir",
            "osascript",
            "tclsh",
            "awk",
            "gawk",
            "mawk",
            "expect",
            "groovy",
        ],
        flags: &[],
        values: &[],
        subcommands: &[],
    },
    Runtime {
        names: &["tsx", "ts-node", "ts-node-esm", "esno", "jiti", "vite-node"],
        flags: &[],
        values: &[],
        subcommands: &[],
    },
    Runtime {
        names: &["bun"],
        flags: &[],
        values: &[],
        subcommands: &["run"],
    },
    Runtime {
        names: &["deno"],
        flags: &[
            "-A",
            "--allow-all",
            "--allow-read",
            "--allow-net",
            "--allow-env",
            "--allow-write",
            "--allow-run",
            "--no-prompt",
            "--quiet",
            "-q",
        ],
        values: &[],
        subcommands: &["run"],
    },
];

/// Package runners: what they start is written in files that the request does not name.
const PACKAGE_RUNNERS: &[(&str, &[&str])] = &[
    (
        "npm",
        &[
            "run",
            "run-script",
            "test",
            "start",
            "restart",
            "stop",
            "exec",
            "x",
            "install",
            "i",
            "ci",
            "rebuild",
            "t",
            "tst",
        ],
    ),
    (
        "pnpm",
        &["run", "test", "start", "exec", "dlx", "install", "i", "t"],
    ),
    (
        "yarn",
        &["run", "test", "start", "exec", "dlx", "install", "node"],
    ),
    ("npx", &[]),
    ("bunx", &[]),
    ("pnpx", &[]),
    ("uvx", &[]),
    ("pipx", &[]),
    ("uv", &["run", "tool"]),
    ("poetry", &["run"]),
    ("pipenv", &["run"]),
    ("make", &[]),
    ("gmake", &[]),
    ("just", &[]),
    ("rake", &[]),
    ("gradle", &[]),
    ("gradlew", &[]),
    ("mvn", &[]),
    (
        "cargo",
        &[
            "run", "test", "build", "bench", "check", "install", "r", "t", "b", "c",
        ],
    ),
    ("go", &["run", "generate", "test"]),
];

/// `None`: an ordinary program.
pub(super) fn binding(argv: &[String], cwd: &str, resolver: &dyn Resolver) -> Option<Binding> {
    let name = program_name(argv.first()?);
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let unbound = |reason: String| Some(Binding::new(BindingKind::Unbound, reason));
    if let Some((_, verbs)) = PACKAGE_RUNNERS.iter().find(|(runner, _)| *runner == name) {
        let verb = argv[1..].iter().find(|word| !word.starts_with('-'));
        let starts = verbs.is_empty()
            || verb.is_none_or(|verb| verbs.contains(&verb.as_str()) || name == "yarn");
        return if starts && !is_question(argv) {
            unbound(format!("`{name}` runs what its project files say"))
        } else {
            None
        };
    }
    let runtime = RUNTIMES
        .iter()
        .find(|runtime| runtime.names.contains(&stem))?;
    if is_question(argv) {
        return None;
    }
    let mut rest = argv[1..].iter();
    while let Some(word) = rest.next() {
        if runtime.subcommands.contains(&word.as_str()) {
            continue;
        }
        if word == "-" {
            return unbound(format!("`{name}` reads its code from standard input"));
        }
        if word.starts_with('-') {
            let flag = word.split_once('=').map_or(word.as_str(), |(flag, _)| flag);
            if runtime.values.contains(&flag) {
                rest.next();
            } else if !runtime.flags.contains(&flag) {
                return unbound(format!(
                    "`{name} {word}`: expected one local file to run, found an option that may load code"
                ));
            }
            continue;
        }
        return match resolver.file(word, cwd) {
            Lookup::Found(file) => Some(Binding {
                file: Some(file.canonical),
                ..Binding::new(BindingKind::File, format!("`{name}` and the file it runs"))
            }),
            Lookup::Missing(missing) => unbound(format!(
                "`{name}`: expected one local file to run, but `{word}` {missing}"
            )),
        };
    }
    unbound(format!("`{name}` reads its code from standard input"))
}

/// `--version` and `--help` run no code of anybody's.
fn is_question(argv: &[String]) -> bool {
    matches!(argv, [_, only] if matches!(only.as_str(), "--version" | "-V" | "--help" | "-h" | "-v" | "version" | "help"))
}
