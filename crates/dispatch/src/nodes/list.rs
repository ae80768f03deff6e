//! Lists nodes: connected ones, and those that were connected.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interlock_config::types::GatewayNodes;
use interlock_host::now_ms;
use interlock_store::{Paired, StoreError};
use interlock_wire::WireError;
use interlock_wire::node::{MAX_LISTED_NODES, NodeEntry, NodeListing};
use interlock_wire::params;

use super::Platform;
use super::directory::{KnownNode, ListKey, NodeDirectory, NodeFilter, NotNamed};
use super::known::{may_be_node, with_directory};
use super::registry::Node;
use crate::dispatcher::Dispatcher;
use crate::work::store_failed;

/// One page of the known nodes, by name, with their usable commands. Waits for the disk.
pub fn page(dispatcher: &Dispatcher, asked: &params::NodeList) -> Result<NodeListing, WireError> {
    let after = asked.cursor.as_deref().map(list_key).transpose()?;
    let limit = asked.limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(MAX_LISTED_NODES).min(MAX_LISTED_NODES);
    let looked = with_directory(dispatcher, |directory| {
        select(directory, asked, after.as_ref(), limit)
    });
    let (total, mut keys, has_more) = looked.map_err(store_failed)?;
    let ids: Vec<&str> = keys.iter().map(|key| key.id.as_ref()).collect();
    // A node that was removed in the meantime has no entry.
    let nodes = entries(dispatcher, &ids).map_err(store_failed)?;
    let last = keys.pop().filter(|_| has_more);
    Ok(NodeListing {
        ts: now_ms(),
        nodes,
        total,
        next_cursor: last.as_ref().map(cursor),
    })
}

/// The number of nodes, the keys of the page, and whether further nodes follow.
fn select(
    directory: &NodeDirectory,
    asked: &params::NodeList,
    after: Option<&ListKey>,
    limit: usize,
) -> (usize, Vec<ListKey>, bool) {
    let Some(name) = &asked.named else {
        let which = match asked.connected {
            Some(true) => NodeFilter::Connected,
            Some(false) | None => NodeFilter::All,
        };
        let mut rest = directory.list(which, after).map(KnownNode::list_key);
        let keys: Vec<ListKey> = rest.by_ref().take(limit).collect();
        return (directory.count(which), keys, rest.next().is_some());
    };
    let found = match directory.find(name) {
        Ok(node) => vec![node],
        Err(NotNamed::Unknown) => Vec::new(),
        Err(NotNamed::Ambiguous(several)) => several,
    };
    let is_listed = |node: &&&KnownNode| asked.connected != Some(true) || node.is_connected;
    let found: Vec<ListKey> = found
        .iter()
        .filter(is_listed)
        .map(|node| node.list_key())
        .collect();
    let total = found.len();
    let behind = found
        .into_iter()
        .filter(|key| after.is_none_or(|after| key > after));
    let mut keys: Vec<ListKey> = behind.collect();
    let has_more = keys.len() > limit;
    keys.truncate(limit);
    (total, keys, has_more)
}

/// One node by its id. Waits for the disk.
pub fn entry(dispatcher: &Dispatcher, id: &str) -> Result<Option<NodeEntry>, StoreError> {
    Ok(entries(dispatcher, &[id])?.pop())
}

fn entries(dispatcher: &Dispatcher, ids: &[&str]) -> Result<Vec<NodeEntry>, StoreError> {
    let config = dispatcher.host.config().ok();
    // Without rules, no command can be used.
    let rules = config.as_ref().map(|config| &config.config().gateway.nodes);
    let paired = dispatcher.host.store().paired(ids)?;
    let entries = ids.iter().zip(paired).filter_map(|(id, paired)| {
        let live = dispatcher.nodes.get(id);
        match live {
            Some(node) => Some(connected(&node, paired.node.is_some(), rules)),
            None => away(id, paired, rules),
        }
    });
    Ok(entries.collect())
}

fn away(id: &str, paired: Paired, rules: Option<&GatewayNodes>) -> Option<NodeEntry> {
    let device = paired.device.filter(may_be_node);
    if device.is_none() && paired.node.is_none() {
        return None;
    }
    let device = device.unwrap_or_default();
    let entry = NodeEntry {
        node_id: id.to_owned(),
        display_name: device.display_name,
        platform: device.platform,
        device_family: device.device_family,
        client_id: device.client_id,
        client_mode: device.client_mode,
        remote_ip: device.remote_ip,
        ..NodeEntry::default()
    };
    let Some(node) = paired.node else {
        return Some(entry);
    };
    let platform = node.platform.as_deref().unwrap_or_default();
    let platform = Platform::of(platform, node.device_family.as_deref());
    let commands = rules.map(|rules| platform.cut(&node.commands, rules));
    let seen = (node.last_seen_at_ms > 0).then_some(node.last_seen_at_ms);
    Some(NodeEntry {
        display_name: node.display_name.or(entry.display_name),
        platform: node.platform.or(entry.platform),
        version: node.version,
        device_family: node.device_family.or(entry.device_family),
        caps: node.caps,
        commands: commands.unwrap_or_default(),
        last_seen_at_ms: seen,
        last_seen_reason: seen.map(|_| "disconnect".to_owned()),
        approved_at_ms: Some(node.approved_at_ms),
        paired: true,
        ..entry
    })
}

fn connected(node: &Node, paired: bool, rules: Option<&GatewayNodes>) -> NodeEntry {
    let program = &node.client.program;
    NodeEntry {
        node_id: node.id.clone(),
        display_name: Some(node.name()),
        platform: Some(program.platform.clone()),
        version: Some(program.version.clone()),
        client_id: Some(program.id.clone()),
        client_mode: Some(program.mode.clone()),
        device_family: program.device_family.clone(),
        remote_ip: node.client.remote_ip(),
        caps: node.caps(),
        commands: rules.map(|rules| node.commands(rules)).unwrap_or_default(),
        path_env: node.client.path_env.clone(),
        connected_at_ms: Some(node.client.connected_at_ms),
        last_seen_at_ms: Some(node.client.heard_at_ms()),
        last_seen_reason: Some(node.client.seen_reason().to_owned()),
        approved_at_ms: node.approved().at_ms,
        paired,
        connected: true,
    }
}

/// The cursor of the next page. It contains the key itself, so that it stays valid after the node
/// is removed.
fn cursor(last: &ListKey) -> String {
    let key = (last.name.as_deref(), last.id.as_ref());
    let text = serde_json::to_vec(&key).unwrap_or_default();
    URL_SAFE_NO_PAD.encode(text)
}

fn list_key(cursor: &str) -> Result<ListKey, WireError> {
    let refused = || {
        let wrong = "at /cursor: must be the nextCursor of an earlier list".to_owned();
        WireError::params("node.list", &[wrong])
    };
    let text = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| refused())?;
    let (name, id): (Option<String>, String) =
        serde_json::from_slice(&text).map_err(|_| refused())?;
    Ok(ListKey {
        name: name.map(Into::into),
        id: id.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_what_it_was_made_of_and_nothing_else_is_one() {
        for name in [None, Some("lab"), Some("ä \u{1F980} \"")] {
            let key = ListKey {
                name: name.map(Into::into),
                id: "3a9d".into(),
            };
            assert_eq!(list_key(&cursor(&key)), Ok(key));
        }
        for wrong in ["", "x", "3a9d0c", "bnVsbA", "WyJhIl0", "🦀"] {
            assert!(list_key(wrong).is_err(), "{wrong}");
        }
    }
}
