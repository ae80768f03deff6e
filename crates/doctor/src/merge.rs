//! Merges another approvals document into the one in force: levels only if they are stricter, deny
//! rules always, allowlist entries only if the owner asked for them.

use std::collections::BTreeSet;
use std::fmt::Display;

use interlock_policy::{Document, EVERY_AGENT, Entry, Levels, Scope, Strictness, agent_path};

/// Whether allowlist entries are merged. They always loosen the policy, so only an explicit import
/// may merge them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryMerge {
    Take,
    Leave,
}

/// The document after the merge, and what happened to each value of the other document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedDocument {
    pub document: Document,
    /// Values that became stricter, and new deny rules.
    pub tightened: Vec<String>,
    /// Entries that were added. Each allows more than before.
    pub entries: Vec<TakenEntry>,
    /// Values that were not merged, with the reason.
    pub left: Vec<LeftValue>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenEntry {
    /// The origin of the entry, such as `agents.main.allowlist[0]`.
    pub origin: String,
    pub entry: Entry,
}

/// A value that was not merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftValue {
    pub path: String,
    pub reason: String,
}

/// A scope: the defaults (`None`), all agents (`*`), or one agent.
type ScopeKey<'a> = Option<&'a str>;

pub fn merge_document(current: &Document, other: &Document, entries: EntryMerge) -> MergedDocument {
    let mut merged = MergedDocument {
        document: current.clone(),
        tightened: Vec::new(),
        entries: Vec::new(),
        left: Vec::new(),
    };
    let (security, ask, fallback) = Levels::DEFAULTS;
    merge_level(
        &mut merged,
        (current, other),
        "security",
        security,
        |scope| &mut scope.security,
        |scope| scope.security,
    );
    merge_level(
        &mut merged,
        (current, other),
        "ask",
        ask,
        |scope| &mut scope.ask,
        |scope| scope.ask,
    );
    merge_level(
        &mut merged,
        (current, other),
        "askFallback",
        fallback,
        |scope| &mut scope.ask_fallback,
        |scope| scope.ask_fallback,
    );
    merge_skills(&mut merged, current, other);
    for (key, scope) in scopes(other) {
        merge_lists(&mut merged, key, scope, entries);
    }
    merged
}

fn scopes(document: &Document) -> Vec<(ScopeKey<'_>, &Scope)> {
    let agents = document.agents.iter();
    let agents = agents.map(|(agent, scope)| (Some(agent.as_str()), scope));
    [(None, &document.defaults)]
        .into_iter()
        .chain(agents)
        .collect()
}

fn keys<'a>(one: &'a Document, other: &'a Document) -> BTreeSet<ScopeKey<'a>> {
    let of = |document: &'a Document| scopes(document).into_iter().map(|(key, _)| key);
    of(one).chain(of(other)).collect()
}

fn scope_path(key: ScopeKey<'_>) -> String {
    key.map_or_else(|| "defaults".to_owned(), agent_path)
}

fn scope_mut<'a>(document: &'a mut Document, key: ScopeKey<'_>) -> &'a mut Scope {
    match key {
        None => &mut document.defaults,
        Some(agent) => document.agents.entry(agent.to_owned()).or_default(),
    }
}

/// The effective value of a scope: its own, or else that of all agents, or else the default.
fn effective<T>(
    document: &Document,
    key: ScopeKey<'_>,
    get: impl Fn(&Scope) -> Option<T>,
) -> Option<T> {
    let of = |agent: &str| document.agents.get(agent).and_then(&get);
    let own = key.and_then(of);
    let every = || key.and_then(|_| of(EVERY_AGENT));
    own.or_else(every).or_else(|| get(&document.defaults))
}

fn own<T>(document: &Document, key: ScopeKey<'_>, get: impl Fn(&Scope) -> Option<T>) -> Option<T> {
    match key {
        None => get(&document.defaults),
        Some(agent) => document.agents.get(agent).and_then(get),
    }
}

/// Gives every scope the stricter effective value of the two documents. Effective values must be
/// compared, not written ones: an agent's own value could otherwise loosen a stricter default.
fn merge_level<T: Strictness + Display>(
    merged: &mut MergedDocument,
    (current, other): (&Document, &Document),
    name: &str,
    default: T,
    slot: impl Fn(&mut Scope) -> &mut Option<T>,
    get: impl Fn(&Scope) -> Option<T> + Copy,
) {
    // The defaults come first, then all agents, then each agent, because a scope is compared with
    // the value that it inherits.
    for key in keys(current, other) {
        let ours = effective(current, key, get).unwrap_or(default);
        let theirs = effective(other, key, get);
        let level = theirs.map_or(ours, |theirs| ours.join(theirs));
        let path = format!("{}.{name}", scope_path(key));
        let inherited = effective(&merged.document, key, get).unwrap_or(default);
        if inherited != level {
            // Write the value even if the inherited one has just become stricter than both
            // documents.
            *slot(scope_mut(&mut merged.document, key)) = Some(level);
            if level != ours {
                let what = format!("{path}: {ours} becomes {level}");
                merged.tightened.push(what);
            }
        }
        let own_value = own(other, key, get).filter(|value| *value != level);
        if let Some(theirs) = own_value {
            merged.left.push(LeftValue {
                path,
                reason: format!("{theirs} would loosen {ours}"),
            });
        }
    }
}

