//! Proposes remedies: only commands that change the verdict when they are run.

use interlock_binding::BindingKind;

use super::{Facts, Policy, shape};
use crate::effective::{Joined, PolicySource};
use crate::entry::Entry;
use crate::level::{Ask, Security, Strictness};
use crate::pattern::has_wildcard;
use crate::remember::holds_secret_pair;
use crate::verdict::{EntryNeeds, JudgedCommand, Outcome, Reason, Remedy};

/// A command with more arguments is too long to paste.
const MAX_PASTED_ARGUMENTS: usize = 100;
const MAX_PASTED_VALUE: usize = 200;

/// Reasons for a miss that no entry can remove, because they do not depend on which file the
/// program is.
pub(crate) const BEYOND_ENTRIES: &[&str] = &[
    "builtin-form",
    "env-assignment",
    "not-found",
    "shell",
    "shell-text",
    "shell-untrusted",
];

pub(super) fn remedies(
    policy: &Policy,
    facts: &Facts,
    (outcome, kind): (Outcome, BindingKind),
    reason: &Reason,
) -> Vec<Remedy> {
    if outcome.is_allow() || facts.is_refused() {
        return Vec::new();
    }
    match reason.code {
        "security-deny" => return loosen_security(policy).unwrap_or_default(),
        "ask-always" => return loosen_ask(policy).unwrap_or_default(),
        _ => {}
    }
    let mut remedies = entries(policy, facts, reason);
    let asks_no_approver = outcome == Outcome::Deny && policy.levels.ask.value() == Ask::Off;
    // No approver could allow a command that cannot be bound.
    if remedies.is_empty() && asks_no_approver && kind != BindingKind::Unbound {
        remedies.extend(start_asking(policy));
    }
    remedies
}

/// Returns the entries that would satisfy every miss, or nothing if an entry cannot satisfy one of
/// them.
fn entries(policy: &Policy, facts: &Facts, reason: &Reason) -> Vec<Remedy> {
    let by_entries = policy.levels.security.value() == Security::Allowlist
        && !matches!(reason.code, "inline-code" | "unseen-words");
    if !by_entries {
        return Vec::new();
    }
    let mut remedies = Vec::new();
    let misses = facts
        .segments
        .iter()
        .filter(|judged| judged.satisfied_by.is_none());
    for judged in misses {
        let wants_arguments = matches!(
            judged.reason.code,
            "entry-arguments"
                | "entry-env"
                | "entry-input"
                | "entry-unforeseen"
                | "entry-paths"
                | "opaque"
                | "wrapper"
        );
        if BEYOND_ENTRIES.contains(&judged.reason.code)
            // An entry that binds the content demands an approval for other content.
            || judged.reason.code == "entry-content"
            // No entry trusts files that only look like a repository.
            || judged.reason.code == "entry-repository"
            || (wants_arguments && !can_be_listed(&judged.argv, judged.reason.code))
            || !judged.needs.env.iter().all(can_be_named)
        {
            return Vec::new();
        }
        if let Some(remedy) = entry_for(policy, facts, judged)
            && !remedies.contains(&remedy)
        {
            remedies.push(remedy);
        }
    }
    remedies
}

