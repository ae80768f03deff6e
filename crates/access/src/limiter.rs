//! Slows callers that guess secrets: after a few wrong tries comes a pause that grows.
//!
//! Many callers can share an address: all callers of this machine do, and all behind a proxy. Two
//! rules prevent that one of them shuts the others out, or gains more tries:
//!
//! - An unguessable secret is compared even during a pause. A token of this program has 256 random
//!   bits, so a million tries a second are worth no more than one. A secret that a person may have
//!   chosen (the password, or a short token) waits: during a pause not even the right one is
//!   compared, and its owner can use the Unix socket meanwhile.
//! - Tries are counted by address and by kind of secret ([`Tried`]), and only a caller that
//!   presents the shared secret itself is forgiven wrong tries. The token of an agent or of a
//!   device proves nothing about the shared secret.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The number of wrong tries before the first pause.
const FREE: u32 = 10;

/// The first pause. Each further wrong try doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// After this time without a wrong try, the count starts again from zero.
const FORGET: Duration = Duration::from_mins(10);

/// How many addresses are remembered. If an attacker has more addresses, the oldest are forgotten.
const MAX_ADDRESSES: usize = 10_000;

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Failures {
    fn pause(self) -> Duration {
        let over = self.count.saturating_sub(FREE);
        match over {
            0 => Duration::ZERO,
            over => FIRST_PAUSE
                .saturating_mul(1 << (over - 1).min(16))
                .min(LONGEST_PAUSE),
        }
    }
}

/// The secret that a caller tried to guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tried {
    /// The operator's token or password, or a secret that may have been meant as one.
    Shared,
    /// The token of a device. A program that does not know that its token was exchanged or revoked
    /// presents it again and again, which must not lock out its owner's password.
    Device,
}

type TriedBy = (IpAddr, Tried);

/// Wrong tries by address and kind of secret.
#[derive(Debug, Default)]
pub struct Limiter(Mutex<HashMap<TriedBy, Failures>>);

impl Limiter {
    /// How many seconds this caller has to wait; `None` if it need not wait.
    pub fn wait(&self, who: TriedBy, now: Instant) -> Option<u64> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = known.get(&who)?;
        let left = failures
            .pause()
            .checked_sub(now.saturating_duration_since(failures.last))?;
        (!left.is_zero()).then(|| left.as_secs().max(1))
    }

    pub fn failed(&self, who: TriedBy, now: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_ADDRESSES && !known.contains_key(&who) {
            known.retain(|_, failures| now.saturating_duration_since(failures.last) < FORGET);
            let oldest = known.iter().min_by_key(|(_, failures)| failures.last);
            if known.len() >= MAX_ADDRESSES
                && let Some(oldest) = oldest.map(|(who, _)| *who)
            {
                known.remove(&oldest);
            }
        }
        let failures = known.entry(who).or_insert(Failures {
            count: 0,
            last: now,
        });
        if now.saturating_duration_since(failures.last) >= FORGET {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
    }

    pub fn succeeded(&self, who: TriedBy) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(&who);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_wrong_tries_are_free_and_then_pauses_grow() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        let address = (IpAddr::from([10, 0, 0, 1]), Tried::Shared);
        let other = (address.0, Tried::Device);
        for _ in 0..FREE {
            limiter.failed(address, now);
            assert_eq!(limiter.wait(address, now), None);
        }
        limiter.failed(address, now);
        assert_eq!(limiter.wait(address, now), Some(1));
        limiter.failed(address, now);
        limiter.failed(address, now);
        assert_eq!(limiter.wait(address, now), Some(4));
        assert_eq!(limiter.wait(address, now + Duration::from_secs(5)), None);
        let neighbour = (IpAddr::from([10, 0, 0, 2]), Tried::Shared);
        assert_eq!(limiter.wait(neighbour, now), None);
        assert_eq!(limiter.wait(other, now), None);
        limiter.succeeded(other);
        assert_eq!(limiter.wait(address, now), Some(4));
        limiter.succeeded(address);
        assert_eq!(limiter.wait(address, now), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        for number in 0..u32::try_from(MAX_ADDRESSES).unwrap() + 100 {
            limiter.failed((IpAddr::from(number.to_be_bytes()), Tried::Shared), now);
        }
        assert!(limiter.0.lock().unwrap().len() <= MAX_ADDRESSES);
    }
}
