//! Signed calls: HMAC-SHA256 over `TIME.ID.BODY` proves who made them.

use hmac::{Hmac, KeyInit as _, Mac as _};
use interlock_wire::Secret;
use sha2::Sha256;

/// The headers of a signed call.
pub const ID_HEADER: &str = "x-interlock-id";
pub const TIME_HEADER: &str = "x-interlock-timestamp";
pub const SIGNATURE_HEADER: &str = "x-interlock-signature";

/// How old a call may be, and how far its clock may be ahead.
const OLDEST_MS: u64 = 5 * 60 * 1000;
const AHEAD_MS: u64 = 30 * 1000;

/// The longest id of a call.
const MOST_ID_BYTES: usize = 128;

/// A call that claims to be signed.
#[derive(Debug, Clone, Copy)]
pub struct SignedCall<'a> {
    /// Milliseconds since 1970, as the header gives them.
    pub time: &'a str,
    pub id: &'a str,
    pub signature: &'a str,
    pub body: &'a [u8],
}

/// Why a call is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureRefusal {
    #[error("the signature is not one of this secret, time, id and body")]
    Wrong,
    #[error("the time is no number of milliseconds")]
    NoTime,
    #[error("it was signed over 5 minutes ago")]
    Old,
    #[error("it was signed later than now")]
    Ahead,
    #[error("the id is empty or too long")]
    BadId,
}

impl SignatureRefusal {
    pub fn code(self) -> &'static str {
        match self {
            Self::Wrong => "HOOK_SIGNATURE",
            Self::NoTime | Self::Old | Self::Ahead => "HOOK_TIME",
            Self::BadId => "HOOK_ID",
        }
    }
}

impl SignedCall<'_> {
    /// Checks that the holder of the secret signed the call shortly before now. The caller must
    /// check that its id was not used before.
    pub fn check(&self, secret: &Secret, now_ms: u64) -> Result<(), SignatureRefusal> {
        if secret.is_empty() {
            return Err(SignatureRefusal::Wrong);
        }
        if self.id.is_empty() || self.id.len() > MOST_ID_BYTES {
            return Err(SignatureRefusal::BadId);
        }
        let expected = sign(secret, self.time, self.id, self.body);
        if !Secret::new(expected).matches(self.signature) {
            return Err(SignatureRefusal::Wrong);
        }
        let time: u64 = self.time.parse().map_err(|_| SignatureRefusal::NoTime)?;
        if time.saturating_add(OLDEST_MS) < now_ms {
            return Err(SignatureRefusal::Old);
        }
        if time > now_ms.saturating_add(AHEAD_MS) {
            return Err(SignatureRefusal::Ahead);
        }
        Ok(())
    }
}

/// Returns `sha256=` and the HMAC in hexadecimal.
pub fn sign(secret: &Secret, time: &str, id: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes())
        .unwrap_or_else(|_| unreachable!("a key of any length will do"));
    for part in [time.as_bytes(), b".", id.as_bytes(), b".", body] {
        mac.update(part);
    }
    let mut text = "sha256=".to_owned();
    for byte in mac.finalize().into_bytes() {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_believed_for_its_secret_time_id_and_body_only() {
        let (own, other) = (Secret::new("in"), Secret::new("out"));
        let now = 1_000_000_000_u64;
        let time = now.to_string();
        let signature = sign(&own, &time, "a", b"{}");
        let call = SignedCall {
            time: &time,
            id: "a",
            signature: &signature,
            body: b"{}",
        };
        assert_eq!(call.check(&own, now), Ok(()));
        assert_eq!(call.check(&other, now), Err(SignatureRefusal::Wrong));
        // An empty secret proves nothing, whatever was signed with it.
        let none = Secret::new("");
        let signature = sign(&none, &time, "a", b"{}");
        let unsecured = SignedCall {
            signature: &signature,
            ..call
        };
        assert_eq!(unsecured.check(&none, now), Err(SignatureRefusal::Wrong));
        let altered = SignedCall {
            body: b"{ }",
            ..call
        };
        assert_eq!(altered.check(&own, now), Err(SignatureRefusal::Wrong));
        let renamed = SignedCall { id: "b", ..call };
        assert_eq!(renamed.check(&own, now), Err(SignatureRefusal::Wrong));
        assert_eq!(
            call.check(&own, now + OLDEST_MS + 1),
            Err(SignatureRefusal::Old)
        );
        assert_eq!(
            call.check(&own, now - AHEAD_MS - 1),
            Err(SignatureRefusal::Ahead)
        );
        let unnamed = SignedCall { id: "", ..call };
        assert_eq!(unnamed.check(&own, now), Err(SignatureRefusal::BadId));
    }
}
