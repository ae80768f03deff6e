//! Which account could interfere between a check and a use: the parts of a path that the running
//! user, or any account but root, could change.

use rustix::io::Errno;

use crate::paths;
use crate::walk::walk;

/// What could change about the file at a path. Root could change everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Neither the file nor the path's target.
    None,
    /// The content of the file, but not which file it is.
    Content,
    /// Which file the path leads to.
    Way,
}

impl Exposure {
    /// The exposure of the file at an absolute path. When in doubt, everything is exposed.
    pub fn of_file(path: &str) -> Self {
        match walk(path) {
            Ok(walk) if walk.open_way.is_some() => Self::Way,
            Ok(walk) if walk.open_content => Self::Content,
            Ok(_) => Self::None,
            Err(_) => Self::Way,
        }
    }

    /// Whether something could appear at an empty place.
    pub fn of_empty_place(path: &str) -> Self {
        let mut place = path;
        // The deepest existing directory decides.
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

    /// Whether a lookup of `name` in the directories of `search_path` could lead to another file
    /// than `found`, because something could appear in an earlier directory.
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
