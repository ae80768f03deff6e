//! What a server gives back while it rests: free heap, and the pages of code that nothing uses
//! then. They are in the system's cache, and come back when they are next needed.

use std::time::Duration;

use crate::unsafe_process;

/// How often a server looks whether it rests.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Processor time between two looks, in ticks of a hundredth of a second, that is no work: timers.
const RESTING_TICKS: u64 = 5;

/// Pages in memory beyond those that were left the last time; fewer are not worth it.
const WORTH_IT: u64 = 256;

/// A process that rests uses some of its code all the same. What it has at the first look after it gave
/// memory back is taken for that, and asked for again after so many looks only. Their time is no part of a
/// minute: work that comes twice a minute does not fall into the first look each time.
const NEEDED_LOOKS: u32 = 7;

/// Tells when a process rests. Looked at every [`LOOK_EVERY`].
#[derive(Debug, Default)]
pub struct RestWatch {
    last_look: Use,
    /// Pages that were left when memory was given back, and looks since then.
    left: u64,
    looks_since: u32,
    /// Pages that the process has while it rests.
    needed: u64,
}

/// What a process has used since it began, and what it has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Use {
    ticks: u64,
    /// Pages in memory. Faults would say too little: one of them maps up to 16 pages of code.
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

    /// The name in the second field may hold anything.
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
