//! The right to start one plan, once. Nothing starts without it.

use std::fmt;
use std::io;
use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use interlock_plan::{PlanDigest, RunPlan};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Domain separation: keeps this use of the key apart from every other use.
const DOMAIN: &[u8] = b"interlock authorization v1\0";

/// The reason why one plan may be started: the judge's allow verdict, or the claim of an approval.
/// Only the host's own permission type implements this trait; a test enforces that for the whole
/// workspace. Using a permission consumes it.
pub trait PlanPermission {
    /// Consumes the permission and returns the digest of the plan that may be started.
    fn into_permitted_digest(self) -> PlanDigest;
}

/// A plan that may be started, once. [`AuthorizationKey::authorize`] makes it from a plan and the
/// permission for exactly that plan, and consumes both. The supervisor's client starts nothing
/// else, and takes it by value, so that it is never used twice. It cannot be copied,
///
/// ```compile_fail,E0599
/// fn copied(plan: &interlock_engine::AuthorizedPlan) -> interlock_engine::AuthorizedPlan {
///     interlock_engine::AuthorizedPlan::clone(plan)
/// }
/// ```
///
/// cannot be put together by hand,
///
/// ```compile_fail,E0451
/// use interlock_plan::RunPlan;
/// use interlock_engine::{Authorization, AuthorizedPlan};
/// fn forged(plan: RunPlan, authorization: Authorization) -> AuthorizedPlan {
///     AuthorizedPlan { plan, authorization }
/// }
/// ```
///
/// and cannot be made without a permission.
///
/// ```compile_fail,E0277
/// use interlock_plan::RunPlan;
/// use interlock_engine::{AuthorizationKey, AuthorizedPlan};
/// fn unasked(key: &AuthorizationKey, plan: RunPlan) -> AuthorizedPlan {
///     let digest = plan.digest();
///     key.authorize(plan, digest).unwrap()
/// }
/// ```
#[derive(Debug)]
#[must_use = "an authorized plan is started, or its permission is lost"]
pub struct AuthorizedPlan {
    plan: RunPlan,
    authorization: Authorization,
}

impl AuthorizedPlan {
    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    /// The authorization that the run's process verifies before it starts anything.
    pub fn authorization(&self) -> &Authorization {
        &self.authorization
    }
}

/// Names the digest of one plan, authenticated with the key of the state directory. Any change to
/// the plan changes its digest, and the authorization no longer fits.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authorization {
    digest: PlanDigest,
    tag: [u8; 32],
}

impl Authorization {
    /// The digest of the plan that this authorization is for.
    pub fn digest(&self) -> &PlanDigest {
        &self.digest
    }
}

/// The authorization is not for this plan, or was not made with this key. The error does not reveal
/// which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not authorized: the authorization does not fit this plan")]
pub struct NotAuthorized;

/// The secret that makes authorizations. It is stored in the state directory. `host` authorizes
/// with it, and the process of a run verifies with it before it calls [`crate::start`].
pub struct AuthorizationKey([u8; 32]);

impl AuthorizationKey {
    /// Reads the key from a state directory.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(path)?;
        let key = bytes.try_into().map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "it is not a key of 32 bytes")
        })?;
        Ok(Self::from_bytes(key))
    }

    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Makes the only value by which this plan can be started. A permission for another plan is
    /// refused, and is consumed all the same.
    pub fn authorize(
        &self,
        plan: RunPlan,
        permission: impl PlanPermission,
    ) -> Result<AuthorizedPlan, NotAuthorized> {
        let digest = plan.digest();
        if permission.into_permitted_digest() != digest {
            return Err(NotAuthorized);
        }
        let tag = self.mac(&digest).finalize().into_bytes().into();
        let authorization = Authorization { digest, tag };
        Ok(AuthorizedPlan {
            plan,
            authorization,
        })
    }

    /// Checks that this authorization was made with this key for this plan. The comparison takes
    /// constant time, wherever the tags differ.
    pub fn verify(
        &self,
        authorization: &Authorization,
        digest: &PlanDigest,
    ) -> Result<(), NotAuthorized> {
        // The tag is checked against the digest of the plan at hand, not against the digest that
        // the authorization claims.
        self.mac(digest)
            .verify_slice(&authorization.tag)
            .map_err(|_| NotAuthorized)
    }

    fn mac(&self, digest: &PlanDigest) -> Hmac<Sha256> {
        // HMAC pads a short key with zeros to one block. Padding it here means that this cannot
        // fail.
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
