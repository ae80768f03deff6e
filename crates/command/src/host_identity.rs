//! Programs that need the identity of the host's user, and cannot work in a user namespace.
//!
//! The table only tightens: a program that is missing here runs shielded, and says itself what it
//! lacks there.

use crate::names::program_name;

/// Rows by their reason; every name is lower case.
const HOST_IDENTITY: &[(&str, &[&str])] = &[
    (
        "becomes another user, and no other user exists in a user namespace",
        &[
            "sudo",
            "sudoedit",
            "sudoreplay",
            "su",
            "doas",
            "pkexec",
            "newgrp",
            "sg",
            "dzdo",
            "pbrun",
            "passwd",
            "chsh",
            "chfn",
            "chage",
            "gpasswd",
        ],
    ),
    (
        "asks for a raw socket, which a user namespace cannot have on the host's network",
        &["ping", "ping4", "ping6", "arping", "fping"],
    ),
    (
        "maps further users, which only the host's own namespace can",
        &["newuidmap", "newgidmap", "podman", "buildah"],
    ),
    (
        "writes to a spool by its group, which a user namespace does not have",
        &["crontab", "at", "atq", "atrm", "batch"],
    ),
    (
        "wants its configuration to belong to root, who is unknown in a user namespace",
        &[
            "ssh",
            "slogin",
            "scp",
            "sftp",
            "sshfs",
            "ssh-copy-id",
            "autossh",
            "mosh",
        ],
    ),
];

/// What programs that can reach for ssh do with it.
const BY_SSH: &str = "reaches for ssh, which wants its configuration to belong to root";

/// The commands of git that connect to the repository that they name.
const CONNECTING: &[&str] = &[
    "clone",
    "fetch",
    "pull",
    "push",
    "ls-remote",
    "submodule",
    "remote",
    "archive",
];

/// Why a command cannot work in a user namespace; `None` for all that can.
pub fn host_identity(argv: &[String]) -> Option<&'static str> {
    let (program, arguments) = argv.split_first()?;
    let name = program_name(program);
    let row = HOST_IDENTITY
        .iter()
        .find(|(_, names)| names.contains(&name.as_str()));
    if let Some((reason, _)) = row {
        return Some(reason);
    }
    let reaches_for_ssh = match name.as_str() {
        "git" => git_uses_ssh(arguments),
        "rsync" => rsync_uses_ssh(arguments),
        _ => false,
    };
    reaches_for_ssh.then_some(BY_SSH)
}

/// Whether a text names a program of the table somewhere. A cheap look before a thorough one: it
/// finds more than there is, and misses what is written in a way that the thorough look might see.
pub fn may_need_host_identity(text: &str) -> bool {
    let mut names = HOST_IDENTITY.iter().flat_map(|(_, names)| names.iter());
    text.contains("git") || text.contains("rsync") || names.any(|name| text.contains(name))
}

/// By a repository that is named in the arguments. What a remote's name stands for is not known here.
fn git_uses_ssh(arguments: &[String]) -> bool {
    let mut operands = arguments.iter().filter(|word| !word.starts_with('-'));
    let Some(command) = operands.find(|word| CONNECTING.contains(&word.as_str())) else {
        return false;
    };
    let names_by_url = |word: &String| {
        let url = word
            .rsplit_once('=')
            .map_or(word.as_str(), |(_, value)| value);
        ["ssh://", "git+ssh://", "ssh+git://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
    };
    if arguments.iter().any(names_by_url) {
        return true;
    }
    // Behind the repository come refspecs, which have colons too.
    let is_first_only = matches!(command.as_str(), "fetch" | "pull" | "push");
    let most = if is_first_only { 1 } else { usize::MAX };
    operands.take(most).any(|word| is_host_and_path(word))
}

fn rsync_uses_ssh(arguments: &[String]) -> bool {
    arguments.iter().any(|word| {
        let is_shell_option = word == "-e" || word.starts_with("--rsh");
        let is_operand = !word.starts_with('-');
        is_shell_option || (is_operand && is_host_and_path(word) && !word.contains("::"))
    })
}

/// `[USER@]HOST:PATH`, as scp takes it: a colon before any slash, and no scheme.
fn is_host_and_path(word: &str) -> bool {
    match word.split_once(':') {
        Some((host, path)) => {
            !host.is_empty() && !host.contains('/') && !path.starts_with("//") && !path.is_empty()
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(line: &str) -> bool {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let needs = host_identity(&argv).is_some();
        assert!(!needs || may_need_host_identity(line), "{line}");
        needs
    }

    #[test]
    fn programs_of_the_table_need_the_host_identity_by_any_path() {
        for line in [
            "sudo ls",
            "/usr/bin/sudo ls",
            "ssh host",
            "scp a host:b",
            "ping -c1 ::1",
            "crontab -l",
            "podman ps",
        ] {
            assert!(needs(line), "{line}");
        }
        for line in [
            "ls",
            "ps aux",
            "kill 7",
            "docker ps",
            "ssh-keygen -l",
            "sum x",
            "cat at",
        ] {
            assert!(!needs(line), "{line}");
        }
    }

    #[test]
    fn git_and_rsync_need_it_where_their_arguments_reach_for_ssh() {
        for line in [
            "git clone git@example.org:a/b.git",
            "git clone ssh://example.org/a/b",
            "git -C sub fetch host:repo main:main",
            "git push --repo=ssh://h/r",
            "rsync -a x host:y",
            "rsync -a -e ssh x y",
        ] {
            assert!(needs(line), "{line}");
        }
        for line in [
            "git status",
            "git push origin main:main",
            "git fetch origin refs/heads/a:refs/heads/b",
            "git clone https://example.org/a/b",
            "git clone ../other",
            "git log --format=%h:%s",
            "rsync -a x/ y/",
            "rsync -a host::module x",
            "rsync -a rsync://host/module x",
        ] {
            assert!(!needs(line), "{line}");
        }
    }
}
