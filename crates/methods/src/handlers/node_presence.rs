//! `node.presence.alive`: a node of the reference implementation reports that it is alive, and why.

use interlock_connections::Client;
use interlock_wire::results::NodeEventReceipt;
use serde_json::Value;

pub(super) const NODE_PRESENCE_ALIVE: &str = "node.presence.alive";

/// The known reasons for the report. Every other word counts as [`BACKGROUND`].
const TRIGGERS: &[&str] = &[
    BACKGROUND,
    "silent_push",
    "bg_app_refresh",
    "significant_location",
    "manual",
    "connect",
];

const BACKGROUND: &str = "background";

/// Records the reason. The time is recorded with every message, not here.
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
