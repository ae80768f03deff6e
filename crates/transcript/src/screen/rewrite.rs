//! Stands between a program's output and `vt100`. It knows where sequences begin and end, bounds
//! their length, and expresses sequences that `vt100` lacks by ones that it has.

use memchr::memchr3;

use crate::utf8;

/// What to do with the inspected bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RewriteStep {
    Nothing,
    /// Draw the bytes unchanged.
    Draw,
    DrawInstead(Vec<u8>),
    /// REP
    Repeat(u16),
    /// CBT
    BackTab(u16),
}

#[derive(Debug, Default)]
pub(super) struct Rewriter {
    state: RewriteState,
    /// The sequence being collected, starting with its escape.
    sequence: Vec<u8>,
    charsets: Charsets,
    saved: Charsets,
    /// The beginning of a character whose end has not arrived yet. The `vt100` parser only gets
    /// whole characters, because it is not reliable where one is cut.
    held: Vec<u8>,
}

/// The relevant states of the `vt100` parser. Both parsers leave any state on the same bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum RewriteState {
    #[default]
    Ground,
    Escape,
    EscapeIntermediate,
    Csi,
    /// A CSI that is too long to be rewritten.
    LongCsi,
    /// An OSC string. The `vt100` parser stores it without a limit.
    Osc {
        length: usize,
    },
    /// DCS, SOS, PM and APC. Nothing of them is kept.
    String,
}

impl RewriteState {
    /// Passes on the end of a sequence whose beginning the `vt100` parser has seen.
    fn left_by(self, byte: u8) -> RewriteStep {
        match self {
            Self::Osc { .. } | Self::LongCsi => RewriteStep::DrawInstead(vec![byte]),
            _ => RewriteStep::Nothing,
        }
    }
}

/// Longer than any sequence that is rewritten, and than most others.
const MAX_SEQUENCE: usize = 64;
/// The longest OSC. A title or a link fits; a file sent to the clipboard does not.
const MAX_OSC: usize = 8 * 1024;

const ESCAPE: u8 = 0x1b;
const SHIFT_OUT: u8 = 0x0e;
const SHIFT_IN: u8 = 0x0f;

impl Rewriter {
    /// Inspects the start of `bytes`, which must not be empty. Returns how many bytes it consumed,
    /// and their meaning.
    pub fn next(&mut self, bytes: &[u8]) -> (usize, RewriteStep) {
        if self.state == RewriteState::Ground {
            return self.ground(bytes);
        }
        (1, self.within(bytes[0]))
    }

    fn ground(&mut self, bytes: &[u8]) -> (usize, RewriteStep) {
        match bytes[0] {
            ESCAPE => self.begin(),
            SHIFT_OUT => self.charsets.shifted = true,
            SHIFT_IN => self.charsets.shifted = false,
            _ => {
                let run = memchr3(ESCAPE, SHIFT_OUT, SHIFT_IN, bytes).unwrap_or(bytes.len());
                return (run, self.text(&bytes[..run], run == bytes.len()));
            }
        }
        self.held.clear();
        (1, RewriteStep::Nothing)
    }

    /// Handles text up to a sequence or, if `may_continue`, to the end of the received bytes.
    fn text(&mut self, run: &[u8], may_continue: bool) -> RewriteStep {
        let tail = &run[run.len().saturating_sub(utf8::MAX_CHAR)..];
        let is_whole = utf8::complete(tail) == tail.len();
        if self.held.is_empty() && is_whole && !self.charsets.draws_lines() {
            return RewriteStep::Draw;
        }
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(run);
        let rest = text.split_off(utf8::complete(&text));
        if may_continue {
            self.held = rest;
        }
        if self.charsets.draws_lines() {
            text = line_drawing(&text);
        }
        RewriteStep::DrawInstead(text)
    }

    fn begin(&mut self) {
        self.state = RewriteState::Escape;
        self.sequence.clear();
        self.sequence.push(ESCAPE);
    }

    fn within(&mut self, byte: u8) -> RewriteStep {
        match (self.state, byte) {
            // Both bytes end any sequence.
            (state, 0x18 | 0x1a) => {
                self.state = RewriteState::Ground;
                state.left_by(byte)
            }
            (state, ESCAPE) => {
                self.begin();
                state.left_by(0x18)
            }
            // Control characters within a sequence take effect at once.
            (
                RewriteState::Escape | RewriteState::EscapeIntermediate | RewriteState::Csi,
                0x00..=0x1f,
            ) => RewriteStep::Draw,
            (RewriteState::Escape, 0x20..=0x2f) => {
                self.state = RewriteState::EscapeIntermediate;
                self.collect(byte)
            }
            (RewriteState::Escape, b'[') => {
                self.state = RewriteState::Csi;
                self.collect(byte)
            }
            (RewriteState::Escape, b']') => {
                self.state = RewriteState::Osc { length: 0 };
                self.sequence_as_is(byte)
            }
            (RewriteState::Escape, b'P' | b'X' | b'^' | b'_') => {
                self.state = RewriteState::String;
                RewriteStep::Nothing
            }
            (RewriteState::Escape | RewriteState::EscapeIntermediate, 0x30..=0x7e) => {
                self.state = RewriteState::Ground;
                self.escape(byte)
            }
            (RewriteState::Csi, 0x40..=0x7e) => {
                self.state = RewriteState::Ground;
                self.csi(byte)
            }
            (RewriteState::EscapeIntermediate, 0x20..=0x2f) | (RewriteState::Csi, 0x20..=0x3f) => {
                self.collect(byte)
            }
            (RewriteState::LongCsi, _) => {
                if (0x40..=0x7e).contains(&byte) {
                    self.state = RewriteState::Ground;
                }
                RewriteStep::Draw
            }
            (RewriteState::Osc { .. }, 0x07) => {
                self.state = RewriteState::Ground;
                RewriteStep::Draw
            }
            (RewriteState::Osc { length }, _) => {
                self.state = RewriteState::Osc {
                    length: length.saturating_add(1),
                };
                if length < MAX_OSC {
                    RewriteStep::Draw
                } else {
                    RewriteStep::Nothing
                }
            }
            // A byte outside of any sequence, or in a string that is not kept.
            _ => RewriteStep::Nothing,
        }
    }

