//! Web Push: approvals on the lock screen of a phone, where they can be reviewed and denied.
//!
//! A paired device subscribes (`methods`). `follow` sends what waits to it, encrypted for it alone
//! (`message`) and to known services only (`endpoint`). The gateway's HTTP takes a denial back, which the device signs.

mod endpoint;
mod follow;
mod message;
mod methods;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use interlock_wire::Secret;

use self::message::VapidKey;
use interlock_access::token::{SecretFile, TokenError};

pub use follow::{follow, may_decide};
pub(crate) use methods::{key, subscribe, test, unsubscribe};

/// The file of the key by which push services know this gateway.
const KEY_FILE: &str = "push.key";

/// Messages whose decision is still taken; of more the oldest are forgotten.
const MOST_NONCES: usize = 10_000;

/// Approvals whose end is still sent to the devices that got them.
const MOST_PUSHED: usize = 4_096;

/// What the push service of one gateway remembers. A restart forgets the nonces: then a denial on an old
/// notification is refused, and the card is opened instead.
#[derive(Debug, Default)]
pub struct PushService {
    key: OnceLock<VapidKey>,
    nonces: Mutex<HashMap<String, PushNonce>>,
    pushed: Mutex<HashMap<String, Vec<String>>>,
}

/// One message that was sent: the device may decide this approval with it, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushNonce {
    pub device: String,
    pub approval: String,
    pub plan_digest: String,
    until: Instant,
}

impl PushService {
    /// The key, which is made at its first use and kept.
    pub(crate) fn key(&self, state_dir: &Path) -> Result<&VapidKey, TokenError> {
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        let unusable = |error: message::PushMessageError| TokenError::Random(error.to_string());
        let text = SecretFile::named(state_dir, KEY_FILE)
            .read_or_create_as(|| Ok(Secret::new(VapidKey::generate().map_err(unusable)?)))?;
        let key = VapidKey::read(&text).map_err(unusable)?;
        Ok(self.key.get_or_init(|| key))
    }

    fn nonces(&self) -> MutexGuard<'_, HashMap<String, PushNonce>> {
        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if nonces.len() >= MOST_NONCES {
            nonces.retain(|_, nonce| nonce.until > now);
        }
        nonces
    }

    /// A nonce for one message.
    fn nonce(
        &self,
        device: &str,
        approval: &str,
        plan_digest: &str,
        life: Duration,
    ) -> Option<String> {
        let nonce = Secret::generate().ok()?.expose().to_owned();
        let mut nonces = self.nonces();
        if nonces.len() >= MOST_NONCES {
            return None;
        }
        let sent = PushNonce {
            device: device.to_owned(),
            approval: approval.to_owned(),
            plan_digest: plan_digest.to_owned(),
            until: Instant::now() + life,
        };
        nonces.insert(nonce.clone(), sent);
        Some(nonce)
    }

    /// Uses a nonce up, if it is one of this device and approval.
    pub fn take_nonce(&self, nonce: &str, device: &str, approval: &str, plan_digest: &str) -> bool {
        let mut nonces = self.nonces();
        let fits = |sent: &PushNonce| {
            sent.device == device
                && sent.approval == approval
                && sent.plan_digest == plan_digest
                && sent.until > Instant::now()
        };
        if !nonces.get(nonce).is_some_and(fits) {
            return false;
        }
        nonces.remove(nonce);
        true
    }

    /// Remembers who was sent an approval.
    fn note_pushed(&self, approval: &str, device: &str) {
        let mut pushed = self.pushed.lock().unwrap_or_else(PoisonError::into_inner);
        if pushed.len() < MOST_PUSHED || pushed.contains_key(approval) {
            let devices = pushed.entry(approval.to_owned()).or_default();
            devices.push(device.to_owned());
        }
    }

    /// Who was sent an approval that has ended.
    fn take_pushed(&self, approval: &str) -> Vec<String> {
        let mut pushed = self.pushed.lock().unwrap_or_else(PoisonError::into_inner);
        pushed.remove(approval).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_good_once_for_its_device_approval_and_plan() {
        let service = PushService::default();
        let life = Duration::from_mins(1);
        let nonce = service.nonce("d", "a", "p", life).unwrap();
        for (device, approval, digest) in [("x", "a", "p"), ("d", "x", "p"), ("d", "a", "x")] {
            assert!(!service.take_nonce(&nonce, device, approval, digest));
        }
        assert!(!service.take_nonce("another", "d", "a", "p"));
        assert!(service.take_nonce(&nonce, "d", "a", "p"));
        assert!(!service.take_nonce(&nonce, "d", "a", "p"), "it was used");
        let old = service.nonce("d", "a", "p", Duration::ZERO).unwrap();
        assert!(!service.take_nonce(&old, "d", "a", "p"), "its time is over");
    }
}
