//! Terminal queries of programs, and their replies.
//!
//! Replies arrive as if typed. Therefore they only contain numbers: a terminal that repeats its
//! title or content on request would let the author of that text type for the user.

use vt100::{Callbacks, MouseProtocolEncoding, MouseProtocolMode, Screen};

/// The limit of answers in one call. A program that asks more often does not read the answers.
const MAX_ANSWERS: usize = 4096;

/// The longest title that is kept.
const MAX_TITLE_CHARS: usize = 256;

/// The cursor position as a program receives it; `row` and `column` count from 0.
pub fn cursor_report(row: u16, column: u16) -> Vec<u8> {
    format!("\x1b[{};{}R", u32::from(row) + 1, u32::from(column) + 1).into_bytes()
}

/// Handles sequences that do not change the picture.
#[derive(Debug, Default)]
pub(super) struct ScreenListener {
    title: String,
    answers: Vec<u8>,
}

impl ScreenListener {
    pub fn title(&self) -> &str {
        &self.title
    }

    pub fn take_answers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.answers)
    }

    fn answer(&mut self, bytes: &[u8]) {
        if self.answers.len() + bytes.len() <= MAX_ANSWERS {
            self.answers.extend_from_slice(bytes);
        }
    }
}

impl Callbacks for ScreenListener {
    fn set_window_title(&mut self, _: &mut Screen, title: &[u8]) {
        self.title = String::from_utf8_lossy(title)
            .chars()
            .filter(|character| !character.is_control())
            .take(MAX_TITLE_CHARS)
            .collect();
    }

    fn unhandled_csi(
        &mut self,
        screen: &mut Screen,
        first: Option<u8>,
        second: Option<u8>,
        parameters: &[&[u16]],
        last: char,
    ) {
        let number = parameters
            .first()
            .and_then(|parameter| parameter.first())
            .copied()
            .unwrap_or(0);
        let (row, column) = screen.cursor_position();
        let (rows, columns) = screen.size();
        let (row, column) = (row.min(rows - 1), column.min(columns - 1));
        match (first, second, last, number) {
            // DSR: "are you well?" "yes"
            (None, None, 'n', 5) => self.answer(b"\x1b[0n"),
            // CPR, and DECXCPR with its page number
            (None, None, 'n', 6) => self.answer(&cursor_report(row, column)),
            (Some(b'?'), None, 'n', 6) => {
                self.answer(format!("\x1b[?{};{};1R", row + 1, column + 1).as_bytes());
            }
            // DA1: a VT220 with colour
            (None, None, 'c', 0) => self.answer(b"\x1b[?62;22c"),
            // DA2: a VT220 of a version so low that programs try no private extensions
            (Some(b'>'), None, 'c', 0) => self.answer(b"\x1b[>1;10;0c"),
            // XTVERSION
            (Some(b'>'), None, 'q', 0) => self.answer(
                concat!("\x1bP>|interlock ", env!("CARGO_PKG_VERSION"), "\x1b\\").as_bytes(),
            ),
            // Window size in characters
            (None, None, 't', 18) => {
                self.answer(format!("\x1b[8;{rows};{columns}t").as_bytes());
            }
            // DECRQM, private and ANSI
            (Some(b'?'), Some(b'$'), 'p', mode) => {
                let state = private_mode(screen, mode);
                self.answer(format!("\x1b[?{mode};{state}$y").as_bytes());
            }
            (Some(b'$'), None, 'p', mode) => {
                self.answer(format!("\x1b[{mode};0$y").as_bytes());
            }
            _ => {}
        }
    }
}

/// 0: not known, 1: set, 2: reset, 3: always set.
fn private_mode(screen: &Screen, mode: u16) -> u8 {
    let on_off = |is_set: bool| if is_set { 1 } else { 2 };
    let mouse = |wanted: MouseProtocolMode| on_off(screen.mouse_protocol_mode() == wanted);
    let encoding =
        |wanted: MouseProtocolEncoding| on_off(screen.mouse_protocol_encoding() == wanted);
    match mode {
        1 => on_off(screen.application_cursor()),
        7 => 3,
        9 => mouse(MouseProtocolMode::Press),
        25 => on_off(!screen.hide_cursor()),
        47 | 1049 => on_off(screen.alternate_screen()),
        66 => on_off(screen.application_keypad()),
        1000 => mouse(MouseProtocolMode::PressRelease),
        1002 => mouse(MouseProtocolMode::ButtonMotion),
        1003 => mouse(MouseProtocolMode::AnyMotion),
        1005 => encoding(MouseProtocolEncoding::Utf8),
        1006 => encoding(MouseProtocolEncoding::Sgr),
        2004 => on_off(screen.bracketed_paste()),
        _ => 0,
    }
}
