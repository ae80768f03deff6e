//! The names that humans use for a session: two words as its id, verb and target as its title.

mod title;
mod words;

pub use title::title;

use uuid::Uuid;
use words::{ADJECTIVES, NOUNS};

/// Returns a name that is not taken: `adjective-noun`, with a number only if all pairs are in use.
pub fn session_name(is_taken: impl Fn(&str) -> bool) -> String {
    let pairs = ADJECTIVES.len() * NOUNS.len();
    let random = usize::try_from(Uuid::new_v4().as_u128() % pairs as u128).unwrap_or(0);
    // A stride that is coprime to the number of pairs visits each pair once, far from the previous
    // one.
    let stride = (pairs / 3..pairs)
        .find(|stride| greatest_common_divisor(*stride, pairs) == 1)
        .unwrap_or(1);
    let pair = |step: usize| {
        let index = (random + step * stride) % pairs;
        format!(
            "{}-{}",
            ADJECTIVES[index / NOUNS.len()],
            NOUNS[index % NOUNS.len()]
        )
    };
    (0..pairs)
        .map(pair)
        .find(|name| !is_taken(name))
        .unwrap_or_else(|| {
            (2..=u64::MAX)
                .map(|number| format!("{}-{number}", pair(0)))
                .find(|name| !is_taken(name))
                .unwrap_or_else(|| Uuid::new_v4().to_string())
        })
}

/// Whether a text has the form of a session name: safe as a file name and in a command line.
pub fn is_session_name(text: &str) -> bool {
    let mut parts = text.split('-');
    let is_word = |part: Option<&str>| {
        part.is_some_and(|word| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase())
        })
    };
    let is_number = |part: &str| {
        !part.is_empty() && part.len() <= 20 && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    text.len() <= 64
        && is_word(parts.next())
        && is_word(parts.next())
        && parts.next().is_none_or(is_number)
        && parts.next().is_none()
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_lists_are_long_sorted_and_of_short_plain_words() {
        for list in [ADJECTIVES, NOUNS] {
            assert!(list.len() >= 200, "{}", list.len());
            for pair in list.windows(2) {
                assert!(pair[0] < pair[1], "{} {}", pair[0], pair[1]);
            }
            for word in list {
                assert!((3..=8).contains(&word.len()), "{word}");
                assert!(word.bytes().all(|byte| byte.is_ascii_lowercase()), "{word}");
            }
        }
        assert!(ADJECTIVES.iter().all(|word| !NOUNS.contains(word)));
    }

    #[test]
    fn names_are_given_once_until_all_are_used_and_then_numbered() {
        let taken = RefCell::new(HashSet::new());
        let pairs = ADJECTIVES.len() * NOUNS.len();
        for adjective in ADJECTIVES {
            for noun in NOUNS {
                taken.borrow_mut().insert(format!("{adjective}-{noun}"));
            }
        }
        let free = ["brave-otter", "calm-river"];
        for name in free {
            assert!(taken.borrow_mut().remove(name), "{name}");
        }
        let mut given = Vec::new();
        for _ in 0..4 {
            let name = session_name(|name| taken.borrow().contains(name));
            assert!(is_session_name(&name), "{name}");
            assert!(taken.borrow_mut().insert(name.clone()));
            given.push(name);
        }
        given[..2].sort();
        assert_eq!(given[..2], free);
        assert!(given[2..].iter().all(|name| name.matches('-').count() == 2));
        assert_eq!(taken.borrow().len(), pairs + 2);
    }

    #[test]
    fn a_name_is_no_path_and_no_option() {
        for name in ["brave-otter", "brave-otter-2"] {
            assert!(is_session_name(name), "{name}");
        }
        for text in [
            "",
            "brave",
            "-otter",
            "brave-",
            "--otter",
            "../x",
            "brave-otter-",
            "brave-otter-x",
            "brave-otter-2-3",
            "Brave-otter",
            "brave otter",
            "brave/otter",
        ] {
            assert!(!is_session_name(text), "{text}");
        }
    }
}
