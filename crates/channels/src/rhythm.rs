//! When accounts do what they have to do while nothing happens: all of them at the same moments. A machine
//! that rests is woken once for all accounts, and the code of it leaves the memory in between.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Between two such moments.
const BEAT: Duration = Duration::from_secs(30);

/// A moment that is nearer than this is left out.
const NEAREST: Duration = Duration::from_secs(10);

static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// How long an account waits for news before it asks again, or shows that it is there.
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
