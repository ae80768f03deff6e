//! Finds the state directory, and checks whether it can be trusted.

use std::ffi::OsString;
use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The variables that determine the directory. The caller passes them, so that nothing here depends
/// on the environment of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateEnvironment {
    /// The value of `$INTERLOCK_STATE_DIR`.
    pub interlock_state_dir: Option<OsString>,
    /// The value of `$XDG_STATE_HOME`.
    pub xdg_state_home: Option<OsString>,
    /// The value of `$HOME`.
    pub home: Option<OsString>,
}

/// A state directory that exists, belongs to the running user, and is writable only by this user.
/// All trusted data is in it; separate directories are separate scopes of trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir {
    path: PathBuf,
}

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    #[error("no state directory: neither INTERLOCK_STATE_DIR, XDG_STATE_HOME nor HOME is set")]
    Unknown,
    #[error("state directory {} is not a directory", path.display())]
    NotADirectory { path: PathBuf },
    #[error("state directory {} belongs to user {owner}, not to user {user}", path.display())]
    ForeignOwner {
        path: PathBuf,
        owner: u32,
        user: u32,
    },
    #[error("state directory {} can be written by {writers} (mode {mode:04o})", path.display())]
    WritableByOthers {
        path: PathBuf,
        mode: u32,
        writers: &'static str,
    },
    #[error("failed to read state directory {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("failed to create state directory {}: {source}", path.display())]
    NotCreated { path: PathBuf, source: io::Error },
}

impl StateDirError {
    /// The stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown => "STATE_DIR_UNKNOWN",
            Self::NotADirectory { .. }
            | Self::ForeignOwner { .. }
            | Self::WritableByOthers { .. } => "STATE_DIR_UNSAFE",
            Self::Unreadable { .. } => "STATE_DIR_UNREADABLE",
            Self::NotCreated { .. } => "STATE_DIR_NOT_CREATED",
        }
    }

    /// The command that fixes the problem, or another remedy.
    pub fn remedy(&self) -> String {
        match self {
            Self::Unknown => "name one with --state-dir".to_owned(),
            // Do not suggest changing a file or a directory of another user.
            Self::NotADirectory { .. } => "name a directory with --state-dir".to_owned(),
            Self::ForeignOwner { owner, .. } => format!(
                "name a directory of your own with --state-dir, or call the program as its user: sudo -u '#{owner}' interlock status"
            ),
            // A parent directory is closed to this user, so changing the mode does not help.
            Self::Unreadable { path, source }
                if source.kind() == io::ErrorKind::PermissionDenied
                    && std::fs::metadata(path).is_err() =>
            {
                "name a directory of your own with --state-dir, or call the program as its owner"
                    .to_owned()
            }
            Self::WritableByOthers { path, .. } | Self::Unreadable { path, .. } => {
                format!("chmod 700 {}", shell_word(path))
            }
            Self::NotCreated { path, .. } => {
                let parent = path.parent().unwrap_or(path);
                format!(
                    "make {} writable, or name another directory with --state-dir",
                    shell_word(parent)
                )
            }
        }
    }
}

impl StateDir {
    /// Finds the directory by the explicit path or else by the environment, creates it if it is
    /// missing, and checks it.
    pub fn open(
        explicit: Option<&Path>,
        environment: &StateEnvironment,
    ) -> Result<Self, StateDirError> {
        let path = Self::locate(explicit, environment)?;
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(&path)?,
            _ => {}
        }
        let metadata = std::fs::metadata(&path).map_err(|source| StateDirError::Unreadable {
            path: path.clone(),
            source,
        })?;
        check(&path, &metadata)?;
        match std::fs::read_dir(&path) {
            Ok(_) => Ok(Self { path }),
            Err(source) => Err(StateDirError::Unreadable { path, source }),
        }
    }

    /// The absolute path of the directory, which may not exist. Nothing is created.
    pub fn locate(
        explicit: Option<&Path>,
        environment: &StateEnvironment,
    ) -> Result<PathBuf, StateDirError> {
        let set = |value: &Option<OsString>| {
            value
                .clone()
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let named = explicit
            .map(Path::to_path_buf)
            .or_else(|| set(&environment.interlock_state_dir));
        // The XDG specification requires that relative paths are ignored.
        let by_convention = || {
            let xdg = set(&environment.xdg_state_home).filter(|path| path.is_absolute());
            let home = set(&environment.home).filter(|path| path.is_absolute());
            xdg.map(|path| path.join("interlock"))
                .or_else(|| home.map(|path| path.join(".interlock")))
        };
        let path = named.or_else(by_convention).ok_or(StateDirError::Unknown)?;
        std::path::absolute(&path).map_err(|source| StateDirError::Unreadable { path, source })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The config file, unless another one is named.
    pub fn config_path(&self) -> PathBuf {
        self.path.join("interlock.json")
    }
}

fn create(path: &Path) -> Result<(), StateDirError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(|source| StateDirError::NotCreated {
        path: path.to_owned(),
        source,
    })
}

fn check(path: &Path, metadata: &Metadata) -> Result<(), StateDirError> {
    let path = path.to_owned();
    if !metadata.is_dir() {
        return Err(StateDirError::NotADirectory { path });
    }
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != user {
        return Err(StateDirError::ForeignOwner { path, owner, user });
    }
    let mode = metadata.mode() & 0o7777;
    let writers = match (mode & 0o020 != 0, mode & 0o002 != 0) {
        (false, false) => return Ok(()),
        (true, false) => "its group",
        (false, true) => "every user",
        (true, true) => "its group and every user",
    };
    Err(StateDirError::WritableByOthers {
        path,
        mode,
        writers,
    })
}

/// Quotes a path for a shell.
pub(crate) fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ',' | ':' | '@')
    };
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
