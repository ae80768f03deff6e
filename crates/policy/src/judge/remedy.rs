//! The exact commands that would change the outcome.

use super::{Facts, Policy};
use crate::level::{Ask, Security};
use crate::verdict::{Judged, Outcome, Remedy};

/// Nobody pastes a longer command.
const MAX_PASTED_ARGUMENTS: usize = 100;

pub(super) fn remedies(policy: &Policy, facts: &Facts, outcome: Outcome) -> Vec<Remedy> {
    if outcome.is_allow() || facts.is_refused() {
        return Vec::new();
    }
    if policy.levels.security.value() == Security::Deny {
        return vec![Remedy {
            effect: "let entries decide".to_owned(),
            command: "interlock exec-policy set --security allowlist --ask on-miss".to_owned(),
        }];
    }
    let mut remedies = Vec::new();
    for judged in facts
        .segments
        .iter()
        .filter(|judged| judged.satisfied_by.is_none())
    {
        if let Some(remedy) = entry_for(policy, judged)
            && !remedies.contains(&remedy)
        {
            remedies.push(remedy);
        }
    }
    if remedies.is_empty() && outcome == Outcome::Deny && policy.levels.ask.value() == Ask::Off {
        remedies.push(Remedy {
            effect: "ask a human about it".to_owned(),
            command: "interlock exec-policy set --ask on-miss".to_owned(),
        });
    }
    remedies
}

/// The entry that would satisfy a miss, where there can be one.
fn entry_for(policy: &Policy, judged: &Judged) -> Option<Remedy> {
    let agent = policy.agent.as_str();
    let name = judged.argv.first()?;
    let add = format!("interlock approvals allowlist add --agent {agent}");
    match judged.reason.code {
        "allowlist-miss" | "safe-bin-arguments" | "safe-bin-untrusted" | "entry-expired"
        | "entry-arguments" | "entry-cwd" | "entry-unprotected" | "entry-inert" => {
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
        "opaque" | "wrapper" if judged.argv.len() <= MAX_PASTED_ARGUMENTS => {
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
