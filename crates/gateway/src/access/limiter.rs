//! Slows those who guess secrets: a few wrong tries, then a pause that grows.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wrong tries that cost nothing.
const FREE: u32 = 10;

/// The first pause; each wrong try more doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// Without a wrong try for so long, an address begins anew.
const FORGET: Duration = Duration::from_mins(10);

/// Addresses that are remembered. Of an attacker with more addresses the oldest are forgotten.
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

/// Wrong tries by address.
#[derive(Debug, Default)]
pub(crate) struct Limiter(Mutex<HashMap<IpAddr, Failures>>);

impl Limiter {
    /// How many seconds this address has to wait, if it has to.
    pub(crate) fn wait(&self, address: IpAddr, now: Instant) -> Option<u64> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = known.get(&address)?;
        let left = failures
            .pause()
            .checked_sub(now.saturating_duration_since(failures.last))?;
        (!left.is_zero()).then(|| left.as_secs().max(1))
    }

    pub(crate) fn failed(&self, address: IpAddr, now: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_ADDRESSES && !known.contains_key(&address) {
            known.retain(|_, failures| now.saturating_duration_since(failures.last) < FORGET);
            let oldest = known.iter().min_by_key(|(_, failures)| failures.last);
            if known.len() >= MAX_ADDRESSES
                && let Some(oldest) = oldest.map(|(address, _)| *address)
            {
                known.remove(&oldest);
            }
        }
        let failures = known.entry(address).or_insert(Failures {
            count: 0,
            last: now,
        });
        if now.saturating_duration_since(failures.last) >= FORGET {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
    }

    pub(crate) fn succeeded(&self, address: IpAddr) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_wrong_tries_are_free_and_then_pauses_grow() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        let address: IpAddr = "10.0.0.1".parse().unwrap();
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
        assert_eq!(limiter.wait("10.0.0.2".parse().unwrap(), now), None);
        limiter.succeeded(address);
        assert_eq!(limiter.wait(address, now), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        for number in 0..u32::try_from(MAX_ADDRESSES).unwrap() + 100 {
            limiter.failed(IpAddr::from(number.to_be_bytes()), now);
        }
        assert!(limiter.0.lock().unwrap().len() <= MAX_ADDRESSES);
    }
}
