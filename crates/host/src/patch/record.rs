//! The audit records of a patch: the paths that the patch names, before a file changes, and its
//! outcome.

use interlock_approvals::clock::now;
use interlock_effects::shorten_list;
use interlock_patch::{FileSummary, MoveSummary, Patch, PatchSummary, sha256};
use interlock_store::{
    AuditKind, NullableField, RecordedFile, RecordedFileChange, RecordedOutcome, RecordedStatus,
};
use serde::Serialize;
use serde_json::json;

use super::PatchRequest;
use super::error::PatchError;
use crate::local::{HostError, LocalHost};

impl LocalHost {
    /// Records the paths that a patch names, before a file changes.
    pub(crate) fn record_begun(
        &self,
        request: &PatchRequest<'_>,
        patch: &Patch,
        approval: Option<&str>,
    ) -> Result<(), HostError> {
        let paths = patch.target_paths(&request.root);
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let begun = PatchRecord {
            paths: Some(paths),
            ..PatchRecord::new(request, approval, "begun")
        };
        self.record_patch(begun)
    }

    /// Records the outcome of a patch.
    pub(crate) fn record_applied(
        &self,
        request: &PatchRequest<'_>,
        applied: Result<PatchSummary, PatchError>,
        approval: Option<&str>,
    ) -> Result<PatchSummary, PatchError> {
        let report = match &applied {
            Ok(summary) => PatchRecord {
                files: Some(files(summary)),
                ..PatchRecord::new(request, approval, "applied")
            },
            Err(error) => PatchRecord {
                code: Some(error.code()),
                message: Some(error.to_string()),
                ..PatchRecord::new(request, approval, "refused")
            },
        };
        match (self.record_patch(report), applied) {
            (Err(error), Ok(_)) => Err(PatchError::Unrecorded(error)),
            // The reason of the refusal says more than the failed record.
            (_, applied) => applied,
        }
    }

    fn record_patch(&self, mut record: PatchRecord<'_>) -> Result<(), HostError> {
        record.files_left_out = record.files.as_mut().and_then(shorten_list);
        record.paths_left_out = record.paths.as_mut().and_then(shorten_list);
        self.store()
            .append(AuditKind::Patch, &json!(record), now())?;
        Ok(())
    }
}

/// The outcome of an approved patch, for its record and event.
pub(crate) fn summary_outcome(summary: &PatchSummary) -> RecordedOutcome {
    let mut files = files(summary);
    RecordedOutcome {
        exit_code: NullableField::Value(0),
        files_left_out: shorten_list(&mut files),
        files: Some(files),
        ..RecordedOutcome::new(RecordedStatus::Applied)
    }
}

/// The audit record of a patch: its begin or its outcome.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PatchRecord<'a> {
    agent: &'a str,
    approval_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<RecordedFile>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files_left_out: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    model: Option<&'a str>,
    outcome: &'static str,
    patch_digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    paths: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paths_left_out: Option<usize>,
    root: String,
}

impl<'a> PatchRecord<'a> {
    fn new(
        request: &'a PatchRequest<'_>,
        approval_id: Option<&'a str>,
        outcome: &'static str,
    ) -> Self {
        Self {
            agent: request.agent.as_str(),
            approval_id,
            code: None,
            files: None,
            files_left_out: None,
            message: None,
            model: request.model,
            outcome,
            patch_digest: sha256(request.input.as_bytes()),
            paths: None,
            paths_left_out: None,
            root: request.root.display().to_string(),
        }
    }
}

/// Every file of a patch with its kind of change, its changed lines, and its hashes before and
/// after.
fn files(summary: &PatchSummary) -> Vec<RecordedFile> {
    use RecordedFileChange::{Added, Deleted, Moved, Updated};
    let file = |change, file: &FileSummary| RecordedFile {
        after: file.hashes.after.clone(),
        before: file.hashes.before.clone(),
        change,
        from: None,
        lines_added: file.lines_added,
        lines_removed: file.lines_removed,
        path: file.path.clone(),
    };
    let moved = |moved: &MoveSummary| RecordedFile {
        after: moved.hashes.after.clone(),
        before: moved.hashes.before.clone(),
        change: Moved,
        from: Some(moved.from.clone()),
        lines_added: moved.lines_added,
        lines_removed: moved.lines_removed,
        path: moved.to.clone(),
    };
    let added = summary.added.iter().map(|one| file(Added, one));
    let updated = summary.modified.iter().map(|one| file(Updated, one));
    let deleted = summary.deleted.iter().map(|one| file(Deleted, one));
    let moved = summary.moved.iter().map(moved);
    added.chain(updated).chain(deleted).chain(moved).collect()
}
