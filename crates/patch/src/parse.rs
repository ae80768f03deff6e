//! Parses text into a [`Patch`].
//!
//! The outside is parsed tolerantly (blank lines, padded markers, a heredoc around the whole), the
//! inside strictly: a line that does not fit is an error with its line number, never a guess.

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use crate::patch::{
    ADD_FILE, BEGIN_PATCH, DELETE_FILE, END_OF_FILE, END_PATCH, HUNK, Hunk, HunkLine, HunkPosition,
    MOVE_TO, Operation, Patch, UPDATE_FILE,
};

/// The longest patch text that is parsed, in bytes.
pub const MAX_PATCH_BYTES: usize = 16 * 1024 * 1024;

impl Patch {
    /// Parses a patch. Never panics, whatever the text is.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if text.len() > MAX_PATCH_BYTES {
            return Err(ParseError::new(
                0,
                PatchProblem::TooLarge { bytes: text.len() },
            ));
        }
        let lines: Vec<&str> = text
            .trim_start_matches('\u{feff}')
            .split('\n')
            .map(|line| line.trim_end_matches('\r'))
            .collect();
        let body = envelope(&lines)?;
        let mut parser = Parser {
            lines: &lines[..body.end],
            next: body.start,
        };
        let mut operations = Vec::new();
        while let Some(operation) = parser.operation()? {
            operations.push(operation);
        }
        if operations.is_empty() {
            return Err(ParseError::new(body.start, PatchProblem::NoOperations));
        }
        Ok(Self { operations })
    }
}

/// Why a text is not a patch, and where the problem is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}{}", self.place())]
pub struct ParseError {
    line: usize,
    path: Option<String>,
    hunk: Option<usize>,
    problem: PatchProblem,
}

impl ParseError {
    fn new(line: usize, problem: PatchProblem) -> Self {
        Self {
            line,
            path: None,
            hunk: None,
            problem,
        }
    }

    /// Returns the stable name of the error.
    pub fn code(&self) -> &'static str {
        match self.problem {
            PatchProblem::TooLarge { .. } => "PATCH_TOO_LARGE",
            _ => "PATCH_PARSE",
        }
    }

    /// Returns the line of the patch text, counted from 1, unless the error is about the whole
    /// text.
    pub fn line(&self) -> Option<usize> {
        (self.line > 0).then_some(self.line)
    }

    /// Returns the file whose operation is wrong.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns the hunk of that file, counted from 1.
    pub fn hunk(&self) -> Option<usize> {
        self.hunk
    }

    fn place(&self) -> String {
        let mut parts = Vec::new();
        if let Some(line) = self.line() {
            parts.push(format!("patch line {line}"));
        }
        if let Some(path) = &self.path {
            parts.push(format!("file `{path}`"));
        }
        if let Some(hunk) = self.hunk {
            parts.push(format!("hunk {hunk}"));
        }
        if parts.is_empty() {
            String::new()
        } else {
            format!(" ({})", parts.join(", "))
        }
    }
}

