//! The pages of the Control UI: what `ui.*` return, and the event `ui.patch`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::secret::Secret;

/// A page, rendered.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UiOpened {
    pub html: String,
    /// The events `ui.patch` of this topic change the page.
    pub topic: String,
    /// The number of the last event of the topic; the next one is one more.
    pub seq: u64,
    /// The tickets with which the approvals that the page shows whole can be allowed, by id.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub tickets: Map<String, Value>,
    /// The digests of the plans of these approvals, by id.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub digests: Map<String, Value>,
    /// How many approvals are pending.
    pub pending: u64,
}

/// The events of a page have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UiClosed {
    pub closed: bool,
}

/// A terminal has another size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UiScreenFitted {
    pub ok: bool,
}

/// A code with which a browser of the gateway's machine gets in, once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UiCodeMinted {
    pub code: Secret,
    /// The address of the page, without the code.
    pub url: String,
    pub expires_at_ms: u64,
}

/// A code with which one phone may ask to be let in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UiPhoneInvited {
    pub code: Secret,
    /// The address that the phone opens, without the code: `#pair=CODE` follows it.
    pub url: String,
    /// The whole address as a QR code, for a page.
    pub html: String,
    pub expires_at_ms: u64,
    /// The SHA-256 of the authority that `/ca.crt` offers, where the gateway has one of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority_fingerprint: Option<String>,
}

/// The key of this gateway for notifications, and whether the device has them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PushKeyShown {
    pub public_key: String,
    pub subscribed: bool,
}

/// Whether the device has notifications now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PushChanged {
    pub subscribed: bool,
}

/// A notification that was sent to see whether it arrives.
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
    /// By how much the number of pending approvals changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_change: Option<i64>,
}

/// One change of a page.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UiPatchOp {
    /// `replace`, `append`, `prepend` or `remove`.
    pub op: String,
    /// The element that it is about.
    pub id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub html: String,
}
