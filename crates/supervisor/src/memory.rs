//! What a server gives back while it rests: free heap, and the pages of code that nothing uses
//! then. They are in the system's cache, and come back when they are next needed.

use std::time::Duration;

use crate::unsafe_process;

/// How often a server looks whether it rests.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Processor time between two looks, in ticks of a hundredth of a second, that is no work: timers.
const RESTING_TICKS: u64 = 5;

/// Pages that came since the last time; fewer are not worth it.
const WORTH_IT: u64 = 256;

/// Tells when a process rests. Looked at every [`LOOK_EVERY`].
#[derive(Debug, Default)]
pub struct RestWatch {
    last_look: Use,
    given_back: Use,
}

/// What a process has used since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Use {
    ticks: u64,
    /// Pages that had to be fetched, not from the disk.
    pages: u64,
}

impl RestWatch {
    /// Gives memory back if the process has rested since the last look, and has some. What it only
    /// keeps in order to be faster is to be freed by `free`.
    pub fn look(&mut self, free: impl FnOnce()) {
        let Some(now) = Use::of_this_process() else {
            return;
        };
        if self.is_time(now) {
            free();
            unsafe_process::trim_memory();
            self.given_back = Use::of_this_process().unwrap_or(now);
        }
    }

    fn is_time(&mut self, now: Use) -> bool {
        let worked = now.ticks.saturating_sub(self.last_look.ticks) > RESTING_TICKS;
        self.last_look = now;
        !worked && now.pages.saturating_sub(self.given_back.pages) >= WORTH_IT
    }
}

impl Use {
    fn of_this_process() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// The name in the second field may hold anything.
    fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            ticks: number(11)? + number(12)?,
            pages: number(7)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_code() -> u64 {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = text.lines().find(|line| line.starts_with("RssFile:"));
        let number = line.and_then(|line| line.split_ascii_whitespace().nth(1));
        number.unwrap().parse().unwrap()
    }

    #[test]
    fn the_code_of_a_process_that_rests_is_given_back() {
        // Much of it, once: all that parses and prints.
        let words: Vec<String> = (0..100).map(|number| format!("{number:?}")).collect();
        assert_eq!(words.concat().len(), 190);
        let before = resident_code();
        unsafe_process::trim_memory();
        let after = resident_code();
        assert!(after < before, "{after} KiB of {before} are left");
    }

    #[test]
    fn a_process_rests_when_it_has_done_next_to_nothing_since_the_last_look() {
        let mut rest = RestWatch::default();
        let at = |ticks, pages| Use { ticks, pages };
        assert!(!rest.is_time(at(40, 5000)), "it has just begun");
        assert!(rest.is_time(at(41, 5000)));
        rest.given_back = at(41, 5010);
        assert!(!rest.is_time(at(42, 5050)), "there is nothing to give");
        assert!(!rest.is_time(at(90, 9000)), "it works");
        assert!(rest.is_time(at(92, 9000)));
    }

    #[test]
    fn a_use_is_read_behind_any_name() {
        let stat = "7 (a) b (c) S 3 7 5 0 -1 4194560 812 0 9 0 31 11 0 0 20 0 1 0 4242 0 0";
        let expected = Use {
            ticks: 42,
            pages: 812,
        };
        assert_eq!(Use::parse(stat), Some(expected));
    }
}
