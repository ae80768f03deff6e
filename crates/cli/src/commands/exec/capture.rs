//! Output kept for a JSON result: the head and the tail, with exact counts of what is left out.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// Each of the two parts; together what a result may show.
const PART: usize = 100_000;

#[derive(Debug, Default)]
pub struct Capture(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Capture {
    pub fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.total += bytes.len() as u64;
        let room = PART - kept.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        kept.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(PART)..];
        let excess = (kept.tail.len() + rest.len()).saturating_sub(PART);
        kept.tail.drain(..excess);
        kept.tail.extend(rest);
    }

    /// Invalid UTF-8 is replaced, never fatal.
    pub fn shown(&self) -> Value {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let capture = Capture::default();
        for _ in 0..50 {
            capture.push(&[b'x'; 7_001]);
        }
        let shown = capture.shown();
        assert_eq!(shown["totalBytes"], 350_050);
        assert_eq!(shown["shownBytes"], 200_000);
        assert_eq!(shown["omittedBytes"], 150_050);
        let small = Capture::default();
        small.push(b"a\xffb");
        assert_eq!(small.shown()["text"], "a\u{fffd}b");
    }
}
