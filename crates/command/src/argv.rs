//! An argument vector that many readers share.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The words of a command. Cloning and taking a tail cost nothing however long the vector is: a
/// request is inspected as written, behind each wrapper and once more by the judge, and hostile
/// requests are long.
#[derive(Clone)]
pub struct Argv {
    words: Arc<[String]>,
    start: usize,
}

impl Argv {
    /// Returns the words after the first `count`, or none if there are not that many.
    #[must_use]
    pub fn tail(&self, count: usize) -> Self {
        Self {
            words: Arc::clone(&self.words),
            start: (self.start + count).min(self.words.len()),
        }
    }
}

impl Deref for Argv {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.words[self.start..]
    }
}

impl From<Vec<String>> for Argv {
    fn from(words: Vec<String>) -> Self {
        Self {
            words: words.into(),
            start: 0,
        }
    }
}

impl PartialEq for Argv {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Argv {}

impl std::fmt::Debug for Argv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Serialize for Argv {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(words: &[&str]) -> Argv {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        words.into()
    }

    #[test]
    fn a_tail_is_what_is_left_and_never_out_of_bounds() {
        let all = argv(&["nice", "-n5", "ls"]);
        assert_eq!(all.tail(0), all);
        assert_eq!(all.tail(2), argv(&["ls"]));
        assert_eq!(all.tail(1).tail(1), argv(&["ls"]));
        assert!(all.tail(4).is_empty());
    }
}
