//! The end of a connection: a code, and a reason that fits into a close frame.

/// The longest reason that a WebSocket close frame can carry.
pub const MAX_REASON_BYTES: usize = 123;

/// The end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    pub code: u16,
    pub reason: String,
}

impl Close {
    /// A regular end. Also used for a handshake that took too long, and for a first message that is
    /// not JSON.
    pub const NORMAL: u16 = 1000;
    /// The two sides share no protocol.
    pub const PROTOCOL_ERROR: u16 = 1002;
    /// Not allowed.
    pub const POLICY: u16 = 1008;
    /// A message was longer than the limit.
    pub const TOO_LARGE: u16 = 1009;
    /// The gateway stops and will return.
    pub const RESTART: u16 = 1012;
    /// The gateway is not ready yet.
    pub const TRY_AGAIN: u16 = 1013;
    /// Sent by the client after two ticks without a message.
    pub const TICK_TIMEOUT: u16 = 4000;
    /// The gateway's secrets have changed.
    pub const AUTH_CHANGED: u16 = 4001;
    /// Another connection of the same node replaced this one. An Interlock extension, sent to
    /// Interlock nodes only.
    pub const TAKEN_OVER: u16 = 4002;

    /// Makes a close frame. The reason is cut between characters to the longest one that fits.
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

    /// More data waits to be sent than is kept for one client.
    pub fn slow_consumer() -> Self {
        Self::policy("slow consumer")
    }

    /// A client repeatedly calls methods that its role may not call.
    pub fn repeated_unauthorized() -> Self {
        Self::policy("repeated unauthorized calls")
    }

    /// The first message is JSON but not a request.
    pub fn invalid_request_frame() -> Self {
        Self::policy("invalid request frame")
    }
}

/// How many calls in a row that its role may not make a client can make before its connection is
/// closed.
pub const MAX_UNAUTHORIZED_CALLS: usize = 10;
