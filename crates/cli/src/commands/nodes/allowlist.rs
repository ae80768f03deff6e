//! Edits the allowlist of a node or of a remote gateway.

use interlock_arguments::StateArguments;
use interlock_console::Failure;
use interlock_console::output::line;
use interlock_host::LocalHost;
use interlock_policy::{Document, Entry};
use interlock_rules::{EntryEdit, RemovedEntries, take_named_entries};
use serde_json::{Value, json};

use super::document::known;
use super::remote::{DocumentAsked, DocumentOwner, Remote, scope};

/// The key of the allowlist in a scope.
const ALLOWLIST: &str = "allowlist";

/// Adds an entry for an agent or `*`. Also returns the owner of the document.
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
    // The node assigns the id of the entry.
    let stored = find(&remote.write()?, &agent, entry);
    let stored = stored.unwrap_or_else(|| entry.clone());
    Ok((EntryEdit::Added(stored), remote.owner))
}

/// Removes every entry of an agent or `*` whose pattern or id is `which`. Also returns the owner of
/// the document.
pub fn remove_entry(
    state: &StateArguments,
    host: &LocalHost,
    asked: DocumentAsked<'_>,
    agent: &str,
    which: &str,
) -> Result<(RemovedEntries, DocumentOwner), Failure> {
    let agent = scope(agent)?;
    let mut remote = Remote::read(state, host, asked)?;
    let pattern = |entry: &Value| {
        let written = entry.get("pattern").unwrap_or(entry);
        written.as_str().map(str::to_owned)
    };
    let read = |entry: &Value| {
        let read = serde_json::from_value(entry.clone());
        read.unwrap_or_else(|_| Entry::for_pattern(pattern(entry).unwrap_or_default()))
    };
    let list = remote.list(&agent, ALLOWLIST)?;
    let before: Vec<Entry> = list.iter().map(read).collect();
    let mut after = before.clone();
    let removed = take_named_entries(&mut after, which);
    if removed.entries.is_empty() {
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
    // Keep unknown fields of the other entries.
    list.retain(|entry| after.contains(&read(entry)));
    remote.write()?;
    Ok((removed, remote.owner))
}

fn find(document: &Document, agent: &str, entry: &Entry) -> Option<Entry> {
    let mut entries = document.agents.get(agent)?.allowlist.iter();
    entries.find(|other| other.has_terms_of(entry)).cloned()
}
