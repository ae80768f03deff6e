//! The table of programs that may be trusted with any arguments: filters and readers.
//!
//! A row must hold for every option and operand of every common implementation (GNU, busybox,
//! uutils): the program starts no other program, writes no file, reads no settings from the working
//! directory, and takes no commands. Programs that are not in the table can still be remembered
//! with their arguments.

/// Groups of names, with the reason that applies to each of them.
const FILTERS_AND_READERS: &[(&str, &[&str])] = &[
    (
        "writes what it reads to standard output, changed or not; no option names an output",
        &[
            "cat", "comm", "cut", "expand", "fold", "fmt", "head", "join", "nl", "od", "paste",
            "rev", "tac", "tail", "tr", "unexpand", "wc",
        ],
    ),
    (
        "searches by a pattern that cannot run anything",
        &["grep", "egrep", "fgrep"],
    ),
    (
        "prints a checksum or an encoding",
        &[
            "b2sum",
            "base32",
            "base64",
            "cksum",
            "md5sum",
            "sha1sum",
            "sha224sum",
            "sha256sum",
            "sha384sum",
            "sha512sum",
            "sum",
        ],
    ),
    (
        "prints names or metadata of files",
        &[
            "basename", "cmp", "df", "dirname", "du", "ls", "pathchk", "readlink", "realpath",
            "stat", "vdir",
        ],
    ),
    (
        "prints facts about the machine or the user, and can set none",
        &[
            "free", "groups", "id", "logname", "nproc", "pgrep", "pidof", "ps", "tty", "uname",
            "uptime", "users", "whoami",
        ],
    ),
    (
        "prints its arguments or what it computes from them",
        &["echo", "expr", "factor", "numfmt", "printf", "seq"],
    ),
    // Not in the table: `sort` (`-o`, `--compress-program`), `uniq`, `xxd` and `ptx` (an operand is
    // an output), `shuf` and `tree` (`-o`), `file` (`-C`), `date` and `hostname` (set what they
    // print), `diff` (`-l` starts `pr`), `rg` (`--pre`, settings), `jq` (`~/.jq`), `less`, `more`
    // and `man` (start programs), `find`, `sed`, `awk`, `tee`, `dd`, `split` (start programs or
    // write files), `nm` and `objdump` (load plugins), `strings` (the same library), `git`
    // (settings of the repository).
];

/// Looks up only the name. The caller must check that the file is the system's own.
pub(crate) fn is_filter_or_reader(name: &str) -> bool {
    FILTERS_AND_READERS
        .iter()
        .any(|(_, names)| names.contains(&name))
}

#[cfg(test)]
mod tests {
    use interlock_programs::inline::reach;
    use interlock_programs::{is_shell, opaque_reason};

    use super::*;

    /// The tables of programs that start others must never meet this one.
    #[test]
    fn no_row_is_a_program_that_starts_others() {
        for name in FILTERS_AND_READERS.iter().flat_map(|(_, names)| *names) {
            assert_eq!(reach(name), None, "{name}");
            assert_eq!(opaque_reason(name), None, "{name}");
            assert!(!is_shell(name), "{name}");
            assert!(!interlock_programs::is_dispatch_wrapper(name), "{name}");
        }
    }

    #[test]
    fn what_starts_writes_or_loads_is_not_in_it() {
        for name in [
            "sort", "uniq", "xxd", "tee", "find", "sed", "awk", "git", "make", "npm", "cargo",
            "python3", "bash", "env", "nice", "xargs", "tar", "less", "man", "diff", "rg", "jq",
            "date", "hostname", "curl", "ssh", "docker", "vim",
        ] {
            assert!(!is_filter_or_reader(name), "{name}");
        }
    }
}
