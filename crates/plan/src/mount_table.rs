//! Finds further paths of this host to a file or directory: through a second mount of its file
//! system, or a bind of a directory above or below it. A file that is only hidden by its path would
//! be visible through them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The mounts of this process's namespace, as listed in `/proc/self/mountinfo`.
#[derive(Debug, Clone, Default)]
pub struct MountTable(Vec<MountRow>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct MountRow {
    /// The major and minor number of the file system, as written.
    device: Vec<u8>,
    /// The part of the file system that the mount shows.
    root: PathBuf,
    point: PathBuf,
}

impl MountTable {
    /// Reads the table. It is empty if the system has none; then no further path is known.
    pub fn read() -> Self {
        Self::parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default())
    }

    fn parse(text: &[u8]) -> Self {
        let rows = text.split(|byte| *byte == b'\n').filter_map(|line| {
            let mut words = line.split(|byte| *byte == b' ').skip(2);
            Some(MountRow {
                device: words.next()?.to_vec(),
                root: unescaped(words.next()?),
                point: unescaped(words.next()?),
            })
        });
        Self(rows.collect())
    }

    /// Whether something is mounted below a directory.
    pub fn has_mount_below(&self, directory: &Path) -> bool {
        let is_below = |row: &MountRow| row.point != directory && row.point.starts_with(directory);
        self.0.iter().any(is_below)
    }

    /// Every other path by which the host shows this file or directory, or a part of it. `path`
    /// must be canonical.
    pub fn other_paths(&self, path: &Path) -> Vec<PathBuf> {
        let Some((own, inner)) = self.place_of(path) else {
            return Vec::new();
        };
        let identity = |path: &Path| {
            let found = std::fs::symlink_metadata(path).ok()?;
            Some((found.dev(), found.ino()))
        };
        let identity_of_path = identity(path);
        let mut found = Vec::new();
        for (index, row) in self.0.iter().enumerate() {
            if index == own || row.device != self.0[own].device {
                continue;
            }
            if let Ok(rest) = inner.strip_prefix(&row.root) {
                let other = joined(&row.point, rest);
                // Another mount may cover it.
                if other != path && identity(&other) == identity_of_path {
                    found.push(other);
                }
            } else if row.root.starts_with(&inner) {
                found.push(row.point.clone());
            }
        }
        found.sort();
        found.dedup();
        found
    }

    /// The mount that shows a path, and the path's place in its file system.
    fn place_of(&self, path: &Path) -> Option<(usize, PathBuf)> {
        let all = self.0.iter().enumerate();
        let fitting = all.filter(|(_, row)| path.starts_with(&row.point));
        let (index, row) =
            fitting.max_by_key(|(index, row)| (row.point.as_os_str().len(), *index))?;
        let rest = path.strip_prefix(&row.point).ok()?;
        Some((index, joined(&row.root, rest)))
    }
}

/// Joins two paths without a final `/`.
fn joined(directory: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() {
        directory.to_owned()
    } else {
        directory.join(rest)
    }
}

/// Decodes a word: the table writes spaces, tabs, line ends and backslashes as three octal digits.
fn unescaped(word: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let value = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match value {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_over_a_path_and_names_with_spaces_are_understood() {
        let table = MountTable::parse(
            b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
              2 1 8:2 / /home rw - ext4 /dev/b rw\n\
              3 1 8:2 /u/deep /srv/two\\040words\\012x rw - ext4 /dev/b rw\n\
              4 1 8:2 /u/state/keys /mnt/keys rw - ext4 /dev/b rw\n\
              5 1 8:3 /u/state /mnt/other rw - ext4 /dev/c rw\n",
        );
        let place = table.place_of(Path::new("/home/u/state")).unwrap();
        assert_eq!(place, (1, PathBuf::from("/u/state")));
        // A part of it is shown; another file system with the same names is not it.
        assert_eq!(
            table.other_paths(Path::new("/home/u/state")),
            [PathBuf::from("/mnt/keys")]
        );
        assert_eq!(table.0[2].point, PathBuf::from("/srv/two words\nx"));
        assert!(
            MountTable::default()
                .other_paths(Path::new("/x"))
                .is_empty()
        );
    }
}
