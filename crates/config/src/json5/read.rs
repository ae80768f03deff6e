//! A strict recursive-descent parser for JSON5. It makes a tree of values with their positions.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::{Map, Number, Value};

use super::MAX_DEPTH;
use super::scan::Json5Scanner;
use crate::diagnostic::{Diagnostic, SourceText};
use crate::excerpt::visible;
use crate::path::PathSegment;

/// A value and its position.
#[derive(Debug, Clone)]
pub(crate) struct Json5Node {
    pub(crate) span: Range<usize>,
    pub(crate) content: Json5Content,
}

#[derive(Debug, Clone)]
pub(crate) enum Json5Content {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    /// Items without keys.
    Array(Vec<Item>),
    /// Items with keys. Each key occurs once.
    Object(Vec<Item>),
}

/// A member of an object or an element of a list.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) key: Option<Json5Key>,
    pub(crate) value: Json5Node,
    /// The position of the comma after the value, if there is one.
    pub(crate) comma: Option<usize>,
}

#[derive(Debug, Clone)]
pub(crate) struct Json5Key {
    pub(crate) name: String,
    pub(crate) span: Range<usize>,
}

impl Item {
    /// The start of the key, or of the value if there is no key.
    pub(crate) fn start(&self) -> usize {
        self.key
            .as_ref()
            .map_or(self.value.span.start, |key| key.span.start)
    }

    pub(crate) fn has_key(&self, name: &str) -> bool {
        self.key.as_ref().is_some_and(|key| key.name == name)
    }
}

