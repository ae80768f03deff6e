//! Reads one word: quotes, escapes, globs, tilde and the form of an assignment.

use interlock_programs::{Glob, GlobToken};

use super::odd;
use super::tokens::ends_word;
use crate::Span;
use crate::line::Word;
use crate::odd::{NotPlain, Odd};

/// How a word was written, as far as the line builder needs it.
#[derive(Debug, Default)]
pub(super) struct WordShape {
    /// Whether any part was quoted or escaped.
    pub(super) quoted: bool,
    /// The length of the name, for `NAME=…` with an unquoted, valid name.
    pub(super) assignment: Option<usize>,
    /// Whether the word is `NAME+=…`.
    pub(super) appends: bool,
    pub(super) beyond_posix: bool,
}

/// Reads the word that begins at byte `start`. The caller must ensure that there is a word.
pub(super) fn read_word(text: &str, start: usize) -> Result<(Word, WordShape), NotPlain> {
    let mut reader = WordReader {
        text,
        position: start,
        start,
        value: String::new(),
        tokens: Vec::new(),
        has_glob: false,
        tilde: false,
        shape: WordShape::default(),
    };
    reader.read()?;
    let tokens = reader.tokens;
    if has_doubled_slash(&tokens) {
        return Err(odd(Odd::GlobForm, Span::new(start, reader.position)));
    }
    let word = Word {
        span: Span::new(start, reader.position),
        text: reader.value,
        tilde: reader.tilde,
        glob: reader.has_glob.then_some(Glob { tokens }),
    };
    Ok((word, reader.shape))
}

struct WordReader<'a> {
    text: &'a str,
    position: usize,
    start: usize,
    value: String,
    /// The same as `value` without a leading tilde, as glob tokens. Filled from the first glob
    /// character on.
    tokens: Vec<GlobToken>,
    has_glob: bool,
    tilde: bool,
    shape: WordShape,
}