impl Serialize for ParseError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("ParseError", 5)?;
        out.serialize_field("code", self.code())?;
        out.serialize_field("message", &self.to_string())?;
        out.serialize_field("path", &self.path)?;
        out.serialize_field("hunk", &self.hunk)?;
        out.serialize_field("patchLine", &self.line())?;
        out.end()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum PatchProblem {
    #[error("the patch has {bytes} bytes, more than the {MAX_PATCH_BYTES} that are read")]
    TooLarge { bytes: usize },
    #[error("the patch is empty")]
    Empty,
    #[error("the first line must be `{BEGIN_PATCH}`, found `{found}`")]
    MissingBegin { found: String },
    #[error("the last line must be `{END_PATCH}`, found `{found}`")]
    MissingEnd { found: String },
    #[error("the heredoc around the patch does not end with `{tag}`")]
    OpenHeredoc { tag: String },
    #[error("the patch names no file")]
    NoOperations,
    #[error("expected `{ADD_FILE}`, `{UPDATE_FILE}` or `{DELETE_FILE}`, found `{found}`")]
    UnknownOperation { found: String },
    #[error("`{marker}` cannot stand here")]
    Misplaced { marker: &'static str },
    #[error("the path is empty, ends with `/`, or holds a NUL character")]
    BadPath,
    #[error("every line of an added file starts with `+`, found `{found}`")]
    AddedLine { found: String },
    #[error("the update has neither hunks nor a new name")]
    EmptyUpdate,
    #[error("the hunk has no lines")]
    EmptyHunk,
    #[error("a line of a hunk starts with ` `, `-` or `+`, found `{found}`")]
    HunkLine { found: String },
    #[error("only another hunk or file may follow `{END_OF_FILE}`, found `{found}`")]
    AfterEndOfFile { found: String },
}

/// Returns the lines between the begin marker and the end marker, as indices into `lines`.
fn envelope(lines: &[&str]) -> Result<std::ops::Range<usize>, ParseError> {
    let filled = |index: &usize| !lines[*index].trim().is_empty();
    let mut first = (0..lines.len())
        .find(filled)
        .ok_or(ParseError::new(0, PatchProblem::Empty))?;
    let mut last = (first..lines.len()).rev().find(filled).unwrap_or(first);
    if let Some(tag) = heredoc_tag(lines[first].trim()) {
        if last == first || lines[last].trim() != tag {
            return Err(ParseError::new(
                last + 1,
                PatchProblem::OpenHeredoc {
                    tag: tag.to_owned(),
                },
            ));
        }
        first = (first + 1..last)
            .find(filled)
            .ok_or(ParseError::new(0, PatchProblem::Empty))?;
        last = (first..last).rev().find(filled).unwrap_or(first);
    }
    if lines[first].trim() != BEGIN_PATCH {
        return Err(ParseError::new(
            first + 1,
            PatchProblem::MissingBegin {
                found: shorten(lines[first]),
            },
        ));
    }
    if lines[last].trim() != END_PATCH {
        return Err(ParseError::new(
            last + 1,
            PatchProblem::MissingEnd {
                found: shorten(lines[last]),
            },
        ));
    }
    Ok(first + 1..last)
}

/// Returns the end word of `<<EOF`, `<<'EOF'` or `<<"EOF"`, possibly after the name of the tool.
fn heredoc_tag(line: &str) -> Option<&str> {
    let rest = ["apply_patch", "applypatch"]
        .iter()
        .find_map(|tool| line.strip_prefix(tool))
        .unwrap_or(line)
        .trim_start();
    let word = rest.strip_prefix("<<")?.trim_start();
    let tag = ['\'', '"']
        .iter()
        .find_map(|quote| word.strip_prefix(*quote)?.strip_suffix(*quote))
        .unwrap_or(word);
    let plain = |character: char| character.is_alphanumeric() || character == '_';
    (!tag.is_empty() && tag.chars().all(plain)).then_some(tag)
}

struct Parser<'a> {
    /// The text up to the end marker, without the marker.
    lines: &'a [&'a str],
    next: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.next).copied()
    }

    fn error(&self, problem: PatchProblem) -> ParseError {
        ParseError::new(self.next + 1, problem)
    }

    fn skip_blank(&mut self) {
        while self.peek().is_some_and(|line| line.trim().is_empty()) {
            self.next += 1;
        }
    }

    fn operation(&mut self) -> Result<Option<Operation>, ParseError> {
        self.skip_blank();
        let Some(line) = self.peek() else {
            return Ok(None);
        };
        let line = line.trim();
        let operation = if let Some(path) = line.strip_prefix(ADD_FILE) {
            let path = self.path(path)?;
            let lines = self.added_lines().map_err(|error| in_file(error, &path))?;
            Operation::Add { path, lines }
        } else if let Some(path) = line.strip_prefix(DELETE_FILE) {
            Operation::Delete {
                path: self.path(path)?,
            }
        } else if let Some(path) = line.strip_prefix(UPDATE_FILE) {
            let path = self.path(path)?;
            let (move_to, hunks) = self.update().map_err(|error| in_file(error, &path))?;
            Operation::Update {
                path,
                move_to,
                hunks,
            }
        } else {
            return Err(self.error(stray(line)));
        };
        Ok(Some(operation))
    }

    /// Returns the path after a marker, and moves to the next line.
    fn path(&mut self, text: &str) -> Result<String, ParseError> {
        let path = text.trim();
        if path.is_empty() || path.ends_with('/') || path.contains('\0') {
            return Err(self.error(PatchProblem::BadPath));
        }
        self.next += 1;
        Ok(path.to_owned())
    }

    fn added_lines(&mut self) -> Result<Vec<String>, ParseError> {
        let mut lines = Vec::new();
        while let Some(text) = self.peek().and_then(|line| line.strip_prefix('+')) {
            lines.push(text.to_owned());
            self.next += 1;
        }
        self.skip_blank();
        match self.peek() {
            Some(line) if !line.trim().starts_with("***") => {
                Err(self.error(PatchProblem::AddedLine {
                    found: shorten(line),
                }))
            }
            _ => Ok(lines),
        }
    }

    fn update(&mut self) -> Result<(Option<String>, Vec<Hunk>), ParseError> {
        let start = self.next;
        self.skip_blank();
        let mut move_to = None;
        if let Some(path) = self
            .peek()
            .and_then(|line| line.trim().strip_prefix(MOVE_TO))
        {
            move_to = Some(self.path(path)?);
        }
        let mut hunks = Vec::new();
        loop {
            self.skip_blank();
            let Some(line) = self.peek() else { break };
            if line.starts_with("***") || (hunks.is_empty() && opens_operation(line)) {
                break;
            }
            let number = hunks.len() + 1;
            let hunk = self.hunk(hunks.is_empty()).map_err(|error| ParseError {
                hunk: Some(number),
                ..error
            })?;
            hunks.push(hunk);
        }
        if hunks.is_empty() && move_to.is_none() {
            return Err(ParseError::new(start, PatchProblem::EmptyUpdate));
        }
        Ok((move_to, hunks))
    }

    /// Parses one hunk. Only the first hunk of a file may omit `@@`.
    fn hunk(&mut self, first_of_file: bool) -> Result<Hunk, ParseError> {
        let mut headers = Vec::new();
        let first_header = self.next + 1;
        while let Some(header) = self.peek().and_then(header) {
            if !header.is_empty() {
                headers.push(header.to_owned());
            }
            self.next += 1;
        }
        if self.next + 1 == first_header && !first_of_file {
            let found = shorten(self.peek().unwrap_or_default());
            return Err(self.error(PatchProblem::AfterEndOfFile { found }));
        }
        let first_line = self.next + 1;
        let mut lines = Vec::new();
        let mut bare_blanks_at_end = 0;
        let mut end_of_file = false;
        while let Some(line) = self.peek() {
            if line.trim_end() == END_OF_FILE {
                end_of_file = true;
                self.next += 1;
                break;
            }
            if line.starts_with("***") || header(line).is_some() {
                break;
            }
            let mut characters = line.chars();
            lines.push(match characters.next() {
                None => HunkLine::Context(String::new()),
                Some(' ') => HunkLine::Context(characters.as_str().to_owned()),
                Some('-') => HunkLine::Remove(characters.as_str().to_owned()),
                Some('+') => HunkLine::Add(characters.as_str().to_owned()),
                Some(_) => {
                    return Err(self.error(PatchProblem::HunkLine {
                        found: shorten(line),
                    }));
                }
            });
            bare_blanks_at_end = if line.is_empty() {
                bare_blanks_at_end + 1
            } else {
                0
            };
            self.next += 1;
        }
        // Empty lines after a hunk that only adds are layout of the patch. As context they would
        // move the addition to the first empty line of the file.
        let filled = lines.len() - bare_blanks_at_end;
        if lines[..filled]
            .iter()
            .all(|line| matches!(line, HunkLine::Add(_)))
        {
            lines.truncate(filled);
        }
        if lines.is_empty() {
            return Err(ParseError::new(first_header, PatchProblem::EmptyHunk));
        }
        Ok(Hunk {
            headers,
            lines,
            end_of_file,
            position: HunkPosition {
                first_header,
                first_line,
            },
        })
    }
}

/// Returns the text after `@@`, which may be empty, or `None` if the line is not a header.
fn header(line: &str) -> Option<&str> {
    let rest = line.trim_end().strip_prefix(HUNK)?;
    if rest.is_empty() {
        Some(rest)
    } else {
        rest.strip_prefix(' ')
    }
}

fn opens_operation(line: &str) -> bool {
    let line = line.trim();
    [ADD_FILE, DELETE_FILE, UPDATE_FILE]
        .iter()
        .any(|marker| line.starts_with(marker))
}

fn stray(line: &str) -> PatchProblem {
    [BEGIN_PATCH, END_PATCH, MOVE_TO, END_OF_FILE]
        .into_iter()
        .find(|marker| line.starts_with(marker))
        .map_or_else(
            || PatchProblem::UnknownOperation {
                found: shorten(line),
            },
            |marker| PatchProblem::Misplaced { marker },
        )
}

fn in_file(error: ParseError, path: &str) -> ParseError {
    ParseError {
        path: Some(path.to_owned()),
        ..error
    }
}

/// Shortens a line for a message.
pub(crate) fn shorten(line: &str) -> String {
    const SHOWN: usize = 120;
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests;
