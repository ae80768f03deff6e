//! Codes with which a browser on this machine logs in. Each works once, within a minute.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use interlock_wire::Secret;

/// How long a code is valid.
pub(crate) const CODE_LIFE: Duration = Duration::from_mins(1);

/// The most codes at once. A new one then replaces the oldest.
const MOST_CODES: usize = 16;

/// The codes that were issued and not used. They are secrets of 32 random bytes, and exist in
/// memory only.
#[derive(Debug, Default)]
pub struct LoginCodes(Mutex<HashMap<u64, (Secret, Instant)>>);

impl LoginCodes {
    pub(crate) fn mint(&self, now: Instant) -> Result<Secret, getrandom::Error> {
        let code = Secret::generate()?;
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|_, (_, until)| *until > now);
        if codes.len() >= MOST_CODES
            && let Some(oldest) = codes.keys().min().copied()
        {
            codes.remove(&oldest);
        }
        let number = codes.keys().max().map_or(0, |number| number + 1);
        codes.insert(number, (code.clone(), now + CODE_LIFE));
        Ok(code)
    }

    /// Uses up a code. Returns false if it does not exist or has expired.
    pub fn take(&self, presented: &str, now: Instant) -> bool {
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|_, (_, until)| *until > now);
        let found = codes.iter().find(|(_, (code, _))| code.matches(presented));
        let Some(number) = found.map(|(number, _)| *number) else {
            return false;
        };
        codes.remove(&number);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_good_once_and_for_a_minute() {
        let codes = LoginCodes::default();
        let now = Instant::now();
        let code = codes.mint(now).unwrap();
        assert!(!codes.take("another", now));
        assert!(codes.take(code.expose(), now));
        assert!(!codes.take(code.expose(), now));
        let late = codes.mint(now).unwrap();
        assert!(!codes.take(late.expose(), now + CODE_LIFE));
    }

    #[test]
    fn only_so_many_codes_are_out() {
        let codes = LoginCodes::default();
        let now = Instant::now();
        let first = codes.mint(now).unwrap();
        let others: Vec<Secret> = (0..MOST_CODES).map(|_| codes.mint(now).unwrap()).collect();
        assert!(!codes.take(first.expose(), now));
        assert!(others.iter().all(|code| codes.take(code.expose(), now)));
    }
}
