//! Plans, makes and undoes the change of one settings file.

use std::path::{Path, PathBuf};

use interlock_arguments::{ScopeArgument, SetupArguments};
use interlock_console::Failure;

use super::edit::{AppliedEdit, SettingsEdit};
use super::files::FoundFile;
use super::programs::PlannedFile;
use super::record::{SetupRecord, SetupRecords, sha256};
use super::scope_name;
use super::text::{SettingsFormat, SettingsText};

/// The mode of a new settings file of a user. The file may get secrets later.
const NEW_USER_FILE: u32 = 0o600;

/// The planned change of one file.
#[derive(Debug)]
pub struct SettingsFileChange {
    pub found: FoundFile,
    pub format: SettingsFormat,
    /// The content that an undo restores: the found content without the changes of an earlier
    /// setup.
    original: Option<Vec<u8>>,
    pub written: String,
    pub edits: Vec<AppliedEdit>,
    /// Directories that an earlier setup created for the file.
    created_before: Vec<PathBuf>,
}

impl SettingsFileChange {
    pub fn plan(file: &PlannedFile, records: &SetupRecords) -> Result<Self, Failure> {
        let found = FoundFile::read(&file.path)?;
        let record = records.find(&file.path)?;
        let original = match &record {
            Some(record) => before_setup(&found, record, records)?.content,
            None => found.content.clone(),
        };
        let mut text = parse(&found, file.format, original.as_deref())?;
        let mut edits = Vec::new();
        for edit in &file.edits {
            let applied = edit
                .apply(&mut text)
                .map_err(|error| invalid(&found.path, &error.to_string()))?;
            edits.extend(applied);
        }
        Ok(Self {
            format: file.format,
            original,
            written: text.text(),
            edits,
            created_before: record
                .map(|record| record.created_directories)
                .unwrap_or_default(),
            found,
        })
    }

    /// Whether the file already has the planned content.
    pub fn is_made(&self) -> bool {
        self.found.content.as_deref() == Some(self.written.as_bytes())
    }

    pub fn describe(&self) -> Vec<String> {
        let edits = self.edits.iter().map(|applied| &applied.edit);
        edits.map(SettingsEdit::describe).collect()
    }

    /// Writes the file. The previous content is stored in the state directory first.
    pub fn make(&self, arguments: &SetupArguments, records: &SetupRecords) -> Result<(), Failure> {
        if self.edits.is_empty() {
            // The original file needs no edits. An earlier setup may have added some; remove them.
            if self.original.is_some() && !self.is_made() {
                self.found.replace(self.written.as_bytes(), NEW_USER_FILE)?;
            }
            records.forget(&self.found.path);
            return Ok(());
        }
        let mut created_directories = self.created_before.clone();
        created_directories.extend(self.found.missing_directories());
        let record = SetupRecord {
            program: arguments.program.name().to_owned(),
            scope: scope_name(arguments.scope).to_owned(),
            path: self.found.path.clone(),
            format: self.format,
            original_sha256: self.original.as_deref().map(sha256),
            written_sha256: sha256(self.written.as_bytes()),
            edits: self.edits.clone(),
            created_directories,
        };
        records.keep(&record, self.original.as_deref())?;
        if self.is_made() {
            return Ok(());
        }
        // Everyone with access to a project must be able to read its settings.
        let new_mode = match arguments.scope {
            ScopeArgument::Project => 0o666,
            ScopeArgument::User => NEW_USER_FILE,
        };
        self.found.replace(self.written.as_bytes(), new_mode)
    }
}

/// A file as it was before setup.
struct BeforeSetup {
    /// `None` if there was no file.
    content: Option<Vec<u8>>,
    way: UndoWay,
}

/// How an undo restored a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoWay {
    /// The file has its original bytes again.
    Restored,
    /// The file had been changed since setup, so only the additions of setup were removed.
    OnlyOwnKeys,
    /// The file had been changed since setup. Values of setup that were changed stay.
    SomeStay,
    /// There was no file before setup, so the file was removed.
    Removed,
    /// The file already has its original content.
    AsBefore,
    /// The owner has removed the file. Its original content is kept in the state directory.
    Gone,
}

fn before_setup(
    found: &FoundFile,
    record: &SetupRecord,
    records: &SetupRecords,
) -> Result<BeforeSetup, Failure> {
    let Some(current) = &found.content else {
        let way = if record.original_sha256.is_some() {
            UndoWay::Gone
        } else {
            UndoWay::AsBefore
        };
        return Ok(BeforeSetup { content: None, way });
    };
    let hash = sha256(current);
    if Some(&hash) == record.original_sha256.as_ref() {
        return Ok(BeforeSetup {
            content: Some(current.clone()),
            way: UndoWay::AsBefore,
        });
    }
    if hash == record.written_sha256 {
        let content = records.original(record)?;
        let way = match content {
            Some(_) => UndoWay::Restored,
            None => UndoWay::Removed,
        };
        return Ok(BeforeSetup { content, way });
    }
    let mut text = parse(found, record.format, Some(current))?;
    let mut way = UndoWay::OnlyOwnKeys;
    for applied in record.edits.iter().rev() {
        let reverted = applied.revert(&mut text);
        if !reverted.map_err(|error| invalid(&found.path, &error.to_string()))? {
            way = UndoWay::SomeStay;
        }
    }
    let is_empty = text
        .value()
        .as_object()
        .is_some_and(serde_json::Map::is_empty);
    if record.original_sha256.is_none() && is_empty {
        return Ok(BeforeSetup {
            content: None,
            way: UndoWay::Removed,
        });
    }
    Ok(BeforeSetup {
        content: Some(text.text().into_bytes()),
        way,
    })
}

/// A file that an undo restored.
#[derive(Debug)]
pub struct Undone {
    pub path: PathBuf,
    pub way: UndoWay,
    /// Where the original bytes are kept, if they are still needed.
    pub original: Option<PathBuf>,
}

impl Undone {
    pub fn undo(
        record: &SetupRecord,
        records: &SetupRecords,
        dry_run: bool,
    ) -> Result<Self, Failure> {
        let found = FoundFile::read(&record.path)?;
        let before = before_setup(&found, record, records)?;
        let is_kept = before.way == UndoWay::Gone;
        if !dry_run {
            match (&before.content, before.way) {
                (_, UndoWay::AsBefore | UndoWay::Gone) => {}
                (Some(content), _) => found.replace(content, NEW_USER_FILE)?,
                (None, _) => found.remove(&record.created_directories)?,
            }
            if !is_kept {
                records.forget(&record.path);
            }
        }
        Ok(Self {
            path: record.path.clone(),
            way: before.way,
            original: is_kept.then(|| records.original_path(&record.path)),
        })
    }
}

fn parse(
    found: &FoundFile,
    format: SettingsFormat,
    content: Option<&[u8]>,
) -> Result<SettingsText, Failure> {
    let name = found.path.display().to_string();
    let text = std::str::from_utf8(content.unwrap_or_default())
        .map_err(|error| invalid(&found.path, &format!("it is not valid UTF-8: {error}")))?;
    SettingsText::parse(format, &name, text)
        .map_err(|error| invalid(&found.path, &error.to_string()))
}

fn invalid(path: &Path, problem: &str) -> Failure {
    let shown = path.display().to_string();
    let message = if problem.contains(&shown) {
        problem.to_owned()
    } else {
        format!("{shown}: {problem}")
    };
    Failure::refused("SETTINGS_INVALID", message)
        .with_hint("nothing was changed; repair the file, and run setup again")
}
