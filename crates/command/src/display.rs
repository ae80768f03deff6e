//! Prepares text for people who allow or deny a command.
//!
//! Invisible and confusing characters are spelled out (`\u{202E}`), secrets are masked, and the
//! length is limited. Nothing is dropped without a mark: a reader who sees no mark sees the whole
//! text. This is only for display; the text itself is judged and run.

mod hidden;
mod line;
mod secrets;
mod shapes;

use std::fmt::Write as _;

use hidden::{is_combining, is_hidden, look_alikes};

pub use line::ShownLine;

/// The longest text that is shown as a command, in bytes.
pub const MAX_INPUT_BYTES: usize = 256 * 1024;
/// The most bytes that are shown. Of a longer text, the beginning and the end are shown.
pub const MAX_SHOWN_BYTES: usize = 16 * 1024;
/// The bytes of the limit that are reserved for the end, where the harmful part may be.
const TAIL_BYTES: usize = 4 * 1024;

/// Whether secrets are readable. Masking protects against onlookers; an approver can request the
/// full text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    Masked,
    Revealed,
}

/// A text that is safe to show to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownText {
    pub text: String,
    /// How many secrets are masked.
    pub masked: usize,
    /// How many characters are spelled out.
    pub spelled_out: usize,
    /// How many bytes of the spelled-out text are left out in the middle.
    pub left_out: usize,
}

/// Returns the text of a command on one line, with line breaks spelled out too. Returns `Err` with
/// the length if the text is too long to be a command.
pub fn command(text: &str, secrets: Secrets) -> Result<ShownText, usize> {
    if text.len() > MAX_INPUT_BYTES {
        return Err(text.len());
    }
    let masks = match secrets {
        Secrets::Masked => secrets::find(text),
        Secrets::Revealed => Vec::new(),
    };
    let (text, spelled_out) = render(text, &masks, is_hidden);
    let (text, left_out) = cut(text);
    Ok(ShownText {
        text,
        masked: masks.len(),
        spelled_out,
        left_out,
    })
}

/// Returns the whole text of a command in its own lines, and how many secrets are masked.
pub fn command_lines(text: &str, secrets: Secrets) -> (Vec<ShownLine>, usize) {
    let masks = match secrets {
        Secrets::Masked => secrets::find(text),
        Secrets::Revealed => Vec::new(),
    };
    let is_hidden = |character| character != '\n' && is_hidden(character);
    let (text, _) = render(text, &masks, is_hidden);
    let lines = text
        .split('\n')
        .map(|line| ShownLine::rendered(line.to_owned()));
    (lines.collect(), masks.len())
}

/// Returns a named value, such as an environment variable, as `NAME=VALUE`, and how many secrets
/// are masked. No shell reads the value, so all of it is literal.
pub fn named_value(name: &str, value: &str, secrets: Secrets) -> (ShownLine, usize) {
    let masks = match secrets {
        Secrets::Masked => secrets::find_in_value(name, value),
        Secrets::Revealed => Vec::new(),
    };
    let (value, _) = render(value, &masks, is_hidden);
    let name = ShownLine::new(name);
    (ShownLine::rendered(format!("{name}={value}")), masks.len())
}

/// Makes any text safe for a terminal or log, without masks or cuts. Line breaks stay.
pub fn visible(text: &str) -> String {
    render(text, &[], |character| {
        character != '\n' && is_hidden(character)
    })
    .0
}

/// The bytes of a secret, and the style of its mask.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mask {
    start: usize,
    end: usize,
    style: MaskStyle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MaskStyle {
    /// A long secret keeps its beginning and its end.
    Token,
    /// Nothing of the secret is kept.
    Whole,
    /// The lines of a private key between its first and its last line.
    PrivateKey,
}

fn render(text: &str, masks: &[Mask], is_hidden: impl Fn(char) -> bool) -> (String, usize) {
    let confusing = look_alikes(text);
    let mut confusing = confusing.iter().peekable();
    let mut out = String::with_capacity(text.len());
    let mut spelled_out = 0;
    let mut masks = masks.iter().peekable();
    let mut rest = text.char_indices().peekable();
    let mut pile = MOST_MARKS;
    while let Some((at, character)) = rest.next() {
        let is_look_alike = confusing.next_if(|place| **place == at).is_some();
        if let Some(mask) = masks.next_if(|mask| mask.start == at) {
            let secret = &text[mask.start..mask.end];
            match mask.style {
                MaskStyle::Token => mask_one(secret, &is_hidden, &mut out, &mut spelled_out),
                MaskStyle::Whole => out.push_str("***"),
                MaskStyle::PrivateKey => out.push_str("…redacted…"),
            }
            while rest.next_if(|(at, _)| *at < mask.end).is_some() {}
            while confusing.next_if(|place| **place < mask.end).is_some() {}
            pile = 0;
            continue;
        }
        // Marks that pile up on one character cover the lines around it, and a mark without a
        // character would be drawn on whatever precedes the text.
        pile = if is_combining(character) { pile + 1 } else { 0 };
        if is_look_alike || is_hidden(character) || pile > MOST_MARKS {
            spell_out(character, &mut out);
            spelled_out += 1;
        } else {
            out.push(character);
        }
    }
    (out, spelled_out)
}

/// The most combining marks on one character in any orthography.
const MOST_MARKS: usize = 2;

fn spell_out(character: char, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\\u{{{:X}}}", u32::from(character));
}

/// The beginning and end of a shorter secret would give it away.
const LONG_SECRET: usize = 18;

/// Masks a secret. A long secret keeps enough characters to distinguish it from another secret.
/// Hidden characters stay visible.
fn mask_one(
    secret: &str,
    is_hidden: &impl Fn(char) -> bool,
    out: &mut String,
    spelled_out: &mut usize,
) {
    let characters: Vec<char> = secret.chars().collect();
    if characters.len() >= LONG_SECRET && characters.iter().all(char::is_ascii_graphic) {
        out.extend(&characters[..6]);
        out.push('…');
        out.extend(&characters[characters.len() - 4..]);
        return;
    }
    let mut was_masked = false;
    for character in characters {
        if is_hidden(character) {
            spell_out(character, out);
            *spelled_out += 1;
            was_masked = false;
        } else if !was_masked {
            out.push_str("***");
            was_masked = true;
        }
    }
}

/// Cuts the middle out of a text. A mark in its place says how much is missing.
fn cut(text: String) -> (String, usize) {
    if text.len() <= MAX_SHOWN_BYTES {
        return (text, 0);
    }
    let head = text.floor_char_boundary(MAX_SHOWN_BYTES - TAIL_BYTES);
    let tail = text.ceil_char_boundary(text.len() - TAIL_BYTES);
    let left_out = tail - head;
    let cut = format!(
        "{}\n[… {left_out} bytes are not shown …]\n{}",
        &text[..head],
        &text[tail..]
    );
    (cut, left_out)
}

#[cfg(test)]
mod tests;
