//! Checks of allowlist entries: which ones can be abused, and which ones have no effect.

use std::io;
use std::path::{Path, PathBuf};

use interlock_policy::safe_bin::is_interpreter_like;
use interlock_policy::{Allowlist, EVERY_AGENT, Entry, agent_path, path_matches, quote};

use super::table::checks;
use super::{AuditSubject, FindingSeverity, SecurityFinding};
use crate::outside_writer::{PathUse, outside_writer};

/// How many removals one command to paste contains. The finding says how many are left.
const MAX_REMOVALS: usize = 10;

/// Interpreters against which a pattern with wildcards is tested.
const USUAL_INTERPRETERS: &[&str] = &["python3", "node", "perl", "ruby", "php", "lua", "awk"];

/// An entry, and where it is written.
struct ListedEntry<'a> {
    entry: &'a Entry,
    agent: &'a str,
    origin: String,
}

impl ListedEntry<'_> {
    fn shown(&self) -> String {
        format!("{} (`{}`)", self.origin, self.entry.pattern)
    }

    /// The command that removes the entry.
    fn removal(&self) -> String {
        let agent = match self.agent {
            EVERY_AGENT => String::new(),
            agent => format!("--agent {} ", quote(agent)),
        };
        let which = self.entry.id.as_deref().unwrap_or(&self.entry.pattern);
        let which = if which.starts_with('-') {
            format!("-- {}", quote(which))
        } else {
            quote(which)
        };
        format!("interlock approvals allowlist remove {agent}{which}")
    }

    /// Whether Interlock ships the entry. Its program need not be installed or used.
    fn is_shipped(&self) -> bool {
        self.entry.is_shipped()
    }
}

pub(super) fn check(subject: &AuditSubject, findings: &mut Vec<SecurityFinding>) {
    let home = subject.home.as_deref();
    let mut never_used = Vec::new();
    for (agent, scope) in &subject.document.agents {
        let path = agent_path(agent);
        for (index, entry) in scope.allowlist.iter().enumerate() {
            let listed = ListedEntry {
                entry,
                agent,
                origin: format!("{path}.allowlist[{index}]"),
            };
            if check_form(subject, &listed, findings) {
                continue;
            }
            check_interpreter(subject, &listed, findings);
            let is_gone = check_file(subject, &listed, home, findings);
            if !is_gone && entry.last_used_at.is_none() && !listed.is_shipped() {
                never_used.push(listed);
            }
        }
    }
    if !never_used.is_empty() {
        let shown: Vec<String> = never_used.iter().map(ListedEntry::shown).collect();
        let removals: Vec<String> = never_used
            .iter()
            .take(MAX_REMOVALS)
            .map(ListedEntry::removal)
            .collect();
        let rest = match never_used.len() - removals.len() {
            0 => String::new(),
            more => {
                format!("; the fix removes {MAX_REMOVALS} of them, call it again for {more} more")
            }
        };
        findings.push(checks::ENTRY_NEVER_USED.finding(
            FindingSeverity::Info,
            "the approvals document",
            format!("no run has used {}{rest}", shown.join(", ")),
            removals.join(" && "),
        ));
    }
}

/// Reports an entry that can never match. Returns whether it is one.
fn check_form(
    subject: &AuditSubject,
    listed: &ListedEntry<'_>,
    findings: &mut Vec<SecurityFinding>,
) -> bool {
    let entry = listed.entry;
    let alone = std::iter::once((entry.clone(), listed.origin.clone()));
    let compiled = Allowlist::new(alone.collect(), subject.home.as_deref());
    let broken = compiled.broken().next().map(|(_, error)| error.to_string());
    let (check, severity, what) = if let Some(error) = broken {
        let what = format!("{} does not compile: {error}", listed.shown());
        (checks::ENTRY_BROKEN, FindingSeverity::Warn, what)
    } else if entry.is_inert() {
        let what = format!("{} was remembered without its arguments", listed.shown());
        (checks::ENTRY_INERT, FindingSeverity::Warn, what)
    } else if entry.expires_at.is_some_and(|at| at <= subject.now_ms) {
        let what = format!("{} has expired", listed.shown());
        (checks::ENTRY_EXPIRED, FindingSeverity::Info, what)
    } else {
        return false;
    };
    findings.push(check.finding(severity, listed.origin.clone(), what, listed.removal()));
    true
}

fn check_interpreter(
    subject: &AuditSubject,
    listed: &ListedEntry<'_>,
    findings: &mut Vec<SecurityFinding>,
) {
    let entry = listed.entry;
    // An entry with `paths` does not match code in arguments.
    let is_bound = entry.args.is_some()
        || entry.arg_pattern.is_some()
        || entry.bound_file.is_some()
        || entry.paths.is_some();
    if is_bound || entry.pattern.starts_with('=') {
        return;
    }
    // An entry for all agents is only as strict as the least strict agent.
    let is_strict = |agent: &str| {
        let exec = subject.config.exec_for(agent);
        exec.strict_inline_eval.unwrap_or(false)
    };
    let all_strict = match listed.agent {
        EVERY_AGENT => subject
            .agents()
            .iter()
            .all(|agent| is_strict(agent.as_str())),
        agent => is_strict(agent),
    };
    let Some(program) = covered_interpreter(&entry.pattern, subject.home.as_deref()) else {
        return;
    };
    if !all_strict {
        findings.push(checks::INTERPRETER_ENTRY.finding(
            FindingSeverity::Warn,
            listed.origin.clone(),
            format!("{} allows `{program}` with any arguments", listed.shown()),
            "interlock config set tools.exec.strictInlineEval true",
        ));
    }
}

