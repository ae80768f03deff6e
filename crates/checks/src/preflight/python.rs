//! Checks Python: a dollar sign outside strings and comments is never valid.

use super::first_line::{self, CodeLines};
use super::{FoundLanguage, Language, PreflightFinding};

/// How deeply fields and strings may be nested. Deeper ones are not followed.
const MAX_NESTING: usize = 32;

pub(super) fn check(text: &str) -> Option<PreflightFinding> {
    let mut scanner = PythonScanner {
        text,
        at: text
            .strip_prefix('\u{feff}')
            .map_or(0, |rest| text.len() - rest.len()),
        lines: CodeLines::default(),
    };
    match scanner.code() {
        PythonStop::Dollar => {
            // A whole shell line is the better report than the variable in it.
            first_line::check(
                text,
                &scanner.lines.only_first(),
                Language::Python,
                is_unknown(text),
            )
            .or_else(|| dollar(text, scanner.at))
        }
        PythonStop::End => {
            first_line::check(text, &scanner.lines, Language::Python, is_unknown(text))
        }
        PythonStop::NotUnderstood => first_line::check(
            text,
            &scanner.lines.only_first(),
            Language::Python,
            is_unknown(text),
        ),
    }
}

/// Whether a word occurs only once in the text, so that nothing there can define it.
fn is_unknown(text: &str) -> impl Fn(&str) -> bool {
    move |word| text.matches(word).count() == 1
}

/// The shell syntax that a dollar sign in code begins.
pub(super) fn dollar(text: &str, offset: usize) -> Option<PreflightFinding> {
    let rest = &text[offset + 1..];
    let inner = rest.strip_prefix('{').unwrap_or(rest);
    let name: String = inner
        .chars()
        .take_while(|character| character.is_ascii_alphanumeric() || *character == '_')
        .collect();
    let found = match rest.chars().next()? {
        '(' => FoundLanguage::Substitution,
        first if first.is_ascii_digit() || "@*#".contains(first) => FoundLanguage::Parameter(first),
        _ if name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') => {
            FoundLanguage::Variable(name)
        }
        _ => return None,
    };
    Some(PreflightFinding { offset, found })
}

enum PythonStop {
    Dollar,
    End,
    /// A string does not end, so the program cannot run.
    NotUnderstood,
}

struct PythonScanner<'a> {
    text: &'a str,
    at: usize,
    lines: CodeLines,
}

impl PythonScanner<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.at += character.len_utf8();
        Some(character)
    }

    fn starts_with(&self, prefix: &str) -> bool {
        self.text[self.at..].starts_with(prefix)
    }

    fn skip_line(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.find('\n').unwrap_or(rest.len());
    }

    /// Scans the code up to the first dollar sign outside strings and comments.
    fn code(&mut self) -> PythonStop {
        while let Some(character) = self.peek() {
            match character {
                '#' => self.skip_line(),
                '$' => return PythonStop::Dollar,
                _ if character.is_whitespace() => {
                    self.take();
                }
                _ => {
                    self.lines.see(self.at);
                    if self.piece(0).is_none() {
                        return PythonStop::NotUnderstood;
                    }
                }
            }
        }
        PythonStop::End
    }

    /// One string, one word, or one other character.
    fn piece(&mut self, nesting: usize) -> Option<()> {
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        let start = self.at;
        while self.peek().is_some_and(is_word) {
            self.take();
        }
        let word = &self.text[start..self.at];
        match self.peek() {
            Some('"' | '\'') if is_prefix(word) => {
                let formatted = word.contains(['f', 'F', 't', 'T']);
                self.string(formatted, nesting)
            }
            _ if !word.is_empty() => Some(()),
            _ => self.take().map(|_| ()),
        }
    }

    fn string(&mut self, formatted: bool, nesting: usize) -> Option<()> {
        let quote = self.take()?;
        let triple = String::from_iter([quote, quote]);
        let is_triple = self.starts_with(&triple);
        if is_triple {
            self.at += 2;
        }
        loop {
            match self.take()? {
                // Even in raw strings, a backslash keeps a quote from ending the string.
                '\\' => {
                    self.take()?;
                }
                '\n' if !is_triple => return None,
                '{' if formatted => {
                    if self.starts_with("{") {
                        self.take();
                    } else {
                        self.field(nesting + 1)?;
                    }
                }
                character if character == quote && !is_triple => return Some(()),
                character if character == quote && self.starts_with(&triple) => {
                    self.at += 2;
                    return Some(());
                }
                _ => {}
            }
        }
    }

    /// Skips a field of a formatted string up to its closing brace. Its code is not checked.
    fn field(&mut self, nesting: usize) -> Option<()> {
        if nesting > MAX_NESTING {
            return None;
        }
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                '}' if depth == 0 => {
                    self.take();
                    return Some(());
                }
                ':' if depth == 0 => return self.format(nesting),
                '#' => self.skip_line(),
                character => {
                    match character {
                        '(' | '[' | '{' => depth += 1,
                        ')' | ']' | '}' => depth = depth.checked_sub(1)?,
                        _ => {}
                    }
                    self.piece(nesting)?;
                }
            }
        }
    }

    /// Skips the format after the colon of a field: text with fields in it.
    fn format(&mut self, nesting: usize) -> Option<()> {
        loop {
            match self.take()? {
                '}' => return Some(()),
                '{' => self.field(nesting + 1)?,
                _ => {}
            }
        }
    }
}

/// Whether a word is a string prefix. The empty word is one.
fn is_prefix(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    matches!(
        lower.as_str(),
        "" | "r" | "b" | "u" | "f" | "t" | "br" | "rb" | "ur" | "fr" | "rf" | "tr" | "rt"
    )
}
