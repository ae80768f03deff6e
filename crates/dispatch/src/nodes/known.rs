//! Keeps the directory of nodes up to date with the store and the connections.
//!
//! The directory is loaded from the store when it is first needed. After that, each change that the
//! directory could show is followed by [`refresh`] of that node, before the change is answered.
//! Only this gateway writes the pairings of its state directory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlock_store::{Paired, PairedDevice, StoreError};

use super::Node;
use super::directory::{KnownNode, NodeDirectory};
use crate::dispatcher::Dispatcher;

/// The directory, and the lock that orders its changes.
#[derive(Debug, Default)]
pub struct KnownNodes {
    /// `None` before it is first needed, and after a change that could not be read.
    directory: Mutex<Option<NodeDirectory>>,
    /// Held from a read of the store until the directory shows the result, so that an older read
    /// never replaces a newer one. Lookups do not wait for it.
    refreshing: Mutex<()>,
}

impl KnownNodes {
    fn directory(&self) -> MutexGuard<'_, Option<NodeDirectory>> {
        let directory = self.directory.lock();
        directory.unwrap_or_else(PoisonError::into_inner)
    }

    fn take_turn(&self) -> MutexGuard<'_, ()> {
        let turn = self.refreshing.lock();
        turn.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the directory. `look` must not call the store. Waits for the disk if the directory has to
/// be loaded.
pub fn with_directory<T>(
    dispatcher: &Dispatcher,
    look: impl FnOnce(&NodeDirectory) -> T,
) -> Result<T, StoreError> {
    let known = &dispatcher.nodes.known;
    if let Some(directory) = known.directory().as_ref() {
        return Ok(look(directory));
    }
    let _turn = known.take_turn();
    let is_there = known.directory().is_some();
    let loaded = if is_there {
        None
    } else {
        Some(load(dispatcher)?)
    };
    let mut directory = known.directory();
    if let Some(loaded) = loaded {
        *directory = Some(loaded);
    }
    Ok(look(directory.get_or_insert_default()))
}

/// Updates a node after a change in the store or the connections. Waits for the disk; must never be
/// called within a change of the store.
pub fn refresh(dispatcher: &Dispatcher, id: &str) {
    let known = &dispatcher.nodes.known;
    let _turn = known.take_turn();
    if known.directory().is_none() {
        return;
    }
    let paired = dispatcher.host.store().paired(&[id]);
    let paired = paired.map(|mut paired| paired.pop().unwrap_or_default());
    let live = dispatcher.nodes.get(id);
    let mut directory = known.directory();
    match (paired, directory.as_mut()) {
        (Ok(paired), Some(shown)) => match known_node(id, &paired, live.as_deref()) {
            Some(node) => shown.put(node),
            None => shown.remove(id),
        },
        (Ok(_), None) => {}
        (Err(error), _) => {
            tracing::warn!(%error, node = id, "the directory of nodes is read anew");
            *directory = None;
        }
    }
}

fn load(dispatcher: &Dispatcher) -> Result<NodeDirectory, StoreError> {
    let store = dispatcher.host.store();
    let mut all: std::collections::HashMap<String, Paired> = std::collections::HashMap::new();
    for device in store.devices()? {
        let paired = all.entry(device.device_id.clone()).or_default();
        paired.device = Some(device);
    }
    for node in store.nodes()? {
        let paired = all.entry(node.node_id.clone()).or_default();
        paired.node = Some(node);
    }
    let live = dispatcher.nodes.connected();
    for node in &live {
        all.entry(node.id.clone()).or_default();
    }
    let mut directory = NodeDirectory::default();
    for (id, paired) in &all {
        let live = dispatcher.nodes.get(id);
        if let Some(node) = known_node(id, paired, live.as_deref()) {
            directory.put(node);
        }
    }
    Ok(directory)
}

/// The facts about a node: a connected node as it is now, another node as it was approved.
fn known_node(id: &str, paired: &Paired, live: Option<&Node>) -> Option<KnownNode> {
    let device = paired.device.as_ref().filter(|device| may_be_node(device));
    let (name, address) = match (live, device, &paired.node) {
        (Some(live), _, _) => (Some(live.name()), live.client.remote_ip()),
        (None, None, None) => return None,
        (None, device, node) => (
            node.as_ref()
                .and_then(|node| node.display_name.clone())
                .or_else(|| device?.display_name.clone()),
            device.and_then(|device| device.remote_ip.clone()),
        ),
    };
    let address = address.and_then(|address| address.parse::<std::net::IpAddr>().ok());
    Some(KnownNode {
        id: Arc::from(id),
        name: name.map(Arc::from),
        address: address.map(|address| address.to_canonical()),
        is_approved: paired.node.is_some(),
        is_connected: live.is_some(),
    })
}

pub(super) fn may_be_node(device: &PairedDevice) -> bool {
    device.roles.iter().any(|role| role == "node")
}
