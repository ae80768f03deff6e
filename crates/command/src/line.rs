//! A plain line: text whose words, operators and redirections are all proven.

use interlock_programs::Glob;
use serde::Serialize;

use crate::Span;

/// Pipelines in the order written. `a && b &` puts the whole list that ends in
/// [`Connector::Background`] into the background, back to the last `;`, `&` or newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub pipelines: Vec<Pipeline>,
    /// Whether the line uses a form of bash that POSIX lacks (`$'…'`, `&>`, the keyword `time`).
    pub beyond_posix: bool,
}

impl Line {
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.pipelines
            .iter()
            .flat_map(|pipeline| &pipeline.segments)
    }

    /// Returns the length of the leading `cd X &&` chain: how many pipelines at the start only
    /// change the directory. A line may end with such a pipeline. A `cd` anywhere else does not
    /// count.
    pub fn leading_cd(&self) -> usize {
        self.pipelines
            .iter()
            .take_while(|pipeline| {
                matches!(pipeline.next, Connector::And | Connector::End)
                    && pipeline.timed.is_none()
                    && matches!(pipeline.segments.as_slice(), [only] if only.name() == "cd")
            })
            .count()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipeline {
    pub segments: Vec<Segment>,
    /// The keyword `time` before the pipeline.
    pub timed: Option<Timed>,
    pub next: Connector,
}

/// The keyword `time`, with or without `-p`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    pub posix_format: bool,
    pub span: Span,
}

/// The operator between a pipeline and the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Connector {
    #[serde(rename = "&&")]
    And,
    #[serde(rename = "||")]
    Or,
    /// `;` or a newline.
    #[serde(rename = ";")]
    Sequence,
    #[serde(rename = "&")]
    Background,
    #[serde(rename = "")]
    End,
}

/// One simple command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub assignments: Vec<Assignment>,
    /// The words, never empty. The first word is the command.
    pub words: Vec<Word>,
    pub redirections: Vec<Redirection>,
    pub span: Span,
}

impl Segment {
    pub fn name(&self) -> &str {
        self.words.first().map_or("", |word| word.text.as_str())
    }
}

/// `NAME=value` before a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub name: String,
    pub value: String,
    pub span: Span,
}

/// One word after quote removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    pub span: Span,
    /// Whether the word starts with an unquoted `~` for the home directory.
    pub tilde: bool,
    /// The glob, if the word contains an unquoted one. A leading tilde is not part of it.
    pub glob: Option<Glob>,
}

impl Word {
    /// Whether the word means exactly its text, with nothing to expand.
    pub fn is_literal(&self) -> bool {
        !self.tilde && self.glob.is_none()
    }
}

/// A redirection that touches no file but `/dev/null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Redirection {
    pub stream: Stream,
    pub target: Target,
    pub span: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    Stdin,
    Stdout,
    Stderr,
    /// `&>`: stdout and stderr.
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    Null,
    Stdout,
    Stderr,
}
