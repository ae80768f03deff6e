//! The config file: load it, and change it without losing another writer's change or leaving half a
//! file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::json5::{EditError, Json5Text, MAX_BYTES};
use crate::schema;
use crate::state::shell_word;
use crate::types::Config;

/// How long a writer waits for another one.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A config file that was read and found good.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    path: PathBuf,
    text: Json5Text,
    config: Config,
}

/// Why a config file cannot be used or changed. The file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("failed to read config {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Invalid(#[from] Diagnostics),
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error("config {} is being changed by another process", path.display())]
    Locked { path: PathBuf },
    #[error("failed to write config {}: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
}

impl ConfigError {
    /// Stable, for programs. For an invalid file: of its first problem, unless it asks for a
    /// sandbox.
    pub fn code(&self) -> &'static str {
        if self.unmet_sandbox().is_some() {
            return schema::SANDBOX_UNAVAILABLE;
        }
        match self {
            Self::Unreadable { .. } => "CONFIG_UNREADABLE",
            Self::Invalid(problems) => problems
                .0
                .first()
                .map_or("CONFIG_INVALID", |problem| problem.code),
            Self::Edit(error) => error.code(),
            Self::Locked { .. } => "CONFIG_LOCKED",
            Self::Unwritable { .. } => "CONFIG_UNWRITABLE",
        }
    }

    /// The key that asks for a sandbox, which this version does not have.
    pub fn unmet_sandbox(&self) -> Option<&Diagnostic> {
        let Self::Invalid(Diagnostics(problems)) = self else {
            return None;
        };
        let mut problems = problems.iter();
        problems.find(|problem| problem.code == schema::SANDBOX_UNAVAILABLE)
    }

    /// What to do; invalid files say so in their own hints.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Unreadable { path, .. } => {
                Some(format!("look at it: ls -l {}", shell_word(path)))
            }
            Self::Locked { .. } => {
                Some("try again; if it stays so, end the other Interlock process".to_owned())
            }
            Self::Unwritable { path, .. } => {
                let directory = path.parent().unwrap_or(path);
                Some(format!(
                    "look at the directory and the free space: ls -ld {0}; df {0}",
                    shell_word(directory)
                ))
            }
            Self::Invalid(_) | Self::Edit(_) => None,
        }
    }
}

impl ConfigFile {
    /// A file that is not there is an empty config. One that is there and empty is an error: it
    /// may be what is left of a full one.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::checked(path, read(path)?)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn text(&self) -> &Json5Text {
        &self.text
    }

    /// Reads the file, lets `change` edit it, and replaces it, all while holding a lock, so that
    /// two writers never lose an update. What does not validate is not written; a file that does
    /// not validate can be edited if the result does.
    pub fn edit<F>(path: &Path, change: F) -> Result<Self, ConfigError>
    where
        F: FnOnce(&mut Json5Text) -> Result<(), EditError>,
    {
        let unwritable = |source| ConfigError::Unwritable {
            path: path.to_owned(),
            source,
        };
        // A link is followed, so that the file it names is replaced and not the link.
        let target = match std::fs::canonicalize(path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(source) => {
                return Err(ConfigError::Unreadable {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        let _lock = lock(&target)?;
        let mut text = read(&target)?;
        let before = text.text().to_owned();
        change(&mut text)?;
        let unchanged = text.text() == before;
        let file = Self::checked(path, text)?;
        if !unchanged {
            replace(&target, file.text.text()).map_err(unwritable)?;
        }
        Ok(file)
    }

    fn checked(path: &Path, text: Json5Text) -> Result<Self, ConfigError> {
        let config = Config::from_text(&text)?;
        Ok(Self {
            path: path.to_owned(),
            text,
            config,
        })
    }
}

impl Config {
    /// The values of a text, after every problem in it has been looked for.
    pub fn from_text(text: &Json5Text) -> Result<Self, Diagnostics> {
        let problems = schema::check(text);
        if !problems.is_empty() {
            return Err(Diagnostics(problems));
        }
        // The check is at least as strict as the types, which a test makes sure of.
        serde_json::from_value(text.value()).map_err(|error| {
            text.diagnose(0..0, "CONFIG_INVALID", error.to_string())
                .into()
        })
    }
}

fn read(path: &Path) -> Result<Json5Text, ConfigError> {
    let name = path.file_name().map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    );
    match read_bytes(path) {
        Ok(bytes) => Json5Text::parse_bytes(&name, &bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Json5Text::parse(&name, "{}\n"),
        Err(source) => {
            return Err(ConfigError::Unreadable {
                path: path.to_owned(),
                source,
            });
        }
    }
    .map_err(|problem: Diagnostic| ConfigError::Invalid(problem.into()))
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    // Asked before opening: opening a pipe would wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    }
    let mut bytes = Vec::new();
    // One byte more than is accepted, so that the reader sees that there is more.
    let limit = u64::try_from(MAX_BYTES)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Held until dropped. The lock file stays: removing it would let two writers hold "the" lock.
fn lock(target: &Path) -> Result<File, ConfigError> {
    let unwritable = |source| ConfigError::Unwritable {
        path: target.to_owned(),
        source,
    };
    let mut options = OpenOptions::new();
    let file = options
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(beside(target, ".lock"))
        .map_err(unwritable)?;
    let give_up = Instant::now() + LOCK_PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(source)) => return Err(unwritable(source)),
            Err(TryLockError::WouldBlock) if Instant::now() >= give_up => {
                return Err(ConfigError::Locked {
                    path: target.to_owned(),
                });
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
        }
    }
}

/// All or nothing, also across a crash: the new file is complete on disk before it takes the name.
fn replace(target: &Path, text: &str) -> io::Result<()> {
    let directory = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    // Mode 0600 from the start; removed again if anything below fails.
    let mut file = tempfile::Builder::new()
        .prefix(".interlock-config-")
        .tempfile_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(target)?;
    File::open(directory)?.sync_all()
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
