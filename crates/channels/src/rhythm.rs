//! Lets all accounts act at the same moments while nothing happens. An idle machine wakes once for
//! all accounts, and their code can leave the memory in between.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The time between two such moments.
const BEAT: Duration = Duration::from_secs(30);

/// A moment that is nearer than this is skipped.
const NEAREST: Duration = Duration::from_secs(10);

static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns how long an account waits for events before it asks again, or shows that it is alive.
pub(crate) fn until_beat() -> Duration {
    after(BEGAN.elapsed())
}

fn after(elapsed: Duration) -> Duration {
    let into =
        Duration::from_millis(u64::try_from(elapsed.as_millis() % BEAT.as_millis()).unwrap_or(0));
    let left = BEAT.saturating_sub(into);
    if left < NEAREST { left + BEAT } else { left }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_that_begin_apart_meet_at_the_same_moments() {
        for seconds in 0..200 {
            let elapsed = Duration::from_secs(seconds);
            let wait = after(elapsed);
            assert_eq!((elapsed + wait).as_secs() % 30, 0, "{seconds}");
            assert!((10..40).contains(&wait.as_secs()), "{seconds}: {wait:?}");
        }
    }
}
