//! Calls that only show a version, which the base allows for well-known programs.
//!
//! A program has a row only if such a call reads no file of its working directory, starts no other
//! program and asks no server. Left out for that reason are `cargo`, `rustc` (rustup obeys
//! `rust-toolchain.toml`), `mvn` (`.mvn/jvm.config`), `gradle`, `yarn` (`.yarnrc`), `pnpm`, `npm`
//! (`package.json`, `.npmrc`), `terraform` (asks a server), `sqlite3` and `gdb` (startup files).

/// A program with the arguments that show its version.
struct VersionCall {
    names: &'static [&'static str],
    /// Each item is a whole list of arguments.
    arguments: &'static [&'static [&'static str]],
    /// Variables that keep the call from doing more.
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
    // These programs print and exit before they read a source, a rule or a script.
    long(&["gcc", "g++", "cc", "clang"]),
    long(&["make", "cmake", "ninja"]),
    long(&["curl", "gh", "tar", "perl", "psql", "uv"]),
    // These options show the client's own version; `docker version` would ask the daemon.
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
    // Java loads only the class that shows the version. While it runs, the virtual machine keeps
    // counters in its own file below /tmp.
    VersionCall {
        names: &["java", "javac"],
        arguments: &[&["-version"], &["--version"]],
        environment: &[],
    },
    // The module in the directory may require another toolchain, which go would fetch and start.
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

/// Returns the variables for such a call, or `None` if this is not one.
pub(super) fn environment(name: &str, argv: &[&str]) -> Option<Vec<(String, String)>> {
    let row = ROWS.iter().find(|row| row.names.contains(&name))?;
    let given = argv.get(1..)?;
    let is_listed = row.arguments.contains(&given);
    let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    is_listed.then(|| row.environment.iter().map(own).collect())
}

/// Returns every program of the table with its lists of arguments.
pub fn version_calls() -> impl Iterator<Item = (&'static str, &'static [&'static [&'static str]])> {
    let rows = ROWS.iter();
    rows.flat_map(|row| row.names.iter().map(|name| (*name, row.arguments)))
}
