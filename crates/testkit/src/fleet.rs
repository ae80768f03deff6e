//! Many nodes that are paired but not connected, as a gateway finds them in its database.

use interlock_store::{PairedDevice, PairedNode, Store, StoreError};

use crate::Machine;

/// The data of the node with this number.
#[derive(Debug, Clone)]
pub struct FleetNode {
    pub id: String,
    pub name: String,
    pub address: String,
}

impl FleetNode {
    /// Ids look like those of devices: 64 hex digits that do not reveal the order.
    pub fn of(number: usize) -> Self {
        let mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let rest = format!("{number:048x}");
        Self {
            id: format!("{mixed:016x}{rest}"),
            name: format!("fleet-{number:05}"),
            address: format!(
                "10.{}.{}.{}",
                number >> 16,
                (number >> 8) & 255,
                number & 255
            ),
        }
    }
}

impl Machine {
    /// Pairs this many nodes with the gateway of this machine, which must not run yet.
    pub fn pair_fleet(&self, count: usize) {
        let store = Store::open(&self.state()).unwrap();
        let paired = store.change(|change| {
            for node in (0..count).map(FleetNode::of) {
                change.put_device(&PairedDevice {
                    device_id: node.id.clone(),
                    public_key: "key".to_owned(),
                    display_name: Some(node.name.clone()),
                    platform: Some("linux".to_owned()),
                    device_family: Some("Linux".to_owned()),
                    client_id: Some("node-host".to_owned()),
                    client_mode: Some("node".to_owned()),
                    roles: vec!["node".to_owned()],
                    remote_ip: Some(node.address),
                    created_at_ms: 1,
                    approved_at_ms: 1,
                    ..PairedDevice::default()
                })?;
                change.put_node(&PairedNode {
                    node_id: node.id,
                    display_name: Some(node.name),
                    platform: Some("linux".to_owned()),
                    version: Some("0.1.0".to_owned()),
                    device_family: Some("Linux".to_owned()),
                    caps: vec!["system".to_owned()],
                    commands: ["system.run", "system.run.prepare", "system.which"]
                        .map(str::to_owned)
                        .to_vec(),
                    created_at_ms: 1,
                    approved_at_ms: 1,
                    last_seen_at_ms: 1,
                    ..PairedNode::default()
                })?;
            }
            Ok::<_, StoreError>(())
        });
        paired.unwrap();
    }
}
