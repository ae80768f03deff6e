//! Pinned directories: the directory in which a run starts, and those that each `cd` of the line
//! enters.

use std::os::unix::fs::MetadataExt;

use crate::identity::Drift;
use crate::paths;
use crate::run_plan::PinnedDirectory;

impl PinnedDirectory {
    /// Pins a directory in its present state. `requested` must be absolute.
    pub fn of(requested: &str) -> Result<Self, Drift> {
        let canonical =
            std::fs::canonicalize(requested).map_err(|error| Drift::of(requested, &error))?;
        let Some(canonical) = canonical.to_str().map(str::to_owned) else {
            return Err(Drift::Unreadable {
                path: requested.to_owned(),
                reason: "its path is not valid UTF-8".to_owned(),
            });
        };
        let metadata =
            std::fs::metadata(&canonical).map_err(|error| Drift::of(requested, &error))?;
        if !metadata.is_dir() {
            return Err(Drift::Unreadable {
                path: requested.to_owned(),
                reason: "it is not a directory".to_owned(),
            });
        }
        Ok(Self {
            requested: requested.to_owned(),
            canonical,
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }

    /// Pins the directory that `cd target` enters from the directory `from`, in its present state.
    pub fn entered(from: &str, target: &str) -> Result<Self, Drift> {
        match Self::path_of_entered(from, target) {
            Some(requested) => Self::of(&requested),
            None => Err(Drift::Gone(target.to_owned())),
        }
    }

    /// The absolute path that `cd target` leads to from `from`. The file system resolves `..`
    /// later.
    pub fn path_of_entered(from: &str, target: &str) -> Option<String> {
        paths::join(from, target)
    }

    /// Checks that the requested path still leads to the same directory.
    pub fn check(&self) -> Result<(), Drift> {
        let now = Self::of(&self.requested)?;
        if now.canonical != self.canonical {
            return Err(Drift::Moved {
                path: self.requested.clone(),
                before: self.canonical.clone(),
                now: now.canonical,
            });
        }
        if (now.device, now.inode) != (self.device, self.inode) {
            return Err(Drift::Replaced(self.requested.clone()));
        }
        Ok(())
    }
}
