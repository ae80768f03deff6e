//! The pages of the Control UI: what `ui.*` return, and the event `ui.patch`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::secret::Secret;

/// A rendered page.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UiOpened {
    pub html: String,
    /// The topic of the `ui.patch` events that change the page.
    pub topic: String,
    /// The number of the topic's last event. The next event has the next number.
    pub seq: u64,
    /// The tickets that allow the approvals that the page shows completely, by id.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub tickets: Map<String, Value>,
    /// The plan digests of these approvals, by id.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub digests: Map<String, Value>,
    /// How many approvals are pending.
    pub pending: u64,
}

/// The events of a page were ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UiClosed {
    pub closed: bool,
}

/// A terminal was resized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UiScreenFitted {
    pub ok: bool,
}

/// A code that gives a browser of the gateway's machine access, once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UiCodeMinted {
    pub code: Secret,
    /// The address of the page, without the code.
    pub url: String,
    pub expires_at_ms: u64,
}

/// A code with which one phone may ask for access.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UiPhoneInvited {
    pub code: Secret,
    /// The address that the phone opens, without the code; `#pair=CODE` follows it.
    pub url: String,
    /// The whole address as a QR code, for a page.
    pub html: String,
    pub expires_at_ms: u64,
    /// The SHA-256 of the authority that `/ca.crt` offers, if the gateway has its own authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority_fingerprint: Option<String>,
}

/// The gateway's key for notifications, and whether the device is subscribed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PushKeyShown {
    pub public_key: String,
    pub subscribed: bool,
}

/// Whether the device is subscribed to notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PushChanged {
    pub subscribed: bool,
}

/// The result of a test notification.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PushTested {
    /// Why the push service did not take it.
    pub problem: Option<String>,
}

/// The event `ui.patch`: a page changed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UiPatch {
    pub topic: String,
    pub seq: u64,
    pub ops: Vec<UiPatchOp>,
    /// The change in the number of pending approvals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_change: Option<i64>,
}

/// One change of a page.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UiPatchOp {
    /// `replace`, `append`, `prepend` or `remove`.
    pub op: String,
    /// The element that changes.
    pub id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub html: String,
}
