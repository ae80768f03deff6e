//! Finishes or undoes patches that were interrupted.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;

use crate::commit::{CommitStep, Observer};
use crate::effect_commit;
use crate::error::ApplyError;
use crate::journal::{Journal, JournalDirectory, WorkspaceKey};
use crate::tree::DirectoryTree;
use crate::undo::{self, Conflict};

/// What recovery found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryReport {
    pub recovered: Vec<RecoveredPatch>,
    /// Journals that stay. Patches of their workspaces are refused until the cause is removed.
    pub failed: Vec<FailedRecovery>,
}

/// One interrupted patch that recovery finished or undid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecoveredPatch {
    pub root: String,
    pub outcome: RecoveryOutcome,
    pub conflicts: Vec<Conflict>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RecoveryOutcome {
    /// Every file is as it was before the patch.
    Undone,
    /// Every file is as the patch left it.
    Finished,
}

/// One interrupted patch that recovery could neither finish nor undo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedRecovery {
    pub journal: String,
    pub reason: String,
}

/// Finishes or undoes every interrupted patch in `journal_dir`. Call it at start;
/// [`apply`](crate::apply) does the same for its own workspace.
pub fn recover(journal_dir: &Path) -> Result<RecoveryReport, ApplyError> {
    recover_observed(journal_dir, &|_| Ok(()))
}

/// Like [`recover`]; `observer` sees each step.
#[doc(hidden)]
pub fn recover_observed(
    journal_dir: &Path,
    observer: &Observer<'_>,
) -> Result<RecoveryReport, ApplyError> {
    let journals = JournalDirectory::open(journal_dir)?;
    let fail = |error| {
        ApplyError::io(
            journal_dir.display().to_string(),
            "read the journals in",
            error,
        )
    };
    let mut report = RecoveryReport::default();
    for key in journals.workspaces().map_err(fail)? {
        let _lock = journals.lock(&key).map_err(fail)?;
        recover_workspace(&journals, &key, observer, &mut report).map_err(fail)?;
    }
    Ok(report)
}

/// Recovers one workspace. The caller holds its lock.
pub(crate) fn recover_workspace(
    journals: &JournalDirectory,
    key: &WorkspaceKey,
    observer: &Observer<'_>,
    report: &mut RecoveryReport,
) -> std::io::Result<()> {
    for journal in journals.pending(key)? {
        match recover_one(&journal, observer) {
            Ok(recovered) => report.recovered.push(recovered),
            Err(reason) => {
                report.failed.push(FailedRecovery {
                    journal: journal.path.display().to_string(),
                    reason,
                });
            }
        }
    }
    Ok(())
}

fn recover_one(journal: &Journal, observer: &Observer<'_>) -> Result<RecoveredPatch, String> {
    let (record, staged, committed) = journal.read()?;
    let root = record.root.0.display().to_string();
    let inode = fs::metadata(&record.root.0)
        .map_err(|error| format!("{root}: {error}"))?
        .ino();
    if inode != record.root_inode {
        return Err(format!("{root}: another directory is there now"));
    }
    let mut tree = DirectoryTree::open(&record.base.0, record.scope)
        .map_err(|error| format!("{root}: {error}"))?;
    let failed = |error: std::io::Error| format!("{root}: {error}");
    let (outcome, conflicts) = if committed {
        if let Some(mark) = &record.retires {
            retire(&mark.0, &failed)?;
        }
        undo::clean_up(&record, &mut tree, observer).map_err(failed)?;
        (RecoveryOutcome::Finished, Vec::new())
    } else {
        (
            RecoveryOutcome::Undone,
            undo::undo(&record, staged.as_ref(), &mut tree, observer).map_err(failed)?,
        )
    };
    journal
        .remove()
        .and_then(|()| observer(CommitStep::JournalRemoved))
        .map_err(failed)?;
    Ok(RecoveredPatch {
        root,
        outcome,
        conflicts,
    })
}

/// Marks a layer as committed. A layer that no longer exists needs no mark.
fn retire(mark: &Path, failed: &dyn Fn(std::io::Error) -> String) -> Result<(), String> {
    if mark.parent().is_some_and(Path::is_dir) {
        effect_commit::retire(mark).map_err(failed)?;
    }
    Ok(())
}
