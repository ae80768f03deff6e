//! The source line below a message: cut to a readable width, safe to print, and without secrets.

use std::fmt;

/// The longest line that is shown completely. Of a longer one, this many characters around the
/// caret are shown.
const WINDOW: usize = 96;

/// The shown line, and the position of the caret in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Excerpt {
    line: String,
    caret: usize,
    width: usize,
}

impl Excerpt {
    /// Makes an excerpt. `column` counts characters from 1, and `width` is how many characters the
    /// caret underlines.
    pub(crate) fn new(line: &str, column: usize, width: usize) -> Self {
        let characters: Vec<char> = mask_secrets(line).chars().map(printable).collect();
        let at = column - 1;
        let start = if characters.len() <= WINDOW {
            0
        } else {
            at.saturating_sub(WINDOW / 2)
        };
        let end = characters.len().min(start + WINDOW);
        let (before, after) = (
            if start > 0 { "…" } else { "" },
            if end < characters.len() { "…" } else { "" },
        );
        let shown: String = characters[start.min(end)..end].iter().collect();
        let caret = before.chars().count() + at - start;
        Self {
            line: format!("{before}{shown}{after}").trim_end().to_owned(),
            caret,
            width: width.clamp(1, (end + 1).saturating_sub(at).max(1)),
        }
    }

    pub(crate) fn write(&self, f: &mut fmt::Formatter<'_>, number: usize) -> fmt::Result {
        let gutter = " ".repeat(number.to_string().len());
        let blank = " ".repeat(self.caret);
        let caret = "^".repeat(self.width);
        writeln!(f, "{gutter} |")?;
        writeln!(f, "{number} | {}", self.line)?;
        write!(f, "{gutter} | {blank}{caret}")
    }
}

/// Makes text of a file safe for one line of a terminal: at most 120 characters, without control
/// characters and without characters that change the direction of text.
pub(crate) fn visible(text: &str) -> String {
    let mut shown: String = text.chars().take(120).map(printable).collect();
    if text.chars().nth(120).is_some() {
        shown.push('…');
    }
    shown
}

/// Replaces a character by exactly one printable character, so that columns stay correct.
fn printable(character: char) -> char {
    match character {
        '\t' => ' ',
        // Bidirectional controls and invisible characters can make a line look like another one.
        '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => '\u{fffd}',
        other if other.is_control() => '\u{fffd}',
        other => other,
    }
}

/// Words in the name of a key that mark its value as a secret.
const SECRET_WORDS: &[&str] = &[
    "token",
    "password",
    "secret",
    "apikey",
    "passphrase",
    "credential",
];

/// Masks the value of every key whose name sounds like a secret, character by character. It looks
/// only at the line, so it also works if the text cannot be parsed.
fn mask_secrets(line: &str) -> String {
    let mut characters: Vec<char> = line.chars().collect();
    let mut at = 0;
    while let Some(colon) = (at..characters.len()).find(|index| characters[*index] == ':') {
        at = colon + 1;
        if names_a_secret(&characters[..colon]) {
            at = mask_value(&mut characters, at);
        }
    }
    characters.into_iter().collect()
}

/// Whether the key that ends here, quoted or not, names a secret.
fn names_a_secret(before: &[char]) -> bool {
    let key = before
        .iter()
        .rev()
        .skip_while(|c| c.is_whitespace() || matches!(c, '"' | '\''))
        .take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$'))
        .filter(|c| c.is_alphanumeric());
    let mut name: Vec<char> = key.flat_map(|c| c.to_lowercase()).collect();
    name.reverse();
    let name: String = name.into_iter().collect();
    // Keys such as `tokenFile` name a file, which the reader must see.
    SECRET_WORDS.iter().any(|word| name.contains(word)) && !name.ends_with("file")
}

/// Masks one value, or every value of a list. Returns the place after it.
fn mask_value(characters: &mut [char], from: usize) -> usize {
    let mut at = from;
    let mut quote = None;
    let mut depth = 0_usize;
    while at < characters.len() {
        let character = characters[at];
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some(_), '\\') => {
                characters[at] = '•';
                at += 1;
                if let Some(escaped) = characters.get_mut(at) {
                    *escaped = '•';
                }
            }
            (None, '"' | '\'') => quote = Some(character),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') if depth > 0 => depth -= 1,
            (None, ',' | ']' | '}') if depth == 0 => return at,
            (None, ',' | ':' | ']' | '}') => {}
            (None, blank) if blank.is_whitespace() => {}
            _ => characters[at] = '•',
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_columns_stay() {
        let table = [
            (
                r#"auth: { token: "s3\"cret", 'pass-word': 'x', tokenFile: "f" }"#,
                r#"auth: { token: "••••••••", 'pass-word': '•', tokenFile: "f" }"#,
            ),
            (
                r#"gatewayPassword: "never closed, at all"#,
                r#"gatewayPassword: "••••••••••••••••••••"#,
            ),
            (
                "apiKeys: ['a', 'b, c'], port: 1",
                "apiKeys: ['•', '••••'], port: 1",
            ),
            (
                "secret: bare-word, port: 1 }",
                "secret: •••••••••, port: 1 }",
            ),
            ("port: 1, name: 'token'", "port: 1, name: 'token'"),
        ];
        for (line, masked) in table {
            assert_eq!(mask_secrets(line), masked);
        }
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(visible("a\u{1b}[2Jb\u{202e}c"), "a\u{fffd}[2Jb\u{fffd}c");
    }

    #[test]
    fn a_long_line_is_shown_around_the_caret() {
        let line = format!("{}x{}", "a".repeat(300), "b".repeat(300));
        let excerpt = Excerpt::new(&line, 301, 1);
        assert_eq!(excerpt.line.chars().nth(excerpt.caret), Some('x'));
        assert!(excerpt.line.chars().count() <= WINDOW + 2);
    }
}
