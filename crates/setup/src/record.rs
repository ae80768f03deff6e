//! The records of changed files: the original bytes and the edits. They are in the state directory,
//! which no run can reach.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use interlock_console::Failure;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::edit::AppliedEdit;
use super::text::SettingsFormat;

/// The record of one changed file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetupRecord {
    pub program: String,
    pub scope: String,
    /// The path that the agent program reads.
    pub path: PathBuf,
    pub format: SettingsFormat,
    /// `None` if there was no file before setup.
    pub original_sha256: Option<String>,
    pub written_sha256: String,
    pub edits: Vec<AppliedEdit>,
    /// Directories that were created for the file, the outermost first.
    #[serde(default)]
    pub created_directories: Vec<PathBuf>,
}

/// The records of one state directory.
#[derive(Debug)]
pub struct SetupRecords {
    directory: PathBuf,
}

impl SetupRecords {
    pub fn of(state_dir: &Path) -> Self {
        Self {
            directory: state_dir.join("setup"),
        }
    }

    /// The record of a file, if there is one.
    pub fn find(&self, path: &Path) -> Result<Option<SetupRecord>, Failure> {
        let file = self.file(path, "json");
        let bytes = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable(&file, &error.to_string())),
        };
        let record = serde_json::from_slice(&bytes);
        record
            .map(Some)
            .map_err(|error| unusable(&file, &error.to_string()))
    }

    /// The records of one agent program and scope.
    pub fn of_program(&self, program: &str, scope: &str) -> Result<Vec<SetupRecord>, Failure> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unusable(&self.directory, &error.to_string())),
        };
        let mut records = Vec::new();
        for entry in entries.flatten() {
            let file = entry.path();
            if file.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let bytes = fs::read(&file).map_err(|error| unusable(&file, &error.to_string()))?;
            let record: SetupRecord = serde_json::from_slice(&bytes)
                .map_err(|error| unusable(&file, &error.to_string()))?;
            if record.program == program && record.scope == scope {
                records.push(record);
            }
        }
        records.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(records)
    }

    /// The original bytes of a file.
    pub fn original(&self, record: &SetupRecord) -> Result<Option<Vec<u8>>, Failure> {
        let Some(expected) = &record.original_sha256 else {
            return Ok(None);
        };
        let file = self.original_path(&record.path);
        let bytes = fs::read(&file).map_err(|error| unusable(&file, &error.to_string()))?;
        if sha256(&bytes) != *expected {
            return Err(unusable(&file, "it is not what setup has kept"));
        }
        Ok(Some(bytes))
    }

    pub fn original_path(&self, path: &Path) -> PathBuf {
        self.file(path, "original")
    }

    /// Stores the record of a file. Must be called before the file is changed.
    pub fn keep(&self, record: &SetupRecord, original: Option<&[u8]>) -> Result<(), Failure> {
        let mut directory = fs::DirBuilder::new();
        let created = directory
            .mode(0o700)
            .recursive(true)
            .create(&self.directory);
        created.map_err(|error| unusable(&self.directory, &error.to_string()))?;
        if let Some(original) = original {
            write(&self.original_path(&record.path), original)?;
        }
        let text = serde_json::to_vec_pretty(record).unwrap_or_default();
        write(&self.file(&record.path, "json"), &text)
    }

    /// Deletes the record of a file that was restored.
    pub fn forget(&self, path: &Path) {
        for extension in ["json", "original"] {
            let _ = fs::remove_file(self.file(path, extension));
        }
    }

    fn file(&self, path: &Path, extension: &str) -> PathBuf {
        use std::os::unix::ffi::OsStrExt as _;
        let name = sha256(path.as_os_str().as_bytes());
        self.directory.join(format!("{}.{extension}", &name[..16]))
    }
}

/// Writes a file so that it is complete on disk before it gets its name.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let written = || -> io::Result<()> {
        let temporary = path.with_extension("new");
        let mut options = fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    written().map_err(|error| unusable(path, &error.to_string()))
}

fn unusable(path: &Path, problem: &str) -> Failure {
    let message = format!("the record of setup {}: {problem}", path.display());
    Failure::refused("SETUP_RECORD_UNUSABLE", message)
}

pub fn sha256(bytes: &[u8]) -> String {
    let mut hex = String::new();
    for byte in Sha256::digest(bytes) {
        hex += &format!("{byte:02x}");
    }
    hex
}
