//! Notes for the approver about programs that are pinned as files: that the effect of their
//! arguments is unknown, or that they run hooks.

use interlock_programs::inline::reach;
use interlock_programs::names::program_name;
use interlock_programs::{Executable, FileKind, is_dispatch_wrapper, is_shell, opaque_reason};

use super::kind::Binding;
use super::project;

/// Programs that only do what their arguments say, in groups. A program that is in no table is not
/// judged more strictly; the prompt only says that it is unknown.
const EVERYDAY: &[(&str, &[&str])] = &[
    (
        "makes, moves or removes files that it is given",
        &[
            "chgrp", "chmod", "chown", "cp", "dd", "install", "link", "ln", "mkdir", "mkfifo",
            "mknod", "mktemp", "mv", "rm", "rmdir", "shred", "split", "csplit", "sync", "tee",
            "touch", "truncate", "unlink",
        ],
    ),
    (
        "prints what it reads, or facts about files and the machine",
        &[
            "arch",
            "b2sum",
            "base32",
            "base64",
            "basename",
            "cal",
            "cat",
            "cksum",
            "cmp",
            "column",
            "comm",
            "cut",
            "date",
            "df",
            "diff",
            "diff3",
            "dig",
            "dirname",
            "dmesg",
            "du",
            "echo",
            "egrep",
            "expand",
            "expr",
            "factor",
            "fgrep",
            "file",
            "fmt",
            "fold",
            "free",
            "getconf",
            "getent",
            "grep",
            "groups",
            "head",
            "hexdump",
            "host",
            "hostid",
            "hostname",
            "id",
            "iconv",
            "ip",
            "join",
            "jq",
            "last",
            "ls",
            "lsblk",
            "lscpu",
            "lsof",
            "md5sum",
            "nl",
            "nproc",
            "nslookup",
            "numfmt",
            "od",
            "paste",
            "pgrep",
            "pidof",
            "ping",
            "printenv",
            "printf",
            "ps",
            "pstree",
            "pwd",
            "readlink",
            "realpath",
            "rev",
            "rg",
            "seq",
            "sha1sum",
            "sha224sum",
            "sha256sum",
            "sha384sum",
            "sha512sum",
            "shuf",
            "sort",
            "ss",
            "stat",
            "strings",
            "sum",
            "tac",
            "tail",
            "tr",
            "tree",
            "tty",
            "uname",
            "unexpand",
            "uniq",
            "uptime",
            "users",
            "vmstat",
            "wc",
            "which",
            "whereis",
            "who",
            "whoami",
            "xxd",
            "yq",
            "zcat",
        ],
    ),
    (
        "packs or unpacks archives",
        &[
            "bunzip2", "bzip2", "gunzip", "gzip", "lz4", "unxz", "unzip", "xz", "zip", "zstd",
        ],
    ),
    (
        "ends or waits for processes",
        &["kill", "killall", "pkill", "sleep", "wait"],
    ),
    (
        "does nothing but succeed, fail or compare",
        &["false", "true", "test", "yes"],
    ),
];

/// Commands of git that run hooks of the repository.
const GIT_WITH_HOOKS: &[&str] = &[
    "am",
    "checkout",
    "cherry-pick",
    "clone",
    "commit",
    "merge",
    "pull",
    "push",
    "rebase",
    "revert",
    "switch",
    "worktree",
];

/// The note about a program that gets no code in its arguments.
pub(super) fn note(argv: &[String], executable: &Executable) -> Binding {
    let binding = Binding::native();
    let name = argv
        .first()
        .map_or(String::new(), |name| program_name(name).into_owned());
    if name == "git" {
        let verb = argv
            .iter()
            .skip(1)
            .find(|word| GIT_WITH_HOOKS.contains(&word.as_str()));
        return match verb {
            Some(verb) => binding.noting(format!(
                "`git {verb}` runs the hooks of the repository, if it has some"
            )),
            None => binding,
        };
    }
    if executable.kind != FileKind::Native || is_known(&name) {
        return binding;
    }
    binding.noting(format!(
        "what `{name}` does with its arguments is not known"
    ))
}

fn is_known(name: &str) -> bool {
    EVERYDAY.iter().any(|(_, names)| names.contains(&name))
        || reach(name).is_some()
        || opaque_reason(name).is_some()
        || is_dispatch_wrapper(name)
        || is_shell(name)
        || project::is_listed(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use interlock_programs::VirtualHost;

    fn notes(text: &str) -> Vec<String> {
        let argv: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let path = format!("/usr/bin/{}", argv[0]);
        note(&argv, &VirtualHost::describe(&path, &path)).notes
    }

    #[test]
    fn only_what_no_table_knows_is_not_known() {
        for known in ["ls -l", "rm x", "git status", "curl x", "sort x"] {
            assert!(notes(known).is_empty(), "{known}: {:?}", notes(known));
        }
        assert_eq!(
            notes("frobnicate --all"),
            ["what `frobnicate` does with its arguments is not known"]
        );
        assert_eq!(
            notes("git commit -m x"),
            ["`git commit` runs the hooks of the repository, if it has some"]
        );
    }
}