/// An interpreter that the pattern allows. Shells do not count, because an entry for a shell never
/// matches.
fn covered_interpreter(pattern: &str, home: Option<&str>) -> Option<String> {
    let name = pattern.rsplit('/').next().unwrap_or(pattern);
    if !pattern.contains(['*', '?']) {
        return is_interpreter_like(name).then(|| name.to_owned());
    }
    let covers = |program: &&&str| {
        if pattern.contains('/') {
            let directories = ["/usr/bin", "/usr/local/bin"];
            directories
                .iter()
                .any(|directory| path_matches(pattern, &format!("{directory}/{program}"), home))
        } else {
            pattern == "*" || path_matches(&format!("/{pattern}"), &format!("/{program}"), None)
        }
    };
    USUAL_INTERPRETERS
        .iter()
        .find(covers)
        .map(|program| (*program).to_owned())
}

/// Reports other accounts that could replace the program. Returns whether the program is missing.
fn check_file(
    subject: &AuditSubject,
    listed: &ListedEntry<'_>,
    home: Option<&str>,
    findings: &mut Vec<SecurityFinding>,
) -> bool {
    let pattern = &listed.entry.pattern;
    // A bound entry matches only one content, even if others can write the file.
    let is_bound = listed.entry.bound_file.is_some();
    if pattern.starts_with('=') || is_bound {
        return false;
    }
    let mut found = |severity, reason: &str| {
        findings.push(checks::ENTRY_OVERWRITABLE.finding(
            severity,
            listed.origin.clone(),
            format!(
                "{} allows a program that can be replaced: {reason}",
                listed.shown()
            ),
            listed.removal(),
        ));
    };
    let run_user = run_user(subject, listed.agent);
    if !pattern.contains('/') && !pattern.starts_with('~') {
        return check_name(subject, listed, run_user, findings);
    }
    let Some(path) = super::subject::expanded(pattern, home) else {
        return false;
    };
    let text = path.to_string_lossy().into_owned();
    let (path, used_as) = match text.find(['*', '?']) {
        None => (path, PathUse::Present),
        // Any name beneath the fixed part may match.
        Some(at) => {
            let fixed = text[..at].rsplit_once('/').map_or("/", |(fixed, _)| fixed);
            (PathBuf::from(format!("{fixed}/")), PathUse::AnyName)
        }
    };
    if text.starts_with("**") {
        found(
            FindingSeverity::Warn,
            "the pattern begins with `**`, so any directory counts",
        );
        return false;
    }
    match outside_writer(&path, run_user, used_as) {
        Ok(Some(reason)) => found(FindingSeverity::Critical, &reason),
        Ok(None) if run_user != 0 => {
            if let Ok(Some(reason)) = outside_writer(&path, 0, used_as) {
                let reason = format!("runs of this account can, because {reason}");
                found(FindingSeverity::Warn, &reason);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && !listed.is_shipped() => {
            report_gone(
                listed,
                &format!("{} is not there", path.display()),
                findings,
            );
            return true;
        }
        Ok(None) | Err(_) => {}
    }
    false
}

/// Checks a name that is looked up in PATH: every directory up to the one with the program matters.
fn check_name(
    subject: &AuditSubject,
    listed: &ListedEntry<'_>,
    run_user: u32,
    findings: &mut Vec<SecurityFinding>,
) -> bool {
    let name = &listed.entry.pattern;
    if name.contains(['*', '?']) {
        return false;
    }
    for directory in &subject.search_path {
        let directory = Path::new(directory);
        let mut open = outside_writer(directory, run_user, PathUse::AnyName)
            .ok()
            .flatten();
        let path = directory.join(name);
        let is_there = path.is_file();
        if is_there && open.is_none() {
            open = outside_writer(&path, run_user, PathUse::Present)
                .ok()
                .flatten();
        }
        if let Some(reason) = open {
            findings.push(checks::ENTRY_OVERWRITABLE.finding(
                FindingSeverity::Critical,
                listed.origin.clone(),
                format!(
                    "{} allows a name that another user can give to a program of PATH: {reason}",
                    listed.shown()
                ),
                format!("chmod go-w {}", quote(&directory.display().to_string())),
            ));
            return false;
        }
        if is_there {
            return false;
        }
    }
    if subject.search_path.is_empty() || listed.is_shipped() {
        return false;
    }
    report_gone(listed, &format!("PATH leads to no `{name}`"), findings);
    true
}

fn report_gone(listed: &ListedEntry<'_>, what: &str, findings: &mut Vec<SecurityFinding>) {
    findings.push(checks::ENTRY_FILE_GONE.finding(
        FindingSeverity::Info,
        listed.origin.clone(),
        format!("{}: {what}", listed.shown()),
        listed.removal(),
    ));
}

/// The user as which commands of this agent run.
fn run_user(subject: &AuditSubject, agent: &str) -> u32 {
    let exec = subject.config.exec_for(agent);
    let account = exec
        .run_as
        .as_deref()
        .map(interlock_plan::RunAccount::named);
    match account {
        Some(Ok(account)) => account.identity.uid,
        _ => subject.user,
    }
}
