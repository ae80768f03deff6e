//! One line of a prompt.

use serde::{Deserialize, Deserializer, Serialize};

use super::hidden::is_hidden;
use super::render;

/// A text on one line, with everything that cannot be seen spelled out, line breaks too. Every
/// name, path and value that an agent controls reaches a prompt as this type, so that none of them
/// can begin a line or a field of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct ShownLine(String);

impl ShownLine {
    /// Spells out what cannot be seen. A second time changes nothing.
    pub fn new(text: &str) -> Self {
        Self(render(text, &[], is_hidden).0)
    }

    /// For text that was rendered by this crate already.
    pub(super) fn rendered(text: String) -> Self {
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Cut into rows of at most so many columns. A character that is not ASCII counts twice: some
    /// terminals draw it so wide. There is always a first row.
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

/// What another host sends is not believed to be visible.
impl<'de> Deserialize<'de> for ShownLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Self::new(&text))
    }
}
