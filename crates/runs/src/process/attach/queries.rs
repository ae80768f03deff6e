//! Removes terminal queries from output on its way to the caller's terminal. The pseudoterminal of
//! the session has already answered them. A second answer would reach the program as if it were
//! typed.

/// The longest sequence that can be a query. Longer sequences pass unchanged.
const LONGEST: usize = 64;

const ESCAPE: u8 = 0x1b;

/// The state of the filter between two pieces of the output.
#[derive(Debug, Default)]
pub(super) struct Queries {
    /// The beginning of an escape sequence whose end has not arrived yet.
    held: Vec<u8>,
    alternate: bool,
}

impl Queries {
    /// Returns the bytes without queries.
    pub fn without(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + self.held.len());
        for byte in bytes {
            self.next(*byte, &mut out);
        }
        out
    }

    /// Whether the alternate screen is on, which means that a full-screen program has the terminal.
    pub fn is_alternate(&self) -> bool {
        self.alternate
    }

    fn next(&mut self, byte: u8, out: &mut Vec<u8>) {
        match (self.held.len(), byte) {
            (_, ESCAPE) => {
                out.append(&mut self.held);
                self.held.push(ESCAPE);
            }
            (0, _) => out.push(byte),
            (1, b'[') => self.held.push(byte),
            (2.., 0x20..=0x3f) if self.held.len() < LONGEST => self.held.push(byte),
            (2.., 0x40..=0x7e) => {
                let sequence = std::mem::take(&mut self.held);
                if !self.is_query(&sequence[2..], byte) {
                    out.extend(sequence);
                    out.push(byte);
                }
            }
            _ => {
                out.append(&mut self.held);
                out.push(byte);
            }
        }
    }

    /// Whether a control sequence is a query that a terminal answers. Also records switches between
    /// the normal and the alternate screen.
    ///
    /// | sequence | query |
    /// | --- | --- |
    /// | `5 n`, `6 n`, `? 6 n` | device status, cursor position |
    /// | `c`, `> c` | device attributes |
    /// | `> q` | terminal version |
    /// | `18 t` | window size |
    /// | `… $ p` | whether a mode is set |
    fn is_query(&mut self, parameters: &[u8], last: u8) -> bool {
        match (parameters, last) {
            (b"5" | b"6" | b"?6", b'n')
            | (b"" | b"0" | b">" | b">0", b'c')
            | (b">" | b">0", b'q')
            | (b"18", b't') => true,
            (_, b'p') => parameters.ends_with(b"$"),
            (b"?1049" | b"?1047" | b"?47", b'h' | b'l') => {
                self.alternate = last == b'h';
                false
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_left_out_however_the_output_is_split() {
        let text: &[u8] =
            b"a\x1b[6n\x1b[1;31mb\x1b[c\x1b[>0c\x1b[?6n\x1b[?25$p\x1b[18t\x1b[>qc\x1b[5n";
        for size in 1..text.len() {
            let mut queries = Queries::default();
            let mut out = Vec::new();
            for piece in text.chunks(size) {
                out.extend(queries.without(piece));
            }
            assert_eq!(out, b"a\x1b[1;31mbc", "{size}");
        }
    }

    #[test]
    fn other_sequences_pass_unchanged() {
        for text in [
            "plain \u{1b}[?1049h\u{1b}[2J\u{1b}[H",
            "\u{1b}]0;title\u{7}\u{1b}P+q544e\u{1b}\\",
            "\u{1b}\u{1b}[A\u{1b}OP\u{1b}7\u{1b}8",
            "\u{1b}[8t\u{1b}[1;5H\u{1b}[0 q\u{1b}[!p\u{1b}[?6h",
            "\u{1b}[1\n2m",
            "漢字 é",
        ] {
            let mut queries = Queries::default();
            assert_eq!(
                queries.without(text.as_bytes()),
                text.as_bytes(),
                "{text:?}"
            );
        }
        let endless = [b"\x1b[".as_slice(), &[b'1'; 500], b"m"].concat();
        assert_eq!(Queries::default().without(&endless), endless);
    }

    #[test]
    fn the_filter_knows_whether_a_full_screen_program_has_the_terminal() {
        let mut queries = Queries::default();
        queries.without(b"x\x1b[?1049hy");
        assert!(queries.is_alternate());
        queries.without(b"\x1b[?10");
        queries.without(b"49l");
        assert!(!queries.is_alternate());
    }
}
