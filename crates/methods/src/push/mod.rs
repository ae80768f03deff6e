//! Web Push: approvals on the lock screen of a phone, where they can be reviewed and denied.
//!
//! A paired device subscribes (`methods`). `follow` sends pending approvals to it, encrypted for
//! this device alone (`message`), and only through known services (`endpoint`). A denial comes back
//! through the gateway's HTTP, signed by the device.

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

/// The file of the key that identifies this gateway to push services.
const KEY_FILE: &str = "push.key";

/// The most messages that can still be answered. Beyond that, the oldest are forgotten.
const MOST_NONCES: usize = 10_000;

/// The most approvals whose end is still sent to the devices that received them.
const MOST_PUSHED: usize = 4_096;

/// The state of one gateway's push service. A restart forgets the nonces. A denial from an old
/// notification is then refused, and its card is opened instead.
#[derive(Debug, Default)]
pub struct PushService {
    key: OnceLock<VapidKey>,
    nonces: Mutex<HashMap<String, PushNonce>>,
    pushed: Mutex<HashMap<String, Vec<String>>>,
}

/// One message that was sent. With it, the device may decide about this approval once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushNonce {
    pub device: String,
    pub approval: String,
    pub plan_digest: String,
    until: Instant,
}

impl PushService {
    /// Returns the key, which is made at its first use and stored.
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

    /// Makes a nonce for one message.
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

    /// Uses up a nonce, if it belongs to this device and approval.
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

    /// Remembers that a device received an approval.
    fn note_pushed(&self, approval: &str, device: &str) {
        let mut pushed = self.pushed.lock().unwrap_or_else(PoisonError::into_inner);
        if pushed.len() < MOST_PUSHED || pushed.contains_key(approval) {
            let devices = pushed.entry(approval.to_owned()).or_default();
            devices.push(device.to_owned());
        }
    }

    /// Returns the devices that received an approval, when it has ended.
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
