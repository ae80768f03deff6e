//! Tells whether one approvals document allows more than another. Owners can let gateways only
//! tighten their document, and editors must confirm what they loosen.
//!
//! Documents are compared by their effect on commands, not by the strictness of their words. For
//! example, `ask=off` refuses a command that misses the allowlist, while `on-miss` lets the gateway
//! ask and trusts its answer, which is looser.

use std::collections::BTreeSet;

use interlock_config::Config;
use interlock_policy::{
    AgentId, Ask, BASE, Document, Entry, Fallback, Security, auto_allow_skills, deny_rules, entries,
};

/// The effect on a command, from strict to loose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CommandFate {
    Refused,
    /// The command runs if an approver allows the plan that was shown.
    Asked,
    /// The command runs if the gateway says that it was approved.
    AskedLoosely,
    Runs,
}

/// Describes everything that the new document loosens. The documents are compared both with the
/// current config of this machine and without it, because the config may change later while the
/// document stays.
pub fn loosenings(old: &Document, new: &Document, config: &Config) -> Vec<String> {
    let nothing = Config::default();
    let (named, other) = agents(old, new, config);
    let named = named
        .iter()
        .map(|agent| (agent, format!("the agent {agent}")));
    let other = other
        .iter()
        .map(|agent| (agent, "all other agents".to_owned()));
    let everyone: Vec<(&AgentId, String)> = named.chain(other).collect();
    // Mention a change for several agents only once.
    let mut all: Vec<(String, Vec<&str>)> = Vec::new();
    for (agent, shown) in &everyone {
        let levels = [config, &nothing]
            .into_iter()
            .find_map(|config| loosened_levels(old, new, config, agent));
        let lists = loosened_lists(old, new, agent);
        for what in levels.into_iter().chain(lists) {
            match all.iter_mut().find(|(known, _)| *known == what) {
                Some((_, agents)) => agents.push(shown),
                None => all.push((what, vec![shown])),
            }
        }
    }
    let described_all = all.into_iter().map(|(what, agents)| {
        if agents.len() == everyone.len() {
            format!("{what} for every agent")
        } else {
            format!("{what} for {}", agents.join(", "))
        }
    });
    described_all.collect()
}

/// All agents that the documents or the config name, and one agent that none of them names.
fn agents(old: &Document, new: &Document, config: &Config) -> (Vec<AgentId>, Option<AgentId>) {
    let configured = config.agents.list.iter().map(|agent| &agent.id);
    let documented = old.agents.keys().chain(new.agents.keys());
    let mut names: BTreeSet<String> = documented.chain(configured).cloned().collect();
    names.insert(AgentId::MAIN.to_owned());
    let mut other = "any-other".to_owned();
    while names.contains(&other) {
        other.push('x');
    }
    let ids = names.iter().filter_map(|name| AgentId::new(name).ok());
    (ids.collect(), AgentId::new(&other).ok())
}

