//! Shows the output of a session on the caller's terminal.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use interlock_console::output;
use interlock_supervisor::Drawing;
use interlock_transcript::{ChunkStream, Cursor, TranscriptReader};

use super::queries::Queries;
use super::terminal_size;

/// How many bytes one read of the transcript returns at most.
const BATCH: usize = 256 * 1024;

/// How long a terminal that accepts no output may delay the end of this process.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// Switches off every mode that a program may have switched on. The cursor stays where it is.
const RESET: &[u8] = b"\x1b7\x1b[r\x1b8\x1b[m\x1b[?25h\x1b[?1l\x1b>\x1b[?2004l\
    \x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l";

#[derive(Debug)]
pub(super) struct TranscriptView {
    spool: TranscriptReader,
    cursor: Cursor,
    queries: Queries,
    /// Whether the session has a pseudoterminal and standard output is a terminal.
    on_terminal: bool,
    hint: bool,
    closed: bool,
}

/// Locks the view, even if a thread panicked while it held the lock: the terminal must still be
/// restored.
pub(super) fn lock(view: &Arc<Mutex<TranscriptView>>) -> MutexGuard<'_, TranscriptView> {
    view.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state in which the session leaves the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    /// The session has ended, and its programs have cleaned up the terminal themselves.
    Ended,
    /// A program may have drawn on the terminal, so the shell needs a new line.
    Midway,
}

/// Resets the terminal. The view shows nothing afterwards.
pub(super) fn close(view: &Arc<Mutex<TranscriptView>>, leave: Leave) {
    let until = Instant::now() + LAST_OUTPUT;
    loop {
        let mut view = match view.try_lock() {
            Ok(view) => view,
            Err(TryLockError::Poisoned(view)) => view.into_inner(),
            // Another thread is writing to a terminal that may never accept the output.
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            Err(TryLockError::WouldBlock) => return,
        };
        if leave == Leave::Ended {
            // Another thread may have reported the end before all output was shown.
            view.follow();
        }
        view.reset_terminal(leave);
        view.closed = true;
        return;
    }
}

impl TranscriptView {
    pub fn new(spool: TranscriptReader, pty: bool) -> Self {
        Self {
            spool,
            cursor: Cursor::START,
            queries: Queries::default(),
            on_terminal: pty && std::io::stdout().is_terminal(),
            hint: false,
            closed: false,
        }
    }

    /// Shows new output. Returns the offset in the transcript up to which output is shown.
    pub fn follow(&mut self) -> u64 {
        while let Ok(batch) = self.spool.read_from(self.cursor, BATCH) {
            if batch.next == self.cursor || self.closed {
                break;
            }
            self.cursor = batch.next;
            for chunk in &batch.chunks {
                match chunk.stream {
                    ChunkStream::Stderr => drop(std::io::stderr().write_all(&chunk.bytes)),
                    ChunkStream::Stdout => output::print_bytes(&chunk.bytes),
                    ChunkStream::Pty => self.print(&chunk.bytes),
                }
            }
        }
        self.cursor.offset
    }

    /// Draws the current screen of the session.
    pub fn draw(&mut self, drawing: &Drawing) {
        if self.closed {
            return;
        }
        self.hint = false;
        self.print(&drawing.bytes);
        if let Ok(cursor) = self.spool.cursor_at(drawing.total_bytes) {
            self.cursor = cursor;
        }
    }

    fn print(&mut self, bytes: &[u8]) {
        if self.on_terminal {
            let shown = self.queries.without(bytes);
            output::print_bytes(&shown);
        } else {
            output::print_bytes(bytes);
        }
    }

    /// Scrolls the current contents of the terminal out of sight, so that the caller can scroll
    /// back to them.
    pub fn make_room() {
        let rows = terminal_size().map_or(0, |size| size.rows);
        output::print_bytes("\r\n".repeat(rows.into()).as_bytes());
    }

    /// Shows a line over the last row, until the next [`TranscriptView::draw`].
    pub fn show_hint(&mut self, text: &str) {
        if !std::io::stderr().is_terminal() {
            output::note(&format!("interlock: {text}"));
            return;
        }
        let Some(size) = terminal_size() else { return };
        let text: String = text.chars().take(size.columns.into()).collect();
        let _ = write!(
            std::io::stderr(),
            "\x1b7\x1b[{};1H\x1b[7m{text}\x1b[m\x1b8",
            size.rows
        );
        self.hint = true;
    }

    pub fn has_hint(&self) -> bool {
        self.hint
    }

    pub fn reset_terminal(&mut self, leave: Leave) {
        if !self.on_terminal || self.closed {
            return;
        }
        let mut bytes = Vec::new();
        if let (true, Some(size)) = (self.hint, terminal_size()) {
            bytes.extend(format!("\x1b7\x1b[{};1H\x1b[2K\x1b8", size.rows).bytes());
        }
        if self.queries.is_alternate() {
            bytes.extend(b"\x1b[?1049l");
        }
        bytes.extend(RESET);
        if leave == Leave::Midway {
            bytes.extend(b"\r\n");
        }
        output::print_bytes(&bytes);
    }
}
