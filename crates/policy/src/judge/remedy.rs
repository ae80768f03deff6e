//! Advice that holds: only commands that, when run, change the answer.

use super::{Facts, Policy};
use crate::effective::{Joined, Source};
use crate::level::{Ask, Security, Strictness};
use crate::verdict::{Judged, Outcome, Reason, Remedy};

/// Nobody pastes a longer command.
const MAX_PASTED_ARGUMENTS: usize = 100;

/// Misses that no entry can satisfy: what decides is not which file the program is.
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
    outcome: Outcome,
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
    let nobody_asked = outcome == Outcome::Deny && policy.levels.ask.value() == Ask::Off;
    if remedies.is_empty() && nobody_asked {
        remedies.extend(start_asking(policy));
    }
    remedies
}

/// The entries that would satisfy every miss; none if one of them is out of their reach.
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
            "entry-arguments" | "entry-unforeseen" | "opaque" | "wrapper"
        );
        if BEYOND_ENTRIES.contains(&judged.reason.code)
            // Whoever bound the content wants to be asked about another one.
            || judged.reason.code == "entry-content"
            || (wants_arguments && !can_be_listed(&judged.argv))
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

/// The entry that would satisfy a miss, where there can be one.
fn entry_for(policy: &Policy, facts: &Facts, judged: &Judged) -> Option<Remedy> {
    let agent = policy.agent.as_str();
    let name = judged.argv.first()?;
    let shield = if facts.needing.is_some() {
        " --shield off"
    } else {
        ""
    };
    let add = format!("interlock approvals allowlist add --agent {agent}{shield}");
    match judged.reason.code {
        "allowlist-miss" | "safe-bin-arguments" | "safe-bin-untrusted" | "entry-expired"
        | "entry-cwd" | "entry-name" | "entry-unprotected" | "entry-inert" => {
            let by_path = name.contains('/')
                || judged
                    .resolved
                    .as_deref()
                    .is_some_and(|path| !path.ends_with(&format!("/{name}")));
            let pattern = if by_path {
                judged.canonical.clone()?
            } else {
                name.clone()
            };
            Some(Remedy {
                effect: format!("add `{pattern}` for agent {agent}"),
                command: format!("{add} {}", quote(&pattern)),
            })
        }
        "entry-shield" => {
            let pattern = if name.contains('/') {
                judged.canonical.clone()?
            } else {
                name.clone()
            };
            Some(Remedy {
                effect: format!("let `{pattern}` run without the shield for agent {agent}"),
                command: format!("{add} {}", quote(&pattern)),
            })
        }
        "entry-arguments" | "entry-unforeseen" | "opaque" | "wrapper"
            if judged.argv.len() <= MAX_PASTED_ARGUMENTS =>
        {
            let arguments: Vec<String> = judged.argv[1..]
                .iter()
                .map(|argument| format!(" --arg={}", quote(argument)))
                .collect();
            let pattern = if name.contains('/') {
                judged.canonical.clone()?
            } else {
                name.clone()
            };
            Some(Remedy {
                effect: format!("add `{pattern}` with exactly these arguments for agent {agent}"),
                command: format!("{add}{} {}", arguments.concat(), quote(&pattern)),
            })
        }
        _ => None,
    }
}

/// An entry for exactly these arguments: none cannot be said there, and a wildcard would say more
/// than is meant.
fn can_be_listed(argv: &[String]) -> bool {
    argv.len() > 1
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

/// Works unless every source has a word of its own for this agent.
fn start_asking(policy: &Policy) -> Option<Remedy> {
    let layers = &policy.levels.ask.layers;
    let heard = |source: Source| {
        let layer = layers.iter().find(|layer| layer.source == source);
        layer.is_none_or(|layer| is_global(&layer.path))
    };
    (heard(Source::Config) || heard(Source::Host)).then(|| Remedy {
        effect: "ask a human about it".to_owned(),
        command: "interlock exec-policy set --ask on-miss".to_owned(),
    })
}

/// The commands that bring every stricter source down to `wanted`; none if one of them is out of
/// the reach of a command.
fn reach<T: Strictness + std::fmt::Display>(
    joined: &Joined<T>,
    wanted: T,
    global: &str,
) -> Option<Vec<String>> {
    let mut commands = Vec::new();
    for layer in joined.layers.iter().filter(|layer| layer.value > wanted) {
        let command = match layer.source {
            Source::Config | Source::Host if is_global(&layer.path) => {
                format!("interlock {global}")
            }
            // A mode stands for more than this level; what to put there is for the owner to say.
            Source::Config if !layer.path.ends_with("exec.mode") => {
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

/// Written for every agent, where `exec-policy set` writes.
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

/// For a POSIX shell.
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
