//! What `interlock netd` asks the processes that have the store: whether a connection to a name that no entry
//! lists may be made. Both sides write one line of JSON for each message; a line that is none is skipped,
//! since a server of networks that was killed may have left half a line.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A line is shorter than this.
pub const MOST_QUESTION_BYTES: usize = 16 * 1024;

/// One connection that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkQuestion {
    /// Never used twice, not even by two servers of networks: an answer that comes late must not meet
    /// another question.
    pub id: String,
    pub scope_id: String,
    /// In words: `agent main`.
    pub scope: String,
    /// In the one form that is compared: lower case, without a dot at its end.
    pub host: String,
    pub port: u16,
    /// The inode of the network namespace that the connection is in.
    pub namespace: u64,
    /// The two ends of the connection, as the program that made it has them.
    pub from: SocketAddr,
    pub to: SocketAddr,
    /// How long the connection still waits.
    pub wait_ms: u64,
}

/// What becomes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkAnswer {
    pub id: String,
    pub allowed: bool,
    /// In words, for the audit and for the client.
    pub reason: String,
    /// The id of the run that made the connection, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The process that answers cannot ask: another one may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cannot_ask: bool,
}
