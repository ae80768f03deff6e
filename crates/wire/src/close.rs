//! How a connection ends: a code, and a reason that fits into a close frame.

/// The longest reason that a WebSocket close frame can carry.
pub const MAX_REASON_BYTES: usize = 123;

/// The end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    pub code: u16,
    pub reason: String,
}

impl Close {
    /// Nothing wrong; also a handshake that took too long, and a first message that is no JSON.
    pub const NORMAL: u16 = 1000;
    /// No protocol in common.
    pub const PROTOCOL_ERROR: u16 = 1002;
    /// Not allowed.
    pub const POLICY: u16 = 1008;
    /// A message beyond the limit.
    pub const TOO_LARGE: u16 = 1009;
    /// The gateway goes away and comes back.
    pub const RESTART: u16 = 1012;
    /// The gateway is not ready yet.
    pub const TRY_AGAIN: u16 = 1013;
    /// Closed by the client: nothing was heard for two ticks.
    pub const TICK_TIMEOUT: u16 = 4000;
    /// The gateway's secrets were changed.
    pub const AUTH_CHANGED: u16 = 4001;
    /// Another connection of the same node replaced this one. An Interlock extension, sent to
    /// Interlock nodes only.
    pub const TAKEN_OVER: u16 = 4002;

    /// The reason is cut to what fits, between characters.
    pub fn new(code: u16, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
        Self { code, reason }
    }

    pub fn policy(reason: impl Into<String>) -> Self {
        Self::new(Self::POLICY, reason)
    }

    pub fn handshake_timeout() -> Self {
        Self::new(Self::NORMAL, "")
    }

    pub fn too_large() -> Self {
        Self::new(Self::TOO_LARGE, "")
    }

    pub fn restart() -> Self {
        Self::new(Self::RESTART, "service restart")
    }

    pub fn auth_changed() -> Self {
        Self::new(Self::AUTH_CHANGED, "gateway auth changed")
    }

    pub fn taken_over() -> Self {
        Self::new(
            Self::TAKEN_OVER,
            "another connection of this node took over",
        )
    }

    pub fn tick_timeout() -> Self {
        Self::new(Self::TICK_TIMEOUT, "tick timeout")
    }

    /// More waits to be sent than is kept for one client.
    pub fn slow_consumer() -> Self {
        Self::policy("slow consumer")
    }

    /// A client goes on calling what its role may not.
    pub fn repeated_unauthorized() -> Self {
        Self::policy("repeated unauthorized calls")
    }

    /// The first message is JSON, but no request.
    pub fn invalid_request_frame() -> Self {
        Self::policy("invalid request frame")
    }
}

/// Calls that the role may not make, in a row, before the connection is closed.
pub const MAX_UNAUTHORIZED_CALLS: usize = 10;