fn merge_skills(merged: &mut MergedDocument, current: &Document, other: &Document) {
    let get = |scope: &Scope| scope.auto_allow_skills;
    for key in keys(current, other) {
        let Some(theirs) = effective(other, key, get) else {
            continue;
        };
        let ours = effective(current, key, get).unwrap_or(false);
        let path = format!("{}.autoAllowSkills", scope_path(key));
        match (ours, theirs) {
            (true, false) => {
                scope_mut(&mut merged.document, key).auto_allow_skills = Some(false);
                merged.tightened.push(format!("{path}: true becomes false"));
            }
            (false, true) if own(other, key, get).is_some() => merged.left.push(LeftValue {
                path,
                reason: "true would loosen false".to_owned(),
            }),
            _ => {}
        }
    }
}

fn merge_lists(merged: &mut MergedDocument, key: ScopeKey<'_>, scope: &Scope, entries: EntryMerge) {
    let path = scope_path(key);
    for rule in &scope.deny {
        let present = own(&merged.document, key, |scope| {
            scope.deny.contains(rule).then_some(())
        });
        if present.is_none() {
            scope_mut(&mut merged.document, key).deny.push(rule.clone());
            let taken = format!("{path}.deny: `{}`", rule.pattern);
            merged.tightened.push(taken);
        }
    }
    for (index, entry) in scope.allowlist.iter().enumerate() {
        let origin = format!("{path}.allowlist[{index}]");
        let present = own(&merged.document, key, |scope| {
            let mut list = scope.allowlist.iter();
            list.any(|other| other.has_terms_of(entry)).then_some(())
        });
        if present.is_some() {
            continue;
        }
        if entries == EntryMerge::Leave {
            merged.left.push(LeftValue {
                path: origin,
                reason: format!("an entry for `{}` would allow more", entry.pattern),
            });
            continue;
        }
        // The last use of an entry is stored beside the document, not in it.
        let entry = Entry {
            last_used_at: None,
            last_used_command: None,
            last_resolved_path: None,
            ..entry.clone()
        };
        scope_mut(&mut merged.document, key)
            .allowlist
            .push(entry.clone());
        merged.entries.push(TakenEntry { origin, entry });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use interlock_policy::{AgentId, Ask, Layer, Security};
    use serde_json::{Value, json};

    use super::*;

    fn document(value: &Value) -> Document {
        Document::from_json(value).unwrap()
    }

    fn levels(document: &Document, agent: &str) -> (Security, Ask) {
        let agent = AgentId::new(agent).unwrap();
        let levels = Levels::join(&[Layer::of_document(document, &agent)]);
        (levels.security.value(), levels.ask.value())
    }

    #[test]
    fn no_agent_ever_gets_a_looser_level() {
        let values = [
            json!({ "version": 1 }),
            json!({ "version": 1, "defaults": { "security": "deny", "ask": "always" } }),
            json!({ "version": 1, "defaults": { "security": "allowlist" },
                    "agents": { "lab": { "security": "full" } } }),
            json!({ "version": 1, "defaults": { "security": "full" },
                    "agents": { "*": { "security": "deny" }, "lab": { "security": "allowlist", "ask": "on-miss" } } }),
            json!({ "version": 1, "agents": { "main": { "security": "deny" }, "*": { "ask": "always" } } }),
        ];
        for current in &values {
            for other in &values {
                let (current, other) = (document(current), document(other));
                let merged = merge_document(&current, &other, EntryMerge::Leave);
                for agent in ["main", "lab", "unnamed"] {
                    let (before, after) =
                        (levels(&current, agent), levels(&merged.document, agent));
                    assert!(
                        after.0 >= before.0 && after.1 >= before.1,
                        "{agent}: {merged:#?}"
                    );
                }
                let again = merge_document(&merged.document, &other, EntryMerge::Leave);
                assert_eq!(again.document, merged.document);
                assert_eq!(again.tightened, Vec::<String>::new(), "{other:#?}");
            }
        }
    }

    #[test]
    fn an_agent_is_not_made_stricter_than_both_documents_say() {
        let current = document(&json!({ "version": 1, "defaults": { "ask": "on-miss" } }));
        let other = document(&json!({ "version": 1, "defaults": { "ask": "always" },
            "agents": { "main": { "ask": "on-miss" }, "*": { "deny": [{ "pattern": "rm" }] } } }));
        let merged = merge_document(&current, &other, EntryMerge::Leave);
        assert_eq!(levels(&merged.document, "main").1, Ask::OnMiss);
        assert_eq!(levels(&merged.document, "lab").1, Ask::Always);
        let told = [
            "defaults.ask: on-miss becomes always",
            "agents[\"*\"].deny: `rm`",
        ];
        assert_eq!(merged.tightened, told);
    }

    #[test]
    fn entries_are_taken_once_and_only_where_the_owner_asked() {
        let current = document(
            &json!({ "version": 1, "agents": { "main": { "allowlist": [{ "pattern": "rg" }] } } }),
        );
        let other = document(&json!({ "version": 1, "agents": { "main": {
            "allowlist": [{ "pattern": "rg", "id": "x" }, { "pattern": "git", "lastUsedAt": 5 }],
            "deny": [{ "pattern": "rm" }] } } }));
        let left = merge_document(&current, &other, EntryMerge::Leave);
        assert_eq!(left.document.agents["main"].allowlist.len(), 1);
        assert_eq!(left.left.len(), 1);
        assert_eq!(left.tightened, ["agents.main.deny: `rm`"]);
        let taken = merge_document(&current, &other, EntryMerge::Take);
        assert_eq!(taken.entries.len(), 1);
        assert_eq!(
            taken.document.agents["main"].allowlist[1],
            Entry::for_pattern("git")
        );
        let again = merge_document(&taken.document, &other, EntryMerge::Take);
        assert_eq!(again.document, taken.document);
    }
}
