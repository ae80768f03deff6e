//! Reads, writes and removes the files of a service, and tells which of them Interlock wrote.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use interlock_console::Failure;

use super::{ServiceKind, marker};

/// What is at the path of the unit.
#[derive(Debug, PartialEq, Eq)]
pub enum FoundUnit {
    Nothing,
    Interlock(String),
    Foreign,
}

impl FoundUnit {
    /// Looks at the path of a unit. A link counts as foreign: Interlock writes none, and the owner
    /// may have made it on purpose, for example to mask the unit.
    pub fn at(file: &Path, kind: ServiceKind) -> Result<Self, Failure> {
        match fs::symlink_metadata(file) {
            Ok(data) if !data.is_file() => return Ok(Self::Foreign),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Nothing),
            Ok(_) => {}
            Err(error) => return Err(file_failed(file)(error)),
        }
        let bytes = fs::read(file).map_err(file_failed(file))?;
        Ok(match String::from_utf8(bytes) {
            Ok(text) if text.contains(&marker(kind)) => Self::Interlock(text),
            _ => Self::Foreign,
        })
    }
}

fn file_failed(path: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| {
        Failure::refused(
            "SERVICE_FILE_UNUSABLE",
            format!("{}: {error}", path.display()),
        )
    }
}

/// Writes the file completely or not at all.
pub fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let failed = file_failed(path);
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory).map_err(&failed)?;
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.new", std::process::id()));
    let draft = PathBuf::from(draft);
    let written = || {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    written().map_err(|error| {
        let _ = fs::remove_file(&draft);
        failed(error)
    })
}

pub fn remove(path: &Path) -> Result<(), Failure> {
    fs::remove_file(path).map_err(file_failed(path))
}
