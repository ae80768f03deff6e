//! `interlock import openclaw`: imports policy, config and allowlists from an OpenClaw state
//! directory.
//!
//! Read `source` (what a state directory contains), `rules` (how each config key is imported, with
//! the reason), `settings` (those rules applied to a real config), then [`import`]. Levels and
//! limits are only tightened. Other values that would allow more are not imported; the report has
//! the command that sets them. Entries, agents and workspaces, which are the purpose of an import,
//! are imported and listed. Tokens and other secrets must never get into the report.

mod rules;
mod settings;
mod source;

use std::path::Path;

use interlock_approvals::OutsideRuns;
use interlock_config::ConfigFile;
use interlock_host::{Author, HostError, LocalHost};
use interlock_policy::Entry;
use interlock_rules::record_config_write;
use serde::Serialize;

use crate::merge::{EntryMerge, MergedDocument, merge_document};
pub use source::{DocumentForm, OpenClawState, OpenClawStateError};

/// Whether the import writes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportMode {
    DryRun,
    Write,
}

/// A value, and how it was imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportedValue {
    /// Its key in OpenClaw.
    pub path: String,
    /// What was imported, how it changed, or why it was not imported.
    pub what: String,
    /// Whether it allows more than before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub loosens: bool,
    /// The command that sets the value, if the owner wants it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl ImportedValue {
    fn new(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            what: what.into(),
            loosens: false,
            command: None,
        }
    }

    fn loosening(self) -> Self {
        Self {
            loosens: true,
            ..self
        }
    }

    fn with_command(self, command: impl Into<String>) -> Self {
        Self {
            command: Some(command.into()),
            ..self
        }
    }
}

/// All values of the source, grouped by how they were imported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// Imported unchanged.
    pub taken: Vec<ImportedValue>,
    /// Imported in another form.
    pub changed: Vec<ImportedValue>,
    /// Not imported.
    pub left: Vec<ImportedValue>,
}

/// Imports a state directory. A run must not import, because it would write its own policy.
pub fn import(
    host: &LocalHost,
    state: &OpenClawState,
    mode: ImportMode,
    _outside: OutsideRuns,
) -> Result<ImportReport, HostError> {
    let mut report = ImportReport::default();
    if let Some(config) = &state.config {
        import_config(host, config, mode, &mut report)?;
    }
    import_document(host, state, mode, &mut report)?;
    for problem in &state.problems {
        report.left.push(problem.clone());
    }
    Ok(report)
}

fn import_config(
    host: &LocalHost,
    config: &serde_json::Value,
    mode: ImportMode,
    report: &mut ImportReport,
) -> Result<(), HostError> {
    let file = ConfigFile::load(host.config_path())?;
    let edits = settings::plan(file.text(), config, report);
    if mode == ImportMode::DryRun || edits.is_empty() {
        return Ok(());
    }
    ConfigFile::edit(host.config_path(), |text| {
        edits
            .iter()
            .try_for_each(|edit| text.set(&edit.key, &edit.value))
    })?;
    let keys: Vec<&str> = edits.iter().map(|edit| edit.shown.as_str()).collect();
    record_config_write(
        host.state_dir(),
        host.config_path(),
        &keys,
        &Author::default(),
    )?;
    Ok(())
}

fn import_document(
    host: &LocalHost,
    state: &OpenClawState,
    mode: ImportMode,
    report: &mut ImportReport,
) -> Result<(), HostError> {
    let Some(other) = &state.document else {
        return Ok(());
    };
    let (current, _) = host.document()?;
    let merged = merge_document(&current, other, EntryMerge::Take);
    if mode == ImportMode::Write && merged.document != current {
        host.rules().edit_document(|document| {
            *document = merge_document(document, other, EntryMerge::Take).document;
            Ok(())
        })?;
    }
    report_document(merged, report);
    Ok(())
}

fn report_document(merged: MergedDocument, report: &mut ImportReport) {
    for value in merged.tightened {
        let (path, what) = value.split_once(": ").unwrap_or((&value, ""));
        report.taken.push(ImportedValue::new(path, what));
    }
    for taken in merged.entries {
        // If entries were left out, the index of an entry differs from that in the source.
        let list = taken.origin.rsplit_once('[');
        let list = list.map_or(taken.origin.as_str(), |(list, _)| list);
        let shown = shown_entry(&taken.entry);
        if taken.entry.is_inert() {
            let what =
                format!("{shown}: kept, but it matches nothing, because it binds no arguments");
            report.changed.push(ImportedValue::new(list, what));
        } else {
            let value = ImportedValue::new(list, shown);
            report.taken.push(value.loosening());
        }
    }
    for left in merged.left {
        let mut value = ImportedValue::new(left.path.clone(), left.reason.clone());
        let level = left.reason.split(' ').next().unwrap_or_default();
        let flag = match left.path.as_str() {
            "defaults.security" => Some("--security"),
            "defaults.ask" => Some("--ask"),
            "defaults.askFallback" => Some("--ask-fallback"),
            _ => None,
        };
        if let Some(flag) = flag {
            value = value.with_command(format!("interlock exec-policy set {flag} {level}"));
        }
        report.left.push(value);
    }
}

fn shown_entry(entry: &Entry) -> String {
    match (&entry.arg_pattern, &entry.args) {
        (Some(pattern), _) => format!("`{}` with arguments like `{pattern}`", entry.pattern),
        (None, Some(_)) => format!("`{}` with the listed arguments", entry.pattern),
        (None, None) => format!("`{}` with any arguments", entry.pattern),
    }
}

/// The directory that OpenClaw uses: `$OPENCLAW_STATE_DIR`, or else `.openclaw` in the home
/// directory.
pub fn usual_directory(
    variable: Option<std::ffi::OsString>,
    home: Option<&str>,
) -> Option<std::path::PathBuf> {
    let named = variable.filter(|value| !value.is_empty());
    named
        .map(Into::into)
        .or_else(|| home.map(|home| Path::new(home).join(".openclaw")))
}
