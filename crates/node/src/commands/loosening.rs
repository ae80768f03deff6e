//! Whether one approvals document lets more run than another: for owners who let gateways only
//! tighten theirs.
//!
//! Judged by what becomes of commands, not by the words: where `ask=off` refuses what is not on the
//! allowlist, `on-miss` has the gateway ask, and believes its answer.

use std::collections::BTreeSet;

use interlock_config::Config;
use interlock_policy::{
    AgentId, Ask, BASE, Document, Entry, Fallback, Security, auto_allow_skills, deny_rules, entries,
};

/// What becomes of a command, from strict to loose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CommandFate {
    Refused,
    /// By a plan that was shown.
    Asked,
    /// The gateway's word is enough.
    AskedLoosely,
    Runs,
}

/// What the new document loosens, in words; `None` if nothing. It is compared both with the config
/// of this machine, which holds now, and without it: the config may change while the document
/// stays.
pub(super) fn loosening(old: &Document, new: &Document, config: &Config) -> Option<String> {
    let nothing = Config::default();
    let (named, other) = agents(old, new, config);
    let named = named
        .iter()
        .map(|agent| (agent, format!("the agent {agent}")));
    let other = other
        .iter()
        .map(|agent| (agent, "all other agents".to_owned()));
    named.chain(other).find_map(|(agent, shown)| {
        let what = [config, &nothing]
            .into_iter()
            .find_map(|config| loosened_levels(old, new, config, agent))
            .or_else(|| loosened_lists(old, new, agent))?;
        Some(format!("{what} for {shown}"))
    })
}

/// Every agent that something is said of, and one that nothing is said of.
fn agents(old: &Document, new: &Document, config: &Config) -> (Vec<AgentId>, Option<AgentId>) {
    let configured = config.agents.list.iter().map(|agent| &agent.id);
    let told_of = old.agents.keys().chain(new.agents.keys());
    let mut names: BTreeSet<String> = told_of.chain(configured).cloned().collect();
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
) -> Option<&'static str> {
    let levels = |document| interlock_rules::levels(config, document, agent, None);
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
        return Some("security or ask");
    }
    let fallback = |levels: &interlock_policy::Levels| -> Fallback { levels.ask_fallback.value() };
    (fallback(&new) < fallback(&old)).then_some("askFallback")
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

fn loosened_lists(old: &Document, new: &Document, agent: &AgentId) -> Option<&'static str> {
    if auto_allow_skills(new, agent) && !auto_allow_skills(old, agent) {
        return Some("autoAllowSkills");
    }
    let rules = |document| {
        deny_rules(document, agent)
            .into_iter()
            .map(|(rule, _)| rule)
    };
    let kept: Vec<_> = rules(new).collect();
    if rules(old).any(|rule| !kept.contains(&rule)) {
        return Some("deny");
    }
    let allowed = |document| {
        let all = entries(document, agent).into_iter();
        all.map(|(entry, _)| meaning(entry))
    };
    let before: Vec<_> = allowed(old).collect();
    let has_more = allowed(new).any(|entry| !before.contains(&entry));
    has_more.then_some("the allowlist")
}

/// What an entry allows, without what is only noted of it. Entries of the base satisfy fewer
/// programs.
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
        loosening(&document(old.clone()), &document(new.clone()), &config)
    }

    fn defaults(security: &str, ask: &str) -> Value {
        json!({ "defaults": { "security": security, "ask": ask } })
    }

    #[test]
    fn levels_are_compared_by_what_becomes_of_commands() {
        for (old, new, is_looser) in [
            (("deny", "off"), ("full", "off"), true),
            (("deny", "off"), ("allowlist", "always"), true),
            (("allowlist", "on-miss"), ("full", "off"), true),
            (("allowlist", "always"), ("allowlist", "on-miss"), true),
            (("full", "always"), ("allowlist", "off"), true),
            // The gateway would be believed about misses.
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
        // What the config forbids today it may allow tomorrow.
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
        assert!(loosens(&list(&[]), &list(&[&rg]), &none).is_some());
        assert!(loosens(&list(&[&narrow]), &list(&[&rg]), &none).is_some());
        let deny = with(json!({ "deny": [{ "pattern": "rm" }] }));
        assert!(loosens(&deny, &list(&[]), &none).is_some());
        assert_eq!(loosens(&list(&[]), &deny, &none), None);
        let skills = with(json!({ "autoAllowSkills": true }));
        assert!(loosens(&list(&[]), &skills, &none).is_some());
        let fallback = with(json!({ "askFallback": "full" }));
        assert!(loosens(&list(&[]), &fallback, &none).is_some());
        // The words of all agents are those of the ones that have none of their own.
        let strict = json!({ "defaults": { "security": "deny" } });
        let one = json!({ "defaults": { "security": "deny" }, "agents": { "ops": { "security": "full" } } });
        let found = loosens(&strict, &one, &none).unwrap();
        assert_eq!(found, "security or ask for the agent ops");
        assert_eq!(loosens(&one, &strict, &none), None);
    }
}
