//! How nodes are listed, and how their pairing is reported.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One node, as `node.list` and `node.describe` show it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeEntry {
    pub node_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_family: Option<String>,
    /// People can use it in clients to name a node. Absent for a node on the gateway's own machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_ip: Option<String>,
    pub caps: Vec<String>,
    /// The approved commands, sorted.
    pub commands: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_at_ms: Option<u64>,
    pub paired: bool,
    pub connected: bool,
}

/// The largest number of nodes in one list.
pub const MAX_LISTED_NODES: usize = 1_000;

/// The payload of `node.list`: one page of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeListing {
    pub ts: u64,
    pub nodes: Vec<NodeEntry>,
    /// The number of nodes on all pages.
    pub total: usize,
    /// The `cursor` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A node that waits for approval: the payload of the event, and an entry of `node.pair.list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePairRequested {
    pub request_id: String,
    pub node_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_family: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_ip: Option<String>,
    pub caps: Vec<String>,
    pub commands: Vec<String>,
    pub silent: bool,
    pub ts: u64,
    /// Only present in the list: see [`crate::method::pairing_scopes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_approve_scopes: Option<Vec<String>>,
}

/// The event that ends a node's wait for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePairResolved {
    pub request_id: String,
    pub node_id: String,
    /// `approved` or `rejected`.
    pub decision: String,
    pub ts: u64,
}
