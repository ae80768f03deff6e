//! Finds the arguments of a command that can name a file, for entries with `paths`.
//!
//! If a program has a row, the row lists what it allows. An option that is not listed is refused,
//! including abbreviated long options: it may name a file, start a program or write. Without a row,
//! everything that could be a path counts as one.

mod awk;
mod directories;
mod filters;
mod find;
mod git;
mod git_lists;
mod parse;
mod placement;
mod programs;
mod small;
mod unknown;
mod versions;

use parse::ArgumentRow;
pub use placement::{FilePlacement, file_placement};
pub use versions::version_calls;

/// What a command does with files, as far as its arguments say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUse<'a> {
    pub operands: Vec<FileOperand<'a>>,
    /// Whether the program reads its working directory, whatever its arguments name.
    pub reads_cwd: bool,
    /// Whether the program looks for a git repository, from the working directory upwards.
    pub reads_repository: bool,
    /// The directory for the operands, if an option moves the program out of its working directory.
    pub directory: Option<FileOperand<'a>>,
    /// Whether the call only shows the version of the program itself.
    pub only_version: bool,
    /// Variables that keep the program from starting other programs, which its own settings may
    /// name.
    pub environment: Vec<(String, String)>,
}

/// An argument, or a part of one, that can name a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileOperand<'a> {
    /// The position in the argument vector; 0 is the program.
    pub index: usize,
    pub path: &'a str,
    pub wants: OperandKind,
}

/// What an operand may lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperandKind {
    Any,
    /// Not a directory, because links in it would be followed.
    NotDirectory,
}

/// An argument that no entry with `paths` covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedArgument {
    /// The position in the argument vector.
    pub index: usize,
    pub why: &'static str,
}

impl RefusedArgument {
    fn new(index: usize, why: &'static str) -> Self {
        Self { index, why }
    }
}

/// Reads an argument vector by the row of its program, or else as that of an unknown program.
///
/// The row is chosen by the name of the call. The entry must ensure that this name leads to the
/// intended program.
pub fn file_use(argv: &[String]) -> Result<FileUse<'_>, RefusedArgument> {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let Some(name) = words.first().and_then(|name| name.rsplit('/').next()) else {
        return Ok(FileUse::of(Vec::new()));
    };
    if let Some(environment) = versions::environment(name, &words) {
        return Ok(FileUse {
            environment,
            only_version: true,
            ..FileUse::of(Vec::new())
        });
    }
    match name {
        "git" => git::file_use(&words),
        "find" => find::file_use(&words),
        _ => match row(name) {
            Some(row) => row.file_use(&words, 1),
            None => unknown::file_use(name, &words),
        },
    }
}

/// Whether this program has its own row.
pub fn has_row(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    matches!(name, "git" | "find") || row(name).is_some()
}

fn row(name: &str) -> Option<&'static ArgumentRow> {
    let tables = [programs::ROWS, filters::ROWS, small::ROWS];
    let mut rows = tables.into_iter().flatten();
    rows.find(|row| row.names.contains(&name))
}

impl<'a> FileUse<'a> {
    fn of(operands: Vec<FileOperand<'a>>) -> Self {
        Self {
            operands,
            reads_cwd: false,
            reads_repository: false,
            directory: None,
            only_version: false,
            environment: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
