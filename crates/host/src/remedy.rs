//! Advice that holds: only commands that, when run on this host, change the answer.
//!
//! The judge knows which entry would satisfy a command. Whether that is enough, and which command
//! reaches the place where a level is written, is known here, where the levels are set.

use interlock_policy::{
    Ask, Joined, Outcome, Policy, Remedy, Security, Source, Strictness, Verdict, quote,
};

/// Misses that no entry can satisfy: what decides is not which file the program is.
const BEYOND_ENTRIES: &[&str] = &[
    "builtin-form",
    "env-assignment",
    "not-found",
    "shell",
    "shell-text",
    "shell-untrusted",
];

/// Puts the advice in the verdict right.
pub(crate) fn settle(policy: &Policy, verdict: &mut Verdict) {
    match (verdict.outcome, verdict.reason.code) {
        (Outcome::Allow(_), _) => {}
        (_, "security-deny") => {
            verdict.remedies = loosen_security(policy).unwrap_or_default();
        }
        (_, "ask-always") => {
            verdict.remedies = loosen_ask(policy).unwrap_or_default();
        }
        _ => settle_entries(policy, verdict),
    }
}

fn settle_entries(policy: &Policy, verdict: &mut Verdict) {
    let by_entries = policy.levels.security.value() == Security::Allowlist
        && !matches!(verdict.reason.code, "inline-code" | "unseen-words");
    let mut misses = verdict
        .segments
        .iter()
        .filter(|judged| judged.satisfied_by.is_none());
    let out_of_reach = misses.any(|judged| {
        let starts_others = matches!(judged.reason.code, "opaque" | "wrapper");
        (starts_others && !can_be_listed(&judged.argv))
            || BEYOND_ENTRIES.contains(&judged.reason.code)
    });
    if !by_entries || out_of_reach {
        verdict.remedies.clear();
    }
    let nobody_asked = verdict.outcome == Outcome::Deny && policy.levels.ask.value() == Ask::Off;
    let refused = matches!(verdict.reason.code, "deny-rule" | "env-rejected");
    if verdict.remedies.is_empty() && nobody_asked && !refused {
        verdict.remedies.extend(start_asking(policy));
    }
}

/// A program that starts others wants its exact arguments in the entry: none cannot be said there,
/// and a wildcard would say more than is meant.
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
