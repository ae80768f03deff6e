//! Reads keys from the bytes that a terminal sends. Pasted text and unknown sequences must not
//! count as keys, because a key can decide an approval.

use std::mem::take;

/// A key that has a function in the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchKey {
    Character(char),
    Enter,
    Backspace,
    Escape,
    Up,
    Down,
    PageUp,
    PageDown,
    /// Ctrl-C.
    Interrupt,
}

const ESCAPE: u8 = 0x1b;

/// The most bytes of an escape sequence that are kept.
const MAX_SEQUENCE: usize = 32;

/// Reads keys from bytes in any pieces.
#[derive(Debug, Default)]
pub(super) struct WatchKeys {
    /// The beginning of an escape sequence whose end has not arrived.
    sequence: Vec<u8>,
    is_pasting: bool,
}

impl WatchKeys {
    pub fn take(&mut self, bytes: &[u8]) -> Vec<WatchKey> {
        bytes.iter().filter_map(|byte| self.byte(*byte)).collect()
    }

    /// Must be called if nothing has arrived for a while: a lone escape byte was then the Escape
    /// key.
    pub fn silence(&mut self) -> Option<WatchKey> {
        let sequence = take(&mut self.sequence);
        (sequence == [ESCAPE] && !self.is_pasting).then_some(WatchKey::Escape)
    }

    fn byte(&mut self, byte: u8) -> Option<WatchKey> {
        let key = match self.sequence.as_slice() {
            [] if byte == ESCAPE => {
                self.sequence.push(byte);
                None
            }
            [] => plain(byte),
            // Alt with a key must not count as the key.
            [_] if byte != b'[' && byte != b'O' => {
                self.sequence.clear();
                None
            }
            [_] => {
                self.sequence.push(byte);
                None
            }
            [_, b'[', ..] if !(0x40..=0x7e).contains(&byte) => {
                if self.sequence.len() < MAX_SEQUENCE {
                    self.sequence.push(byte);
                }
                None
            }
            _ => {
                let mut sequence = take(&mut self.sequence);
                sequence.push(byte);
                self.whole(&sequence[1..])
            }
        };
        key.filter(|_| !self.is_pasting)
    }

    fn whole(&mut self, sequence: &[u8]) -> Option<WatchKey> {
        match sequence {
            b"[200~" => self.is_pasting = true,
            b"[201~" => self.is_pasting = false,
            b"[A" | b"OA" => return Some(WatchKey::Up),
            b"[B" | b"OB" => return Some(WatchKey::Down),
            b"[5~" => return Some(WatchKey::PageUp),
            b"[6~" => return Some(WatchKey::PageDown),
            _ => {}
        }
        None
    }
}

fn plain(byte: u8) -> Option<WatchKey> {
    match byte {
        0x03 => Some(WatchKey::Interrupt),
        b'\r' | b'\n' => Some(WatchKey::Enter),
        0x08 | 0x7f => Some(WatchKey::Backspace),
        b' '..=b'~' => Some(WatchKey::Character(char::from(byte))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_however_the_bytes_are_split() {
        let sent = b"o\x1b[A\x1bOB\x1b[5~\x1b[6~\r\x7f\x03";
        let expected = [
            WatchKey::Character('o'),
            WatchKey::Up,
            WatchKey::Down,
            WatchKey::PageUp,
            WatchKey::PageDown,
            WatchKey::Enter,
            WatchKey::Backspace,
            WatchKey::Interrupt,
        ];
        assert_eq!(WatchKeys::default().take(sent), expected);
        let mut keys = WatchKeys::default();
        let single: Vec<WatchKey> = sent.iter().flat_map(|byte| keys.take(&[*byte])).collect();
        assert_eq!(single, expected);
    }

    #[test]
    fn pasted_text_and_unknown_sequences_are_no_keys() {
        let mut keys = WatchKeys::default();
        let unknown = b"\x1bo\x1b[1;5A\x1b[3~\x1bOP\xc3\xb6\x00\x01\x1b[200~o\ra\x1b[Ad\x1b[";
        assert_eq!(keys.take(unknown), []);
        assert_eq!(keys.take(b"201~d"), [WatchKey::Character('d')]);
        let endless = [b"\x1b[".as_slice(), &[b'1'; 1000], b"~"].concat();
        assert_eq!(keys.take(&endless), []);
        assert_eq!(keys.take(b"d"), [WatchKey::Character('d')]);
    }

    #[test]
    fn escape_is_a_key_when_nothing_follows() {
        let mut keys = WatchKeys::default();
        assert_eq!(keys.take(b"\x1b"), []);
        assert_eq!(keys.silence(), Some(WatchKey::Escape));
        assert_eq!(keys.silence(), None);
        assert_eq!(keys.take(b"\x1b[200~\x1b"), []);
        assert_eq!(keys.silence(), None);
    }
}
