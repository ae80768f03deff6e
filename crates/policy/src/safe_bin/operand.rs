//! The accepted forms of a flag's value or of a positional operand.

/// The kind of a value. Every kind answers one question: could this text name a file?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SafeBinOperandKind {
    /// A count or size: sign, digits, an optional fraction and multiplier (`5`, `+2`, `-3`, `10K`,
    /// `1MiB`, `50%`).
    Number,
    /// Ranges as in `cut -f`: `1,3-5`, `-2`, `4-`.
    List,
    /// A separator. Any text is accepted, because the program compares it with its input and opens
    /// nothing.
    Delimiter,
    /// A key of `sort`: `2`, `2,2`, `1.3n,1.5`.
    SortKey,
    /// A set of characters, as for `tr`. Any text is accepted, because `tr` opens no file.
    Set,
    /// A search pattern. It must not begin like a path or contain glob characters.
    Pattern,
    /// One of a few words.
    Word(&'static [&'static str]),
    /// Text of an unknown program. It must not look like a file in any way.
    Text,
}

impl SafeBinOperandKind {
    pub fn accepts(self, value: &str) -> bool {
        match self {
            Self::Number => is_number(value),
            Self::List => is_list(value),
            Self::SortKey => is_sort_key(value),
            Self::Word(words) => words.contains(&value),
            Self::Pattern => !begins_like_path(value) && !value.contains(GLOB_CHARACTERS),
            Self::Text => !could_be_file(value),
            Self::Delimiter | Self::Set => true,
        }
    }

    /// Describes the accepted values, for the reader of a refusal.
    pub(super) fn expected(self) -> String {
        match self {
            Self::Number => "a number such as 5, +5, -5 or 10K".to_owned(),
            Self::List => "a list such as 1, 1,3 or 2-4".to_owned(),
            Self::SortKey => "a sort key such as 2 or 2,2n".to_owned(),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::Pattern => {
                "a pattern that neither begins like a path nor contains * ? [ ]".into()
            }
            Self::Text => "text that cannot be taken for a file".to_owned(),
            Self::Delimiter | Self::Set => "any text".to_owned(),
        }
    }

    /// Whether no value of this kind can name a file.
    pub(super) fn is_any_text(self) -> bool {
        matches!(self, Self::Delimiter | Self::Set)
    }

    /// Whether values may begin with `-` (`head -n -5`, `cut -f -3`). Such kinds are strict enough
    /// that no flag can pass as a value.
    pub(super) fn may_begin_with_dash(self) -> bool {
        matches!(self, Self::Number | Self::List)
    }
}

const GLOB_CHARACTERS: [char; 4] = ['*', '?', '[', ']'];

fn is_number(value: &str) -> bool {
    let unsigned = value.strip_prefix(['+', '-']).unwrap_or(value);
    let after_digits = unsigned.trim_start_matches(|c: char| c.is_ascii_digit());
    if after_digits.len() == unsigned.len() {
        return false;
    }
    let suffix = match after_digits.strip_prefix('.') {
        None => after_digits,
        Some(fraction) => {
            let rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            if rest.len() == fraction.len() {
                return false;
            }
            rest
        }
    };
    let unit = suffix.strip_prefix(|c: char| "bkKmMgGtTPEZYRQ%".contains(c));
    suffix.is_empty() || unit.is_some_and(|rest| matches!(rest, "" | "B" | "iB"))
}

fn is_list(value: &str) -> bool {
    value.contains(|c: char| c.is_ascii_digit())
        && value
            .chars()
            .all(|c| c.is_ascii_digit() || matches!(c, ',' | '-' | ' '))
}

fn is_sort_key(value: &str) -> bool {
    let (start, end) = match value.split_once(',') {
        Some((start, end)) => (start, Some(end)),
        None => (value, None),
    };
    is_key_position(start) && end.is_none_or(is_key_position)
}

/// Parses `F[.C][OPTS]`.
fn is_key_position(value: &str) -> bool {
    let numbers = value.trim_end_matches(|c: char| "bdfgiMhnRrV".contains(c));
    let (field, character) = match numbers.split_once('.') {
        Some((field, character)) => (field, Some(character)),
        None => (numbers, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(field) && character.is_none_or(digits)
}

fn begins_like_path(value: &str) -> bool {
    value.starts_with(['/', '~', '\\'])
        || value.starts_with("./")
        || value.starts_with("../")
        || matches!(value, "." | "..")
        || has_drive_letter(value)
}

/// Whether the text could be a file. This is wider than [`begins_like_path`]: any separator, hidden
/// files, globs, and `@file` arguments.
fn could_be_file(value: &str) -> bool {
    value.contains(['/', '\\'])
        || value.contains(GLOB_CHARACTERS)
        || value.starts_with(['.', '~', '@'])
        || has_drive_letter(value)
}

fn has_drive_letter(value: &str) -> bool {
    matches!(value.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic())
}
