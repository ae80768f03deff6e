//! Key paths: `tools.exec.safeBins`, `agents.list[0].tools.exec.node`, `agents["a.b"].x`.

use std::fmt;

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathSegment {
    Key(String),
    Index(usize),
}

/// The path of a value in a document. `Display` writes the form that `parse` reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyPath(Vec<PathSegment>);

/// The most segments of a path. The parser refuses deeper documents.
const MAX_SEGMENTS: usize = crate::json5::MAX_DEPTH;

/// Why a text is not a path. The column counts characters from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid key path `{}` at column {column}: {problem}",
    crate::excerpt::visible(path)
)]
pub struct KeyPathError {
    pub path: String,
    pub column: usize,
    pub problem: &'static str,
}

impl KeyPathError {
    pub fn code(&self) -> &'static str {
        "KEY_PATH_INVALID"
    }
}

impl KeyPath {
    /// The whole document.
    pub fn root() -> Self {
        Self::default()
    }

    pub fn parse(text: &str) -> Result<Self, KeyPathError> {
        PathReader { text, at: 0 }.path()
    }

    pub fn segments(&self) -> &[PathSegment] {
        &self.0
    }

    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.child(PathSegment::Key(key.to_owned()))
    }

    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.child(PathSegment::Index(index))
    }

    fn child(&self, segment: PathSegment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Self(segments)
    }
}

impl From<&[PathSegment]> for KeyPath {
    fn from(segments: &[PathSegment]) -> Self {
        Self(segments.to_vec())
    }
}

impl std::str::FromStr for KeyPath {
    type Err = KeyPathError;

    fn from_str(text: &str) -> Result<Self, KeyPathError> {
        Self::parse(text)
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                PathSegment::Index(index) => write!(f, "[{index}]")?,
                PathSegment::Key(key) if is_bare(key) && position == 0 => f.write_str(key)?,
                PathSegment::Key(key) if is_bare(key) => write!(f, ".{key}")?,
                PathSegment::Key(key) => write!(f, "[{}]", serde_json::Value::from(key.as_str()))?,
            }
        }
        Ok(())
    }
}

fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.chars().all(is_bare_character)
}

fn is_bare_character(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '$')
}

struct PathReader<'a> {
    text: &'a str,
    at: usize,
}

impl PathReader<'_> {
    fn path(mut self) -> Result<KeyPath, KeyPathError> {
        let mut segments = Vec::new();
        if self.text.is_empty() {
            return Err(self.error("the path is empty"));
        }
        while let Some(next) = self.peek() {
            if segments.len() == MAX_SEGMENTS {
                return Err(self.error("the path is too deep"));
            }
            let segment = match next {
                '[' => self.bracket()?,
                '.' if segments.is_empty() => return Err(self.error("a path begins with a key")),
                '.' => {
                    self.at += 1;
                    self.bare_key()?
                }
                _ if segments.is_empty() => self.bare_key()?,
                _ => return Err(self.error("expected `.` or `[` here")),
            };
            segments.push(segment);
        }
        Ok(KeyPath(segments))
    }

    fn bare_key(&mut self) -> Result<PathSegment, KeyPathError> {
        let rest = &self.text[self.at..];
        // `*` is a usual name for all agents and unambiguous, so it needs no quotes.
        let length = rest
            .find(|c| !(is_bare_character(c) || c == '*'))
            .unwrap_or(rest.len());
        if length == 0 {
            return Err(self.error("expected a key; quote unusual ones: [\"a.b\"]"));
        }
        self.at += length;
        Ok(PathSegment::Key(rest[..length].to_owned()))
    }

    fn bracket(&mut self) -> Result<PathSegment, KeyPathError> {
        self.at += 1;
        let segment = match self.peek() {
            Some('"') => self.double_quoted()?,
            Some('\'') => self.single_quoted()?,
            Some('0'..='9') => self.number()?,
            Some(_) => return Err(self.error("expected an index or a quoted key in the brackets")),
            None => return Err(self.error("the bracket is not closed")),
        };
        if self.peek() != Some(']') {
            return Err(self.error("expected `]` here"));
        }
        self.at += 1;
        Ok(segment)
    }

    fn number(&mut self) -> Result<PathSegment, KeyPathError> {
        let rest = &self.text[self.at..];
        let length = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let Ok(index) = rest[..length].parse() else {
            return Err(self.error("the index is too large"));
        };
        self.at += length;
        Ok(PathSegment::Index(index))
    }

    /// Reads a JSON string with escapes.
    fn double_quoted(&mut self) -> Result<PathSegment, KeyPathError> {
        let rest = &self.text[self.at..];
        let mut strings = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        let Some(Ok(key)) = strings.next() else {
            return Err(self.error("expected a quoted key such as [\"a.b\"]"));
        };
        self.at += strings.byte_offset();
        Ok(PathSegment::Key(key))
    }

    /// Reads a string in single quotes, which are convenient in shells. It has no escapes.
    fn single_quoted(&mut self) -> Result<PathSegment, KeyPathError> {
        let rest = &self.text[self.at + 1..];
        let Some(length) = rest.find('\'') else {
            return Err(self.error("the quote is not closed"));
        };
        self.at += length + 2;
        Ok(PathSegment::Key(rest[..length].to_owned()))
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn error(&self, problem: &'static str) -> KeyPathError {
        KeyPathError {
            path: self.text.to_owned(),
            column: self.text[..self.at].chars().count() + 1,
            problem,
        }
    }
}
