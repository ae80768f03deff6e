//! The approvals document in a form that foreign gateways can read, and the merge of their changes.
//!
//! The reference refuses a whole document that contains unknown parts. Therefore a foreign gateway
//! only gets the part that means the same to it as here: the levels, and entries without unknown
//! fields. An entry that it would understand as a wider one is left out. A document written by a
//! gateway is a change of the part that it got; the rest of the document stays as it is, above all
//! the deny rules.

use serde_json::{Map, Value, json};

/// The fields of a scope, besides its entries, that the reference knows.
const LEVELS: &[&str] = &["security", "ask", "askFallback", "autoAllowSkills"];

/// The fields of an entry that the reference knows.
const ENTRY_FIELDS: &[&str] = &[
    "id",
    "pattern",
    "source",
    "commandText",
    "argPattern",
    "lastUsedAt",
    "lastUsedCommand",
    "lastResolvedPath",
];

/// Fields of an entry that mean nothing to a judge. They are left out.
const REMARKS: &[&str] = &["note"];

/// The patterns of entries for exactly one command text. Gateways are shown such entries (see
/// [`super::PreparedCommands`]), and none of them is stored when it comes back.
const COMMAND_PATTERNS: [&str; 2] = ["=command:", "=node-command:"];

/// The part of a document that a foreign gateway gets.
pub(super) fn told(document: &Value) -> Value {
    let mut told = Map::new();
    told.insert("version".to_owned(), document["version"].clone());
    if let Some(path) = document["socket"]["path"].as_str() {
        told.insert("socket".to_owned(), json!({ "path": path }));
    }
    if let Some(defaults) = document["defaults"].as_object() {
        let levels = Value::Object(levels(defaults));
        told.insert("defaults".to_owned(), levels);
    }
    if let Some(agents) = document["agents"].as_object() {
        let scopes = agents.iter().map(|(name, scope)| {
            let mut shown = scope.as_object().map(levels).unwrap_or_default();
            let entries: Vec<Value> = entries(scope).iter().filter_map(told_entry).collect();
            shown.insert("allowlist".to_owned(), entries.into());
            (name.clone(), Value::Object(shown))
        });
        told.insert("agents".to_owned(), Value::Object(scopes.collect()));
    }
    Value::Object(told)
}

/// Merges a document that a gateway wrote into the stored one.
pub(super) fn merged(stored: &Value, written: &Value) -> Value {
    let known = told(stored);
    let mut merged = stored.clone();
    let Some(document) = merged.as_object_mut() else {
        return written.clone();
    };
    // Storing the document refuses fields that the reference does not have either.
    for (name, value) in written.as_object().into_iter().flatten() {
        if !matches!(name.as_str(), "defaults" | "agents" | "socket") {
            document.insert(name.clone(), value.clone());
        }
    }
    let scope = merge_scope(
        &stored["defaults"],
        &known["defaults"],
        &written["defaults"],
    );
    put(document, "defaults", scope);
    let empty = Map::new();
    let of = |value: &Value| value["agents"].as_object().unwrap_or(&empty).clone();
    let (before, told, after) = (of(stored), of(&known), of(written));
    let mut agents = Map::new();
    for name in before
        .keys()
        .chain(after.keys().filter(|name| !before.contains_key(*name)))
    {
        let part = |scopes: &Map<String, Value>| scopes.get(name).cloned().unwrap_or_default();
        let scope = merge_scope(&part(&before), &part(&told), &part(&after));
        put(&mut agents, name, scope);
    }
    put(document, "agents", Value::Object(agents));
    merged
}

/// Inserts a value, or removes it if it is an empty object.
fn put(into: &mut Map<String, Value>, name: &str, value: Value) {
    if value.as_object().is_some_and(Map::is_empty) {
        into.remove(name);
    } else {
        into.insert(name.to_owned(), value);
    }
}

/// Merges one scope: its stored form, the form that the gateway got, and the written form.
fn merge_scope(stored: &Value, told: &Value, written: &Value) -> Value {
    let mut scope = stored.as_object().cloned().unwrap_or_default();
    for (name, value) in written.as_object().into_iter().flatten() {
        if name != "allowlist" {
            scope.insert(name.clone(), value.clone());
        }
    }
    for level in LEVELS {
        if told.get(*level).is_some() && written.get(*level).is_none() {
            scope.remove(*level);
        }
    }
    let was_told = |entry: &&Value| told_entry(entry).is_some();
    let is_written = |entry: &Value| entries(written).iter().any(|one| is_same(one, entry));
    let mut list: Vec<Value> = entries(stored)
        .iter()
        .filter(|entry| !was_told(entry) || is_written(entry))
        .cloned()
        .collect();
    let is_new = |entry: &&Value| {
        let is_command = COMMAND_PATTERNS
            .iter()
            .any(|prefix| pattern(entry).starts_with(prefix));
        !is_command && !entries(told).iter().any(|known| is_same(known, entry))
    };
    list.extend(entries(written).iter().filter(is_new).cloned());
    put(&mut scope, "allowlist", Value::Object(Map::new()));
    if !list.is_empty() {
        scope.insert("allowlist".to_owned(), list.into());
    }
    Value::Object(scope)
}

