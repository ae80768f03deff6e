//! How nodes are shown: those that are connected, and those that were.

use std::collections::BTreeMap;

use interlock_config::types::GatewayNodes;
use interlock_store::StoreError;
use interlock_wire::node::NodeEntry;

use super::Platform;
use super::registry::Node;
use crate::gateway::Gateway;

/// All that are known, by name, with the commands that can be used. Waits for the disk.
pub(crate) fn entries(gateway: &Gateway) -> Result<Vec<NodeEntry>, StoreError> {
    let store = gateway.host.store();
    let config = gateway.host.config().ok();
    // Where there are no rules to go by, nothing can be used.
    let rules = config.as_ref().map(|config| &config.config().gateway.nodes);
    let mut entries: BTreeMap<String, NodeEntry> = BTreeMap::new();
    for device in store.devices()? {
        if device.roles.iter().any(|role| role == "node") {
            let entry = NodeEntry {
                node_id: device.device_id.clone(),
                display_name: device.display_name,
                platform: device.platform,
                device_family: device.device_family,
                client_id: device.client_id,
                client_mode: device.client_mode,
                remote_ip: device.remote_ip,
                ..NodeEntry::default()
            };
            entries.insert(device.device_id, entry);
        }
    }
    for node in store.nodes()? {
        let entry = entries.entry(node.node_id.clone()).or_default();
        let platform = node.platform.as_deref().unwrap_or_default();
        let platform = Platform::of(platform, node.device_family.as_deref());
        let commands = rules.map(|rules| platform.cut(&node.commands, rules));
        let seen = (node.last_seen_at_ms > 0).then_some(node.last_seen_at_ms);
        *entry = NodeEntry {
            node_id: node.node_id,
            display_name: node.display_name.or(entry.display_name.take()),
            platform: node.platform.or(entry.platform.take()),
            version: node.version,
            device_family: node.device_family.or(entry.device_family.take()),
            caps: node.caps,
            commands: commands.unwrap_or_default(),
            last_seen_at_ms: seen,
            last_seen_reason: seen.map(|_| "disconnect".to_owned()),
            approved_at_ms: Some(node.approved_at_ms),
            paired: true,
            ..std::mem::take(entry)
        };
    }
    for node in gateway.nodes.connected() {
        let paired = entries.get(&node.id).is_some_and(|entry| entry.paired);
        entries.insert(node.id.clone(), connected(&node, paired, rules));
    }
    let mut entries: Vec<NodeEntry> = entries.into_values().collect();
    entries.sort_by_key(|entry| (entry.display_name.clone(), entry.node_id.clone()));
    Ok(entries)
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
        last_seen_reason: Some("connect".to_owned()),
        approved_at_ms: node.approved().at_ms,
        paired,
        connected: true,
    }
}
