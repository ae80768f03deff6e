//! The Interlock extension of the node protocol: sends its commands, and derives the secret by
//! which a node identifies the owner of its sessions.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use interlock_wire::node::NodeCommandParams;
use interlock_wire::{Secret, WireError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::Sha256;

use super::{Node, NodeInvocation};
use crate::dispatcher::Dispatcher;

/// How much longer than the requested wait an answer may take.
const MARGIN: Duration = Duration::from_secs(20);

/// Longer answers are not read.
const MAX_ANSWER: usize = 8 * 1024 * 1024;

/// A secret that only this gateway knows, with a different value for each node: a node that reveals
/// it to another node gives nothing away.
pub fn owner(dispatcher: &Dispatcher, node_id: &str) -> Secret {
    let key = dispatcher.device_key.expose().as_bytes();
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        // HMAC accepts a key of any length.
        return Secret::default();
    };
    mac.update(b"interlock sessions on a node v1\n");
    mac.update(node_id.as_bytes());
    Secret::new(URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

/// Sends a command to a node that keeps sessions, and reads the answer. `waits` is how long the
/// node was asked to wait.
pub async fn ask<P: NodeCommandParams, T: DeserializeOwned>(
    dispatcher: &Arc<Dispatcher>,
    node: &Node,
    params: &P,
    waits: Duration,
) -> Result<T, WireError> {
    let invocation = NodeInvocation::of(params, waits.saturating_add(MARGIN))?;
    let (payload, text) = dispatcher.nodes.invoke(node, invocation).await?;
    if text.is_some_and(|text| text.len() > MAX_ANSWER) {
        return Err(invalid("it is too long"));
    }
    serde_json::from_value(payload).map_err(|error| invalid(&error.to_string()))
}

fn invalid(why: &str) -> WireError {
    WireError::unavailable(format!("the node's answer cannot be read: {why}"))
        .with("code", "NODE_ANSWER_INVALID")
}

/// Whether there is no answer because the node is not or no longer connected.
pub fn is_lost(error: &WireError) -> bool {
    error.message.starts_with("Error: node disconnected")
        || matches!(error.detail_code(), Some("NOT_CONNECTED" | "TIMEOUT"))
}

/// The code that the node itself gave its refusal.
pub fn node_code(error: &WireError) -> Option<&str> {
    NodeErrorText::of(error).code
}

/// The node's own message, in the details of an error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeErrorText<'a> {
    code: Option<&'a str>,
    pub message: Option<&'a str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeErrorDetails<'a> {
    #[serde(borrow)]
    node_error: NodeErrorText<'a>,
}

impl<'a> NodeErrorText<'a> {
    pub fn of(error: &'a WireError) -> Self {
        let details = error.details.as_deref();
        let read = details.and_then(|details| NodeErrorDetails::deserialize(details).ok());
        read.unwrap_or_default().node_error
    }
}

/// The node's own message, cut to a readable length.
pub fn node_words(error: &WireError) -> String {
    const MOST: usize = 2_000;
    let said = NodeErrorText::of(error).message;
    said.unwrap_or(&error.message).chars().take(MOST).collect()
}