/// Returns the entry that would satisfy a miss, if there is one. It admits the facts of the call.
fn entry_for(policy: &Policy, facts: &Facts, judged: &JudgedCommand) -> Option<Remedy> {
    let agent = policy.agent.as_str();
    let name = judged.argv.first()?;
    let by_name = |is_path: bool| {
        // Programs in the workspace need a path, because a name never satisfies them. A path with
        // a wildcard would match more than one file.
        if is_path || judged.needs.by_path {
            let path = judged.canonical.clone();
            path.filter(|path| !has_wildcard(path))
        } else {
            Some(name.clone())
        }
    };
    let (pattern, bounds, effect) = match judged.reason.code {
        "env-unlisted" | "entry-interactive" | "entry-shield" if judged.needs.near.is_some() => {
            let near = judged.needs.near.as_deref()?;
            // An entry for many programs should not admit more for all of them.
            let pattern = if has_wildcard(&near.pattern) {
                by_name(name.contains('/'))?
            } else {
                near.pattern.clone()
            };
            (pattern, bounds_of(near)?, "")
        }
        "entry-workspace" => {
            let shape = shape::of_command(judged, &policy.safe_bins.trusted_dirs);
            (by_name(true)?, shape.flags, shape.words)
        }
        "allowlist-miss" | "safe-bin-arguments" | "safe-bin-untrusted" | "entry-expired"
        | "entry-cwd" | "entry-name" | "entry-unprotected" | "entry-inert" | "env-unlisted"
        | "skill-interactive" => {
            let is_elsewhere = judged
                .resolved
                .as_deref()
                .is_some_and(|path| !path.ends_with(&format!("/{name}")));
            let pattern = by_name(name.contains('/') || is_elsewhere)?;
            let shape = shape::of_command(judged, &policy.safe_bins.trusted_dirs);
            (pattern, shape.flags, shape.words)
        }
        // Nothing is narrower than the program without arguments in this directory.
        "entry-paths" if judged.argv.len() == 1 => {
            let cwd = &judged.cwd;
            if has_wildcard(cwd) {
                return None;
            }
            let bounds = format!(" --arg-pattern='^$' --cwd={}", quote(cwd));
            let pattern = by_name(name.contains('/'))?;
            (pattern, bounds, " without arguments in this directory")
        }
        "entry-arguments" | "entry-env" | "entry-input" | "entry-unforeseen" | "entry-paths"
        | "opaque" | "wrapper"
            if judged.argv.len() <= MAX_PASTED_ARGUMENTS =>
        {
            let arguments: Vec<String> = judged.argv[1..]
                .iter()
                .map(|argument| format!(" --arg={}", quote(argument)))
                .collect();
            let pattern = by_name(name.contains('/'))?;
            (pattern, arguments.concat(), " with exactly these arguments")
        }
        _ => return None,
    };
    let admitted = admits(&judged.needs);
    let admission = match (judged.needs.env.is_empty(), judged.needs.interactive) {
        (true, false) => "",
        (false, false) => " that admits these variables",
        (true, true) => " that the caller may type into",
        (false, true) => " that admits these variables and that the caller may type into",
    };
    let (shield, without) = match facts.needing.is_some() {
        true if bounds.contains(SHIELD_OFF) => ("", " without the shield"),
        true => (SHIELD_OFF, " without the shield"),
        false => ("", ""),
    };
    Some(Remedy {
        effect: format!("add `{pattern}`{effect}{admission}{without} for agent {agent}"),
        command: format!(
            "interlock approvals allowlist add --agent {agent}{bounds}{admitted}{shield} {}",
            quote(&pattern)
        ),
    })
}

/// The flag of an entry for runs without the shield.
const SHIELD_OFF: &str = " --shield off";

/// Returns the flags for the facts of the call. The value of a secret stays out of the command.
fn admits(needs: &EntryNeeds) -> String {
    let mut flags = String::new();
    for (name, value) in &needs.env {
        let pair = format!("{name}={value}");
        let item = if holds_secret_pair(&pair) {
            name
        } else {
            &pair
        };
        flags += &format!(" --env {}", quote(item));
    }
    if needs.interactive {
        flags += " --interactive";
    }
    flags
}

