//! Prints data to stdout and notes to stderr, with aligned columns, readable without color.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use interlock_command::display::ShownLine;
pub use interlock_command::display::visible;
use interlock_command::{HighlightStyle, highlight};
use serde::Serialize;

/// How to format text for a stream: with colors or without, and how wide.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    is_colored: bool,
    /// The width of the terminal. `None` if the stream is not a terminal: its lines may have any
    /// length.
    columns: Option<usize>,
}

impl Paint {
    pub fn stdout() -> Self {
        Self::on(&std::io::stdout())
    }

    /// The format for stderr, where prompts and notes go.
    pub fn stderr() -> Self {
        Self::on(&std::io::stderr())
    }

    /// The width of the terminal, if the stream is one.
    pub fn columns(self) -> Option<usize> {
        self.columns
    }

    fn on(stream: &(impl IsTerminal + AsFd)) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let is_terminal = stream.is_terminal();
        let size = rustix::termios::tcgetwinsize(stream).ok();
        let columns = size.map(|size| usize::from(size.ws_col));
        Self {
            is_colored: !refused && is_terminal,
            columns: columns.filter(|columns| is_terminal && *columns > 0),
        }
    }

    fn wrap(self, text: &str, codes: &str) -> String {
        if self.is_colored {
            format!("\x1b[{codes}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    pub fn strong(self, text: &str) -> String {
        self.wrap(text, "1")
    }

    pub fn dim(self, text: &str) -> String {
        self.wrap(text, "2")
    }

    pub fn warning(self, text: &str) -> String {
        self.wrap(text, "1;31")
    }

    /// An added line of a diff.
    pub fn added(self, text: &str) -> String {
        self.wrap(text, "32")
    }

    pub fn removed(self, text: &str) -> String {
        self.wrap(text, "31")
    }

    /// Green, yellow, red for allow, ask, deny.
    pub fn verdict(self, verdict: &str) -> String {
        let codes = match verdict {
            "allow" => "1;32",
            "ask" => "1;33",
            _ => "1;31",
        };
        self.wrap(verdict, codes)
    }

    /// A command with colored parts. Control characters are made visible.
    pub fn command(self, text: &str) -> String {
        let mut out = String::new();
        let mut at = 0;
        for part in highlight(text) {
            out.push_str(&visible(&text[at..part.span.start]));
            let shown = visible(part.span.of(text));
            let codes = match part.style {
                HighlightStyle::Program => "1;36",
                HighlightStyle::Option => "36",
                HighlightStyle::Argument => "0",
                HighlightStyle::Assignment => "35",
                HighlightStyle::Operator => "1",
                HighlightStyle::Redirection => "33",
                HighlightStyle::Odd => "1;31",
            };
            out.push_str(&self.wrap(&shown, codes));
            at = part.span.end;
        }
        out.push_str(&visible(&text[at..]));
        out
    }
}

/// Formats a name, a path or a reason on one line: control characters and line breaks are spelled
/// out, so that the text cannot forge a line of output.
pub fn line(text: &str) -> String {
    ShownLine::new(text).to_string()
}

/// Cells longer than this do not widen their column: one long pattern must not push every row off
/// the screen.
const MAX_COLUMN: usize = 60;

/// Formats rows with aligned columns. The last cell of a row is not padded and does not widen its
/// column.
pub fn table(rows: &[Vec<String>], indent: &str) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter(|row| column + 1 < row.len())
            .map(|row| row[column].chars().count())
            .filter(|width| *width <= MAX_COLUMN)
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::from(indent);
        for (column, cell) in row.iter().enumerate() {
            if column + 1 == row.len() {
                line.push_str(cell);
            } else {
                let _ = write!(line, "{cell:<width$}  ", width = widths[column]);
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The first failed write to stdout, except for a closed pipe.
static LOST: OnceLock<std::io::Error> = OnceLock::new();

/// Whether the reader of stdout has closed the pipe.
static UNREAD: AtomicBool = AtomicBool::new(false);

/// Whether output still reaches a reader. Commands that print without end stop when it does not.
pub fn reaches_reader() -> bool {
    LOST.get().is_none() && !UNREAD.load(Ordering::Relaxed)
}

/// Prints data to stdout. A closed pipe is not an error; a full disk is one (see [`finish`]).
pub fn print(text: &str) {
    keep_failure(std::io::stdout().lock().write_all(text.as_bytes()));
}

/// Prints data to stdout and flushes it.
pub fn print_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    keep_failure(out.write_all(bytes).and_then(|()| out.flush()));
}

pub fn print_json(value: &impl Serialize) {
    let text = serde_json::to_string_pretty(value).unwrap_or_else(|error| error.to_string());
    print(&(text + "\n"));
}

/// Prints one line to stderr. A closed stderr is ignored.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Output data could not be written.
#[derive(Debug, thiserror::Error)]
#[error("failed to write to standard output: {0}")]
pub struct DataLost(&'static std::io::Error);

/// Flushes stdout, and fails if any output was lost.
pub fn finish() -> Result<(), DataLost> {
    keep_failure(std::io::stdout().lock().flush());
    LOST.get().map_or(Ok(()), |error| Err(DataLost(error)))
}

fn keep_failure(written: std::io::Result<()>) {
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            UNREAD.store(true, Ordering::Relaxed);
        }
        Err(error) => {
            // Only the first error is kept.
            let _ = LOST.set(error);
        }
        Ok(()) => {}
    }
}
