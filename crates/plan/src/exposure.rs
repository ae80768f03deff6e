//! Which account could interfere between a check and a use: which parts of a path the running user,
//! or any account but root, could change.

use rustix::io::Errno;

use crate::paths;
use crate::walk::walk;

/// What could change about the file that a path leads to. For root everything could.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Nothing: neither the file nor where the path leads.
    None,
    /// What is in the file, but not which file it is.
    Content,
    /// Which file it is.
    Way,
}

impl Exposure {
    /// The exposure of the file at an absolute path. In doubt, all is exposed.
    pub fn of_file(path: &str) -> Self {
        match walk(path) {
            Ok(walk) if walk.open_way.is_some() => Self::Way,
            Ok(walk) if walk.open_content => Self::Content,
            Ok(_) => Self::None,
            Err(_) => Self::Way,
        }
    }

    /// Whether something could appear at a path where nothing is.
    pub fn of_empty_place(path: &str) -> Self {
        let mut place = path;
        // The deepest directory that is there decides.
        while let Some((above, _)) = place.rsplit_once('/') {
            let directory = if above.is_empty() { "/" } else { above };
            match walk(directory) {
                Ok(walk) if walk.open_way.is_none() && !walk.open_content => return Self::None,
                Err(Errno::NOENT) if directory != "/" => place = above,
                _ => return Self::Way,
            }
        }
        Self::Way
    }

    /// Whether a name that is looked up in the directories of `search_path` could lead elsewhere
    /// than to `found`: something could appear in an earlier one.
    pub fn of_look_up(name: &str, found: &str, search_path: &str) -> Self {
        for directory in search_path.split(':') {
            let Some(place) = paths::join(directory, name).filter(|_| directory.starts_with('/'))
            else {
                return Self::Way;
            };
            if place == found {
                return Self::None;
            }
            if Self::of_empty_place(&place) != Self::None {
                return Self::Way;
            }
        }
        Self::Way
    }
}
