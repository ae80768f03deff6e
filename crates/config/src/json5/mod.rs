//! Parses JSON5 with positions, and edits it without changing any other byte.
//!
//! The parser is part of this crate because a config decides what may run. It accepts exactly
//! JSON5, knows the position of each value, and refuses text whose meaning a lenient parser would
//! guess. The grammar is small.

mod edit;
mod layout;
mod read;
mod scan;
mod write;

use std::ops::Range;

use serde_json::Value;

use crate::diagnostic::{Diagnostic, Position, SourceText};
use crate::path::{KeyPath, PathSegment};

pub use edit::EditError;
pub(crate) use read::{Item, Json5Content, Json5Node};

/// How deeply objects and lists may be nested.
pub const MAX_DEPTH: usize = 64;
/// The longest text that is parsed.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// A valid JSON5 text, with the position of every value.
#[derive(Debug, Clone)]
pub struct Json5Text {
    source: SourceText,
    root: Json5Node,
    /// Whether new keys always get quotes, even if the keys around them have none.
    quotes_keys: bool,
}

impl Json5Text {
    /// Parses a text. Error messages call it `name`, which is usually its file name.
    pub fn parse(name: &str, text: &str) -> Result<Self, Diagnostic> {
        within_limit(name, text.as_bytes())?;
        let source = SourceText::new(name, text);
        match read::read(text) {
            Ok(root) => Ok(Self {
                source,
                root,
                quotes_keys: false,
            }),
            Err(problem) => Err(problem.at(&source)),
        }
    }

    /// Makes edits quote every new key, for files that programs read as plain JSON.
    #[must_use]
    pub fn quoting_keys(mut self) -> Self {
        self.quotes_keys = true;
        self
    }

    /// Like [`Self::parse`], for bytes that may not be UTF-8.
    pub fn parse_bytes(name: &str, bytes: &[u8]) -> Result<Self, Diagnostic> {
        within_limit(name, bytes)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(name, text),
            Err(error) => {
                // The bytes before the invalid one are valid, so the position is known.
                let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
                let source = SourceText::new(name, &good);
                Err(source
                    .diagnostic(
                        good.len()..good.len(),
                        "NOT_UTF8",
                        "the text is not valid UTF-8".to_owned(),
                    )
                    .with_hint("save the file in the encoding UTF-8"))
            }
        }
    }

    /// The text itself.
    pub fn text(&self) -> &str {
        &self.source.text
    }

    pub fn name(&self) -> &str {
        &self.source.name
    }

    pub fn value(&self) -> Value {
        self.root.to_value()
    }

    /// The value at a path.
    pub fn get(&self, path: &KeyPath) -> Option<Value> {
        Some(self.find(path)?.to_value())
    }

    /// The position of the value at a path.
    pub fn locate(&self, path: &KeyPath) -> Option<Position> {
        Some(self.source.position(self.find(path)?.span.clone()))
    }

    /// The position of the last key of a path. List elements and the root have no key.
    pub fn locate_key(&self, path: &KeyPath) -> Option<Position> {
        let (last, parents) = path.segments().split_last()?;
        let PathSegment::Key(key) = last else {
            return None;
        };
        let item = self.root.descend(parents)?.member(key)?;
        Some(self.source.position(item.key.as_ref()?.span.clone()))
    }

    /// Makes a message about a place in this text.
    pub fn diagnose(
        &self,
        span: Range<usize>,
        code: &'static str,
        message: impl Into<String>,
    ) -> Diagnostic {
        let end = span.end.min(self.text().len());
        let start = span.start.min(end);
        self.source.diagnostic(start..end, code, message.into())
    }

    pub(crate) fn root(&self) -> &Json5Node {
        &self.root
    }

    fn find(&self, path: &KeyPath) -> Option<&Json5Node> {
        self.root.descend(path.segments())
    }
}

/// Checks the length first, so that a huge text costs nothing.
fn within_limit(name: &str, bytes: &[u8]) -> Result<(), Diagnostic> {
    if bytes.len() <= MAX_BYTES {
        return Ok(());
    }
    let message = format!("the text has more than {MAX_BYTES} bytes");
    Err(SourceText::new(name, "").diagnostic(0..0, "TEXT_TOO_LARGE", message))
}
