//! Checks of the files with state and secrets: which other accounts can read or change them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use interlock_config::types::Config;
use interlock_policy::{AgentId, quote};

use super::subject::expanded;
use super::table::checks;
use super::{FindingSeverity, SecurityFinding};
use crate::outside_writer::{PathUse, outside_writer};

/// How many files of one directory are checked.
const MAX_FILES: usize = 4096;

/// Subdirectories of the state directory whose files must be closed to other users. `sessions` is
/// not among them: it contains the output of runs, in directories that are closed themselves.
const INNER_DIRECTORIES: &[&str] = &["identity", "tls"];

pub(super) fn quoted(path: &Path) -> String {
    quote(&path.display().to_string())
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Checks the directory, its files, and the files of the directories with keys.
pub(super) fn check_state_directory(directory: &Path, findings: &mut Vec<SecurityFinding>) {
    let Ok(metadata) = fs::metadata(directory) else {
        return;
    };
    let mode = metadata.mode() & 0o777;
    if metadata.uid() != own_user() {
        findings.push(checks::STATE_DIRECTORY.finding(
            FindingSeverity::Critical,
            directory.display().to_string(),
            format!("the state directory belongs to user {}", metadata.uid()),
            format!("sudo -u '#{}' interlock security audit", metadata.uid()),
        ));
        return;
    }
    if mode & 0o077 != 0 {
        let severity = if mode & 0o022 != 0 {
            FindingSeverity::Critical
        } else {
            FindingSeverity::Warn
        };
        findings.push(checks::STATE_DIRECTORY.finding(
            severity,
            directory.display().to_string(),
            format!("the state directory is open to other users (mode {mode:04o})"),
            format!("chmod 700 {}", quoted(directory)),
        ));
    }
    if let Some(parent) = directory.parent()
        && let Ok(Some(reason)) = outside_writer(parent, own_user(), PathUse::Present)
    {
        findings.push(checks::STATE_DIRECTORY.finding(
            FindingSeverity::Critical,
            parent.display().to_string(),
            format!("another user can replace the state directory: {reason}"),
            format!("chmod go-w {}", quoted(parent)),
        ));
    }
    check_files_of(directory, findings);
    for name in INNER_DIRECTORIES {
        check_files_of(&directory.join(name), findings);
    }
}

fn check_files_of(directory: &Path, findings: &mut Vec<SecurityFinding>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    let mut paths: Vec<PathBuf> = entries
        .take(MAX_FILES)
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    for path in paths {
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_symlink() {
            continue;
        }
        let mode = metadata.mode() & 0o777;
        let subject = path.display().to_string();
        if metadata.uid() != own_user() {
            findings.push(checks::STATE_FILE.finding(
                FindingSeverity::Critical,
                subject,
                format!("{} belongs to user {}", path.display(), metadata.uid()),
                // A file of another user must be inspected, not adopted.
                format!("ls -l {}", quoted(&path)),
            ));
        } else if mode & 0o022 != 0 {
            findings.push(checks::STATE_FILE.finding(
                FindingSeverity::Critical,
                subject,
                format!("other users can write {} (mode {mode:04o})", path.display()),
                format!("chmod go-rwx {}", quoted(&path)),
            ));
        } else if mode & 0o044 != 0 && metadata.is_file() && is_secret(&path) {
            findings.push(checks::STATE_FILE.finding(
                FindingSeverity::Warn,
                subject,
                format!("other users can read {} (mode {mode:04o})", path.display()),
                format!("chmod go-rwx {}", quoted(&path)),
            ));
        }
    }
}

/// Whether a file contains keys, tokens or records. The config contains no secrets.
fn is_secret(path: &Path) -> bool {
    path.file_name().is_none_or(|name| name != "interlock.json")
}

/// Checks the config file, which may be outside the state directory.
pub(super) fn check_config_file(path: &Path, findings: &mut Vec<SecurityFinding>) {
    if let Ok(Some(reason)) = outside_writer(path, own_user(), PathUse::Present) {
        findings.push(checks::CONFIG_FILE.finding(
            FindingSeverity::Critical,
            path.display().to_string(),
            format!("another user can change the config: {reason}"),
            format!("chmod go-w {0} {1}", quoted(path), quoted(parent_of(path))),
        ));
    }
}

fn parent_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// The files with secrets that the config names, each with its key.
pub(crate) fn secret_files(config: &Config, home: Option<&str>) -> Vec<(&'static str, PathBuf)> {
    let gateway = &config.gateway;
    let named = [
        ("gateway.auth.passwordFile", &gateway.auth.password_file),
        ("gateway.remote.tokenFile", &gateway.remote.token_file),
        ("gateway.remote.passwordFile", &gateway.remote.password_file),
        ("gateway.tls.keyPath", &gateway.tls.key_path),
    ];
    let named = named.into_iter().filter_map(|(key, path)| {
        let path = expanded(path.as_deref()?, home)?;
        Some((key, path))
    });
    named.collect()
}

/// Whether runs can read a file of this user. The shield hides only the state directory. Runs under
/// another account cannot read files of mode 0600.
pub(super) fn is_readable_by_runs(config: &Config, state_dir: &Path, path: &Path) -> bool {
    let listed = config.agents.list.iter().map(|agent| agent.id.as_str());
    let mut agents = listed.chain([AgentId::MAIN]);
    if agents.all(|agent| config.exec_for(agent).run_as.is_some()) {
        return false;
    }
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    !real(path).starts_with(real(state_dir))
}

/// Checks the files with secrets that the config names.
pub(super) fn check_secrets(
    config: &Config,
    state_dir: &Path,
    home: Option<&str>,
    findings: &mut Vec<SecurityFinding>,
) {
    for (key, path) in secret_files(config, home) {
        if path.exists() && is_readable_by_runs(config, state_dir, &path) {
            let name = key.rsplit('.').next().unwrap_or(key);
            let inside = state_dir.join(format!("gateway-{name}.secret"));
            findings.push(checks::SECRET_FILE_READABLE.finding(
                FindingSeverity::Warn,
                key,
                format!(
                    "{} is outside the state directory, where runs of this user can read it",
                    path.display()
                ),
                format!(
                    "mv {} {} && interlock config set {key} {}",
                    quoted(&path),
                    quoted(&inside),
                    quoted(&inside)
                ),
            ));
        }
        let Ok(metadata) = fs::metadata(&path) else {
            findings.push(checks::SECRET_FILE.finding(
                FindingSeverity::Warn,
                key,
                format!("{key} names {}, which cannot be looked at", path.display()),
                format!("ls -l {}", quoted(&path)),
            ));
            continue;
        };
        let mode = metadata.mode() & 0o777;
        let is_open = mode & 0o077 != 0;
        let reason = if is_open {
            Some(format!("its mode is {mode:04o}"))
        } else {
            outside_writer(&path, own_user(), PathUse::Present)
                .ok()
                .flatten()
        };
        if let Some(reason) = reason {
            findings.push(checks::SECRET_FILE.finding(
                FindingSeverity::Critical,
                key,
                format!("{} is open to other users: {reason}", path.display()),
                format!(
                    "chmod 600 {0} && chmod go-w {1}",
                    quoted(&path),
                    quoted(parent_of(&path))
                ),
            ));
        }
    }
}
