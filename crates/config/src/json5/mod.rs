//! JSON5 texts with positions, and edits that leave every other byte as it was.
//!
//! The reader is our own: the grammar is small, and what is read here decides what may run, so it
//! accepts exactly JSON5, says where each value stands, and refuses what a lenient reader would
//! guess.

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

/// Objects and lists inside each other, at most.
pub const MAX_DEPTH: usize = 64;
/// Longer texts are refused unread.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// A text that is valid JSON5, with the place of every value in it.
#[derive(Debug, Clone)]
pub struct Json5Text {
    source: SourceText,
    root: Json5Node,
    /// New keys get quotes, whatever the keys around them have.
    quotes_keys: bool,
}

impl Json5Text {
    /// `name` is what messages call the text, usually its file name.
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

    /// Edits quote each key that they add: for files that programs read as plain JSON.
    #[must_use]
    pub fn quoting_keys(mut self) -> Self {
        self.quotes_keys = true;
        self
    }

    /// As `parse`, for bytes that may not be text at all.
    pub fn parse_bytes(name: &str, bytes: &[u8]) -> Result<Self, Diagnostic> {
        within_limit(name, bytes)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(name, text),
            Err(error) => {
                // What comes before the bad byte is good, so the place can be given.
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

    /// Where the value at a path stands.
    pub fn locate(&self, path: &KeyPath) -> Option<Position> {
        Some(self.source.position(self.find(path)?.span.clone()))
    }

    /// Where the key stands that the path ends with. List elements and the root have none.
    pub fn locate_key(&self, path: &KeyPath) -> Option<Position> {
        let (last, parents) = path.segments().split_last()?;
        let PathSegment::Key(key) = last else {
            return None;
        };
        let item = self.root.descend(parents)?.member(key)?;
        Some(self.source.position(item.key.as_ref()?.span.clone()))
    }

    /// A message about a place in this text.
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

/// Before anything else, so that a huge text costs nothing.
fn within_limit(name: &str, bytes: &[u8]) -> Result<(), Diagnostic> {
    if bytes.len() <= MAX_BYTES {
        return Ok(());
    }
    let message = format!("the text has more than {MAX_BYTES} bytes");
    Err(SourceText::new(name, "").diagnostic(0..0, "TEXT_TOO_LARGE", message))
}
