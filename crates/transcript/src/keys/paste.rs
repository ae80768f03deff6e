//! Encodes text as if it were pasted into a terminal.

/// Whether the paste is marked, so that the program does not mistake it for typing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Bracketed {
    #[default]
    Yes,
    /// The text is sent unchanged and can do everything that typing can.
    No,
}

/// The bytes of `submit`.
pub const SUBMIT: &[u8] = b"\r";

const START: &str = "\x1b[200~";
const END: &str = "\x1b[201~";

/// Encodes a paste. Bracketed text cannot break out: it contains no end marker in any spelling, and
/// no control character that a terminal line would act on. Each such character becomes a visible
/// symbol, so that the reader sees it.
pub fn paste(text: &str, bracketed: Bracketed) -> Vec<u8> {
    match bracketed {
        Bracketed::No => text.as_bytes().to_vec(),
        Bracketed::Yes => {
            let mut out = String::with_capacity(START.len() + text.len() + END.len());
            out.push_str(START);
            out.extend(text.chars().map(neutral));
            out.push_str(END);
            out.into_bytes()
        }
    }
}

/// | character | becomes | why |
/// | --- | --- | --- |
/// | tab, newline, carriage return | itself | text has them |
/// | other C0 | U+2400 and up | escape starts a sequence; `^C`, `^D`, `^Z` act on a terminal line |
/// | DEL | U+2421 | erases |
/// | C1 | U+FFFD | U+009B starts a sequence where terminals read 8-bit controls |
fn neutral(character: char) -> char {
    match character {
        '\t' | '\n' | '\r' => character,
        '\0'..='\x1f' => {
            char::from_u32(0x2400 + u32::from(character)).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
        '\x7f' => '\u{2421}',
        '\u{80}'..='\u{9f}' => char::REPLACEMENT_CHARACTER,
        _ => character,
    }
}
