//! Where a path leads, even if nothing exists there; and the paths of a plan that must still lead
//! to the same place.

use interlock_programs::{Destination, DestinationKind};
use rustix::fs::FileType;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::identity::Drift;
use crate::paths;
use crate::walk::{file_type, is_same_file};

/// As many symbolic links as Linux follows in one lookup.
const MAX_LINKS: usize = 40;

/// Links below `/proc` lead to a different place for every process.
const PROCESSES: &[u8] = b"/proc";

/// Follows `path` from `cwd`. `None` for a path without a certain end: an unreadable directory, too
/// many links, `..` after a missing directory, anything beneath `/proc`.
pub(crate) fn destination(path: &str, cwd: &str) -> Option<Destination> {
    let found = paths::join(cwd, path)?;
    let mut pending: Vec<Vec<u8>> = Vec::new();
    put_in_front(&mut pending, found.as_bytes());
    let mut here = b"/".to_vec();
    let mut kind = DestinationKind::Directory;
    let mut last = rustix::fs::lstat("/").ok()?;
    let mut links = 0;
    while let Some(component) = pending.pop() {
        if kind == DestinationKind::File {
            // Also applies to the empty component after a final slash: `file/` is an error.
            return None;
        }
        match component.as_slice() {
            b"" | b"." => {}
            b".." if kind == DestinationKind::Missing => return None,
            b".." => {
                let parent = here.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                here.truncate(parent.max(1));
                last = rustix::fs::lstat(here.as_slice()).ok()?;
            }
            name => {
                let parent_length = here.len();
                if here.len() > 1 {
                    here.push(b'/');
                }
                here.extend_from_slice(name);
                if here == PROCESSES {
                    return None;
                }
                if kind == DestinationKind::Missing {
                    continue;
                }
                let next = match rustix::fs::lstat(here.as_slice()) {
                    Ok(next) => next,
                    Err(Errno::NOENT) => {
                        kind = DestinationKind::Missing;
                        continue;
                    }
                    Err(_) => return None,
                };
                if file_type(&next) != FileType::Symlink {
                    last = next;
                    kind = kind_of(file_type(&last));
                    continue;
                }
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                let target = rustix::fs::readlink(here.as_slice(), Vec::new()).ok()?;
                let target = target.into_bytes();
                if target.starts_with(b"/") {
                    here.truncate(1);
                } else {
                    here.truncate(parent_length);
                }
                put_in_front(&mut pending, &target);
            }
        }
    }
    // The kernel must come to the same result.
    match rustix::fs::stat(found.as_str()) {
        Ok(stat) if kind != DestinationKind::Missing && is_same_file(&stat, &last) => {}
        Err(Errno::NOENT) if kind == DestinationKind::Missing => {}
        _ => return None,
    }
    Some(Destination {
        found,
        canonical: String::from_utf8(here).ok()?,
        kind,
    })
}

fn kind_of(file: FileType) -> DestinationKind {
    if file == FileType::Directory {
        DestinationKind::Directory
    } else {
        DestinationKind::File
    }
}

fn put_in_front(pending: &mut Vec<Vec<u8>>, path: &[u8]) {
    pending.extend(path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec));
}

/// A path by which an entry was judged. The content of its target may change, but the path must
/// keep its target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PinnedPath {
    /// Absolute, as the command names it.
    pub found: String,
    pub canonical: String,
}

impl PinnedPath {
    /// Checks that the path still leads to the same place.
    pub fn check(&self) -> Result<(), Drift> {
        match destination(&self.found, "/") {
            Some(now) if now.canonical == self.canonical => Ok(()),
            Some(now) => Err(Drift::Moved {
                path: self.found.clone(),
                before: self.canonical.clone(),
                now: now.canonical,
            }),
            None => Err(Drift::Unreadable {
                path: self.found.clone(),
                reason: "where it leads cannot be followed".to_owned(),
            }),
        }
    }
}
