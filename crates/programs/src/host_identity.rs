//! Programs that need the identity of the host's user and therefore cannot work in a user
//! namespace.
//!
//! The table only tightens. A program that is missing here runs in the shield, and its own error
//! says what it lacks there.

use crate::names::program_name;
use crate::{Resolver, join};

/// Rows by their reason; every name is in lower case.
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

/// The reason for programs that may use ssh.
const BY_SSH: &str = "reaches for ssh, which wants its configuration to belong to root";

/// The git commands that connect to a repository.
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

/// The words after `git remote` and `git submodule` that connect to a repository.
const CONNECTING_FURTHER: &[&str] = &["update", "show", "prune", "set-head"];

/// Returns why a command cannot work in a user namespace, or `None` if it can. `cwd` is `None` if
/// the directory is known only when the command runs.
pub fn host_identity(
    argv: &[String],
    cwd: Option<&str>,
    resolver: &dyn Resolver,
) -> Option<&'static str> {
    let (program, arguments) = argv.split_first()?;
    let name = program_name(program);
    let row = HOST_IDENTITY
        .iter()
        .find(|(_, names)| names.contains(&&*name));
    if let Some((reason, _)) = row {
        return Some(reason);
    }
    let reaches_for_ssh = match &*name {
        "git" => git_uses_ssh(arguments, cwd, resolver),
        "rsync" => rsync_uses_ssh(arguments),
        _ => false,
    };
    reaches_for_ssh.then_some(BY_SSH)
}

/// Whether a text may name a program of the table. This is a cheap check before the thorough one:
/// it finds too much, and it misses unusual spellings that the thorough check might see.
pub fn may_need_host_identity(text: &str) -> bool {
    let mut names = HOST_IDENTITY.iter().flat_map(|(_, names)| names.iter());
    text.contains("git") || text.contains("rsync") || names.any(|name| text.contains(name))
}

/// Decides by the address of the repository that git would connect to: the address in the
/// arguments, or the one that the repository's configuration gives to the name of a remote.
fn git_uses_ssh(arguments: &[String], cwd: Option<&str>, resolver: &dyn Resolver) -> bool {
    let mut operands = arguments.iter().filter(|word| !word.starts_with('-'));
    let Some(command) = operands.find(|word| CONNECTING.contains(&word.as_str())) else {
        return false;
    };
    let option_value = |word: &str| word.rsplit_once('=').map(|(_, value)| is_ssh(value));
    if arguments
        .iter()
        .any(|word| is_ssh_scheme(word) || option_value(word) == Some(true))
    {
        return true;
    }
    let words: Vec<&String> = operands.collect();
    let names_further = |word: &&&String| CONNECTING_FURTHER.contains(&word.as_str());
    let named: &[&String] = match command.as_str() {
        // The repository is followed by refspecs, which may have colons too.
        "fetch" | "pull" | "push" | "ls-remote" => &words[..words.len().min(1)],
        "clone" => &words,
        "remote" | "submodule" if words.first().as_ref().is_some_and(names_further) => &words[1..],
        _ => return false,
    };
    if named.iter().any(|word| is_host_and_path(word)) {
        return true;
    }
    let directory = git_directory(arguments, cwd);
    let remotes = directory.and_then(|directory| resolver.git_remotes(&directory));
    match remotes {
        Some(remotes) if named.is_empty() => remotes.addresses().iter().any(|url| is_ssh(url)),
        Some(remotes) => named
            .iter()
            .flat_map(|word| remotes.addresses_of(word))
            .any(|url| is_ssh(&url)),
        // A path or another scheme cannot mean ssh, but a name may.
        None => named.is_empty() || named.iter().any(|word| !word.contains(['/', ':'])),
    }
}

/// Returns the directory in which git looks for its repository, or `None` if that cannot be seen.
fn git_directory(arguments: &[String], cwd: Option<&str>) -> Option<String> {
    let mut directory = cwd?.to_owned();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-C" => directory = join(&directory, words.next()?),
            "-c" | "--exec-path" | "--namespace" => {
                words.next();
            }
            option if option.starts_with("--git-dir") || option.starts_with("--work-tree") => {
                return None;
            }
            option if option.starts_with('-') => {}
            _ => break,
        }
    }
    Some(directory)
}

fn is_ssh(url: &str) -> bool {
    is_ssh_scheme(url) || is_host_and_path(url)
}

fn is_ssh_scheme(url: &str) -> bool {
    ["ssh://", "git+ssh://", "ssh+git://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
}

fn rsync_uses_ssh(arguments: &[String]) -> bool {
    arguments.iter().any(|word| {
        let is_shell_option = word == "-e" || word.starts_with("--rsh");
        let is_operand = !word.starts_with('-');
        is_shell_option || (is_operand && is_host_and_path(word) && !word.contains("::"))
    })
}

/// Whether the word is `[USER@]HOST:PATH` as scp reads it: a colon before any slash, and no scheme.
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
    use crate::{GitRemotes, Glob, GlobBudget, GlobError, Lookup, Missing};

    const CONFIGURATION: &str = "\
[remote \"origin\"]
url = https://example.org/a
[remote \"private\"]
url = git@example.org:a
";

    /// The repository at `/work` has these remotes; nothing is known of others.
    struct Host(GitRemotes);

    impl Resolver for Host {
        fn executable(&self, _: &str, _: &str) -> Lookup {
            Lookup::Missing(Missing::NotFound)
        }
        fn file(&self, _: &str, _: &str) -> Lookup {
            Lookup::Missing(Missing::NotFound)
        }
        fn directory(&self, _: &str, _: &str) -> Option<String> {
            None
        }
        fn glob(&self, _: &Glob, _: &str, _: &mut GlobBudget) -> Result<Vec<String>, GlobError> {
            Ok(Vec::new())
        }
        fn git_remotes(&self, cwd: &str) -> Option<GitRemotes> {
            (cwd == "/work").then(|| self.0.clone())
        }
        fn home(&self) -> Option<String> {
            None
        }
    }

    fn needs(line: &str) -> bool {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let host = Host(GitRemotes::read([CONFIGURATION]));
        let needs = host_identity(&argv, Some("/work"), &host).is_some();
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
            "git push private main:main",
            "git push -u private feature/x",
            "git fetch",
            "git remote update private",
            "git -C elsewhere push origin main",
            "git --git-dir=x fetch origin",
            "rsync -a x host:y",
            "rsync -a -e ssh x y",
        ] {
            assert!(needs(line), "{line}");
        }
        for line in [
            "git status",
            "git push origin main:main",
            "git fetch origin refs/heads/a:refs/heads/b",
            "git ls-remote origin",
            "git remote -v",
            "git remote add x git@example.org:a",
            "git -C elsewhere fetch ../other",
            "git submodule status",
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
