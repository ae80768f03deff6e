//! Pairing: what `device.*` and `node.pair.*` return.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::node::NodePairRequested;
use crate::secret::Secret;

/// The devices that wait for approval, and those that have it.
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
    /// The role that it wants.
    pub role: String,
    pub scopes: Vec<String>,
    pub caps: Vec<String>,
    pub commands: Vec<String>,
    pub permissions: BTreeMap<String, bool>,
    pub remote_ip: Option<String>,
    /// Why an approval is needed.
    pub reason: String,
    pub ts: u64,
    /// The words that a phone shows which came by a QR code.
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
    /// One for each role, without its text.
    pub tokens: Vec<DeviceTokenEntry>,
    pub created_at_ms: u64,
    pub approved_at_ms: u64,
    /// The address that it last came from, unless it is on the gateway's machine.
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
    /// Clients take a token for a good one as long as this is null.
    pub revoked_at_ms: Option<u64>,
}

/// A device may connect.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceApproved {
    pub request_id: String,
    pub device: PairedDeviceEntry,
}

/// A device may not connect.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRejected {
    pub request_id: String,
    pub device_id: String,
}

/// A device is not paired any more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRemoved {
    pub device_id: String,
}

/// A device has another name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRenamed {
    pub device_id: String,
    pub display_name: Option<String>,
}

/// The new token of a device. The gateway keeps only what it can make it from again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTokenRotated {
    pub device_id: String,
    pub role: String,
    pub token: Secret,
    pub scopes: Vec<String>,
    pub rotated_at_ms: Option<u64>,
}

/// A token of a device is worth nothing any more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTokenRevoked {
    pub device_id: String,
    pub role: String,
    pub revoked_at_ms: u64,
}

/// The nodes whose commands wait for approval, and those that have it.
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

/// The commands of a node may be used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePairApproved {
    pub request_id: String,
    pub node: PairedNodeEntry,
}

/// The commands of a node may not be used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePairRejected {
    pub request_id: String,
    pub node_id: String,
}

/// No command of a node is approved any more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePairRemoved {
    pub node_id: String,
}

/// An approval is asked for on behalf of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePairPending {
    /// `pending`, always.
    pub status: String,
    pub request: NodePairRequested,
    /// False where the node waits already.
    pub created: bool,
}

/// Whether a token is that of a node's pairing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePairVerified {
    pub ok: bool,
    pub node: Option<PairedNodeEntry>,
}
