//! Limits how often one client may change the config.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most changes in one [`WINDOW`].
pub(crate) const MOST: usize = 3;
pub(crate) const WINDOW: Duration = Duration::from_mins(1);

/// The most clients that are remembered. Beyond that, clients without a recent change are
/// forgotten.
const MAX_CLIENTS: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Writes(Mutex<HashMap<String, VecDeque<Instant>>>);

impl Writes {
    /// Counts a change, or returns how long its author has to wait.
    pub(crate) fn count(&self, client: &str, now: Instant) -> Result<(), Duration> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_CLIENTS {
            all.retain(|_, times| {
                let last = times.back();
                last.is_some_and(|last| now.saturating_duration_since(*last) < WINDOW)
            });
        }
        let times = all.entry(client.to_owned()).or_default();
        while let Some(first) = times.front()
            && now.saturating_duration_since(*first) >= WINDOW
        {
            times.pop_front();
        }
        match times.front() {
            Some(first) if times.len() >= MOST => {
                Err(WINDOW.saturating_sub(now.saturating_duration_since(*first)))
            }
            _ => {
                times.push_back(now);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_changes_in_a_minute_and_then_a_pause() {
        let (writes, now) = (Writes::default(), Instant::now());
        for _ in 0..MOST {
            assert_eq!(writes.count("a", now), Ok(()));
        }
        let later = now + Duration::from_secs(20);
        assert_eq!(writes.count("a", later), Err(Duration::from_secs(40)));
        assert_eq!(writes.count("b", later), Ok(()));
        assert_eq!(writes.count("a", now + WINDOW), Ok(()));
    }
}
