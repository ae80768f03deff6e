//! Output kept for a JSON result: the head and the tail, with exact counts of what is left out.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// What a result may show, where the config does not say it.
const DEFAULT_LIMIT: usize = 200_000;

#[derive(Debug)]
pub struct Capture {
    /// Of each of the two parts.
    part: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Capture {
    /// Keeps this many bytes; a character is at least one.
    pub fn new(limit: Option<u64>) -> Self {
        let limit = limit.map_or(DEFAULT_LIMIT, |limit| {
            usize::try_from(limit).unwrap_or(DEFAULT_LIMIT)
        });
        Self {
            part: limit / 2,
            kept: Mutex::default(),
        }
    }

    pub fn push(&self, bytes: &[u8]) {
        let part = self.part;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.total += bytes.len() as u64;
        let room = part - kept.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        kept.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(part)..];
        let excess = (kept.tail.len() + rest.len()).saturating_sub(part);
        kept.tail.drain(..excess);
        kept.tail.extend(rest);
    }

    /// Invalid UTF-8 is replaced, never fatal.
    pub fn shown(&self) -> Value {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = kept.head.len() + kept.tail.len();
        let omitted = kept.total - shown as u64;
        let tail: Vec<u8> = kept.tail.iter().copied().collect();
        let text = if omitted == 0 {
            let whole: Vec<u8> = kept.head.iter().chain(&tail).copied().collect();
            String::from_utf8_lossy(&whole).into_owned()
        } else {
            format!(
                "{}\n[… {omitted} bytes left out …]\n{}",
                String::from_utf8_lossy(&kept.head),
                String::from_utf8_lossy(&tail)
            )
        };
        json!({ "text": text, "totalBytes": kept.total, "shownBytes": shown, "omittedBytes": omitted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_shown_or_counted() {
        let capture = Capture::new(None);
        for _ in 0..50 {
            capture.push(&[b'x'; 7_001]);
        }
        let shown = capture.shown();
        assert_eq!(shown["totalBytes"], 350_050);
        assert_eq!(shown["shownBytes"], 200_000);
        assert_eq!(shown["omittedBytes"], 150_050);
        let short = Capture::new(Some(10));
        short.push(b"0123456789abcdef");
        assert_eq!(
            short.shown()["text"],
            "01234\n[… 6 bytes left out …]\nbcdef"
        );
        let small = Capture::new(None);
        small.push(b"a\xffb");
        assert_eq!(small.shown()["text"], "a\u{fffd}b");
    }
}
