//! The first messages to a client: the challenge, and `hello-ok`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::frame::{MAX_FRAME_BYTES, StateVersion};
use crate::secret::Secret;

/// How long a client may take for its first request.
pub const HANDSHAKE_TIMEOUT_MS: u64 = 15_000;
/// How often a tick is sent.
pub const TICK_INTERVAL_MS: u64 = 30_000;
/// How often the gateway sends pings.
pub const PING_INTERVAL_MS: u64 = 25_000;
/// How often health is broadcast.
pub const HEALTH_INTERVAL_MS: u64 = 60_000;
/// How much data may wait to be sent to one client.
pub const MAX_BUFFERED_BYTES: usize = 50 * 1024 * 1024;
/// How long a client waits for an answer by default.
pub const REQUEST_TIMEOUT_MS: u64 = 30_000;

/// The payload of `connect.challenge`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    pub nonce: String,
    pub ts: u64,
}

/// The payload of `tick`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    pub ts: u64,
}

/// The payload of `shutdown`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shutdown {
    pub reason: String,
    pub restart_expected_ms: Option<u64>,
}

/// The answer to `connect`. Further fields of other gateways are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelloOk {
    #[serde(rename = "type")]
    pub kind: HelloKind,
    pub protocol: u64,
    pub server: ServerInfo,
    pub features: Features,
    pub snapshot: HelloSnapshot,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin_surface_urls: Option<BTreeMap<String, String>>,
    pub auth: HelloAuth,
    pub policy: ConnectionLimits,
}

/// Always `hello-ok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum HelloKind {
    #[default]
    #[serde(rename = "hello-ok")]
    HelloOk,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerInfo {
    pub version: String,
    pub conn_id: String,
    /// `interlock` for an Interlock gateway. Nodes then offer what only Interlock gateways can use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Features {
    pub methods: Vec<String>,
    pub events: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelloSnapshot {
    pub presence: Vec<Value>,
    pub health: Value,
    pub state_version: StateVersion,
    pub uptime_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_defaults: Option<SessionDefaults>,
    /// Only for administrators, like the two fields below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_mode: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionDefaults {
    pub default_agent_id: String,
    pub main_key: String,
    pub main_session_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// The rights of the connection, and the token for the next connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelloAuth {
    pub role: String,
    /// Sorted.
    pub scopes: Vec<String>,
    /// Absent for a connection without a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_token: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_at_ms: Option<u64>,
}

/// The limits of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionLimits {
    pub max_payload: usize,
    pub max_buffered_bytes: usize,
    pub tick_interval_ms: u64,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            max_payload: MAX_FRAME_BYTES,
            max_buffered_bytes: MAX_BUFFERED_BYTES,
            tick_interval_ms: TICK_INTERVAL_MS,
        }
    }
}