fn loosened_levels(
    old: &Document,
    new: &Document,
    config: &Config,
    agent: &AgentId,
) -> Option<String> {
    let levels = |document| crate::levels(config, document, agent, None);
    let (old, new) = (levels(old), levels(new));
    let fates = |levels: &interlock_policy::Levels| {
        let (security, ask) = (levels.security.value(), levels.ask.value());
        [IsListed::Yes, IsListed::No].map(|listed| fate(security, ask, listed))
    };
    let runs_more = fates(&old)
        .into_iter()
        .zip(fates(&new))
        .any(|(old, new)| new > old);
    if runs_more {
        let shown = |levels: &interlock_policy::Levels| {
            format!("{}/{}", levels.security.value(), levels.ask.value())
        };
        return Some(format!(
            "security and ask {} → {}",
            shown(&old),
            shown(&new)
        ));
    }
    let fallback = |levels: &interlock_policy::Levels| -> Fallback { levels.ask_fallback.value() };
    let (old, new) = (fallback(&old), fallback(&new));
    (new < old).then(|| format!("askFallback {old} → {new}"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IsListed {
    Yes,
    No,
}

fn fate(security: Security, ask: Ask, listed: IsListed) -> CommandFate {
    match (security, ask, listed) {
        (Security::Deny, ..) | (Security::Allowlist, Ask::Off, IsListed::No) => {
            CommandFate::Refused
        }
        (_, Ask::Always, _) => CommandFate::Asked,
        (Security::Full, ..) | (Security::Allowlist, _, IsListed::Yes) => CommandFate::Runs,
        (Security::Allowlist, Ask::OnMiss, IsListed::No) => CommandFate::AskedLoosely,
    }
}

fn loosened_lists(old: &Document, new: &Document, agent: &AgentId) -> Vec<String> {
    let mut all = Vec::new();
    if auto_allow_skills(new, agent) && !auto_allow_skills(old, agent) {
        all.push("autoAllowSkills: programs of skills run without asking".to_owned());
    }
    let rules = |document| {
        deny_rules(document, agent)
            .into_iter()
            .map(|(rule, _)| rule)
    };
    let kept: Vec<_> = rules(new).collect();
    for rule in rules(old).filter(|rule| !kept.contains(rule)) {
        all.push(format!("no deny rule {}", rule.pattern));
    }
    let allowed = |document| {
        let all = entries(document, agent).into_iter();
        all.map(|(entry, _)| meaning(entry))
    };
    let before: Vec<_> = allowed(old).collect();
    for entry in allowed(new).filter(|entry| !before.contains(entry)) {
        all.push(format!("allowlist entry {}", described(&entry)));
    }
    all
}

/// Describes an entry in a few words.
fn described(entry: &Entry) -> String {
    let mut shown = entry.pattern.clone();
    match (&entry.args, &entry.arg_pattern) {
        (Some(args), _) if args.is_empty() => shown.push_str(" without arguments"),
        (Some(args), _) => shown.push_str(&format!(" {}", args.join(" "))),
        (None, Some(pattern)) => shown.push_str(&format!(" with arguments like {pattern}")),
        (None, None) => {}
    }
    shown
}

/// The entry without fields that do not affect what it allows. The source of base entries stays,
/// because they match fewer programs.
fn meaning(entry: Entry) -> Entry {
    Entry {
        id: None,
        source: entry.is_base().then(|| BASE.to_owned()),
        command_text: None,
        last_used_at: None,
        last_used_command: None,
        last_resolved_path: None,
        note: None,
        ..entry
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use serde_json::{Value, json};

    fn document(value: Value) -> Document {
        let mut value = value;
        value["version"] = 1.into();
        Document::from_json(&value).unwrap()
    }

    fn loosens(old: &Value, new: &Value, config: &Value) -> Option<String> {
        let config: Config = serde_json::from_value(config.clone()).unwrap();
        let found = loosenings(&document(old.clone()), &document(new.clone()), &config);
        (!found.is_empty()).then(|| found.join("; "))
    }

    fn defaults(security: &str, ask: &str) -> Value {
        json!({ "defaults": { "security": security, "ask": ask } })
    }

    #[test]
    fn levels_are_compared_by_their_effect_on_commands() {
        for (old, new, is_looser) in [
            (("deny", "off"), ("full", "off"), true),
            (("deny", "off"), ("allowlist", "always"), true),
            (("allowlist", "on-miss"), ("full", "off"), true),
            (("allowlist", "always"), ("allowlist", "on-miss"), true),
            (("full", "always"), ("allowlist", "off"), true),
            // The gateway would be trusted about misses.
            (("allowlist", "off"), ("allowlist", "on-miss"), true),
            (("allowlist", "on-miss"), ("allowlist", "off"), false),
            (("allowlist", "on-miss"), ("allowlist", "always"), false),
            (("full", "off"), ("allowlist", "on-miss"), false),
            (("full", "off"), ("full", "always"), false),
            (("full", "off"), ("deny", "off"), false),
        ] {
            let (before, after) = (defaults(old.0, old.1), defaults(new.0, new.1));
            let found = loosens(&before, &after, &json!({}));
            assert_eq!(found.is_some(), is_looser, "{old:?} {new:?}: {found:?}");
        }
    }

    #[test]
    fn the_document_counts_with_the_config_and_without_it() {
        let config = json!({ "tools": { "exec": { "security": "allowlist", "ask": "off" } } });
        let (yolo, cautious) = (defaults("full", "off"), defaults("allowlist", "on-miss"));
        assert_eq!(loosens(&yolo, &cautious, &json!({})), None);
        assert!(loosens(&yolo, &cautious, &config).is_some());
        // The config may later allow what it forbids now.
        let config = json!({ "tools": { "exec": { "security": "deny" } } });
        assert!(loosens(&cautious, &yolo, &config).is_some());
    }

    #[test]
    fn lists_and_single_agents_count() {
        let with = |scope: Value| json!({ "agents": { "*": scope } });
        let rg = json!({ "pattern": "/usr/bin/rg", "id": "1" });
        let same = json!({ "pattern": "/usr/bin/rg", "id": "2", "note": "n", "lastUsedAt": 5 });
        let narrow = json!({ "pattern": "/usr/bin/rg", "argPattern": "^x$" });
        let list = |entries: &[&Value]| with(json!({ "allowlist": entries }));
        let none = json!({});
        assert_eq!(loosens(&list(&[&rg]), &list(&[&same]), &none), None);
        assert_eq!(loosens(&list(&[&rg]), &list(&[]), &none), None);
        let found = loosens(&list(&[]), &list(&[&rg]), &none).unwrap();
        assert!(
            found == "allowlist entry /usr/bin/rg for every agent",
            "{found}"
        );
        assert!(loosens(&list(&[&narrow]), &list(&[&rg]), &none).is_some());
        let deny = with(json!({ "deny": [{ "pattern": "rm" }] }));
        assert!(loosens(&deny, &list(&[]), &none).is_some());
        assert_eq!(loosens(&list(&[]), &deny, &none), None);
        let skills = with(json!({ "autoAllowSkills": true }));
        assert!(loosens(&list(&[]), &skills, &none).is_some());
        let fallback = with(json!({ "askFallback": "full" }));
        assert!(loosens(&list(&[]), &fallback, &none).is_some());
        // The levels of `*` apply to agents without their own.
        let strict = json!({ "defaults": { "security": "deny" } });
        let one = json!({ "defaults": { "security": "deny" }, "agents": { "ops": { "security": "full" } } });
        let found = loosens(&strict, &one, &none).unwrap();
        assert_eq!(
            found,
            "security and ask deny/off → full/off for the agent ops"
        );
        assert_eq!(loosens(&one, &strict, &none), None);
    }
}
