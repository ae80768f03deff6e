//! The lines of the protocol and their authentication.
//!
//! Each side makes a nonce for each connection. Every message is a body with its time and an
//! HMAC-SHA256 under the token. The HMAC covers the direction, the number of the message, both
//! nonces, the time, the hash of the request and the hash of the body. So a process without the
//! token can send nothing, no message can be replayed, and no decision fits another approval.

use hmac::{Hmac, KeyInit as _, Mac as _};
use interlock_plan::hex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::token::SocketToken;

pub(super) const PROTOCOL: u32 = 1;

/// Separates this use of the token from every other use.
const DOMAIN: &str = "interlock-approval-socket-v1";

/// A message that is older, or further in the future, is rejected.
pub(super) const MAX_AGE_MS: u64 = 10_000;

const NONCE_BYTES: usize = 32;

/// The first line of each side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CompanionHello {
    pub protocol: u32,
    pub nonce: String,
}

/// Every line after the hello.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Envelope {
    /// JSON in a string, so that both sides hash the same bytes.
    body: String,
    timestamp_ms: u64,
    mac: String,
}

/// Messages of the host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub(super) enum FromHost {
    Request {
        approval: serde_json::Value,
        /// Whether the host accepts a decision on this connection.
        waits: bool,
    },
    Revealed {
        command: String,
        /// The whole view, with its secrets.
        view: serde_json::Value,
    },
    Result {
        ok: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    Ended {
        how: String,
    },
}

/// Messages of the companion.
#[derive(Debug, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub(super) enum FromCompanion {
    Received {},
    Shown {},
    Reveal {},
    Answer {
        id: String,
        plan_digest: String,
        decision: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_in_ms: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_uses: Option<std::num::NonZeroU32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decider: Option<String>,
        /// The approver's reason for a denial.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// Why a line is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CompanionWireError {
    #[error("a line is no message of this protocol: {0}")]
    Malformed(String),
    #[error("it speaks protocol {0}, this is protocol {PROTOCOL}")]
    Protocol(u32),
    #[error("the nonce does not have its form")]
    Nonce,
    #[error("a message is not authenticated by the token")]
    Mac,
    #[error("a message is too old, or from the future")]
    Stale,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Host,
    Companion,
}

impl Side {
    fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Companion => "companion",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Host => Self::Companion,
            Self::Companion => Self::Host,
        }
    }
}

pub(super) fn hello() -> Result<CompanionHello, getrandom::Error> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce)?;
    Ok(CompanionHello {
        protocol: PROTOCOL,
        nonce: hex(&nonce),
    })
}

/// One side of a connection, once both nonces are known.
#[derive(Debug)]
pub(super) struct SealedLink {
    token: SocketToken,
    side: Side,
    companion_nonce: String,
    host_nonce: String,
    /// The hash of the host's first message, which is the request.
    request_hash: Option<String>,
    sent: u64,
    received: u64,
}

impl SealedLink {
    pub fn new(
        token: SocketToken,
        side: Side,
        own: &CompanionHello,
        other: &CompanionHello,
    ) -> Result<Self, CompanionWireError> {
        if other.protocol != PROTOCOL {
            return Err(CompanionWireError::Protocol(other.protocol));
        }
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if other.nonce.len() != 2 * NONCE_BYTES || !other.nonce.bytes().all(is_hex) {
            return Err(CompanionWireError::Nonce);
        }
        let (companion, host) = match side {
            Side::Host => (other, own),
            Side::Companion => (own, other),
        };
        Ok(Self {
            token,
            side,
            companion_nonce: companion.nonce.clone(),
            host_nonce: host.nonce.clone(),
            request_hash: None,
            sent: 0,
            received: 0,
        })
    }

    /// Seals the next message of this side.
    pub fn seal(
        &mut self,
        message: &impl Serialize,
        now_ms: u64,
    ) -> Result<String, CompanionWireError> {
        let malformed = |error: serde_json::Error| CompanionWireError::Malformed(error.to_string());
        let body = serde_json::to_string(message).map_err(malformed)?;
        let mac = self.mac(self.side, self.sent, now_ms, &body)?;
        self.began(self.side, &body);
        self.sent += 1;
        let envelope = Envelope {
            mac: hex(&mac.finalize().into_bytes()),
            body,
            timestamp_ms: now_ms,
        };
        serde_json::to_string(&envelope).map_err(malformed)
    }

    /// Opens the next line of the other side. The body is parsed only after its HMAC was verified.
    pub fn open<T: DeserializeOwned>(
        &mut self,
        line: &str,
        now_ms: u64,
    ) -> Result<T, CompanionWireError> {
        let malformed = |error: serde_json::Error| CompanionWireError::Malformed(error.to_string());
        let envelope: Envelope = serde_json::from_str(line).map_err(malformed)?;
        let other = self.side.other();
        let mac = self.mac(other, self.received, envelope.timestamp_ms, &envelope.body)?;
        // The comparison takes the same time wherever the two values differ.
        mac.verify_slice(&unhex(&envelope.mac).ok_or(CompanionWireError::Mac)?)
            .map_err(|_| CompanionWireError::Mac)?;
        if envelope.timestamp_ms.abs_diff(now_ms) > MAX_AGE_MS {
            return Err(CompanionWireError::Stale);
        }
        self.began(other, &envelope.body);
        self.received += 1;
        serde_json::from_str(&envelope.body).map_err(malformed)
    }

    fn began(&mut self, by: Side, body: &str) {
        if by == Side::Host && self.request_hash.is_none() {
            self.request_hash = Some(sha256(body));
        }
    }

    fn mac(
        &self,
        by: Side,
        number: u64,
        timestamp_ms: u64,
        body: &str,
    ) -> Result<Hmac<Sha256>, CompanionWireError> {
        let body_hash = sha256(body);
        let request_hash = match (&self.request_hash, by) {
            (Some(hash), _) => hash,
            (None, Side::Host) => &body_hash,
            // A companion must not answer before a request.
            (None, Side::Companion) => return Err(CompanionWireError::Mac),
        };
        let text = format!(
            "{DOMAIN}\n{}\n{number}\n{}\n{}\n{timestamp_ms}\n{request_hash}\n{body_hash}\n",
            by.as_str(),
            self.companion_nonce,
            self.host_nonce,
        );
        let mut mac = Hmac::<Sha256>::new_from_slice(self.token.secret().as_bytes())
            .map_err(|_| CompanionWireError::Mac)?;
        mac.update(text.as_bytes());
        Ok(mac)
    }
}

fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests;
