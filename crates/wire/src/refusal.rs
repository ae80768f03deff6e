//! Refusals with a fixed text. Each row gives the error and the end of the connection.

use crate::close::Close;
use crate::error::{ErrorCode, WireError};
use crate::scope::Role;

/// One row. [`WireRefusal::error`] goes into the response. [`WireRefusal::close`] ends the
/// connection if the refusal happens in the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireRefusal {
    pub error: ErrorCode,
    /// The code that programs decide by; empty if only the message identifies the refusal.
    pub detail: &'static str,
    /// The property of `details` that contains the code.
    pub key: &'static str,
    pub message: &'static str,
    pub close: u16,
}

impl WireRefusal {
    const fn new(error: ErrorCode, detail: &'static str, message: &'static str) -> Self {
        Self {
            error,
            detail,
            key: "code",
            message,
            close: Close::POLICY,
        }
    }

    const fn invalid(detail: &'static str, message: &'static str) -> Self {
        Self::new(ErrorCode::INVALID_REQUEST, detail, message)
    }

    const fn reason(mut self) -> Self {
        self.key = "reason";
        self
    }

    const fn closing(mut self, code: u16) -> Self {
        self.close = code;
        self
    }

    pub fn error(&self) -> WireError {
        let error = WireError::new(self.error.clone(), self.message);
        match self.detail {
            "" => error,
            detail => error.with(self.key, detail),
        }
    }

    pub fn close(&self) -> Close {
        Close::new(self.close, self.message)
    }
}

impl From<&WireRefusal> for WireError {
    fn from(refusal: &WireRefusal) -> Self {
        refusal.error()
    }
}

