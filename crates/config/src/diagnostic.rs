//! Problems in a text, with their place and a hint, for syntax, schema and policy.

use std::fmt;
use std::ops::Range;

use crate::excerpt::{Excerpt, visible};

/// A problem in a text. Its `Display` reads like a compiler's message: the place, the message, the
/// source line with a caret, and a hint if there is one. Secrets in that line are masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The stable code for programs. The message may change, but the code must not.
    pub code: &'static str,
    pub message: String,
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1 in characters.
    pub column: usize,
    pub hint: Option<String>,
    excerpt: Box<Excerpt>,
}

impl Diagnostic {
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line, column) = (visible(&self.file), self.line, self.column);
        writeln!(f, "{file}:{line}:{column}: {}", self.message)?;
        self.excerpt.write(f, self.line)?;
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}

/// All problems of a text, in the order of the text. It must not be empty when used as an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n\n" };
            write!(f, "{separator}{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

/// A position in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1 in characters, as editors do.
    pub column: usize,
    /// The span in bytes.
    pub span: Range<usize>,
}

/// A named text that can turn byte offsets into lines and columns.
#[derive(Debug, Clone)]
pub(crate) struct SourceText {
    pub(crate) name: String,
    pub(crate) text: String,
    line_starts: Vec<usize>,
}

impl SourceText {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let bytes = text.as_bytes();
        let ends_line = |at: usize| match bytes[at] {
            b'\n' => true,
            b'\r' => bytes.get(at + 1) != Some(&b'\n'),
            _ => false,
        };
        let starts = (0..bytes.len())
            .filter(|at| ends_line(*at))
            .map(|at| at + 1);
        Self {
            name: name.to_owned(),
            text: text.to_owned(),
            line_starts: std::iter::once(0).chain(starts).collect(),
        }
    }

    pub(crate) fn position(&self, span: Range<usize>) -> Position {
        let line = self
            .line_starts
            .partition_point(|start| *start <= span.start);
        let line_start = self.line_starts[line - 1]; // at least one start is 0
        let column = self.text[line_start..span.start].chars().count() + 1;
        Position { line, column, span }
    }

    pub(crate) fn diagnostic(
        &self,
        span: Range<usize>,
        code: &'static str,
        message: String,
    ) -> Diagnostic {
        let Position { line, column, span } = self.position(span);
        let line_start = self.line_starts[line - 1];
        let line_text = self.text[line_start..]
            .split(['\n', '\r'])
            .next()
            .unwrap_or_default();
        let width = self.text
            [span.start..span.end.min(line_start + line_text.len()).max(span.start)]
            .chars()
            .count();
        Diagnostic {
            code,
            message,
            file: self.name.clone(),
            line,
            column,
            hint: None,
            excerpt: Box::new(Excerpt::new(line_text, column, width)),
        }
    }
}
