//! The terminal as a person would see it.
//!
//! `vt100` keeps the picture. This module adds the rest: it rewrites sequences that `vt100` does
//! not know (`rewrite`), answers queries (`answer`), and ensures that no output, however hostile,
//! takes more memory than one screen and a few small buffers.

mod answer;
mod rewrite;
mod styled;

pub use answer::cursor_report;
pub use styled::{ScreenRow, ScreenRun};

use std::panic::{AssertUnwindSafe, catch_unwind};

use answer::ScreenListener;
use rewrite::{RewriteStep, Rewriter};
use serde::{Deserialize, Serialize};
use styled::styled_row;

use crate::keys::CursorMode;

/// Columns and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub columns: u16,
    pub rows: u16,
}

impl Size {
    /// A wide character needs two columns, and some programs fail on less than two rows.
    const MIN: Self = Self {
        columns: 2,
        rows: 2,
    };
    /// Limits the memory of a screen to about ten megabytes.
    const MAX: Self = Self {
        columns: 1000,
        rows: 500,
    };

    /// The nearest size that a screen can have.
    #[must_use]
    pub fn clamped(self) -> Self {
        Self {
            columns: self.columns.clamp(Self::MIN.columns, Self::MAX.columns),
            rows: self.rows.clamp(Self::MIN.rows, Self::MAX.rows),
        }
    }
}

impl Default for Size {
    /// The initial size of every session.
    fn default() -> Self {
        Self {
            columns: 120,
            rows: 30,
        }
    }
}

/// The position of the cursor, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CursorPosition {
    pub row: u16,
    pub column: u16,
    pub is_visible: bool,
}

/// The content of a screen at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Picture {
    pub size: Size,
    /// One text per row, without trailing blanks.
    pub rows: Vec<String>,
    pub cursor: CursorPosition,
    pub title: String,
    /// Whether a full-screen program is drawing.
    pub is_alternate: bool,
}

pub struct Screen {
    parser: vt100::Parser<ScreenListener>,
    rewriter: Rewriter,
    size: Size,
    resets: u64,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Screen")
            .field("size", &self.size)
            .field("resets", &self.resets)
            .finish_non_exhaustive()
    }
}

impl Screen {
    pub fn new(size: Size) -> Self {
        let size = size.clamped();
        Self {
            parser: parser(size, ScreenListener::default()),
            rewriter: Rewriter::default(),
            size,
            resets: 0,
        }
    }

    /// Draws the program's output, and returns the terminal's answers: bytes for the program's
    /// input. The answers of one call are few and short, and contain nothing that the program
    /// chose.
    #[must_use = "a program that asks its terminal waits for the answer"]
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (used, step) = self.rewriter.next(rest);
            rest = &rest[used..];
            match step {
                RewriteStep::Nothing => {}
                RewriteStep::Draw => self.draw(&bytes[bytes.len() - rest.len() - used..][..used]),
                RewriteStep::DrawInstead(other) => self.draw(&other),
                RewriteStep::Repeat(count) => self.repeat(count),
                RewriteStep::BackTab(count) => self.back_tab(count),
            }
        }
        self.parser.callbacks_mut().take_answers()
    }

    pub fn resize(&mut self, size: Size) {
        let size = size.clamped();
        self.size = size;
        self.guarded(|parser| parser.screen_mut().set_size(size.rows, size.columns));
    }

    pub fn picture(&self) -> Picture {
        let screen = self.parser.screen();
        let (row, column) = self.cursor();
        Picture {
            size: self.size,
            rows: screen
                .rows(0, self.size.columns)
                .map(|row| row.trim_end().to_string())
                .collect(),
            cursor: CursorPosition {
                row,
                column,
                is_visible: !screen.hide_cursor(),
            },
            title: self.parser.callbacks().title().to_string(),
            is_alternate: screen.alternate_screen(),
        }
    }

    /// The rows with their colors, for a surface that draws text without sequences. The cell under
    /// a visible cursor is a separate run.
    pub fn styled_rows(&self) -> Vec<ScreenRow> {
        let cursor = self.picture().cursor;
        let screen = self.parser.screen();
        let rows = 0..self.size.rows;
        rows.map(|row| {
            let at = (cursor.is_visible && cursor.row == row).then_some(cursor.column);
            styled_row(screen, row, self.size.columns, at)
        })
        .collect()
    }

    /// The bytes that draw this screen on an empty terminal, including modes.
    pub fn drawing(&self) -> Vec<u8> {
        let screen = self.parser.screen();
        // This comes first, because the alternate screen has its own picture and cursor.
        let mut bytes = if screen.alternate_screen() {
            b"\x1b[?1049h".to_vec()
        } else {
            Vec::new()
        };
        bytes.extend(screen.state_formatted());
        bytes
    }

    /// The mode in which cursor keys have to be encoded.
    pub fn cursor_mode(&self) -> CursorMode {
        if self.parser.screen().application_cursor() {
            CursorMode::Application
        } else {
            CursorMode::Normal
        }
    }

    /// Whether the program requested marked pastes.
    pub fn wants_bracketed_paste(&self) -> bool {
        self.parser.screen().bracketed_paste()
    }

    /// How often the picture was reset because drawing failed.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// The cursor's row and column on the screen. After the last column, the cursor stays there.
    fn cursor(&self) -> (u16, u16) {
        let (row, column) = self.parser.screen().cursor_position();
        (
            row.min(self.size.rows - 1),
            column.min(self.size.columns - 1),
        )
    }

    fn draw(&mut self, bytes: &[u8]) {
        self.guarded(|parser| parser.process(bytes));
    }

    /// Repeats the character before the cursor `count` times. Programs send this right after the
    /// character.
    fn repeat(&mut self, count: u16) {
        let screen = self.parser.screen();
        let (row, column) = screen.cursor_position();
        let character = [1, 2]
            .iter()
            .filter_map(|back| screen.cell(row, column.checked_sub(*back)?))
            .find(|cell| !cell.is_wide_continuation())
            .map(|cell| cell.contents().to_string())
            .filter(|contents| !contents.is_empty());
        let most = usize::from(self.size.columns) * usize::from(self.size.rows);
        let character = character.unwrap_or_else(|| " ".to_string());
        self.draw(character.repeat(usize::from(count).min(most)).as_bytes());
    }

    /// Moves to the `count`th tab stop before the cursor. Tab stops are eight columns apart.
    fn back_tab(&mut self, count: u16) {
        let (_, column) = self.cursor();
        let stop = column.div_ceil(8).saturating_sub(count) * 8;
        self.draw(format!("\x1b[{}G", stop + 1).as_bytes());
    }

    /// Protects the supervisor from a program's output: if the drawing code fails, an empty screen
    /// replaces the picture. The transcript still has everything.
    fn guarded(&mut self, work: impl FnOnce(&mut vt100::Parser<ScreenListener>)) {
        let parser_now = &mut self.parser;
        if catch_unwind(AssertUnwindSafe(|| work(parser_now))).is_err() {
            let listener = std::mem::take(self.parser.callbacks_mut());
            self.parser = parser(self.size, listener);
            self.rewriter = Rewriter::default();
            self.resets += 1;
        }
    }
}

fn parser(size: Size, listener: ScreenListener) -> vt100::Parser<ScreenListener> {
    // The transcript serves as scrollback.
    vt100::Parser::new_with_callbacks(size.rows, size.columns, 0, listener)
}