/// The name of the row, and the row.
macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $row:expr;)*) => {
        $($(#[$doc])* pub static $name: WireRefusal = $row;)*
        /// Every row.
        pub static ALL: &[(&str, &WireRefusal)] = &[$((stringify!($name), &$name)),*];
    };
}

refusals! {
    // The handshake.
    AUTH_TOKEN_MISMATCH = WireRefusal::invalid("AUTH_TOKEN_MISMATCH", "unauthorized: gateway token mismatch (set gateway.remote.token to match gateway.auth.token)");
    AUTH_TOKEN_MISSING = WireRefusal::invalid("AUTH_TOKEN_MISSING", "unauthorized: gateway token missing (set gateway.remote.token to match gateway.auth.token)");
    AUTH_PASSWORD_MISMATCH = WireRefusal::invalid("AUTH_PASSWORD_MISMATCH", "unauthorized: gateway password mismatch (set gateway.remote.password to match gateway.auth.password)");
    AUTH_PASSWORD_MISSING = WireRefusal::invalid("AUTH_PASSWORD_MISSING", "unauthorized: gateway password missing (set gateway.remote.password to match gateway.auth.password)");
    AUTH_DEVICE_TOKEN_MISMATCH = WireRefusal::invalid("AUTH_DEVICE_TOKEN_MISMATCH", "unauthorized: device token mismatch (rotate/reissue device token)");
    AUTH_RATE_LIMITED = WireRefusal::invalid("AUTH_RATE_LIMITED", "unauthorized: too many failed authentication attempts (retry later)");
    DEVICE_AUTH_DEVICE_ID_MISMATCH = WireRefusal::invalid("DEVICE_AUTH_DEVICE_ID_MISMATCH", "device identity mismatch");
    DEVICE_AUTH_SIGNATURE_EXPIRED = WireRefusal::invalid("DEVICE_AUTH_SIGNATURE_EXPIRED", "device signature expired");
    DEVICE_AUTH_NONCE_REQUIRED = WireRefusal::invalid("DEVICE_AUTH_NONCE_REQUIRED", "device nonce required");
    DEVICE_AUTH_NONCE_MISMATCH = WireRefusal::invalid("DEVICE_AUTH_NONCE_MISMATCH", "device nonce mismatch");
    DEVICE_AUTH_SIGNATURE_INVALID = WireRefusal::invalid("DEVICE_AUTH_SIGNATURE_INVALID", "device signature invalid");
    DEVICE_AUTH_PUBLIC_KEY_INVALID = WireRefusal::invalid("DEVICE_AUTH_PUBLIC_KEY_INVALID", "device public key invalid");
    /// See [`protocol_mismatch`], which adds the version numbers.
    PROTOCOL_MISMATCH = WireRefusal::invalid("PROTOCOL_MISMATCH", "protocol mismatch").closing(Close::PROTOCOL_ERROR);
    INVALID_ROLE = WireRefusal::invalid("", "invalid role");
    FIRST_REQUEST_NOT_CONNECT = WireRefusal::invalid("", "invalid handshake: first request must be connect");
    CONTROL_UI_ORIGIN_NOT_ALLOWED = WireRefusal::invalid("CONTROL_UI_ORIGIN_NOT_ALLOWED", "origin not allowed (open the Control UI from the gateway host or allow it in gateway.controlUi.allowedOrigins)");
    DEVICE_IDENTITY_REQUIRED = WireRefusal::new(ErrorCode::NOT_PAIRED, "DEVICE_IDENTITY_REQUIRED", "device identity required");
    /// See [`pairing_required`], which adds the device and the reason.
    PAIRING_REQUIRED = WireRefusal::new(ErrorCode::NOT_PAIRED, "PAIRING_REQUIRED", "pairing required");
    /// See [`starting`], which adds when to retry.
    STARTING = WireRefusal::new(ErrorCode::UNAVAILABLE, "startup-sidecars", "gateway starting; retry shortly").reason().closing(Close::TRY_AGAIN);
    CONNECT_AGAIN = WireRefusal::invalid("", "connect is only valid as the first request");

    // Nodes.
    NOT_CONNECTED = WireRefusal::new(ErrorCode::UNAVAILABLE, "NOT_CONNECTED", "node not connected");
    NODE_APPROVALS_NOT_CONNECTED = WireRefusal::new(ErrorCode::UNAVAILABLE, "NOT_CONNECTED", "NOT_CONNECTED: node not connected");
    NODE_ID_MISMATCH = WireRefusal::invalid("", "nodeId mismatch");
    NO_EXEC_APPROVALS_BY_INVOKE = WireRefusal::invalid("", "node.invoke does not allow system.execApprovals.*; use exec.approvals.node.*");

    // Using an approval.
    MISSING_RUN_ID = WireRefusal::invalid("MISSING_RUN_ID", "approval override requires params.runId");
    UNKNOWN_APPROVAL_ID = WireRefusal::invalid("UNKNOWN_APPROVAL_ID", "unknown or expired approval id");
    APPROVAL_EXPIRED = WireRefusal::invalid("APPROVAL_EXPIRED", "approval expired");
    APPROVAL_NODE_BINDING_MISSING = WireRefusal::invalid("APPROVAL_NODE_BINDING_MISSING", "approval id missing node binding");
    APPROVAL_NODE_MISMATCH = WireRefusal::invalid("APPROVAL_NODE_MISMATCH", "approval id not valid for this node");
    APPROVAL_DEVICE_MISMATCH = WireRefusal::invalid("APPROVAL_DEVICE_MISMATCH", "approval id not valid for this device");
    APPROVAL_CLIENT_MISMATCH = WireRefusal::invalid("APPROVAL_CLIENT_MISMATCH", "approval id not valid for this client");
    APPROVAL_REQUIRED = WireRefusal::invalid("APPROVAL_REQUIRED", "approval required");
    APPROVAL_ENV_BINDING_MISSING = WireRefusal::invalid("APPROVAL_ENV_BINDING_MISSING", "approval id missing env binding for requested env overrides");
    APPROVAL_ENV_MISMATCH = WireRefusal::invalid("APPROVAL_ENV_MISMATCH", "approval id env binding mismatch");
    APPROVAL_REQUEST_MISMATCH = WireRefusal::invalid("APPROVAL_REQUEST_MISMATCH", "approval id does not match request");

    // Asking and deciding.
    APPROVAL_NODE_ID_REQUIRED = WireRefusal::invalid("", "nodeId is required for host=node");
    APPROVAL_PLAN_REQUIRED = WireRefusal::invalid("", "systemRunPlan is required for host=node");
    APPROVAL_COMMAND_REQUIRED = WireRefusal::invalid("", "command is required");
    APPROVAL_ID_RESERVED = WireRefusal::invalid("", "approval ids starting with plugin: are reserved");
    APPROVAL_ALREADY_PENDING = WireRefusal::invalid("", "approval id already pending");
    APPROVAL_WAIT_NOT_FOUND = WireRefusal::invalid("", "approval expired or not found");
    APPROVAL_NOT_FOUND = WireRefusal::invalid("APPROVAL_NOT_FOUND", "unknown or expired approval id").reason();
    APPROVAL_RECORD_NOT_FOUND = WireRefusal::invalid("APPROVAL_NOT_FOUND", "approval not found").reason();
    APPROVAL_ALREADY_RESOLVED = WireRefusal::invalid("APPROVAL_ALREADY_RESOLVED", "approval already resolved").reason();
    APPROVAL_ALLOW_ALWAYS_UNAVAILABLE = WireRefusal::invalid("APPROVAL_ALLOW_ALWAYS_UNAVAILABLE", "allow-always is unavailable because the effective policy requires approval every time").reason();
    INVALID_DECISION = WireRefusal::invalid("", "invalid decision");

    // Documents.
    APPROVALS_BASE_HASH_REQUIRED = WireRefusal::invalid("", "exec approvals base hash required; re-run exec.approvals.get and retry");
    APPROVALS_CHANGED = WireRefusal::invalid("", "exec approvals changed since last load; re-run exec.approvals.get and retry");
    CONFIG_BASE_HASH_REQUIRED = WireRefusal::invalid("", "config base hash required; re-run config.get and retry");
    CONFIG_CHANGED = WireRefusal::invalid("", "config changed since last load; re-run config.get and retry");
}

/// The client's range of protocol versions does not contain the required one.
pub fn protocol_mismatch(client_min: u64, client_max: u64) -> WireError {
    PROTOCOL_MISMATCH
        .error()
        .with("clientMinProtocol", client_min)
        .with("clientMaxProtocol", client_max)
        .with("expectedProtocol", crate::PROTOCOL)
        .with("minimumProbeProtocol", crate::OLDEST_NODE_PROTOCOL)
}

/// The gateway is starting; the client may retry at once.
pub fn starting() -> WireError {
    STARTING.error().retry_after(500)
}

/// Why a device has to be approved, or approved again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairingReason {
    NotPaired,
    RoleUpgrade,
    ScopeUpgrade,
    MetadataUpgrade,
}