impl WordReader<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.position + ahead).copied()
    }

    fn refuse<T>(&self, reason: Odd, length: usize) -> Result<T, NotPlain> {
        let mut end = (self.position + length).min(self.text.len());
        // An escaped character may be longer than a byte.
        while !self.text.is_char_boundary(end) {
            end += 1;
        }
        Err(odd(reason, Span::new(self.position, end)))
    }

    fn read(&mut self) -> Result<(), NotPlain> {
        while let Some(byte) = self.peek(0) {
            match byte {
                _ if is_ordinary(byte) => self.ordinary_run(),
                _ if ends_word(byte) => break,
                b'\'' => self.single_quoted()?,
                b'"' => self.double_quoted()?,
                b'\\' => self.escaped()?,
                b'$' => match self.peek(1) {
                    Some(b'\'') => self.dollar_quoted()?,
                    Some(b'(') if self.peek(2) != Some(b'(') => {
                        return self.refuse(Odd::CommandSubstitution, 2);
                    }
                    _ => return self.refuse(Odd::Expansion, 1),
                },
                b'`' => return self.refuse(Odd::CommandSubstitution, 1),
                b'(' | b')' => return self.refuse(Odd::Parenthesis, 1),
                // Shells never expand an empty pair: `find -exec rm {} +`.
                b'{' if self.peek(1) == Some(b'}') => {
                    self.position += 2;
                    self.push('{');
                    self.push('}');
                }
                // Nor do they expand a pair without a comma or dots, as in `HEAD@{1}` and `@{u}`.
                b'{' if self.value.ends_with('@') && self.revision_braces() > 0 => {
                    for _ in 0..self.revision_braces() {
                        self.plain_character()?;
                    }
                }
                b'{' | b'}' => return self.refuse(Odd::Brace, 1),
                b'*' => self.glob_character(GlobToken::Star, '*'),
                b'?' => self.glob_character(GlobToken::Any, '?'),
                b'[' => self.bracket()?,
                b'~' => self.tilde()?,
                b'=' => self.equals_sign(),
                _ => self.plain_character()?,
            }
        }
        Ok(())
    }

    /// Returns the length in bytes of a pair of braces with only letters and digits inside,
    /// starting here.
    fn revision_braces(&self) -> usize {
        let rest = &self.text.as_bytes()[self.position + 1..];
        let inner = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric());
        let inner = inner.count();
        match rest.get(inner) {
            Some(b'}') if inner > 0 => inner + 2,
            _ => 0,
        }
    }

    /// Reads a run of ordinary characters at once, because most text consists of them.
    fn ordinary_run(&mut self) {
        let rest = &self.text.as_bytes()[self.position..];
        let length = rest.iter().take_while(|byte| is_ordinary(**byte)).count();
        let run = &self.text[self.position..self.position + length];
        self.value.push_str(run);
        if self.has_glob {
            self.tokens.extend(run.chars().map(GlobToken::Literal));
        }
        self.position += length;
    }

    fn push(&mut self, character: char) {
        self.value.push(character);
        if self.has_glob {
            self.tokens.push(GlobToken::Literal(character));
        }
    }

    fn current_char(&self) -> Option<char> {
        self.text.get(self.position..)?.chars().next()
    }

    fn plain_character(&mut self) -> Result<(), NotPlain> {
        let Some(character) = self.current_char() else {
            self.position = self.text.len();
            return Ok(());
        };
        // Unicode blanks and zero-width characters look like something that they are not.
        if character.is_whitespace() || is_invisible(character) {
            return self.refuse(Odd::UnusualBlank, character.len_utf8());
        }
        self.position += character.len_utf8();
        self.push(character);
        Ok(())
    }

    fn equals_sign(&mut self) {
        if !self.shape.quoted && self.shape.assignment.is_none() && !self.has_glob && !self.tilde {
            if is_name(&self.value) {
                self.shape.assignment = Some(self.value.len());
            } else if self.value.strip_suffix('+').is_some_and(is_name) {
                self.shape.appends = true;
            }
        }
        self.position += 1;
        self.push('=');
    }

    fn single_quoted(&mut self) -> Result<(), NotPlain> {
        let body = self.position + 1;
        let Some(length) = self.text[body..].find('\'') else {
            return self.refuse(Odd::UnterminatedQuote, 1);
        };
        self.shape.quoted = true;
        for character in self.text[body..body + length].chars() {
            self.push(character);
        }
        self.position = body + length + 1;
        Ok(())
    }

    fn double_quoted(&mut self) -> Result<(), NotPlain> {
        let opening = self.position;
        self.shape.quoted = true;
        self.position += 1;
        loop {
            match self.peek(0) {
                None => {
                    self.position = opening;
                    return self.refuse(Odd::UnterminatedQuote, 1);
                }
                Some(b'"') => {
                    self.position += 1;
                    return Ok(());
                }
                Some(b'$') if self.peek(1) == Some(b'(') && self.peek(2) != Some(b'(') => {
                    return self.refuse(Odd::CommandSubstitution, 2);
                }
                Some(b'$') => return self.refuse(Odd::Expansion, 1),
                Some(b'`') => return self.refuse(Odd::CommandSubstitution, 1),
                Some(b'!') => return self.refuse(Odd::HistoryMark, 1),
                Some(b'\\') => match self.peek(1) {
                    Some(b'\n') => return self.refuse(Odd::LineContinuation, 2),
                    Some(next @ (b'$' | b'`' | b'"' | b'\\')) => {
                        self.push(next as char);
                        self.position += 2;
                    }
                    _ => {
                        self.push('\\');
                        self.position += 1;
                    }
                },
                Some(_) => {
                    if let Some(character) = self.current_char() {
                        self.position += character.len_utf8();
                        self.push(character);
                    } else {
                        self.position = self.text.len();
                    }
                }
            }
        }
    }

    fn escaped(&mut self) -> Result<(), NotPlain> {
        let after = self.position + 1;
        let Some(character) = self.text[after..].chars().next() else {
            return self.refuse(Odd::TrailingBackslash, 1);
        };
        if character == '\n' {
            return self.refuse(Odd::LineContinuation, 2);
        }
        self.shape.quoted = true;
        self.push(character);
        self.position = after + character.len_utf8();
        Ok(())
    }

    /// Reads `$'…'` with the simple escapes. Numeric escapes can produce NUL or broken UTF-8, so
    /// they are not plain.
    fn dollar_quoted(&mut self) -> Result<(), NotPlain> {
        let opening = self.position;
        self.shape.quoted = true;
        self.shape.beyond_posix = true;
        self.position += 2;
        loop {
            match self.current_char() {
                None => {
                    self.position = opening;
                    return self.refuse(Odd::UnterminatedQuote, 2);
                }
                Some('\'') => {
                    self.position += 1;
                    return Ok(());
                }
                Some('\\') => {
                    let character = match self.peek(1) {
                        Some(b'n') => '\n',
                        Some(b't') => '\t',
                        Some(quoted @ (b'\\' | b'\'' | b'"' | b'?')) => quoted as char,
                        _ => return self.refuse(Odd::Escape, 2),
                    };
                    self.push(character);
                    self.position += 2;
                }
                Some(character) => {
                    self.push(character);
                    self.position += character.len_utf8();
                }
            }
        }
    }

    fn glob_character(&mut self, token: GlobToken, character: char) {
        self.start_glob();
        self.tokens.push(token);
        self.value.push(character);
        self.position += 1;
    }

    fn start_glob(&mut self) {
        if !self.has_glob {
            self.has_glob = true;
            let literal = self.value.chars().skip(usize::from(self.tilde));
            self.tokens = literal.map(GlobToken::Literal).collect();
        }
    }

    /// Reads `[abc]`, `[a-z]` and `[!0-9]` with ASCII letters, digits and a few marks. `[` alone is
    /// the command of that name. Any other bracket is left to the shell.
    fn bracket(&mut self) -> Result<(), NotPlain> {
        let bytes = self.text.as_bytes();
        let alone = self.position == self.start && self.peek(1).is_none_or(ends_word);
        if alone {
            self.position += 1;
            self.push('[');
            return Ok(());
        }
        let mut index = self.position + 1;
        let negated = bytes.get(index) == Some(&b'!');
        index += usize::from(negated);
        let body = index;
        while bytes.get(index).is_some_and(|b| is_set_member(*b)) {
            index += 1;
        }
        let members = &bytes[body..index];
        let ranges = set_ranges(members);
        let (Some(b']'), Some(ranges)) = (bytes.get(index), ranges) else {
            return self.refuse(Odd::GlobForm, 1);
        };
        self.start_glob();
        self.tokens.push(GlobToken::Set { negated, ranges });
        self.value.push_str(&self.text[self.position..=index]);
        self.position = index + 1;
        Ok(())
    }

    fn tilde(&mut self) -> Result<(), NotPlain> {
        if self.position == self.start {
            if !self
                .peek(1)
                .is_none_or(|next| next == b'/' || ends_word(next))
            {
                return self.refuse(Odd::Tilde, 1);
            }
            self.tilde = true;
            self.value.push('~');
        } else if matches!(self.value.as_bytes().last(), Some(b'=' | b':')) {
            // Some shells expand this tilde in some places.
            return self.refuse(Odd::Tilde, 1);
        } else {
            self.push('~');
        }
        self.position += 1;
        Ok(())
    }
}

