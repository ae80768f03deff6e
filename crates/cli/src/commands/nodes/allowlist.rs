//! Entries of the allowlist of a node, or of a gateway elsewhere.

use interlock_arguments::StateArguments;
use interlock_console::Failure;
use interlock_console::output::line;
use interlock_host::LocalHost;
use interlock_policy::{Document, Entry};
use interlock_rules::EntryEdit;
use serde_json::{Value, json};

use super::document::known;
use super::remote::{DocumentAsked, DocumentOwner, Remote, scope};

/// The list of a scope.
const ALLOWLIST: &str = "allowlist";

/// Adds an entry for an agent or `*`. Also whose it is.
pub fn add_entry(
    state: &StateArguments,
    host: &LocalHost,
    asked: DocumentAsked<'_>,
    agent: &str,
    entry: &Entry,
) -> Result<(EntryEdit, DocumentOwner), Failure> {
    let agent = scope(agent)?;
    entry
        .check()
        .map_err(|error| Failure::usage("ENTRY_INVALID", error.to_string()))?;
    let mut remote = Remote::read(state, host, asked)?;
    if let Some(present) = find(&known(&remote.file)?, &agent, entry) {
        return Ok((EntryEdit::Present(present), remote.owner));
    }
    remote.list(&agent, ALLOWLIST)?.push(json!(entry));
    // The node gives it an id.
    let stored = find(&remote.write()?, &agent, entry);
    let stored = stored.unwrap_or_else(|| entry.clone());
    Ok((EntryEdit::Added(stored), remote.owner))
}

/// Removes every entry of an agent or `*` whose pattern or id is `which`. Also whose it is.
pub fn remove_entry(
    state: &StateArguments,
    host: &LocalHost,
    asked: DocumentAsked<'_>,
    agent: &str,
    which: &str,
) -> Result<(Vec<Entry>, DocumentOwner), Failure> {
    let agent = scope(agent)?;
    let mut remote = Remote::read(state, host, asked)?;
    let pattern = |entry: &Value| {
        let written = entry.get("pattern").unwrap_or(entry);
        written.as_str().map(str::to_owned)
    };
    let is_it = |entry: &Value| {
        entry.get("id").is_some_and(|id| id == which) || pattern(entry).as_deref() == Some(which)
    };
    let list = remote.list(&agent, ALLOWLIST)?;
    let removed: Vec<Entry> = list
        .iter()
        .filter(|entry| is_it(entry))
        .map(|entry| {
            let read = serde_json::from_value(entry.clone());
            read.unwrap_or_else(|_| Entry::for_pattern(pattern(entry).unwrap_or_default()))
        })
        .collect();
    if removed.is_empty() {
        let message = format!(
            "no entry `{}` for agent {agent} in the document of {}",
            line(which),
            remote.owner.shown()
        );
        let get = format!("interlock approvals get {}", remote.owner.flag());
        return Err(
            Failure::refused("ENTRY_NOT_FOUND", message).with_hint(format!("list them: {get}"))
        );
    }
    list.retain(|entry| !is_it(entry));
    remote.write()?;
    Ok((removed, remote.owner))
}

fn find(document: &Document, agent: &str, entry: &Entry) -> Option<Entry> {
    let mut entries = document.agents.get(agent)?.allowlist.iter();
    entries.find(|other| other.has_terms_of(entry)).cloned()
}