impl PairingReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotPaired => "not-paired",
            Self::RoleUpgrade => "role-upgrade",
            Self::ScopeUpgrade => "scope-upgrade",
            Self::MetadataUpgrade => "metadata-upgrade",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::NotPaired => "pairing required: device is not approved yet",
            Self::RoleUpgrade => {
                "pairing required: device is asking for a higher role than currently approved"
            }
            Self::ScopeUpgrade => {
                "pairing required: device is asking for more scopes than currently approved"
            }
            Self::MetadataUpgrade => {
                "pairing required: device identity changed and must be re-approved"
            }
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::NotPaired => "Approve this device from the pending pairing requests.",
            _ => "Review and approve the pending request of this device.",
        }
    }
}

/// A device that waits for an operator's approval.
#[derive(Debug, Clone)]
pub struct PairingRequired<'a> {
    pub reason: PairingReason,
    pub request_id: &'a str,
    pub device_id: &'a str,
    pub role: &'a str,
    pub scopes: &'a [String],
    /// The roles and scopes that are already approved; reported for every reason but the first.
    pub approved: Option<(&'a [String], &'a [String])>,
}

/// The error and the end of the connection. The close reason names the request.
pub fn pairing_required(pairing: &PairingRequired<'_>) -> (WireError, Close) {
    let message = pairing.reason.message();
    let mut error = WireError::new(ErrorCode::NOT_PAIRED, message)
        .with("code", PAIRING_REQUIRED.detail)
        .with("reason", pairing.reason.as_str())
        .with("requestId", pairing.request_id)
        .with("remediationHint", pairing.reason.hint())
        .with("deviceId", pairing.device_id)
        .with("requestedRole", pairing.role)
        .with("requestedScopes", pairing.scopes);
    if let Some((roles, scopes)) = pairing.approved
        && pairing.reason != PairingReason::NotPaired
    {
        error = error
            .with("approvedRoles", roles)
            .with("approvedScopes", scopes);
    }
    // Without this hint, a node gives up at once and is gone when an operator approves it.
    if pairing.role == Role::Node.as_str() {
        error = error
            .with("pauseReconnect", false)
            .with("recommendedNextStep", "wait_then_retry");
    }
    let reason = format!("{message} (requestId: {})", pairing.request_id);
    (error, Close::policy(reason))
}
