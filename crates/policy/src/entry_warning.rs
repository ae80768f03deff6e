//! Warns about entries that grant more than they seem to: programs that start others or run any
//! code, trusted with any arguments. The owner may add them; the warning names a narrower form.

use interlock_programs::inline::{Reach, reach};
use interlock_programs::{has_row, is_shell};
use serde::Serialize;

use crate::entry::Entry;
use crate::judge::quote;
use crate::pattern::has_wildcard;

/// Why an entry is broad, and what to add instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntryWarning {
    pub message: String,
    /// The flags and the pattern of a narrower entry, to append to `allowlist add --agent AGENT`.
    #[serde(skip)]
    pub narrower: String,
}

/// Programs that do more than their arguments suggest, with the reason and the arguments of a
/// narrower entry.
const BROAD_PROGRAMS: &[(&[&str], &str, &[&str])] = &[
    (
        &["git"],
        "runs hooks, aliases and helper programs, and some subcommands write or publish",
        &["status"],
    ),
    (
        &["find", "fd", "fdfind"],
        "starts programs and deletes files (-exec, -delete)",
        &[".", "-name", "*"],
    ),
    (
        &["ssh", "scp", "sftp", "mosh"],
        "runs any command on other machines, and on this one (ProxyCommand)",
        &["HOST", "uptime"],
    ),
    (
        &["docker", "podman", "nerdctl", "kubectl"],
        "starts containers, which can have the rights of their service on this machine",
        &["ps"],
    ),
    (
        &["make", "gmake", "just", "task", "ninja"],
        "runs whatever the files of the directory say",
        &["test"],
    ),
    (
        &[
            "cargo", "npm", "pnpm", "yarn", "go", "mvn", "gradle", "dotnet", "bundle", "uv",
            "poetry",
        ],
        "runs code that the project's files decide, and installs programs",
        &["test"],
    ),
    (
        &["vim", "vi", "nvim", "emacs", "less", "man"],
        "starts any program that is typed into it",
        &["--version"],
    ),
    (
        &["curl", "wget", "rsync", "tar", "zip", "awk", "gawk", "sed"],
        "writes files or starts programs by its options",
        &["--version"],
    ),
];

impl Entry {
    /// Returns why this entry grants more than it seems to, or `None` if it binds arguments.
    pub fn warning(&self) -> Option<EntryWarning> {
        if self.args.is_some() || self.arg_pattern.is_some() || self.bound_file.is_some() {
            return None;
        }
        if self.pattern == "*" || self.pattern == "**" {
            return Some(EntryWarning {
                message: "`*` is every program, with any arguments".to_owned(),
                narrower: "ls".to_owned(),
            });
        }
        let name = self.pattern.rsplit('/').next().unwrap_or(&self.pattern);
        // A different message says that no entry satisfies a shell.
        if has_wildcard(name) || is_shell(name) {
            return None;
        }
        if self.paths.is_some() && has_row(name) {
            return None;
        }
        let row = BROAD_PROGRAMS
            .iter()
            .find(|(names, ..)| names.contains(&name));
        let (why, arguments) = match (row, reach(name)) {
            (Some((_, why, arguments)), _) => (*why, *arguments),
            (None, Some(Reach::Interpreter)) => ("runs any code that it is given", &["SCRIPT"][..]),
            (None, Some(Reach::Options)) => (
                "starts programs, loads code or writes files by some of its options",
                &["--version"][..],
            ),
            (None, None) => return None,
        };
        // For these programs the table says which arguments name files that are only read.
        let flags: Vec<String> = if has_row(name) {
            vec!["--path='${workspace}/**'".to_owned()]
        } else {
            let flag = |argument: &&str| format!("--arg={}", quote(argument));
            arguments.iter().map(flag).collect()
        };
        Some(EntryWarning {
            message: format!(
                "`{}` {why}; this entry allows it with any arguments",
                self.pattern
            ),
            narrower: format!("{} {}", flags.join(" "), quote(&self.pattern)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_start_others_are_warned_of_unless_their_arguments_are_bound() {
        for name in [
            "git",
            "find",
            "ssh",
            "docker",
            "python3",
            "node",
            "make",
            "cargo",
            "/usr/bin/git",
            "*",
        ] {
            let entry = Entry::for_pattern(name.to_owned());
            assert!(entry.warning().is_some(), "{name}");
            let bound = Entry {
                args: Some(vec!["x".to_owned()]),
                ..entry
            };
            assert_eq!(bound.warning(), None, "{name}");
        }
        for name in ["ls", "cat", "rg-like-tool", "/opt/tools/**"] {
            let entry = Entry::for_pattern(name.to_owned());
            assert_eq!(entry.warning(), None, "{name}");
        }
    }
}
