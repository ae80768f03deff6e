//! Pairing: what `device.*` and `node.pair.*` return.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::node::NodePairRequested;
use crate::secret::Secret;

/// The devices that wait for approval, and the approved ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DevicePairListing {
    pub pending: Vec<DevicePairRequested>,
    pub paired: Vec<PairedDeviceEntry>,
}

/// A device that waits for an operator's approval.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DevicePairRequested {
    pub request_id: String,
    pub device_id: String,
    pub public_key: String,
    pub display_name: Option<String>,
    pub platform: Option<String>,
    pub device_family: Option<String>,
    pub version: Option<String>,
    pub client_id: Option<String>,
    pub client_mode: Option<String>,
    /// The requested role.
    pub role: String,
    pub scopes: Vec<String>,
    pub caps: Vec<String>,
    pub commands: Vec<String>,
    pub permissions: BTreeMap<String, bool>,
    pub remote_ip: Option<String>,
    /// Why an approval is needed.
    pub reason: String,
    pub ts: u64,
    /// The words that a phone shows that connected by a QR code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

/// A device that an operator approved.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PairedDeviceEntry {
    pub device_id: String,
    pub public_key: String,
    pub display_name: Option<String>,
    pub platform: Option<String>,
    pub device_family: Option<String>,
    pub client_id: Option<String>,
    pub client_mode: Option<String>,
    pub roles: Vec<String>,
    pub scopes: Vec<String>,
    /// One token for each role, without its text.
    pub tokens: Vec<DeviceTokenEntry>,
    pub created_at_ms: u64,
    pub approved_at_ms: u64,
    /// The address of its last connection, unless it is on the gateway's machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_ip: Option<String>,
}

/// A token of a device, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTokenEntry {
    pub role: String,
    pub scopes: Vec<String>,
    pub created_at_ms: u64,
    pub revoked: bool,
    pub rotated_at_ms: Option<u64>,
    /// Clients consider a token valid while this is null.
    pub revoked_at_ms: Option<u64>,
}

/// A device was approved.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceApproved {
    pub request_id: String,
    pub device: PairedDeviceEntry,
}

/// A device was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRejected {
    pub request_id: String,
    pub device_id: String,
}

/// A device was removed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRemoved {
    pub device_id: String,
}

/// A device was renamed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRenamed {
    pub device_id: String,
    pub display_name: Option<String>,
}

/// The new token of a device. The gateway stores only what it needs to derive the token again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTokenRotated {
    pub device_id: String,
    pub role: String,
    pub token: Secret,
    pub scopes: Vec<String>,
    pub rotated_at_ms: Option<u64>,
}

/// A token of a device was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTokenRevoked {
    pub device_id: String,
    pub role: String,
    pub revoked_at_ms: u64,
}

/// The nodes whose commands wait for approval, and the approved ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePairListing {
    pub pending: Vec<NodePairRequested>,
    pub paired: Vec<PairedNodeEntry>,
}

/// A node whose commands an operator approved.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PairedNodeEntry {
    pub node_id: String,
    pub display_name: Option<String>,
    pub platform: Option<String>,
    pub version: Option<String>,
    pub device_family: Option<String>,
    pub caps: Vec<String>,
    pub commands: Vec<String>,
    pub permissions: BTreeMap<String, bool>,
    pub created_at_ms: u64,
    pub approved_at_ms: u64,
    pub last_seen_at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_connected_at_ms: Option<u64>,
    /// Only in the result of an approval, for older programs. It gives no access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
}

/// The commands of a node were approved.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePairApproved {
    pub request_id: String,
    pub node: PairedNodeEntry,
}

/// The commands of a node were rejected.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePairRejected {
    pub request_id: String,
    pub node_id: String,
}

/// The approval of a node was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePairRemoved {
    pub node_id: String,
}

/// An approval was requested on behalf of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePairPending {
    /// Always `pending`.
    pub status: String,
    pub request: NodePairRequested,
    /// False if the node was already waiting.
    pub created: bool,
}

/// Whether a token belongs to a node's pairing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePairVerified {
    pub ok: bool,
    pub node: Option<PairedNodeEntry>,
}
