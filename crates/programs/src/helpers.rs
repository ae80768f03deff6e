//! Programs that known programs start as a part of themselves, as files or as directories of such
//! files. If a run may start only listed programs, these are allowed together with the program.

/// A program's names, and the programs that it needs.
struct HelperRow {
    programs: &'static [&'static str],
    paths: &'static [&'static str],
}

const ROWS: &[HelperRow] = &[
    // The subcommands of git are separate programs.
    HelperRow {
        programs: &["git"],
        paths: &[
            "/usr/lib/git-core",
            "/usr/libexec/git-core",
            "/usr/local/libexec/git-core",
        ],
    },
    // The compiler proper, the assembler and the linker.
    HelperRow {
        programs: &["cc", "gcc", "c++", "g++", "cpp"],
        paths: &[
            "/usr/lib/gcc",
            "/usr/libexec/gcc",
            "/usr/bin/as",
            "/usr/bin/ld",
        ],
    },
    // Recipes are lines for a shell.
    HelperRow {
        programs: &["make", "gmake"],
        paths: &["/bin/sh"],
    },
    // Scripts of a package are lines for a shell, and its commands are scripts for node.
    HelperRow {
        programs: &["npm", "npx"],
        paths: &["/bin/sh", "/usr/bin/node", "/usr/bin/env"],
    },
];

/// Profiles that a login shell reads ask for the current user.
pub const LOGIN_SHELL: &[&str] = &["/usr/bin/id"];

/// Returns the helpers of a program, by the last part of its path. Versions and targets in a name
/// (`x86_64-linux-gnu-gcc-12`) are ignored.
pub fn helpers_of(name: &str) -> impl Iterator<Item = &'static &'static str> {
    let plain = name.trim_end_matches(|end: char| end.is_ascii_digit() || end == '.');
    let plain = plain.strip_suffix('-').unwrap_or(plain);
    let last = plain.rsplit('-').next().unwrap_or(plain);
    let is_row = move |row: &&HelperRow| {
        let is_named = |program: &&str| *program == plain || *program == last;
        row.programs.iter().any(is_named)
    };
    let rows: Vec<&HelperRow> = ROWS.iter().filter(is_row).collect();
    rows.into_iter().flat_map(|row| row.paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_targets_in_names_do_not_count() {
        for name in ["gcc", "gcc-12", "x86_64-linux-gnu-gcc-12", "c++"] {
            assert!(
                helpers_of(name).any(|path| *path == "/usr/bin/as"),
                "{name}"
            );
        }
        assert!(helpers_of("git").any(|path| path.ends_with("git-core")));
        assert_eq!(helpers_of("cat").count(), 0);
        assert_eq!(helpers_of("legit").count(), 0);
    }
}
