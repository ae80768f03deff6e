//! Reads and replaces settings files of other programs. Links are followed, owner and mode are
//! kept, and a file is never half written.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use interlock_console::Failure;

/// The largest file that is read.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// A settings file as it was found.
#[derive(Debug, Clone)]
pub struct FoundFile {
    /// The path that the agent program reads.
    pub path: PathBuf,
    /// The path of the file itself, with links resolved.
    pub target: PathBuf,
    /// `None` if the file does not exist.
    pub content: Option<Vec<u8>>,
    attributes: Option<FileAttributes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileAttributes {
    mode: u32,
    user: u32,
    group: u32,
}

impl FoundFile {
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let unreadable = |error: &io::Error| {
            let message = format!("failed to read {}: {error}", path.display());
            Failure::refused("SETTINGS_UNREADABLE", message)
        };
        let absent = Self {
            path: path.to_owned(),
            target: path.to_owned(),
            content: None,
            attributes: None,
        };
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The file does not exist, but a directory of its path may be a link.
                return Ok(Self {
                    target: through_links(path),
                    ..absent
                });
            }
            Err(error) => return Err(unreadable(&error)),
            Ok(_) => {}
        }
        let target = fs::canonicalize(path).map_err(|error| {
            unreadable(&error).with_hint("the link is broken: remove it, or create its target")
        })?;
        let metadata = fs::metadata(&target).map_err(|error| unreadable(&error))?;
        if !metadata.is_file() {
            return Err(unreadable(&io::Error::other("it is not a regular file")));
        }
        if metadata.len() > MAX_BYTES {
            let message = format!("it has more than {MAX_BYTES} bytes");
            return Err(unreadable(&io::Error::other(message)));
        }
        let mut content = Vec::new();
        File::open(&target)
            .and_then(|file| file.take(MAX_BYTES).read_to_end(&mut content))
            .map_err(|error| unreadable(&error))?;
        Ok(Self {
            target,
            content: Some(content),
            attributes: Some(FileAttributes {
                mode: metadata.mode() & 0o7777,
                user: metadata.uid(),
                group: metadata.gid(),
            }),
            ..absent
        })
    }

    /// Whether the path that the agent program reads is a link.
    pub fn is_linked(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.is_symlink())
    }

    /// The directories that must be created for the file, the outermost first.
    pub fn missing_directories(&self) -> Vec<PathBuf> {
        let parent = self.target.parent().unwrap_or(Path::new("/"));
        let missing = parent.ancestors().take_while(|path| !path.exists());
        let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        missing.reverse();
        missing
    }

    /// Replaces the file if it still has the found content. A missing file is created with its
    /// directories, with `new_mode` limited by the umask.
    pub fn replace(&self, content: &[u8], new_mode: u32) -> Result<(), Failure> {
        let unwritable = |error: &io::Error| {
            let message = format!("failed to write {}: {error}", self.target.display());
            Failure::refused("SETTINGS_UNWRITABLE", message)
        };
        if Self::read(&self.path)?.content != self.content {
            let message = format!("{} was changed meanwhile", self.target.display());
            return Err(Failure::refused("SETTINGS_CHANGED", message).with_hint("try again"));
        }
        for directory in self.missing_directories() {
            fs::create_dir(directory).map_err(|error| unwritable(&error))?;
        }
        self.write(content, new_mode)
            .map_err(|error| unwritable(&error))
    }

    fn write(&self, content: &[u8], new_mode: u32) -> io::Result<()> {
        let directory = self.target.parent().unwrap_or(Path::new("/"));
        let mode = self.attributes.map_or(new_mode, |_| 0o600);
        // The temporary file is removed if anything below fails.
        let mut file = tempfile::Builder::new()
            .prefix(".interlock-setup-")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(directory)?;
        file.write_all(content)?;
        if let Some(attributes) = self.attributes {
            let own = file.as_file().metadata()?;
            if (own.uid(), own.gid()) != (attributes.user, attributes.group) {
                std::os::unix::fs::fchown(
                    file.as_file(),
                    Some(attributes.user),
                    Some(attributes.group),
                )?;
            }
            let mode = Permissions::from_mode(attributes.mode);
            file.as_file().set_permissions(mode)?;
        }
        file.as_file().sync_all()?;
        file.persist(&self.target)?;
        File::open(directory)?.sync_all()
    }

    /// Removes a file that setup created, and those directories that setup created for it that are
    /// empty.
    pub fn remove(&self, directories: &[PathBuf]) -> Result<(), Failure> {
        fs::remove_file(&self.target).map_err(|error| {
            let message = format!("failed to remove {}: {error}", self.target.display());
            Failure::refused("SETTINGS_UNWRITABLE", message)
        })?;
        for directory in directories.iter().rev() {
            // A directory that is not empty stays.
            if fs::remove_dir(directory).is_err() {
                break;
            }
        }
        Ok(())
    }
}

/// The path of a file that does not exist, with the links of its nearest existing directory
/// resolved.
fn through_links(path: &Path) -> PathBuf {
    for directory in path.ancestors().skip(1) {
        if let (Ok(real), Ok(rest)) = (fs::canonicalize(directory), path.strip_prefix(directory)) {
            return real.join(rest);
        }
    }
    path.to_owned()
}
