//! The last lines of the gateway's own log, for operators who are not at its terminal.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most lines that are kept.
const MAX_LINES: usize = 5_000;

/// The most bytes that are kept.
const MAX_BYTES: usize = 2 * 1024 * 1024;

/// The longest line that is kept. The rest of a longer line is cut off.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// The last lines of the log. Clones share the same lines.
#[derive(Debug, Clone, Default)]
pub struct LogLines(Arc<Mutex<Ring>>);

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<String>,
    bytes: usize,
    /// The number of the first line that is kept, counted since the start.
    first: u64,
}

/// A part of the log.
#[derive(Debug, PartialEq, Eq)]
pub struct Tail {
    pub lines: Vec<String>,
    /// The cursor at which the next read continues.
    pub cursor: u64,
    /// Whether more lines were available than the caller asked for.
    pub is_truncated: bool,
    /// Whether the caller's cursor leads to no line that is kept.
    pub is_reset: bool,
    pub bytes: usize,
}

impl LogLines {
    /// Returns a writer that writes to standard error and remembers the lines.
    pub fn writer(&self) -> LogWriter {
        LogWriter(self.clone())
    }

    fn remember(&self, text: &str) {
        let mut ring = self.lock();
        for line in text.lines() {
            let end = line.floor_char_boundary(MAX_LINE_BYTES);
            let is_shown = |c: &char| !c.is_control() || *c == '\t';
            let line: String = line[..end].chars().filter(is_shown).collect();
            ring.bytes += line.len();
            ring.lines.push_back(line);
        }
        while ring.lines.len() > MAX_LINES || ring.bytes > MAX_BYTES {
            let Some(gone) = ring.lines.pop_front() else {
                return;
            };
            ring.bytes -= gone.len();
            ring.first += 1;
        }
    }

    /// Returns the lines from the cursor on, or the last lines if there is no cursor.
    pub fn tail(&self, cursor: Option<u64>, limit: usize, max_bytes: usize) -> Tail {
        let ring = self.lock();
        let end = ring.first + ring.lines.len() as u64;
        let known = cursor.filter(|cursor| (ring.first..=end).contains(cursor));
        let from = known.unwrap_or_else(|| {
            let last = u64::try_from(limit).unwrap_or(u64::MAX);
            end.saturating_sub(last).max(ring.first)
        });
        let skip = usize::try_from(from - ring.first).unwrap_or(usize::MAX);
        let mut room = max_bytes;
        let mut lines = Vec::new();
        for line in ring.lines.iter().skip(skip).take(limit) {
            // At least one line is returned, so that a reader that continues makes progress.
            if line.len() > room && !lines.is_empty() {
                break;
            }
            room = room.saturating_sub(line.len());
            lines.push(line.clone());
        }
        let next = from + lines.len() as u64;
        Tail {
            cursor: next,
            is_truncated: next < end || (known.is_none() && from > ring.first),
            is_reset: cursor.is_some() && known.is_none(),
            bytes: ring.bytes,
            lines,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writer that the logger writes to.
#[derive(Debug)]
pub struct LogWriter(LogLines);

impl Write for LogWriter {
    /// Accepts all bytes at once, because the logger writes whole lines.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.remember(&String::from_utf8_lossy(bytes));
        // The reader of standard error may be gone. The lines are kept all the same.
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_a_cursor_goes_on_behind_them() {
        let lines = LogLines::default();
        for number in 0..10 {
            lines.remember(&format!("line {number}\n"));
        }
        let tail = lines.tail(None, 3, 1000);
        assert_eq!(tail.lines, ["line 7", "line 8", "line 9"]);
        assert_eq!(
            (tail.cursor, tail.is_truncated, tail.is_reset),
            (10, true, false)
        );
        assert!(lines.tail(Some(10), 3, 1000).lines.is_empty());
        lines.remember("one more\n");
        assert_eq!(lines.tail(Some(10), 3, 1000).lines, ["one more"]);
        let few = lines.tail(Some(0), 100, 13);
        assert_eq!(
            (few.lines.len(), few.cursor, few.is_truncated),
            (2, 2, true)
        );
        assert!(lines.tail(Some(99), 3, 1000).is_reset);
    }

    #[test]
    fn what_is_kept_is_bounded_and_holds_no_control_characters() {
        let lines = LogLines::default();
        for _ in 0..MAX_LINES + 10 {
            lines.remember("\u{1b}[31mred\n");
        }
        lines.remember(&"x".repeat(MAX_LINE_BYTES * 2));
        let tail = lines.tail(None, 2, usize::MAX);
        assert_eq!(tail.lines[0], "[31mred");
        assert_eq!(tail.lines[1].len(), MAX_LINE_BYTES);
        assert!(lines.tail(Some(0), 1, 1).is_reset);
    }
}
