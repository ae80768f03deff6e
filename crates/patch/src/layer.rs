//! Reads what a run left in its layer: the upper directory of an overlay, in the format of the
//! kernel. The run never sees this directory, and no process of the run is alive when it is read.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// One name in a layer.
#[derive(Debug)]
pub(crate) struct LayerEntry {
    pub(crate) kind: LayerKind,
    /// The file from which the entry was copied when the run first changed it.
    pub(crate) origin: LayerOrigin,
    pub(crate) metadata: Metadata,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayerKind {
    File,
    Link,
    Directory {
        /// Whether the directory hides what the workspace has under the name.
        is_opaque: bool,
    },
    /// The run removed what the workspace has under the name.
    Whiteout,
    /// A pipe, socket or device, which is never committed.
    Other,
}

/// The file of the workspace from which an entry was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LayerOrigin {
    /// The run created the entry itself, or the kernel recorded no origin.
    None,
    /// The entry was copied, but the file system has no handles that identify the original.
    Unknown,
    /// The words of the file's handle, which contain its inode number.
    Handle(Vec<u32>),
}

/// Attributes of an overlay that is mounted with `userxattr`.
const OPAQUE: &str = "user.overlay.opaque";
const ORIGIN: &str = "user.overlay.origin";

/// Version, magic number, length, flags and type of a handle, and the id of its file system.
const HANDLE_HEADER: usize = 5 + 16;
const HANDLE_MAGIC: u8 = 0xfb;

impl LayerEntry {
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::symlink_metadata(path)?;
        let file_type = metadata.file_type();
        let kind = if file_type.is_dir() {
            let opaque = attribute(path, OPAQUE)?;
            LayerKind::Directory {
                is_opaque: opaque.as_deref() == Some(b"y"),
            }
        } else if file_type.is_file() {
            LayerKind::File
        } else if file_type.is_symlink() {
            LayerKind::Link
        } else if file_type.is_char_device() && metadata.rdev() == 0 {
            LayerKind::Whiteout
        } else {
            LayerKind::Other
        };
        let origin = match kind {
            LayerKind::File | LayerKind::Directory { .. } => LayerOrigin::read(path)?,
            _ => LayerOrigin::None,
        };
        Ok(Self {
            kind,
            origin,
            metadata,
        })
    }

    pub(crate) fn permissions(&self) -> u32 {
        self.metadata.mode() & 0o777
    }
}

impl LayerOrigin {
    fn read(path: &Path) -> io::Result<Self> {
        let Some(bytes) = attribute(path, ORIGIN)? else {
            return Ok(Self::None);
        };
        let words = bytes.get(HANDLE_HEADER..).unwrap_or_default();
        if bytes.get(1) != Some(&HANDLE_MAGIC) || words.is_empty() {
            return Ok(Self::Unknown);
        }
        let words = words.chunks_exact(4);
        Ok(Self::Handle(
            words
                .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
                .collect(),
        ))
    }

    /// Whether the origin can be the file with this inode, as far as the handle says.
    #[allow(clippy::cast_possible_truncation)] // the handle holds the low half in a word of its own
    pub(crate) fn can_be(&self, inode: u64) -> bool {
        match self {
            Self::None | Self::Unknown => true,
            Self::Handle(words) => words.contains(&(inode as u32)),
        }
    }
}

fn attribute(path: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; 512];
    match rustix::fs::lgetxattr(path, name, value.as_mut_slice()) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the names in a directory of a layer, sorted.
pub(crate) fn names(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        names.push(PathBuf::from(entry?.file_name()));
    }
    names.sort();
    Ok(names)
}

/// Opens a regular file of a layer.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Returns the content of a file of a layer, or the target of a link. A content longer than the
/// limit is an error.
pub(crate) fn content(path: &Path, kind: LayerKind, limit: u64) -> io::Result<Vec<u8>> {
    if kind == LayerKind::Link {
        return Ok(std::fs::read_link(path)?.into_os_string().into_vec());
    }
    let mut bytes = Vec::new();
    open(path)?
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}
