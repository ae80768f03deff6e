//! `node.presence.alive`: a node of the reference says that it is there, and why.

use interlock_connections::Client;
use interlock_wire::results::NodeEventReceipt;
use serde_json::Value;

pub(super) const NODE_PRESENCE_ALIVE: &str = "node.presence.alive";

/// Why a node may say so; every other word counts as [`BACKGROUND`].
const TRIGGERS: &[&str] = &[
    BACKGROUND,
    "silent_push",
    "bg_app_refresh",
    "significant_location",
    "manual",
    "connect",
];

const BACKGROUND: &str = "background";

/// Notes why the node was heard; that it was is noted with every message.
pub(super) fn alive(client: &Client, payload: &Value) -> NodeEventReceipt {
    let receipt = |handled, reason: &str| NodeEventReceipt {
        ok: true,
        event: Some(NODE_PRESENCE_ALIVE.to_owned()),
        handled: Some(handled),
        reason: Some(reason.to_owned()),
    };
    if !payload.is_object() {
        return receipt(false, "invalid_payload");
    }
    let said = payload["trigger"].as_str().unwrap_or_default();
    let said = said.trim().to_ascii_lowercase();
    let mut known = TRIGGERS.iter().copied();
    let reason = known.find(|known| *known == said);
    client.set_seen_reason(reason.unwrap_or(BACKGROUND));
    receipt(true, "updated")
}
