//! Encodes tmux-style key tokens as bytes, in the encodings of xterm.

use super::table::{KeySequence, control, named};

/// The input of `send-keys`, sent in this order: literal, hex, keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyInput<'a> {
    /// Text that is sent unchanged.
    pub literal: Option<&'a str>,
    /// One byte each, as one or two hexadecimal digits, with or without `0x`.
    pub hex: &'a [String],
    /// Key names with modifiers (`Enter`, `C-c`, `M-x`, `S-Up`, `C-M-Left`, `^d`). A token that is
    /// not a key is typed as text.
    pub keys: &'a [String],
}

/// Whether the program requested application cursor keys (DECCKM). The screen knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CursorMode {
    #[default]
    Normal,
    Application,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoded {
    pub bytes: Vec<u8>,
    /// A warning for each part that could not be sent as requested. Nothing is left out or changed
    /// without one.
    pub warnings: Vec<String>,
}

pub fn encode(input: KeyInput<'_>, mode: CursorMode) -> Encoded {
    let mut out = Encoded::default();
    if let Some(literal) = input.literal {
        out.bytes.extend_from_slice(literal.as_bytes());
    }
    for text in input.hex {
        match hex_byte(text) {
            Some(byte) => out.bytes.push(byte),
            None => out
                .warnings
                .push(format!("{text:?} is not a byte in hexadecimal; left out")),
        }
    }
    for token in input.keys {
        out.token(token, mode);
    }
    out
}

fn hex_byte(text: &str) -> Option<u8> {
    let text = text.trim();
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .unwrap_or(text);
    // `from_str_radix` would accept a sign.
    if !(1..=2).contains(&digits.len()) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

impl Encoded {
    fn token(&mut self, token: &str, mode: CursorMode) {
        let (modifiers, name) = Modifiers::split(token);
        let mut characters = name.chars();
        if let Some(key) = named(name) {
            self.key(key, modifiers, mode, token);
        } else if let (Some(character), None) = (characters.next(), characters.next()) {
            self.character(character, modifiers, token);
        } else {
            if modifiers != Modifiers::default() {
                self.warnings.push(format!(
                    "{token:?}: there is no key {name:?}; typed as text"
                ));
            }
            self.bytes.extend_from_slice(token.as_bytes());
        }
    }

    fn key(&mut self, key: KeySequence, modifiers: Modifiers, mode: CursorMode, token: &str) {
        let is_plain = modifiers == Modifiers::default();
        let parameter = modifiers.parameter();
        match key {
            KeySequence::Byte(b'\t') if modifiers.shift && !modifiers.control => {
                let modifiers = Modifiers {
                    shift: false,
                    ..modifiers
                };
                self.key(KeySequence::BackTab, modifiers, mode, token);
            }
            KeySequence::Byte(byte) => self.single_byte(byte, modifiers, token),
            KeySequence::Cursor(letter) if is_plain && mode == CursorMode::Application => {
                self.ss3(letter);
            }
            KeySequence::Cursor(letter) if is_plain => self.csi(&format!("{}", char::from(letter))),
            KeySequence::Tilde {
                application: Some(letter),
                ..
            } if is_plain && mode == CursorMode::Application => self.ss3(letter),
            KeySequence::Tilde { number, .. } if is_plain => self.csi(&format!("{number}~")),
            KeySequence::Tilde { number, .. } => self.csi(&format!("{number};{parameter}~")),
            KeySequence::Function(letter) if is_plain => self.ss3(letter),
            KeySequence::Cursor(letter) | KeySequence::Function(letter) => {
                self.csi(&format!("1;{parameter}{}", char::from(letter)));
            }
            KeySequence::Keypad(letter) => {
                if !is_plain {
                    self.without_modifiers(token);
                }
                self.ss3(letter);
            }
            KeySequence::BackTab if is_plain => self.csi("Z"),
            // The key itself includes Shift.
            KeySequence::BackTab => {
                let parameter = Modifiers {
                    shift: true,
                    ..modifiers
                }
                .parameter();
                self.csi(&format!("1;{parameter}Z"));
            }
        }
    }

    /// Encodes Enter, Tab, Escape, Space and Backspace, which are characters with names.
    fn single_byte(&mut self, byte: u8, modifiers: Modifiers, token: &str) {
        let with_control = match byte {
            b' ' => Some(0x00),
            // The other of the two codes for "backspace".
            0x7f => Some(0x08),
            _ => None,
        };
        let lost = (modifiers.control && with_control.is_none()) || modifiers.shift;
        if lost {
            self.without_modifiers(token);
        }
        if modifiers.alt {
            self.bytes.push(0x1b);
        }
        let sent = with_control.filter(|_| modifiers.control).unwrap_or(byte);
        self.bytes.push(sent);
    }

    fn character(&mut self, character: char, modifiers: Modifiers, token: &str) {
        if modifiers.alt {
            self.bytes.push(0x1b);
        }
        if modifiers.control {
            if let Some(byte) = control(character) {
                if modifiers.shift {
                    self.without_modifiers(token);
                }
                self.bytes.push(byte);
                return;
            }
            self.without_modifiers(token);
        }
        let mut buffer = [0; 4];
        let sent = if modifiers.shift {
            if !character.is_alphabetic() {
                self.without_modifiers(token);
            }
            character.to_uppercase().collect::<String>()
        } else {
            character.encode_utf8(&mut buffer).to_string()
        };
        self.bytes.extend_from_slice(sent.as_bytes());
    }

    fn without_modifiers(&mut self, token: &str) {
        self.warnings.push(format!(
            "{token:?}: terminals have no code for this combination; sent without a modifier"
        ));
    }

    fn csi(&mut self, rest: &str) {
        self.bytes.extend_from_slice(b"\x1b[");
        self.bytes.extend_from_slice(rest.as_bytes());
    }

    fn ss3(&mut self, letter: u8) {
        self.bytes.extend_from_slice(&[0x1b, b'O', letter]);
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Modifiers {
    shift: bool,
    alt: bool,
    control: bool,
}

impl Modifiers {
    /// Splits off modifiers, in any order. The rest is never empty: `C-` is text, and so is `^`.
    fn split(token: &str) -> (Self, &str) {
        let mut modifiers = Self::default();
        let mut rest = token;
        loop {
            let mut characters = rest.chars();
            let (first, second) = (characters.next(), characters.next());
            let flag = match first {
                Some('S' | 's') => &mut modifiers.shift,
                Some('M' | 'm') => &mut modifiers.alt,
                Some('C' | 'c') => &mut modifiers.control,
                Some('^') if rest == token && characters.next().is_none() && second.is_some() => {
                    modifiers.control = true;
                    return (modifiers, &rest[1..]);
                }
                _ => return (modifiers, rest),
            };
            if second != Some('-') || rest.len() == 2 {
                return (modifiers, rest);
            }
            *flag = true;
            rest = &rest[2..];
        }
    }

    /// xterm's modifier parameter: 1 plus shift 1, alt 2 and control 4.
    fn parameter(self) -> u8 {
        1 + u8::from(self.shift) + 2 * u8::from(self.alt) + 4 * u8::from(self.control)
    }
}
