//! Chooses the shell for text that only a shell can run.

use std::os::unix::fs::MetadataExt;

use interlock_plan::FsResolver;
use interlock_programs::{Executable, Lookup, Resolver};

const SHELLS_FILE: &str = "/etc/shells";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no usable shell: neither $SHELL nor bash nor sh in PATH")]
pub struct ShellError;

/// `$SHELL`, if the system lists it and root owns it. Otherwise `bash` or `sh` from PATH, which are
/// also preferred to fish, because fish reads another language.
pub fn choose_shell(shell: Option<&String>, path: &str) -> Result<Executable, ShellError> {
    let resolver = FsResolver::from_path_value(path, None);
    let find = |name: &str| match resolver.executable(name, "/") {
        Lookup::Found(executable) => Some(executable),
        Lookup::Missing(_) => None,
    };
    let listed = std::fs::read_to_string(SHELLS_FILE).unwrap_or_default();
    let configured = shell
        .filter(|shell| listed.lines().any(|line| line.trim() == shell.as_str()))
        .and_then(|shell| find(shell))
        .filter(|shell| is_owned_by_root(&shell.canonical));
    let is_fish = configured
        .as_ref()
        .is_some_and(|shell| name(&shell.canonical) == "fish");
    let common = || find("bash").or_else(|| find("sh"));
    let chosen = if is_fish {
        common().or(configured)
    } else {
        configured.or_else(common)
    };
    chosen.ok_or(ShellError)
}

fn is_owned_by_root(path: &str) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.uid() == 0)
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The options that keep a shell from reading start-up files.
pub(super) fn options(canonical: &str) -> Vec<String> {
    let options: &[&str] = match name(canonical) {
        "zsh" => &["-f"],
        "bash" => &["--norc", "--noprofile"],
        _ => &[],
    };
    options.iter().map(|option| (*option).to_owned()).collect()
}