/// Returns the flags that create an entry with the terms of this one, or `None` if a term has no
/// flag.
fn bounds_of(entry: &Entry) -> Option<String> {
    let has_flags = !entry.is_remembered()
        && entry.bound_file.is_none()
        && entry.called_as.is_none()
        && entry.expires_at.is_none()
        && entry.terminal.is_none();
    if !has_flags {
        return None;
    }
    let mut flags = String::new();
    for argument in entry.args.iter().flatten() {
        flags += &format!(" --arg={}", quote(argument));
    }
    if let Some(pattern) = &entry.arg_pattern {
        flags += &format!(" --arg-pattern={}", quote(pattern));
    }
    if let Some(cwd) = &entry.cwd {
        flags += &format!(" --cwd={}", quote(cwd));
    }
    for pattern in entry.paths.iter().flatten() {
        flags += &format!(" --path={}", quote(pattern));
    }
    // The new entry keeps admitting what this entry admits.
    for item in &entry.env {
        flags += &format!(" --env {}", quote(item));
    }
    if entry.shield.is_some() {
        flags += SHIELD_OFF;
    }
    Some(flags)
}

/// Whether a pattern can name the value exactly, and the value can be pasted.
fn can_be_named((_, value): &(String, String)) -> bool {
    !has_wildcard(value) && value.len() <= MAX_PASTED_VALUE && !value.contains(char::is_control)
}

/// Whether an entry can list exactly these arguments. A list cannot express that there are no
/// arguments, and a wildcard would match more than is meant.
fn can_be_listed(argv: &[String], code: &str) -> bool {
    let is_alone = code == "entry-paths";
    (argv.len() > 1 || is_alone)
        && argv[1..]
            .iter()
            .all(|argument| !argument.contains(['*', '?']))
}

fn loosen_security(policy: &Policy) -> Option<Vec<Remedy>> {
    let commands = reach(
        &policy.levels.security,
        Security::Allowlist,
        "exec-policy set --security allowlist --ask on-miss",
    )?;
    Some(advice("let entries decide", commands))
}

fn loosen_ask(policy: &Policy) -> Option<Vec<Remedy>> {
    let commands = reach(
        &policy.levels.ask,
        Ask::OnMiss,
        "exec-policy set --ask on-miss",
    )?;
    Some(advice("ask only on a miss", commands))
}

/// Proposes to ask a human. This works unless every source sets its own value for this agent.
fn start_asking(policy: &Policy) -> Option<Remedy> {
    let layers = &policy.levels.ask.layers;
    let heard = |source: PolicySource| {
        let layer = layers.iter().find(|layer| layer.source == source);
        layer.is_none_or(|layer| is_global(&layer.path))
    };
    (heard(PolicySource::Config) || heard(PolicySource::Host)).then(|| Remedy {
        effect: "ask a human about it".to_owned(),
        command: "interlock exec-policy set --ask on-miss".to_owned(),
    })
}

/// Returns the commands that lower every stricter source to `wanted`, or `None` if no command can
/// change one of the sources.
fn reach<T: Strictness + std::fmt::Display>(
    joined: &Joined<T>,
    wanted: T,
    global: &str,
) -> Option<Vec<String>> {
    let mut commands = Vec::new();
    for layer in joined.layers.iter().filter(|layer| layer.value > wanted) {
        let command = match layer.source {
            PolicySource::Config | PolicySource::Host if is_global(&layer.path) => {
                format!("interlock {global}")
            }
            // A mode stands for more than this level, so only the owner can decide what should
            // replace it.
            PolicySource::Config if !layer.path.ends_with("exec.mode") => {
                format!("interlock config set {} {wanted}", quote(&layer.path))
            }
            _ => return None,
        };
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    Some(commands)
}

/// Whether the value is set for every agent, where `exec-policy set` writes.
fn is_global(path: &str) -> bool {
    path.starts_with("tools.") || path.starts_with("defaults.")
}

fn advice(effect: &str, commands: Vec<String>) -> Vec<Remedy> {
    let remedy = |command| Remedy {
        effect: effect.to_owned(),
        command,
    };
    commands.into_iter().map(remedy).collect()
}

/// Quotes a word for a POSIX shell.
pub fn quote(text: &str) -> String {
    let plain = !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-./+:@%,=".contains(&byte));
    if plain {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
