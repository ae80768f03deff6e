//! The question of `interlock netd` to the processes that have the store: whether a connection to a
//! name that no entry lists may be made. Both sides write one line of JSON per message. An invalid
//! line is skipped, because a `netd` that was killed may have left half a line.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Upper bound of the length of a line.
pub const MOST_QUESTION_BYTES: usize = 16 * 1024;

/// One waiting connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkQuestion {
    /// Never used twice, not even by two instances of `netd`, so that a late answer cannot match
    /// another question.
    pub id: String,
    pub scope_id: String,
    /// The scope in words, such as `agent main`.
    pub scope: String,
    /// The host name in its canonical form for comparisons: lower case, without a trailing dot.
    pub host: String,
    pub port: u16,
    /// The inode of the network namespace that the connection is in.
    pub namespace: u64,
    /// The two ends of the connection, as the program that made it sees them.
    pub from: SocketAddr,
    pub to: SocketAddr,
    /// How much longer the connection waits.
    pub wait_ms: u64,
}

/// The decision about the connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkAnswer {
    pub id: String,
    pub allowed: bool,
    /// The reason in words, for the audit and for the client.
    pub reason: String,
    /// The id of the run that made the connection, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Whether the process that answers cannot ask an approver, so that another process may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cannot_ask: bool,
}