    fn collect(&mut self, byte: u8) -> RewriteStep {
        self.sequence.push(byte);
        if self.sequence.len() < MAX_SEQUENCE {
            return RewriteStep::Nothing;
        }
        match self.state {
            RewriteState::Csi => self.state = RewriteState::LongCsi,
            // Escapes with this many intermediate bytes have no meaning.
            _ => {
                self.sequence.truncate(2);
                return RewriteStep::Nothing;
            }
        }
        RewriteStep::DrawInstead(std::mem::take(&mut self.sequence))
    }

    fn sequence_as_is(&mut self, last: u8) -> RewriteStep {
        self.sequence.push(last);
        RewriteStep::DrawInstead(std::mem::take(&mut self.sequence))
    }

    fn escape(&mut self, last: u8) -> RewriteStep {
        match (&self.sequence[1..], last) {
            (b"(", set) => self.charsets.g0_draws_lines = set == b'0',
            (b")", set) => self.charsets.g1_draws_lines = set == b'0',
            (b"", b'7') => self.saved = self.charsets,
            (b"", b'8') => self.charsets = self.saved,
            (b"", b'c') => self.charsets = Charsets::default(),
            // IND and NEL
            (b"", b'D') => return RewriteStep::DrawInstead(b"\n".to_vec()),
            (b"", b'E') => return RewriteStep::DrawInstead(b"\r\n".to_vec()),
            _ => {}
        }
        self.sequence_as_is(last)
    }

    fn csi(&mut self, last: u8) -> RewriteStep {
        let parameters = &self.sequence[2..];
        let is_plain = parameters
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b';');
        if !is_plain {
            if parameters == b"!" && last == b'p' {
                self.charsets = Charsets::default();
            }
            return self.sequence_as_is(last);
        }
        let count = parameters
            .split(|byte| *byte == b';')
            .next()
            .map_or(0, |digits| {
                digits.iter().fold(0_u16, |number, digit| {
                    number
                        .saturating_mul(10)
                        .saturating_add(u16::from(digit - b'0'))
                })
            })
            .max(1);
        let is_empty = parameters.is_empty();
        match last {
            b'b' => RewriteStep::Repeat(count),
            b'Z' => RewriteStep::BackTab(count),
            // CHT; no screen has more tab stops than this.
            b'I' => RewriteStep::DrawInstead(vec![b'\t'; usize::from(count.min(128))]),
            // HVP, HPA, HPR and VPR mean what CUP, CHA, CUF and CUD do.
            b'f' => self.sequence_as_is(b'H'),
            b'`' => self.sequence_as_is(b'G'),
            b'a' => self.sequence_as_is(b'C'),
            b'e' => self.sequence_as_is(b'B'),
            b's' if is_empty => {
                self.saved = self.charsets;
                RewriteStep::DrawInstead(b"\x1b7".to_vec())
            }
            b'u' if is_empty => {
                self.charsets = self.saved;
                RewriteStep::DrawInstead(b"\x1b8".to_vec())
            }
            _ => self.sequence_as_is(last),
        }
    }
}

/// The character sets G0 and G1, and which of them is in use.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Charsets {
    g0_draws_lines: bool,
    g1_draws_lines: bool,
    shifted: bool,
}

impl Charsets {
    fn draws_lines(self) -> bool {
        if self.shifted {
            self.g1_draws_lines
        } else {
            self.g0_draws_lines
        }
    }
}

/// DEC special graphics, from 0x60 to 0x7e.
const LINE_DRAWING: [&str; 31] = [
    "◆", "▒", "␉", "␌", "␍", "␊", "°", "±", "␤", "␋", "┘", "┐", "┌", "└", "┼", "⎺", "⎻", "─", "⎼",
    "⎽", "├", "┤", "┴", "┬", "│", "≤", "≥", "π", "≠", "£", "·",
];

fn line_drawing(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() * 3);
    for byte in bytes {
        match byte
            .checked_sub(0x60)
            .and_then(|index| LINE_DRAWING.get(usize::from(index)))
        {
            Some(drawn) => out.extend_from_slice(drawn.as_bytes()),
            None => out.push(*byte),
        }
    }
    out
}
