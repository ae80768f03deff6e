//! The content of a patch, and how it is printed again.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::paths;

/// A parsed patch: at least one operation, each with a usable path.
///
/// Only [`Patch::parse`] creates one, so the parser's guarantees hold for every value. Printing a
/// patch and parsing the text again gives an equal patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    pub(crate) operations: Vec<Operation>,
}

impl Patch {
    /// Returns the operations in the order of the text.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Returns every path that the patch names, absolute and without `.` and `..`, each once, in
    /// order of appearance.
    ///
    /// A policy judges these paths before [`apply`](crate::apply), which resolves the names in
    /// exactly the same way. Links are not followed here, and a path may lie outside of `root`.
    pub fn target_paths(&self, root: &Path) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for operation in &self.operations {
            for name in [Some(operation.path()), operation.move_to()]
                .into_iter()
                .flatten()
            {
                let path = paths::absolute(root, name);
                if seen.insert(path.clone()) {
                    found.push(path);
                }
            }
        }
        found
    }
}

/// One file operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// `*** Add File:`: a new file with these lines, each ended by a newline.
    Add { path: String, lines: Vec<String> },
    /// `*** Delete File:`
    Delete { path: String },
    /// `*** Update File:`, possibly with `*** Move to:`. Without hunks, the operation only renames
    /// the file.
    Update {
        path: String,
        move_to: Option<String>,
        hunks: Vec<Hunk>,
    },
}

impl Operation {
    /// Returns the file from which the operation starts, as written in the patch.
    pub fn path(&self) -> &str {
        match self {
            Self::Add { path, .. } | Self::Delete { path } | Self::Update { path, .. } => path,
        }
    }

    /// Returns the new name of an updated file, as written in the patch.
    pub fn move_to(&self) -> Option<&str> {
        match self {
            Self::Update { move_to, .. } => move_to.as_deref(),
            Self::Add { .. } | Self::Delete { .. } => None,
        }
    }
}

/// One place in a file, and the changes there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// The texts after `@@`: lines of the file before the change, each searched after the one
    /// before it.
    pub headers: Vec<String>,
    /// Context, removed and added lines; never empty.
    pub lines: Vec<HunkLine>,
    /// `*** End of File`: whether the lines must be at the very end of the file.
    pub end_of_file: bool,
    pub(crate) position: HunkPosition,
}

/// A line of a hunk without its first character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HunkLine {
    Context(String),
    Remove(String),
    Add(String),
}

/// The position of a hunk in the patch text, for messages. All positions are equal, so that patches
/// with the same content are equal.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HunkPosition {
    /// The line number of the first header, or of the first line if there is no header.
    pub(crate) first_header: usize,
    /// The line number of the first of `lines`.
    pub(crate) first_line: usize,
}

impl PartialEq for HunkPosition {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for HunkPosition {}

impl fmt::Display for Patch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{BEGIN_PATCH}")?;
        for operation in &self.operations {
            write!(out, "{operation}")?;
        }
        writeln!(out, "{END_PATCH}")
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { path, lines } => {
                writeln!(out, "{ADD_FILE} {path}")?;
                lines.iter().try_for_each(|line| writeln!(out, "+{line}"))
            }
            Self::Delete { path } => writeln!(out, "{DELETE_FILE} {path}"),
            Self::Update {
                path,
                move_to,
                hunks,
            } => {
                writeln!(out, "{UPDATE_FILE} {path}")?;
                if let Some(target) = move_to {
                    writeln!(out, "{MOVE_TO} {target}")?;
                }
                hunks.iter().try_for_each(|hunk| write!(out, "{hunk}"))
            }
        }
    }
}

impl fmt::Display for Hunk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.headers.is_empty() {
            writeln!(out, "{HUNK}")?;
        }
        for header in &self.headers {
            writeln!(out, "{HUNK} {header}")?;
        }
        for line in &self.lines {
            match line {
                HunkLine::Context(text) => writeln!(out, " {text}")?,
                HunkLine::Remove(text) => writeln!(out, "-{text}")?,
                HunkLine::Add(text) => writeln!(out, "+{text}")?,
            }
        }
        if self.end_of_file {
            writeln!(out, "{END_OF_FILE}")?;
        }
        Ok(())
    }
}

// The words of the format, shared by the printer and the parser.
pub(crate) const BEGIN_PATCH: &str = "*** Begin Patch";
pub(crate) const END_PATCH: &str = "*** End Patch";
pub(crate) const ADD_FILE: &str = "*** Add File:";
pub(crate) const DELETE_FILE: &str = "*** Delete File:";
pub(crate) const UPDATE_FILE: &str = "*** Update File:";
pub(crate) const MOVE_TO: &str = "*** Move to:";
pub(crate) const END_OF_FILE: &str = "*** End of File";
pub(crate) const HUNK: &str = "@@";
