//! Calls that only show a version: what may be asked of well-known programs before anything else is known.
//!
//! A row is there only if the program reads no file of its working directory for it, starts no other
//! program and asks no server. Left out for that reason are `cargo`, `rustc` (rustup obeys
//! `rust-toolchain.toml`), `mvn` (`.mvn/jvm.config`), `gradle`, `yarn` (`.yarnrc`), `pnpm`, `npm`
//! (`package.json`, `.npmrc`), `terraform` (asks a server), `sqlite3` and `gdb` (start-up files).

/// A program and the arguments with which it shows its version.
struct VersionCall {
    names: &'static [&'static str],
    /// Each is a whole list of arguments.
    arguments: &'static [&'static [&'static str]],
    /// What keeps it from doing more.
    environment: &'static [(&'static str, &'static str)],
}

const fn long(names: &'static [&'static str]) -> VersionCall {
    VersionCall {
        names,
        arguments: &[&["--version"]],
        environment: &[],
    }
}

const ROWS: &[VersionCall] = &[
    // They print and end before they look at a source, a rule or a script.
    long(&["gcc", "g++", "cc", "clang"]),
    long(&["make", "cmake", "ninja"]),
    long(&["curl", "gh", "tar", "perl", "psql", "uv"]),
    // The client's own; `docker version` would ask the daemon.
    long(&["docker", "podman"]),
    VersionCall {
        names: &["python3", "python"],
        arguments: &[&["--version"], &["-V"]],
        environment: &[],
    },
    VersionCall {
        names: &["node", "ruby"],
        arguments: &[&["--version"], &["-v"]],
        environment: &[],
    },
    // Only the class that shows it is loaded. While it runs, the virtual machine keeps counters in a file of
    // its own below /tmp.
    VersionCall {
        names: &["java", "javac"],
        arguments: &[&["-version"], &["--version"]],
        environment: &[],
    },
    // The module in the directory may ask for another toolchain, which go would fetch and start.
    VersionCall {
        names: &["go"],
        arguments: &[&["version"]],
        environment: &[("GOTOOLCHAIN", "local")],
    },
    VersionCall {
        names: &["openssl"],
        arguments: &[&["version"]],
        environment: &[],
    },
];

/// The variables that such a call runs with, if it is one.
pub(super) fn environment(name: &str, argv: &[&str]) -> Option<Vec<(String, String)>> {
    let row = ROWS.iter().find(|row| row.names.contains(&name))?;
    let given = argv.get(1..)?;
    let is_listed = row.arguments.contains(&given);
    let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    is_listed.then(|| row.environment.iter().map(own).collect())
}

/// Every program of the table with its lists of arguments.
pub fn version_calls() -> impl Iterator<Item = (&'static str, &'static [&'static [&'static str]])> {
    let rows = ROWS.iter();
    rows.flat_map(|row| row.names.iter().map(|name| (*name, row.arguments)))
}
