//! Unrequested messages to the client, as log messages. The newest protocol version has none:
//! there, every message to a client answers a request.

#![allow(
    deprecated,
    reason = "protocol versions that have log messages keep them"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use rmcp::service::ServiceError;
use rmcp::{Peer, RoleServer};
use serde_json::Value;

const LOGGER: &str = "interlock";

/// The log level of one client.
#[derive(Debug, Clone)]
pub struct ClientLog {
    /// More important levels have higher numbers.
    least: Arc<AtomicU8>,
}

impl Default for ClientLog {
    fn default() -> Self {
        let least = Arc::new(AtomicU8::new(LoggingLevel::Info as u8));
        Self { least }
    }
}

impl ClientLog {
    /// Sets the least important level that the client wants.
    pub fn set_level(&self, level: LoggingLevel) {
        self.least.store(level as u8, Ordering::Relaxed);
    }

    /// Sends a message at the level `info`, if the client wants it. Fails if the client is gone.
    pub async fn info(&self, peer: &Peer<RoleServer>, data: Value) -> Result<(), ServiceError> {
        let level = LoggingLevel::Info;
        if (level as u8) < self.least.load(Ordering::Relaxed) {
            return Ok(());
        }
        let message = LoggingMessageNotificationParam::new(level, data).with_logger(LOGGER);
        peer.notify_logging_message(message).await
    }
}
