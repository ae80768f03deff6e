//! Loads and changes the config file. A change must neither lose the change of another writer nor
//! leave half a file.

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
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A valid config file.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    path: PathBuf,
    text: Json5Text,
    config: Config,
}

/// Why a config file cannot be used or changed. The file stays unchanged.
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
    /// The stable code for programs. For an invalid file, it is the code of the first problem,
    /// unless the file asks for an unavailable sandbox.
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

    /// The problem of the key that asks for a sandbox that this version does not have.
    pub fn unmet_sandbox(&self) -> Option<&Diagnostic> {
        let Self::Invalid(Diagnostics(problems)) = self else {
            return None;
        };
        let mut problems = problems.iter();
        problems.find(|problem| problem.code == schema::SANDBOX_UNAVAILABLE)
    }

    /// What to do about the error. The problems of an invalid file have their own hints.
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
    /// Loads the file. A missing file counts as an empty config. An empty file is an error, because
    /// it may be what is left of a full one.
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

    /// Reads the file, lets `change` edit it, and replaces it. A lock is held meanwhile, so that
    /// two writers never lose an update. The result must be valid, or it is not written; an invalid
    /// file can be edited if the result is valid.
    pub fn edit<F>(path: &Path, change: F) -> Result<Self, ConfigError>
    where
        F: FnOnce(&mut Json5Text) -> Result<(), EditError>,
    {
        let unwritable = |source| ConfigError::Unwritable {
            path: path.to_owned(),
            source,
        };
        // Follow a link, so that its target is replaced and not the link.
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
    /// The values of a text, if the check finds no problem in it.
    pub fn from_text(text: &Json5Text) -> Result<Self, Diagnostics> {
        let problems = schema::check(text);
        if !problems.is_empty() {
            return Err(Diagnostics(problems));
        }
        // This should not fail: the check is at least as strict as the types, and a test verifies
        // that.
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
    // Check before opening, because opening a pipe would wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    }
    let mut bytes = Vec::new();
    // Read one byte past the limit, so that the parser notices a text that is too long.
    let limit = u64::try_from(MAX_BYTES)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Takes the lock, which is held until it is dropped. The lock file must stay: if it were removed,
/// two writers could hold locks on different files.
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
    let give_up = Instant::now() + LOCK_TIMEOUT;
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

/// Replaces the file completely or not at all, even in a crash: the new file is complete on disk
/// before it gets the name.
fn replace(target: &Path, text: &str) -> io::Result<()> {
    let directory = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    // The temporary file has mode 0600 from the start. It is removed if anything below fails.
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
