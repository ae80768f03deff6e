//! What exists on disk under a name, and its content.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::ApplyError;
use crate::journal::hexadecimal;
use crate::tree::{Directory, DirectoryId};

#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundEntry {
    pub(crate) kind: FoundKind,
    pub(crate) device: u64,
    pub(crate) identity: FileIdentity,
    pub(crate) attributes: Attributes,
    /// How many names the file has.
    pub(crate) links: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoundKind {
    File,
    Link,
    Directory,
    Other,
}

/// Identifies an unchanged file. The device is left out because its number may change when the
/// machine restarts. The path identifies the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileIdentity {
    pub(crate) inode: u64,
    pub(crate) size: u64,
    modified_seconds: i64,
    modified_nanoseconds: i64,
}

/// The attributes that a new version of the file takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    pub(crate) group: u32,
}

impl From<&Stat> for FileIdentity {
    // The widths of these fields differ between machines.
    #[allow(
        clippy::useless_conversion,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        clippy::unnecessary_cast
    )]
    fn from(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino,
            size: stat.st_size as u64,
            modified_seconds: stat.st_mtime as i64,
            modified_nanoseconds: stat.st_mtime_nsec as i64,
        }
    }
}

impl From<&Stat> for FoundEntry {
    #[allow(clippy::useless_conversion)]
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            kind: match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => FoundKind::File,
                FileType::Symlink => FoundKind::Link,
                FileType::Directory => FoundKind::Directory,
                _ => FoundKind::Other,
            },
            identity: FileIdentity::from(stat),
            attributes: Attributes {
                mode: stat.st_mode & 0o7777,
                owner: stat.st_uid,
                group: stat.st_gid,
            },
            links: stat.st_nlink.into(),
        }
    }
}

impl FoundEntry {
    /// Returns the identity of the file, independent of its names.
    pub(crate) fn id(&self) -> DirectoryId {
        DirectoryId {
            device: self.device,
            inode: self.identity.inode,
        }
    }
}

/// Returns what exists under `name`, without following a link.
pub(crate) fn find(directory: &Directory, name: &OsStr) -> io::Result<Option<FoundEntry>> {
    Ok(directory.stat(name)?.as_ref().map(FoundEntry::from))
}

/// Opens the regular file `name`. Never follows a link, and never waits for a pipe.
pub(crate) fn open(directory: &Directory, name: &OsStr) -> io::Result<File> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(
        directory,
        name,
        flags,
        Mode::empty(),
    )?))
}

/// Reads a file that will be replaced. The file must still be the one that was found, and the user
/// must be able to write it.
pub(crate) fn read(
    directory: &Directory,
    name: &OsStr,
    found: &FoundEntry,
    shown: &str,
) -> Result<Vec<u8>, ApplyError> {
    let fail = |action| {
        move |error: io::Error| match Errno::from_io_error(&error) {
            // The file existed a moment ago and was not a link.
            Some(Errno::NOENT | Errno::LOOP) => ApplyError::Changed {
                path: shown.to_owned(),
            },
            _ => ApplyError::io(shown, action, error),
        }
    };
    match rustix::fs::accessat(directory, name, Access::WRITE_OK, AtFlags::EACCESS) {
        Ok(()) | Err(Errno::NOSYS) => {}
        Err(error) => return Err(fail("write")(error.into())),
    }
    let mut file = open(directory, name).map_err(fail("read"))?;
    let changed = |file: &File| -> Result<bool, ApplyError> {
        let stat = rustix::fs::fstat(file).map_err(|error| fail("read")(error.into()))?;
        Ok(FileIdentity::from(&stat) != found.identity)
    };
    if changed(&file)? {
        return Err(ApplyError::Changed {
            path: shown.to_owned(),
        });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(found.identity.size).unwrap_or_default());
    let limit = found.identity.size.saturating_add(1);
    (&mut file)
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(fail("read"))?;
    if bytes.len() as u64 != found.identity.size || changed(&file)? {
        return Err(ApplyError::Changed {
            path: shown.to_owned(),
        });
    }
    Ok(bytes)
}

/// Returns the number of lines and the hash of a file that will be deleted, for the summary, or 0
/// and `None` if the file cannot be read.
pub(crate) fn count_lines(
    directory: &Directory,
    name: &OsStr,
    kind: FoundKind,
) -> (usize, Option<String>) {
    let count = || -> io::Result<(usize, String)> {
        let mut file = open(directory, name)?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        let (mut lines, mut previous) = (0, b'\n');
        loop {
            let length = file.read(&mut buffer)?;
            if length == 0 {
                break;
            }
            hash.update(&buffer[..length]);
            for byte in &buffer[..length] {
                let ends_line = *byte == b'\r' || (*byte == b'\n' && previous != b'\r');
                lines += usize::from(ends_line);
                previous = *byte;
            }
        }
        let lines = lines + usize::from(!matches!(previous, b'\n' | b'\r'));
        Ok((lines, hexadecimal(&hash.finalize())))
    };
    // Only regular files are opened, because opening a pipe would wait for its writer.
    let counted = (kind == FoundKind::File).then(|| count().ok()).flatten();
    counted.map_or((0, None), |(lines, hash)| (lines, Some(hash)))
}

/// Returns when a file last changed, including its names and attributes, in nanoseconds.
#[allow(clippy::unnecessary_cast, clippy::cast_possible_wrap)] // the widths differ between machines
pub(crate) fn changed_ns(stat: &Stat) -> i64 {
    (stat.st_ctime as i64)
        .saturating_mul(1_000_000_000)
        .saturating_add(stat.st_ctime_nsec as i64)
}

/// Returns the target of a link.
pub(crate) fn link_target(directory: &Directory, name: &OsStr) -> io::Result<OsString> {
    let target = rustix::fs::readlinkat(directory, name, Vec::new())?;
    Ok(OsString::from_vec(target.into_bytes()))
}
