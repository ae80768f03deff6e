//! Expands a glob like bash with its default options, with two differences: the order is always
//! that of the bytes, and a character is always a Unicode scalar value, regardless of the locale.
//! So the same line expands equally for every caller.

mod matcher;

use crate::errors::{is_unreachable, reason};
use crate::ownership::visible;
use crate::paths;
use interlock_programs::{Glob, GlobBudget, GlobError, GlobToken};
use matcher::ComponentMatcher;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Opens a directory as a starting point, which needs no permission to list it.
#[cfg(any(target_os = "linux", target_os = "android"))]
const STAND: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const STAND: OFlags = LIST;

const LIST: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// The existing paths that match `glob`, sorted by bytes; empty if there is none.
///
/// A directory that cannot be listed or reached counts as empty, as for a shell. Any other system
/// error is an error here, because an incomplete list must not pass for a complete one.
pub(crate) fn expand(
    glob: &Glob,
    cwd: &str,
    budget: &mut GlobBudget,
) -> Result<Vec<String>, GlobError> {
    if glob.tokens.is_empty() || glob.tokens.contains(&GlobToken::Literal('\0')) {
        return Ok(Vec::new());
    }
    let pattern = Pattern::new(&glob.tokens);
    let stand = if pattern.prefix.starts_with('/') {
        None
    } else {
        Some(stand_in(cwd)?)
    };
    let base = stand.as_ref().map_or(CWD, OwnedFd::as_fd);
    let mut results = pattern.paths(base, budget)?;
    results.sort_unstable();
    Ok(results)
}

fn stand_in(cwd: &str) -> Result<OwnedFd, GlobError> {
    if !paths::is_absolute(cwd) {
        return Err(GlobError::Unreadable {
            path: visible(cwd.as_bytes()),
            reason: "it is not an absolute path".to_owned(),
        });
    }
    rustix::fs::open(cwd, STAND, Mode::empty()).map_err(|error| unreadable(cwd.as_bytes(), error))
}

/// A glob, divided into parts that need a listing and literal parts.
struct Pattern {
    /// The literal text before the first component that needs a listing, with slashes as written.
    prefix: String,
    steps: Vec<GlobStep>,
}

/// One component that needs a listing, and the literal text up to the next one. As in bash, several
/// slashes in that text become one. In all steps but the last, the text ends with a slash.
struct GlobStep {
    matcher: ComponentMatcher,
    tail: String,
}

impl Pattern {
    fn new(tokens: &[GlobToken]) -> Self {
        let mut pattern = Self {
            prefix: String::new(),
            steps: Vec::new(),
        };
        let mut components = tokens
            .split(|token| *token == GlobToken::Literal('/'))
            .peekable();
        while let Some(component) = components.next() {
            let slash = if components.peek().is_some() { "/" } else { "" };
            match (literal(component), pattern.steps.last_mut()) {
                (Some(text), None) => pattern.prefix.extend([text.as_str(), slash]),
                (Some(text), Some(_)) if text.is_empty() => {}
                (Some(text), Some(step)) => step.tail.extend([text.as_str(), slash]),
                (None, _) => pattern.steps.push(GlobStep {
                    matcher: ComponentMatcher::new(component),
                    tail: slash.to_owned(),
                }),
            }
        }
        pattern
    }

    /// Expands depth first with an explicit stack, so that neither the pattern nor the tree can
    /// exhaust the call stack.
    fn paths(
        &self,
        base: BorrowedFd<'_>,
        budget: &mut GlobBudget,
    ) -> Result<Vec<String>, GlobError> {
        if self.steps.is_empty() {
            let exists = exists(base, self.prefix.as_bytes())?;
            if exists {
                budget.take_path()?;
            }
            return Ok(exists.then(|| self.prefix.clone()).into_iter().collect());
        }
        let mut results = Vec::new();
        let mut pending = vec![(self.prefix.clone().into_bytes(), 0)];
        while let Some((directory, index)) = pending.pop() {
            let GlobStep { matcher, tail } = &self.steps[index];
            let is_last = index + 1 == self.steps.len();
            for name in list(base, &directory, matcher, tail, budget)? {
                budget.take_bytes(directory.len() + name.len() + tail.len())?;
                let path = [&directory, &name, tail.as_bytes()].concat();
                if !is_last {
                    pending.push((path, index + 1));
                    continue;
                }
                if tail.is_empty() || exists(base, &path)? {
                    budget.take_path()?;
                    results.push(String::from_utf8(path).map_err(|_| GlobError::NotUtf8)?);
                }
            }
        }
        Ok(results)
    }
}

/// The text of a component; `None` if it contains wildcards.
fn literal(component: &[GlobToken]) -> Option<String> {
    component
        .iter()
        .map(|token| match token {
            GlobToken::Literal(character) => Some(*character),
            GlobToken::Star | GlobToken::Any | GlobToken::Set { .. } => None,
        })
        .collect()
}

/// The matching names in `directory`. With a `tail`, only names that may be directories.
fn list(
    base: BorrowedFd<'_>,
    directory: &[u8],
    matcher: &ComponentMatcher,
    tail: &str,
    budget: &mut GlobBudget,
) -> Result<Vec<Vec<u8>>, GlobError> {
    let path = if directory.is_empty() {
        b"."
    } else {
        directory
    };
    let opened = rustix::fs::openat(base, path, LIST, Mode::empty()).and_then(Dir::new);
    let entries = match opened {
        Ok(entries) => entries,
        Err(error) if is_unreachable(error) => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(path, error)),
    };
    let mut names = Vec::new();
    let mut characters = Vec::new();
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            // The directory was removed while it was listed.
            Err(Errno::NOENT) => break,
            Err(error) => return Err(unreadable(path, error)),
        };
        budget.take_name()?;
        let name = entry.file_name().to_bytes();
        let may_be_directory = matches!(
            entry.file_type(),
            FileType::Directory | FileType::Symlink | FileType::Unknown
        );
        if !matches!(name, b"." | b"..")
            && (tail.is_empty() || may_be_directory)
            && matcher.matches(name, &mut characters)
        {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Whether a path exists. A dangling link does, unless a slash follows it.
fn exists(base: BorrowedFd<'_>, path: &[u8]) -> Result<bool, GlobError> {
    match rustix::fs::statat(base, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(error) if is_unreachable(error) => Ok(false),
        Err(error) => Err(unreadable(path, error)),
    }
}

fn unreadable(path: &[u8], error: Errno) -> GlobError {
    GlobError::Unreadable {
        path: visible(path),
        reason: reason(error),
    }
}
