//! Reads and writes the small files of a control group.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::GroupError;

/// How deep below a group to look. A run that nests deeper is still ended as a whole by the kernel;
/// only listing and removing it need this.
const DEEPEST: usize = 32;

impl GroupError {
    pub(super) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            doing,
            path,
            source,
        }
    }
}

/// Writes one value into one file, in a single write, as the kernel requires. This creates no file:
/// a missing file means that this kernel does not offer the setting.
pub(super) fn write(directory: &Path, file: &str, value: &str) -> Result<(), GroupError> {
    let path = directory.join(file);
    open(&path)
        .and_then(|mut file| file.write_all(value.as_bytes()))
        .map_err(GroupError::file("cannot write", &path))
}

/// Opens a file for writing. Programs do not inherit it.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).truncate(true).open(path)
}

pub(super) fn read(directory: &Path, file: &str) -> Result<String, GroupError> {
    let path = directory.join(file);
    fs::read_to_string(&path).map_err(GroupError::file("cannot read", &path))
}

/// Returns the number after a word, from a file with lines of both.
pub(super) fn number(directory: &Path, file: &str, word: &str) -> Option<u64> {
    let text = fs::read_to_string(directory.join(file)).ok()?;
    text.lines().find_map(|line| {
        let (first, rest) = line.split_once(' ')?;
        (first == word).then(|| rest.trim().parse().ok()).flatten()
    })
}

/// Returns the number that is the whole content of a file.
pub(super) fn single_number(directory: &Path, file: &str) -> Option<u64> {
    let text = fs::read_to_string(directory.join(file)).ok()?;
    text.trim().parse().ok()
}

/// Returns the processes of a group and of all groups below it. A group that does not exist has
/// none. Processes of other PID namespaces, which have no number here, are omitted.
pub(super) fn members(directory: &Path) -> Result<Vec<i32>, GroupError> {
    let mut all = Vec::new();
    for place in below(directory).into_iter().chain([directory.to_owned()]) {
        match read(&place, "cgroup.procs") {
            Ok(text) => {
                let pids = text.lines().filter_map(|line| line.parse::<i32>().ok());
                all.extend(pids.filter(|pid| *pid > 0));
            }
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

impl GroupError {
    /// Whether the group was removed, before or while it was read.
    pub(super) fn is_gone(&self) -> bool {
        self.errno()
            .is_some_and(|errno| matches!(errno, Errno::NOENT | Errno::NODEV))
    }

    pub(super) fn errno(&self) -> Option<Errno> {
        match self {
            Self::File { source, .. } => Errno::from_io_error(source),
            _ => None,
        }
    }
}

/// Returns the groups below this one, deepest first.
pub(super) fn below(directory: &Path) -> Vec<PathBuf> {
    fn walk(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) {
        for child in children(directory) {
            if depth < DEEPEST {
                walk(&child, depth + 1, found);
            }
            found.push(child);
        }
    }
    let mut found = Vec::new();
    walk(directory, 0, &mut found);
    found
}

/// Returns the subdirectories of this directory, or none if it cannot be read.
pub(super) fn children(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Removes a group and those below it, if all of them are empty. Succeeds also if it is already
/// gone.
pub(super) fn remove_tree(directory: &Path) -> Result<(), GroupError> {
    for place in below(directory).into_iter().chain([directory.to_owned()]) {
        match fs::remove_dir(&place) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(GroupError::file("cannot remove", &place)(error)),
        }
    }
    Ok(())
}

/// Returns the name of a directory, if it is valid UTF-8.
pub(super) fn file_name(path: &Path) -> Option<&str> {
    path.file_name().and_then(OsStr::to_str)
}

/// Describes the system's error in plain words.
pub(super) fn words(error: &io::Error) -> String {
    let words = match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NODEV) => "there is no such group or file",
        Some(Errno::ACCESS | Errno::PERM) => "not permitted",
        Some(Errno::ROFS) => "mounted read-only",
        Some(Errno::BUSY | Errno::NOTEMPTY) => "in use",
        Some(Errno::EXIST) => "already there",
        Some(Errno::AGAIN) => "the limit of groups or processes is reached",
        Some(Errno::INVAL) => "the kernel refuses the value",
        Some(Errno::OPNOTSUPP) => "not possible in a group of this type",
        _ => return error.to_string(),
    };
    words.to_owned()
}
