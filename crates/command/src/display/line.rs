//! One line of a prompt.

use serde::{Deserialize, Deserializer, Serialize};

use super::hidden::is_hidden;
use super::render;

/// A text on one line, with every invisible character spelled out, including line breaks. Every
/// name, path and value that an agent controls reaches a prompt as this type, so that none of them
/// can start its own line or field.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct ShownLine(String);

impl ShownLine {
    /// Spells out invisible characters. Applying it twice changes nothing.
    pub fn new(text: &str) -> Self {
        Self(render(text, &[], is_hidden).0)
    }

    /// Wraps text that this crate has already rendered.
    pub(super) fn rendered(text: String) -> Self {
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Splits the line into rows of at most this many columns. A character that is not ASCII counts
    /// twice, because some terminals draw it double width. There is always a first row.
    pub fn rows(&self, columns: usize) -> Vec<&str> {
        let mut rows = Vec::new();
        let (mut start, mut used) = (0, 0);
        for (at, character) in self.0.char_indices() {
            let width = if character.is_ascii() { 1 } else { 2 };
            if used + width > columns.max(2) {
                rows.push(&self.0[start..at]);
                (start, used) = (at, 0);
            }
            used += width;
        }
        rows.push(&self.0[start..]);
        rows
    }
}

impl std::fmt::Display for ShownLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Text from another host is spelled out again, because the host is not trusted to have done so.
impl<'de> Deserialize<'de> for ShownLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Self::new(&text))
    }
}
