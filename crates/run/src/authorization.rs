//! The permission to start one plan. Without a valid one, nothing is started.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use interlock_plan::PlanDigest;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Sets this use of the key apart from every other.
const DOMAIN: &[u8] = b"interlock authorization v1\0";

/// Names the digest of one plan, authenticated with the key of the state directory. Any change
/// to the plan gives it another digest, so that this no longer fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authorization {
    digest: PlanDigest,
    tag: [u8; 32],
}

impl Authorization {
    /// The plan that it is for.
    pub fn digest(&self) -> &PlanDigest {
        &self.digest
    }
}

/// The authorization is not for this plan, or was not made with this key. Which of the two it
/// was is not said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not authorized: the authorization does not fit this plan")]
pub struct NotAuthorized;

/// The secret that makes authorizations. It lies in the state directory, and only two may hold
/// it: `host`, which mints, and whoever calls [`crate::start`], which verifies.
pub struct AuthorizationKey([u8; 32]);

impl AuthorizationKey {
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Permits this plan to be started.
    ///
    /// Only `host` may call this, and only with the judge's verdict or the desk's recorded
    /// decision for exactly this plan in hand.
    pub fn authorize(&self, digest: &PlanDigest) -> Authorization {
        let tag = self.mac(digest).finalize().into_bytes().into();
        Authorization {
            digest: digest.clone(),
            tag,
        }
    }

    /// Whether this authorization was made with this key for this plan. Takes the same time
    /// wherever the tags differ.
    pub fn verify(
        &self,
        authorization: &Authorization,
        digest: &PlanDigest,
    ) -> Result<(), NotAuthorized> {
        // The tag is checked against the digest of the plan at hand, not against the one that
        // the authorization claims to be for.
        self.mac(digest)
            .verify_slice(&authorization.tag)
            .map_err(|_| NotAuthorized)
    }

    fn mac(&self, digest: &PlanDigest) -> Hmac<Sha256> {
        // HMAC fills a short key up with zeros to one block; done here, it cannot fail.
        let mut block = [0; 64];
        block[..self.0.len()].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        mac.update(DOMAIN);
        mac.update(digest.as_str().as_bytes());
        mac
    }
}

impl fmt::Debug for AuthorizationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthorizationKey(…)")
    }
}
