//! Output on its way to a person's terminal, without the questions that the session's own terminal
//! has answered already: a second answer would arrive as if typed.

/// No question is longer.
const LONGEST: usize = 64;

const ESCAPE: u8 = 0x1b;

/// Follows the stream, whatever pieces it comes in.
#[derive(Debug, Default)]
pub(super) struct Queries {
    /// The beginning of a sequence whose end is to come.
    held: Vec<u8>,
    alternate: bool,
}

impl Queries {
    /// The bytes without questions.
    pub fn without(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + self.held.len());
        for byte in bytes {
            self.next(*byte, &mut out);
        }
        out
    }

    /// A full-screen program has the terminal.
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
                if !self.is_question(&sequence[2..], byte) {
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

    /// | sequence | question |
    /// | --- | --- |
    /// | `5 n`, `6 n`, `? 6 n` | are you well, where is the cursor |
    /// | `c`, `> c` | what are you |
    /// | `> q` | which version |
    /// | `18 t` | how large is the window |
    /// | `… $ p` | is this mode set |
    fn is_question(&mut self, parameters: &[u8], last: u8) -> bool {
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
    fn questions_are_left_out_in_whatever_pieces_they_come() {
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
    fn everything_else_passes_as_it_is() {
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
    fn it_is_known_whether_a_full_screen_program_has_the_terminal() {
        let mut queries = Queries::default();
        queries.without(b"x\x1b[?1049hy");
        assert!(queries.is_alternate());
        queries.without(b"\x1b[?10");
        queries.without(b"49l");
        assert!(!queries.is_alternate());
    }
}
