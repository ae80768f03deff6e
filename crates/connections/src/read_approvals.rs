//! Remembers which approvals a program has read lately.
//!
//! An approver decides about what was shown. A connection knows what it received. A command line
//! opens a connection for every request, and proves each time that it is the same device or holds
//! the same token.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a read counts. After that, the approver must read the approval again.
const READ_FOR: Duration = Duration::from_mins(10);

/// The most reads that are remembered. The oldest is forgotten first.
const MOST: usize = 10_000;

/// Pairs of a program and an approval that it read.
#[derive(Debug, Default)]
pub struct ReadApprovals {
    read: Mutex<ReadPairs>,
}

#[derive(Debug, Default)]
struct ReadPairs {
    at: HashMap<(String, String), Instant>,
    oldest_first: VecDeque<(String, String)>,
}

impl ReadApprovals {
    pub fn note(&self, reader: &str, approval: &str) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = (reader.to_owned(), approval.to_owned());
        if read.at.insert(pair.clone(), Instant::now()).is_none() {
            read.oldest_first.push_back(pair);
        }
        if read.oldest_first.len() > MOST
            && let Some(oldest) = read.oldest_first.pop_front()
        {
            read.at.remove(&oldest);
        }
    }

    pub fn contains(&self, reader: &str, approval: &str) -> bool {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let at = read.at.get(&(reader.to_owned(), approval.to_owned()));
        at.is_some_and(|at| at.elapsed() < READ_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_same_program_read_counts_and_what_is_kept_is_bounded() {
        let read = ReadApprovals::default();
        read.note("a", "1");
        assert!(read.contains("a", "1"));
        assert!(!read.contains("b", "1"));
        assert!(!read.contains("a", "2"));
        for number in 0..MOST {
            read.note("b", &number.to_string());
        }
        assert!(!read.contains("a", "1"));
        assert!(read.contains("b", "0"));
        let kept = read.read.lock().unwrap();
        assert_eq!((kept.at.len(), kept.oldest_first.len()), (MOST, MOST));
    }
}
