//! Checks of safe bins: names, profiles and trusted directories.

use std::path::Path;

use interlock_config::types::ExecConfig;
use interlock_policy::quote;
use interlock_policy::safe_bin::{
    DEFAULT_SAFE_BINS, Profiles, SafeBinView, always_refused, is_interpreter_like,
};
use serde_json::json;

use super::table::checks;
use super::{AuditSubject, FindingSeverity, SecurityFinding};
use crate::outside_writer::{PathUse, outside_writer};

/// Directories into which package managers and users put programs, so that others can add programs
/// there.
const RISKY_DIRECTORIES: &[&str] = &[
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/usr/local/bin",
    "/opt/homebrew/bin",
];

pub(super) fn check(subject: &AuditSubject, findings: &mut Vec<SecurityFinding>) {
    check_level(subject, "tools.exec", &subject.config.tools.exec, findings);
    for (index, agent) in subject.config.agents.list.iter().enumerate() {
        let key = format!("agents.list[{index}].tools.exec");
        check_level(subject, &key, &agent.tools.exec, findings);
    }
}

/// Checks the `exec` settings of one level of the config.
fn check_level(
    subject: &AuditSubject,
    key: &str,
    exec: &ExecConfig,
    findings: &mut Vec<SecurityFinding>,
) {
    if let Some(names) = &exec.safe_bins {
        // The list of an agent uses the profiles of both levels.
        let mut profiles = subject.config.tools.exec.safe_bin_profiles.clone();
        profiles.extend(exec.safe_bin_profiles.clone());
        let is_profiled = |name: &str| profiles.contains_key(name);
        let view = SafeBinView::new(Some(names), &[], &Profiles::built_in());
        let interpreters: Vec<&str> = view
            .unprofiled_interpreters()
            .filter(|name| !is_profiled(name))
            .collect();
        let list = format!("{key}.safeBins");
        for name in &interpreters {
            findings.push(checks::SAFE_BINS_INTERPRETER.finding(
                FindingSeverity::Warn,
                list.clone(),
                format!("{list} names the interpreter `{name}`, which has no profile"),
                without(&list, names, name),
            ));
        }
        for name in view.safe_bins.iter().map(String::as_str) {
            if interpreters.contains(&name) {
                continue;
            }
            let reason = always_refused(name).or_else(|| {
                is_interpreter_like(name).then_some("it runs code that its arguments name")
            });
            if let Some(reason) = reason {
                findings.push(checks::SAFE_BINS_BROAD.finding(
                    FindingSeverity::Warn,
                    list.clone(),
                    format!("{list} names `{name}`: {reason}"),
                    without(&list, names, name),
                ));
            }
        }
    }
    if let Some(directories) = &exec.safe_bin_trusted_dirs {
        let list = format!("{key}.safeBinTrustedDirs");
        for directory in directories {
            if let Some(reason) = why_risky(subject, directory) {
                findings.push(checks::SAFE_BIN_DIRS.finding(
                    FindingSeverity::Warn,
                    list.clone(),
                    format!("{list} trusts {directory}: {reason}"),
                    without(&list, directories, directory),
                ));
            }
        }
    }
}

/// The command that removes one word from a list, or restores the built-in list if no word is left.
fn without(key: &str, list: &[String], word: &str) -> String {
    let rest: Vec<&str> = list
        .iter()
        .map(String::as_str)
        .filter(|other| other.trim() != word)
        .collect();
    let is_built_in = rest == DEFAULT_SAFE_BINS && key.ends_with("safeBins");
    if is_built_in || (rest.is_empty() && key.ends_with("Dirs")) {
        return format!("interlock config unset {}", quote(key));
    }
    let rest = json!(rest).to_string();
    format!("interlock config set {} {}", quote(key), quote(&rest))
}

fn why_risky(subject: &AuditSubject, directory: &str) -> Option<String> {
    let home = subject.home.as_deref();
    let Some(path) = super::subject::expanded(directory, home) else {
        return Some("its home directory is not known".to_owned());
    };
    if !path.is_absolute() {
        return Some("it is not an absolute path".to_owned());
    }
    if home.is_some_and(|home| home != "/" && path.starts_with(home)) {
        return Some("it is in the home directory, where runs of this user can write".to_owned());
    }
    if RISKY_DIRECTORIES
        .iter()
        .any(|risky| path == Path::new(risky))
    {
        return Some("users and package managers put programs there".to_owned());
    }
    match outside_writer(&path, 0, PathUse::AnyName) {
        Ok(reason) => reason,
        Err(error) => Some(format!("it cannot be looked at: {error}")),
    }
}
