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

/// What one client wants to read.
#[derive(Debug, Clone)]
pub struct ClientLog {
    /// Levels count upwards with what they matter.
    least: Arc<AtomicU8>,
}

impl Default for ClientLog {
    fn default() -> Self {
        let least = Arc::new(AtomicU8::new(LoggingLevel::Info as u8));
        Self { least }
    }
}

impl ClientLog {
    /// The client wants nothing that matters less.
    pub fn set_level(&self, level: LoggingLevel) {
        self.least.store(level as u8, Ordering::Relaxed);
    }

    /// Says it at the level `info`, if that is wanted. Fails when the client is gone.
    pub async fn info(&self, peer: &Peer<RoleServer>, data: Value) -> Result<(), ServiceError> {
        let level = LoggingLevel::Info;
        if (level as u8) < self.least.load(Ordering::Relaxed) {
            return Ok(());
        }
        let message = LoggingMessageNotificationParam::new(level, data).with_logger(LOGGER);
        peer.notify_logging_message(message).await
    }
}