fn levels(scope: &Map<String, Value>) -> Map<String, Value> {
    let known = LEVELS.iter().filter_map(|level| {
        let value = scope.get(*level)?;
        Some(((*level).to_owned(), value.clone()))
    });
    known.collect()
}

fn entries(scope: &Value) -> &[Value] {
    scope["allowlist"].as_array().map_or(&[], Vec::as_slice)
}

fn pattern(entry: &Value) -> &str {
    entry["pattern"].as_str().unwrap_or_default().trim()
}

/// An entry in the form of the reference; `None` if that would be another entry.
fn told_entry(entry: &Value) -> Option<Value> {
    let fields = entry.as_object()?;
    let is_known =
        |name: &String| ENTRY_FIELDS.contains(&name.as_str()) || REMARKS.contains(&name.as_str());
    let is_of_reference = fields
        .get("source")
        .is_none_or(|source| source == "allow-always");
    (fields.keys().all(is_known) && is_of_reference).then(|| {
        let told = fields
            .iter()
            .filter(|(name, _)| !REMARKS.contains(&name.as_str()));
        Value::Object(
            told.map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        )
    })
}

/// Whether two entries are the same. Their ids do not count, because every writing program invents
/// them.
fn is_same(one: &Value, other: &Value) -> bool {
    pattern(one) == pattern(other) && one.get("argPattern") == other.get("argPattern")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Value {
        json!({
            "version": 1,
            "defaults": { "security": "allowlist", "ask": "on-miss",
                "deny": [{ "pattern": "/usr/bin/rm" }] },
            "agents": {
                "*": { "allowlist": [
                    { "pattern": "ls", "args": ["**"], "source": "base" },
                    { "pattern": "/usr/bin/uname", "note": "said so" } ] },
                "main": { "ask": "always", "deny": [{ "pattern": "/usr/bin/dd" }], "allowlist": [
                    { "pattern": "/usr/bin/git", "args": ["status"] },
                    { "pattern": "/usr/bin/id", "argPattern": "sha256:cwd-argv:v1:00", "source": "allow-always" },
                    { "pattern": "/bin/x", "expiresAt": 1 } ] },
                "lab": { "deny": [{ "pattern": "*" }] },
            },
        })
    }

    #[test]
    fn only_what_means_the_same_to_both_is_told() {
        assert_eq!(
            told(&stored()),
            json!({
                "version": 1,
                "defaults": { "security": "allowlist", "ask": "on-miss" },
                "agents": {
                    "*": { "allowlist": [{ "pattern": "/usr/bin/uname" }] },
                    "main": { "ask": "always", "allowlist": [
                        { "pattern": "/usr/bin/id", "argPattern": "sha256:cwd-argv:v1:00", "source": "allow-always" } ] },
                    "lab": { "allowlist": [] },
                },
            })
        );
    }

    #[test]
    fn what_comes_back_unchanged_changes_nothing() {
        assert_eq!(merged(&stored(), &told(&stored())), stored());
    }

    #[test]
    fn what_is_written_changes_only_what_was_told() {
        let mut written = told(&stored());
        written["defaults"] = json!({ "security": "deny" });
        written["agents"]["main"]["allowlist"] = json!([
            { "id": "new", "pattern": "/usr/bin/whoami" },
            { "id": "told", "pattern": "=command:0011223344556677", "source": "allow-always" } ]);
        let mut expected = stored();
        let defaults = expected["defaults"].as_object_mut().unwrap();
        defaults.remove("ask");
        defaults.insert("security".to_owned(), json!("deny"));
        let list = expected["agents"]["main"]["allowlist"]
            .as_array_mut()
            .unwrap();
        list.remove(1);
        list.push(json!({ "id": "new", "pattern": "/usr/bin/whoami" }));
        assert_eq!(merged(&stored(), &written), expected);
    }

    #[test]
    fn no_deny_rule_and_no_untold_entry_goes_with_a_scope_that_is_left_out() {
        let merged = merged(&stored(), &json!({ "version": 1 }));
        assert_eq!(
            merged,
            json!({
                "version": 1,
                "defaults": { "deny": [{ "pattern": "/usr/bin/rm" }] },
                "agents": {
                    "*": { "allowlist": [{ "pattern": "ls", "args": ["**"], "source": "base" }] },
                    "main": { "deny": [{ "pattern": "/usr/bin/dd" }], "allowlist": [
                        { "pattern": "/usr/bin/git", "args": ["status"] },
                        { "pattern": "/bin/x", "expiresAt": 1 } ] },
                    "lab": { "deny": [{ "pattern": "*" }] },
                },
            })
        );
    }

    #[test]
    fn what_neither_knows_is_kept_for_the_check_that_refuses_it() {
        let merged = merged(
            &stored(),
            &json!({ "version": 1, "mcp": {}, "agents": { "main": { "mcpTools": [] } } }),
        );
        assert_eq!(merged["mcp"], json!({}));
        assert_eq!(merged["agents"]["main"]["mcpTools"], json!([]));
    }
}