/// Whether a pattern contains `*//x`. Shells disagree whether a matching path keeps both slashes.
/// Before the first pattern (`http://host/?q`) all of them keep both.
fn has_doubled_slash(tokens: &[GlobToken]) -> bool {
    tokens
        .windows(2)
        .skip_while(|pair| matches!(pair[0], GlobToken::Literal(_)))
        .any(|pair| pair.iter().all(|token| *token == GlobToken::Literal('/')))
}

/// Whether the byte is literal wherever it stands.
fn is_ordinary(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/' | b',' | b'+' | b'%')
}

fn is_set_member(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b',' | b'-')
}

/// Returns `None` if the set is empty or a range is not simple.
fn set_ranges(members: &[u8]) -> Option<Vec<(char, char)>> {
    let mut ranges = Vec::new();
    let mut index = 0;
    while let Some(&low) = members.get(index) {
        if let (Some(b'-'), Some(&high)) = (members.get(index + 1), members.get(index + 2)) {
            let same_kind = (low.is_ascii_digit() && high.is_ascii_digit())
                || (low.is_ascii_lowercase() && high.is_ascii_lowercase())
                || (low.is_ascii_uppercase() && high.is_ascii_uppercase());
            if !same_kind || low > high {
                return None;
            }
            ranges.push((low as char, high as char));
            index += 3;
        } else {
            ranges.push((low as char, low as char));
            index += 1;
        }
    }
    (!ranges.is_empty()).then_some(ranges)
}

/// A portable variable name.
fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}
