//! The JSON5 lexer: reads words, strings, numbers, white space and comments.

use std::ops::Range;

use serde_json::Number;

use super::read::{Json5Problem, named};

/// The largest whole number that a JSON5 number, which is a 64-bit float, represents exactly.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

pub(super) struct Json5Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Json5Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Skips white space and comments.
    pub(super) fn skip_blank(&mut self) -> Result<(), Json5Problem> {
        while let Some(next) = self.peek() {
            let start = self.at;
            if is_blank(next) {
                self.next();
            } else if self.take("//") {
                self.at += self.rest().find(is_line_end).unwrap_or(self.rest().len());
            } else if self.take("/*") {
                let Some(length) = self.rest().find("*/") else {
                    return Err(Json5Problem::syntax(
                        start..start + 2,
                        "this comment is never closed: `*/` is missing",
                    ));
                };
                self.at += length + 2;
            } else {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn begins_word(character: char) -> bool {
        matches!(character, '$' | '_' | '\\') || unicode_ident::is_xid_start(character)
    }

    /// Reads an identifier and decodes its `\u` escapes.
    pub(super) fn word(&mut self) -> Result<String, Json5Problem> {
        let mut word = String::new();
        while let Some(next) = self.peek() {
            let start = self.at;
            let character = if next == '\\' {
                self.next();
                if !self.take("u") {
                    let span = start..self.at;
                    return Err(Json5Problem::syntax(
                        span,
                        "outside of quotes only `\\u` escapes are possible",
                    ));
                }
                self.unicode_escape(start)?
            } else if continues_word(next) {
                self.next();
                next
            } else {
                break;
            };
            let fits = if word.is_empty() {
                character != '\\' && Self::begins_word(character)
            } else {
                continues_word(character)
            };
            if !fits {
                let message = format!("{} cannot stand in a key without quotes", named(character));
                return Err(Json5Problem::syntax(start..self.at, message));
            }
            word.push(character);
        }
        Ok(word)
    }

    /// Reads a string in either kind of quotes.
    pub(super) fn string(&mut self) -> Result<String, Json5Problem> {
        let open = self.at;
        let quote = self.next();
        let mut string = String::new();
        loop {
            let start = self.at;
            match self.next() {
                None | Some('\n' | '\r') => {
                    let problem = Json5Problem::syntax(
                        open..open + 1,
                        "this string is not closed on its line",
                    );
                    return Err(problem.hint("write a line break as `\\n`"));
                }
                end if end == quote => return Ok(string),
                Some('\\') => string.extend(self.escape(start)?),
                Some(other) => string.push(other),
            }
        }
    }

    /// Reads the escape after a backslash. Returns `None` for a line continuation.
    fn escape(&mut self, start: usize) -> Result<Option<char>, Json5Problem> {
        let Some(next) = self.next() else {
            return Err(Json5Problem::syntax(
                start..self.at,
                "this string is not closed",
            ));
        };
        Ok(Some(match next {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '0' if !self.peek().is_some_and(|c| c.is_ascii_digit()) => '\0',
            '0'..='9' => {
                let problem =
                    Json5Problem::syntax(start..self.at, "octal escapes are not possible");
                return Err(problem.hint("write `\\x` and two hexadecimal digits"));
            }
            'x' => char::from(u8::try_from(self.hex_digits(start, 2)?).unwrap_or_default()), // two digits are a byte
            'u' => self.unicode_escape(start)?,
            '\r' => {
                self.take("\n");
                return Ok(None);
            }
            '\n' | '\u{2028}' | '\u{2029}' => return Ok(None),
            other => other,
        }))
    }

    /// Reads the digits after `\u`, and a second escape for a surrogate pair.
    fn unicode_escape(&mut self, start: usize) -> Result<char, Json5Problem> {
        let first = self.hex_digits(start, 4)?;
        let mut code = first;
        if (0xd800..0xdc00).contains(&first) && self.take("\\u") {
            let second = self.hex_digits(start, 4)?;
            if (0xdc00..0xe000).contains(&second) {
                code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            }
        }
        char::from_u32(code).ok_or_else(|| {
            Json5Problem::syntax(
                start..self.at,
                "this is half of a surrogate pair, not a character",
            )
        })
    }

    fn hex_digits(&mut self, start: usize, count: usize) -> Result<u32, Json5Problem> {
        let digits = self
            .rest()
            .get(..count)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let value = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.at += if value.is_some() { count } else { 0 };
        value.ok_or_else(|| {
            let message = format!("this escape needs {count} hexadecimal digits");
            Json5Problem::syntax(start..self.at, message)
        })
    }

    pub(super) fn is_non_finite(&self) -> bool {
        ["Infinity", "NaN"].iter().any(|word| {
            let after = self.rest().strip_prefix(word);
            after.is_some_and(|rest| !rest.starts_with(|c| continues_word(c) || c == '\\'))
        })
    }

    /// Reads a number. Whole numbers become integers in any notation (`1e3`, `5.`), because JSON5
    /// has only one kind of number.
    pub(super) fn number(&mut self) -> Result<Number, Json5Problem> {
        let start = self.at;
        let negative = self.take("-");
        if !negative {
            self.take("+");
        }
        if self.is_non_finite() {
            self.word()?;
            return Err(Json5Problem {
                span: start..self.at,
                code: "NUMBER_NOT_FINITE",
                message: format!(
                    "`{}` is not a number that can be used here",
                    &self.text[start..self.at]
                ),
                hint: Some("leave the key out if there is to be no limit".to_owned()),
            });
        }
        let number = if self.take("0x") || self.take("0X") {
            self.hexadecimal(start, negative)?
        } else {
            self.decimal(start)?
        };
        if let Some(next) = self
            .peek()
            .filter(|c| continues_word(*c) || matches!(c, '.' | '\\'))
        {
            self.next();
            return Err(Json5Problem::syntax(
                start..self.at,
                format!("{} cannot stand in a number", named(next)),
            ));
        }
        let span = start..self.at;
        let out_of_range = || Json5Problem {
            span: span.clone(),
            code: "NUMBER_OUT_OF_RANGE",
            message: "the number is too large".to_owned(),
            hint: None,
        };
        number.ok_or_else(out_of_range)
    }

    fn hexadecimal(
        &mut self,
        start: usize,
        negative: bool,
    ) -> Result<Option<Number>, Json5Problem> {
        let digits = self.digits(|c| c.is_ascii_hexdigit());
        if digits.is_empty() {
            return Err(Json5Problem::syntax(
                start..self.at,
                "`0x` needs hexadecimal digits",
            ));
        }
        let value = digits.chars().filter_map(|digit| digit.to_digit(16));
        let value = value.fold(0.0, |value: f64, digit| value * 16.0 + f64::from(digit));
        Ok(match u64::from_str_radix(digits, 16) {
            Ok(exact) if !negative => Some(exact.into()),
            _ => from_float(if negative { -value } else { value }),
        })
    }

    fn decimal(&mut self, start: usize) -> Result<Option<Number>, Json5Problem> {
        let whole = self.digits(|c| c.is_ascii_digit());
        if whole.len() > 1 && whole.starts_with('0') {
            return Err(Json5Problem::syntax(
                start..self.at,
                "a number cannot begin with `0` and another digit",
            ));
        }
        let point = self.take(".");
        let fraction = if point {
            self.digits(|c| c.is_ascii_digit())
        } else {
            ""
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(Json5Problem::syntax(
                start..self.at.max(start + 1),
                "expected a digit",
            ));
        }
        let exponent = self.take("e") || self.take("E");
        if exponent {
            let _signed = self.take("-") || self.take("+");
            if self.digits(|c| c.is_ascii_digit()).is_empty() {
                return Err(Json5Problem::syntax(
                    start..self.at,
                    "the exponent of this number has no digits",
                ));
            }
        }
        let written = self.text[start..self.at].trim_start_matches('+');
        if !point && !exponent {
            if let Ok(exact) = written.parse::<u64>() {
                return Ok(Some(exact.into()));
            }
            if let Ok(exact) = written.parse::<i64>() {
                return Ok(Some(exact.into()));
            }
        }
        Ok(written.parse().ok().and_then(from_float))
    }

    fn digits(&mut self, accepted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c| !accepted(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn take(&mut self, expected: &str) -> bool {
        let found = self.rest().starts_with(expected);
        self.at += if found { expected.len() } else { 0 };
        found
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }
}

#[allow(clippy::cast_possible_truncation)] // checked to be whole and small right before
fn from_float(value: f64) -> Option<Number> {
    if value.fract() == 0.0 && value.abs() <= MAX_EXACT {
        return Some((value as i64).into());
    }
    Number::from_f64(value)
}

fn continues_word(character: char) -> bool {
    matches!(character, '$' | '_' | '\u{200c}' | '\u{200d}')
        || unicode_ident::is_xid_continue(character)
}

pub(super) fn is_line_end(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\u{2028}' | '\u{2029}')
}

/// Whether a character is JSON5 white space: the usual characters, the byte order mark and the
/// space separators of Unicode.
pub(super) fn is_blank(character: char) -> bool {
    is_line_end(character)
        || matches!(
            character,
            '\t' | '\u{b}' | '\u{c}' | ' ' | '\u{a0}' | '\u{feff}' | '\u{1680}' | '\u{2000}'
                ..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}'
        )
}

/// The spans of comments in a text between two tokens. The text must consist of white space,
/// comments and commas.
pub(super) fn comments(text: &str, within: Range<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut scanner = Json5Scanner {
        text: &text[..within.end],
        at: within.start,
    };
    while let Some(next) = scanner.peek() {
        let start = scanner.at;
        if next == '/' {
            if scanner.take("//") {
                scanner.at += scanner
                    .rest()
                    .find(is_line_end)
                    .unwrap_or(scanner.rest().len());
            } else {
                scanner.at += scanner
                    .rest()
                    .find("*/")
                    .map_or(scanner.rest().len(), |length| length + 2);
            }
            found.push(start..scanner.at);
        } else {
            scanner.next();
        }
    }
    found
}