impl Json5Node {
    pub(crate) fn to_value(&self) -> Value {
        match &self.content {
            Json5Content::Null => Value::Null,
            Json5Content::Bool(value) => Value::Bool(*value),
            Json5Content::Number(number) => Value::Number(number.clone()),
            Json5Content::String(text) => Value::String(text.clone()),
            Json5Content::Array(items) => items.iter().map(|item| item.value.to_value()).collect(),
            Json5Content::Object(items) => {
                let members = items.iter().filter_map(|item| {
                    let key = item.key.as_ref()?;
                    Some((key.name.clone(), item.value.to_value()))
                });
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    pub(crate) fn items(&self) -> &[Item] {
        match &self.content {
            Json5Content::Array(items) | Json5Content::Object(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn member(&self, key: &str) -> Option<&Item> {
        match &self.content {
            Json5Content::Object(items) => items.iter().find(|item| item.has_key(key)),
            _ => None,
        }
    }

    pub(crate) fn step(&self, segment: &PathSegment) -> Option<&Json5Node> {
        match (segment, &self.content) {
            (PathSegment::Key(key), _) => Some(&self.member(key)?.value),
            (PathSegment::Index(index), Json5Content::Array(items)) => {
                Some(&items.get(*index)?.value)
            }
            (PathSegment::Index(_), _) => None,
        }
    }

    pub(crate) fn descend(&self, segments: &[PathSegment]) -> Option<&Json5Node> {
        segments
            .iter()
            .try_fold(self, |node, segment| node.step(segment))
    }

    /// The kind of the value with an article, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.content {
            Json5Content::Null => "null",
            Json5Content::Bool(_) => "a boolean",
            Json5Content::Number(number) if number.as_f64().is_some_and(is_huge) => {
                "a number that is too large"
            }
            Json5Content::Number(number) if number.is_f64() => "a number with a fraction",
            Json5Content::Number(_) => "a number",
            Json5Content::String(_) => "a string",
            Json5Content::Array(_) => "a list",
            Json5Content::Object(_) => "an object",
        }
    }
}

/// Whether a number is larger than any whole number that a setting accepts.
fn is_huge(number: f64) -> bool {
    number.abs() >= 9.0e15
}

/// A problem whose position is still a byte range.
#[derive(Debug)]
pub(super) struct Json5Problem {
    pub(super) span: Range<usize>,
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl Json5Problem {
    pub(super) fn syntax(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            span,
            code: "JSON5_SYNTAX",
            message: message.into(),
            hint: None,
        }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn at(self, source: &SourceText) -> Diagnostic {
        let mut diagnostic = source.diagnostic(self.span, self.code, self.message);
        diagnostic.hint = self.hint;
        diagnostic
    }
}

pub(super) fn read(text: &str) -> Result<Json5Node, Json5Problem> {
    let mut reader = Json5Reader {
        scanner: Json5Scanner::new(text),
        depth: 0,
    };
    reader.scanner.skip_blank()?;
    if reader.scanner.peek().is_none() {
        let end = text.len()..text.len();
        return Err(Json5Problem::syntax(end, "the text holds no value")
            .hint("an empty configuration is written `{}`"));
    }
    let root = reader.value()?;
    reader.scanner.skip_blank()?;
    match reader.scanner.peek() {
        None => Ok(root),
        Some(_) => Err(reader.unexpected("the end of the text")),
    }
}

struct Json5Reader<'a> {
    scanner: Json5Scanner<'a>,
    depth: usize,
}

impl Json5Reader<'_> {
    fn value(&mut self) -> Result<Json5Node, Json5Problem> {
        let start = self.scanner.at();
        let content = match self.scanner.peek() {
            Some('{') => Json5Content::Object(self.items('}')?),
            Some('[') => Json5Content::Array(self.items(']')?),
            Some('"' | '\'') => Json5Content::String(self.scanner.string()?),
            Some('+' | '-' | '.' | '0'..='9') => Json5Content::Number(self.scanner.number()?),
            Some(next) if Json5Scanner::begins_word(next) => self.word()?,
            _ => return Err(self.unexpected("a value")),
        };
        Ok(Json5Node {
            span: start..self.scanner.at(),
            content,
        })
    }

    fn word(&mut self) -> Result<Json5Content, Json5Problem> {
        let start = self.scanner.at();
        if matches!(self.scanner.peek(), Some('I' | 'N')) && self.scanner.is_non_finite() {
            return Ok(Json5Content::Number(self.scanner.number()?));
        }
        let word = self.scanner.word()?;
        let span = start..self.scanner.at();
        // A word with escapes is a name and never a keyword.
        match (&word, span.len() == word.len()) {
            (word, true) if word == "null" => Ok(Json5Content::Null),
            (word, true) if word == "true" => Ok(Json5Content::Bool(true)),
            (word, true) if word == "false" => Ok(Json5Content::Bool(false)),
            // Do not repeat the word in the message, because it could be a secret. The masked
            // source line shows it.
            _ => Err(
                Json5Problem::syntax(span, "expected a value, found a word without quotes")
                    .hint("text needs quotes"),
            ),
        }
    }

    /// Reads the members, from the opening bracket to the closing one.
    fn items(&mut self, close: char) -> Result<Vec<Item>, Json5Problem> {
        let open = self.scanner.at()..self.scanner.at() + 1;
        self.scanner.next();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Json5Problem {
                span: open,
                code: "NESTING_TOO_DEEP",
                message: format!("objects and lists are nested more than {MAX_DEPTH} deep"),
                hint: None,
            });
        }
        let mut items: Vec<Item> = Vec::new();
        let mut seen: HashMap<String, usize> = HashMap::new();
        loop {
            self.scanner.skip_blank()?;
            let Some(next) = self.scanner.peek() else {
                return Err(unclosed(&open, close));
            };
            if next == close {
                self.scanner.next();
                self.depth -= 1;
                return Ok(items);
            }
            if items.last().is_some_and(|item| item.comma.is_none()) {
                let problem = self.unexpected(&format!("`,` or `{close}`"));
                return Err(problem.hint(match next {
                    '}' | ']' => format!(
                        "the bracket on line {} is not closed",
                        self.line_of(open.start)
                    ),
                    _ => "is a comma missing before this?".to_owned(),
                }));
            }
            let key = if close == '}' {
                Some(self.key(&mut seen)?)
            } else {
                None
            };
            self.scanner.skip_blank()?;
            if self.scanner.peek().is_none() {
                return Err(unclosed(&open, close));
            }
            let value = self.value()?;
            self.scanner.skip_blank()?;
            let comma = (self.scanner.peek() == Some(',')).then(|| self.scanner.at());
            if comma.is_some() {
                self.scanner.next();
            }
            items.push(Item { key, value, comma });
        }
    }

    /// Reads a key and its colon.
    fn key(&mut self, seen: &mut HashMap<String, usize>) -> Result<Json5Key, Json5Problem> {
        let start = self.scanner.at();
        let name = match self.scanner.peek() {
            Some('"' | '\'') => self.scanner.string()?,
            Some(next) if Json5Scanner::begins_word(next) => self.scanner.word()?,
            Some('+' | '-' | '.' | '0'..='9') => {
                return Err(self
                    .unexpected("a key")
                    .hint("a key that begins with a digit or a sign needs quotes"));
            }
            _ => return Err(self.unexpected("a key")),
        };
        let span = start..self.scanner.at();
        if let Some(first) = seen.insert(name.clone(), start) {
            let line = self.line_of(first);
            return Err(Json5Problem {
                span,
                code: "DUPLICATE_KEY",
                message: format!("key `{}` is given twice", visible(&name)),
                hint: Some(format!("the first one is on line {line}; keep one of them")),
            });
        }
        self.scanner.skip_blank()?;
        if self.scanner.peek() != Some(':') {
            let problem = self.unexpected(&format!("`:` after the key `{}`", visible(&name)));
            let bare_dash = self.scanner.peek() == Some('-') && self.scanner.at() == span.end;
            return Err(if bare_dash {
                problem.hint("a key with `-` in it needs quotes")
            } else {
                problem
            });
        }
        self.scanner.next();
        Ok(Json5Key { name, span })
    }

    fn line_of(&self, offset: usize) -> usize {
        self.scanner.text()[..offset].matches('\n').count() + 1
    }

    fn unexpected(&self, expected: &str) -> Json5Problem {
        let at = self.scanner.at();
        match self.scanner.peek() {
            None => Json5Problem::syntax(
                at..at,
                format!("expected {expected}, found the end of the text"),
            ),
            Some(found) => Json5Problem::syntax(
                at..at + found.len_utf8(),
                format!("expected {expected}, found {}", named(found)),
            ),
        }
    }
}

fn unclosed(open: &Range<usize>, close: char) -> Json5Problem {
    Json5Problem::syntax(
        open.clone(),
        format!("this is never closed: `{close}` is missing"),
    )
}

/// A character for a message: the character itself, or its number if it is invisible.
pub(super) fn named(character: char) -> String {
    if visible(character.encode_utf8(&mut [0; 4])) == character.to_string()
        && !character.is_whitespace()
    {
        format!("`{character}`")
    } else {
        format!("the character U+{:04X}", u32::from(character))
    }
}
