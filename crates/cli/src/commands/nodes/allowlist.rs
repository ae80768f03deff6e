//! Entries of a node's allowlist. Its document is changed in place, and only there: a node may be
//! another program, which writes more into it than is known here.

use interlock_host::{EntryEdit, LocalHost};
use interlock_policy::{AgentId, Document, EVERY_AGENT, Entry};
use serde_json::{Value, json};

use super::document::known;
use super::resolve;
use crate::args::StateArguments;
use crate::failure::Failure;
use crate::gateway_client::GatewayClient;
use crate::output::line;

/// A document, and whom it was read from.
struct Remote {
    gateway: GatewayClient,
    id: String,
    hash: Value,
    file: Value,
}

impl Remote {
    fn read(state: &StateArguments, host: &LocalHost, node: &str) -> Result<Self, Failure> {
        let mut gateway = GatewayClient::connect(state, host)?;
        let id = resolve(&mut gateway, node)?;
        let mut answer = gateway.call("exec.approvals.node.get", &json!({ "nodeId": id }))?;
        Ok(Self {
            gateway,
            id,
            hash: answer["hash"].take(),
            file: answer["file"].take(),
        })
    }

    /// Puts it back, if nobody has changed it meanwhile. What is there then.
    fn write(&mut self) -> Result<Document, Failure> {
        let params = json!({ "nodeId": self.id, "file": self.file, "baseHash": self.hash });
        let mut answer = self.gateway.call("exec.approvals.node.set", &params)?;
        let file = answer["file"].take();
        known(if file.is_null() { &self.file } else { &file })
    }

    /// The list of an agent, made if it is not there.
    fn list(&mut self, agent: &str) -> Result<&mut Vec<Value>, Failure> {
        let unreadable = || {
            let message = format!("the list of {} is none", line(agent));
            Failure::refused("DOCUMENT_INVALID", message)
        };
        let mut at = &mut self.file;
        for key in ["agents", agent] {
            let object = at.as_object_mut().ok_or_else(unreadable)?;
            at = object.entry(key).or_insert_with(|| json!({}));
        }
        let scope = at.as_object_mut().ok_or_else(unreadable)?;
        let list = scope.entry("allowlist").or_insert_with(|| json!([]));
        list.as_array_mut().ok_or_else(unreadable)
    }
}

/// Adds an entry for an agent or `*`. Also the id of the node.
pub fn add_entry(
    state: &StateArguments,
    host: &LocalHost,
    node: &str,
    agent: &str,
    entry: &Entry,
) -> Result<(EntryEdit, String), Failure> {
    let agent = scope(agent)?;
    entry
        .check()
        .map_err(|error| Failure::usage("ENTRY_INVALID", error.to_string()))?;
    let mut remote = Remote::read(state, host, node)?;
    if let Some(present) = find(&known(&remote.file)?, &agent, entry) {
        return Ok((EntryEdit::Present(present), remote.id));
    }
    remote.list(&agent)?.push(json!(entry));
    // The node gives it an id.
    let stored = find(&remote.write()?, &agent, entry);
    let stored = stored.unwrap_or_else(|| entry.clone());
    Ok((EntryEdit::Added(stored), remote.id))
}

/// Removes every entry of an agent or `*` whose pattern or id is `which`. Also the id of the node.
pub fn remove_entry(
    state: &StateArguments,
    host: &LocalHost,
    node: &str,
    agent: &str,
    which: &str,
) -> Result<(Vec<Entry>, String), Failure> {
    let agent = scope(agent)?;
    let mut remote = Remote::read(state, host, node)?;
    let pattern = |entry: &Value| {
        entry["pattern"]
            .as_str()
            .or(entry.as_str())
            .map(str::to_owned)
    };
    let is_it = |entry: &Value| entry["id"] == which || pattern(entry).as_deref() == Some(which);
    let list = remote.list(&agent)?;
    let removed: Vec<Entry> = list
        .iter()
        .filter(|entry| is_it(entry))
        .map(|entry| {
            let read = serde_json::from_value(entry.clone());
            read.unwrap_or_else(|_| Entry::for_pattern(pattern(entry).unwrap_or_default()))
        })
        .collect();
    if removed.is_empty() {
        let message = format!("no entry `{}` for agent {agent} on the node", line(which));
        let get = format!("interlock approvals get --node {}", remote.id);
        return Err(
            Failure::refused("ENTRY_NOT_FOUND", message).with_hint(format!("list them: {get}"))
        );
    }
    list.retain(|entry| !is_it(entry));
    remote.write()?;
    Ok((removed, remote.id))
}

/// The key in the document.
fn scope(agent: &str) -> Result<String, Failure> {
    if agent == EVERY_AGENT {
        return Ok(agent.to_owned());
    }
    let id =
        AgentId::new(agent).map_err(|error| Failure::usage("AGENT_INVALID", error.to_string()))?;
    Ok(id.as_str().to_owned())
}

fn find(document: &Document, agent: &str, entry: &Entry) -> Option<Entry> {
    let mut entries = document.agents.get(agent)?.allowlist.iter();
    entries.find(|other| other.has_terms_of(entry)).cloned()
}
