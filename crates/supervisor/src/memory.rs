//! Memory that a resting server gives back: free heap, and the pages of code that nothing uses
//! meanwhile. These pages are in the system's cache, and return when they are next needed.

use std::time::Duration;

use crate::unsafe_process;

/// How often a server checks whether it is resting.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Processor time between two checks that counts as rest, in ticks of a hundredth of a second:
/// timers use it.
const RESTING_TICKS: u64 = 5;

/// Number of pages, beyond those that were left the last time, that are worth giving back.
const WORTH_IT: u64 = 256;

/// Number of checks after which the assumption about needed pages ends. Even a resting process uses
/// some of its code: the pages that it has at the first check after it gave memory back count as
/// needed until then. The time of these checks does not divide a minute, so that work which comes
/// twice a minute does not fall into the first check each time.
const NEEDED_LOOKS: u32 = 7;

/// Detects when a process rests. It is checked every [`LOOK_EVERY`].
#[derive(Debug, Default)]
pub struct RestWatch {
    last_look: Use,
    /// Pages that were left when memory was given back, and the checks since then.
    left: u64,
    looks_since: u32,
    /// Pages that the process needs while it rests.
    needed: u64,
}

/// What a process has used since it began, and what it has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Use {
    ticks: u64,
    /// Pages in memory. Page faults would say too little, because one of them maps up to 16 pages
    /// of code.
    pages: u64,
}

impl RestWatch {
    /// Gives memory back if the process has rested since the last check and has memory to give.
    /// `free` should release what is kept only for speed.
    pub fn look(&mut self, free: impl FnOnce()) {
        let Some(now) = Use::of_this_process() else {
            return;
        };
        if self.is_time(now) {
            free();
            unsafe_process::trim_memory();
            self.gave_back(Use::of_this_process().unwrap_or(now).pages);
        }
    }

    fn is_time(&mut self, now: Use) -> bool {
        let worked = now.ticks.saturating_sub(self.last_look.ticks) > RESTING_TICKS;
        self.last_look = now;
        self.looks_since = self.looks_since.saturating_add(1);
        if worked {
            return false;
        }
        if self.looks_since == 1 && self.left > 0 {
            self.needed = now.pages;
        }
        let kept = match self.looks_since {
            ..NEEDED_LOOKS => self.needed,
            _ => self.left,
        };
        now.pages.saturating_sub(kept) >= WORTH_IT
    }

    fn gave_back(&mut self, left: u64) {
        self.left = left;
        self.needed = left;
        self.looks_since = 0;
    }
}

impl Use {
    fn of_this_process() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// Parses the line. The name in the second field may contain anything.
    fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            ticks: number(11)? + number(12)?,
            pages: number(21)?,
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
        rest.gave_back(3010);
        assert!(!rest.is_time(at(42, 3050)), "there is nothing to give");
        assert!(!rest.is_time(at(90, 9000)), "it works");
        assert!(rest.is_time(at(92, 9000)));
    }

    #[test]
    fn what_a_resting_process_uses_is_asked_for_now_and_then_only() {
        let mut rest = RestWatch::default();
        let at = |pages| Use { ticks: 0, pages };
        assert!(rest.is_time(at(5000)));
        rest.gave_back(2000);
        let asked: Vec<bool> = (0..NEEDED_LOOKS).map(|_| rest.is_time(at(3000))).collect();
        let (last, others) = asked.split_last().unwrap();
        assert!(*last && !others.contains(&true), "{asked:?}");
        rest.gave_back(2000);
        assert!(!rest.is_time(at(3000)));
        assert!(rest.is_time(at(3000 + WORTH_IT)), "more came");
        rest.gave_back(2000);
        let worked = Use {
            ticks: 900,
            pages: 9000,
        };
        assert!(!rest.is_time(worked));
        assert!(rest.is_time(worked), "that was work, and no need");
    }

    #[test]
    fn a_use_is_read_behind_any_name() {
        let stat = "7 (a) b (c) S 3 7 5 0 -1 4194560 90 0 9 0 31 11 0 0 20 0 1 0 4242 50000 812 9";
        let expected = Use {
            ticks: 42,
            pages: 812,
        };
        assert_eq!(Use::parse(stat), Some(expected));
    }
}
