//! The two operations on a patch: check what it would do, and apply it.

use std::convert::Infallible;
use std::ops::ControlFlow::{self, Break, Continue};

use crate::commit::{self, Observer};
use crate::error::ApplyError;
use crate::journal::{JournalDirectory, WorkspaceKey};
use crate::patch::Patch;
use crate::plan;
use crate::preview::Preview;
use crate::recover::{self, RecoveryReport};
use crate::summary::PatchSummary;
use crate::workspace::{ApplyOptions, Workspace};

/// Returns what `patch` would do to the files as they are now. This changes nothing and takes no
/// lock, so a patch that is applied at the same moment may be seen half done.
pub fn check(patch: &Patch, options: &ApplyOptions) -> Result<PatchSummary, ApplyError> {
    match check_judged(patch, options, |_| Continue::<Infallible>(()))? {
        Continue(summary) => Ok(summary),
        Break(never) => match never {},
    }
}

/// Like [`check`]; `judge` sees what would be done and may stop it.
pub fn check_judged<T>(
    patch: &Patch,
    options: &ApplyOptions,
    judge: impl FnOnce(&mut Preview<'_>) -> ControlFlow<T>,
) -> Result<ControlFlow<T, PatchSummary>, ApplyError> {
    let workspace = Workspace::new(options)?;
    let mut tree = workspace.tree()?;
    let plan = plan::plan(patch, &workspace, &mut tree)?;
    if let Break(stopped) = judge(&mut Preview::new(&plan, &mut tree)?) {
        return Ok(Break(stopped));
    }
    Ok(Continue(plan.summary))
}

/// Applies all of `patch` or nothing. Waits for other patches of the same workspace, and first
/// finishes or undoes an interrupted patch.
pub fn apply(patch: &Patch, options: &ApplyOptions) -> Result<PatchSummary, ApplyError> {
    apply_observed(patch, options, &|_| Ok(()))
}

/// Like [`apply`]; `judge` sees exactly what is about to be done and may stop it. Nothing else is
/// done afterwards: a file that changes meanwhile stops the patch.
pub fn apply_judged<T>(
    patch: &Patch,
    options: &ApplyOptions,
    judge: impl FnOnce(&mut Preview<'_>) -> ControlFlow<T>,
) -> Result<ControlFlow<T, PatchSummary>, ApplyError> {
    carry_out(patch, options, judge, &|_| Ok(()))
}

/// Like [`apply`]; `observer` sees each step, for tests that stop there.
#[doc(hidden)]
pub fn apply_observed(
    patch: &Patch,
    options: &ApplyOptions,
    observer: &Observer<'_>,
) -> Result<PatchSummary, ApplyError> {
    match carry_out(patch, options, |_| Continue::<Infallible>(()), observer)? {
        Continue(summary) => Ok(summary),
        Break(never) => match never {},
    }
}

fn carry_out<T>(
    patch: &Patch,
    options: &ApplyOptions,
    judge: impl FnOnce(&mut Preview<'_>) -> ControlFlow<T>,
    observer: &Observer<'_>,
) -> Result<ControlFlow<T, PatchSummary>, ApplyError> {
    let journals = JournalDirectory::open(&options.journal_dir)?;
    let workspace = Workspace::new(options)?;
    let key = WorkspaceKey::new(&workspace.root);
    let fail = |error| {
        ApplyError::io(
            options.journal_dir.display().to_string(),
            "lock the workspace in",
            error,
        )
    };
    let _lock = journals.lock(&key).map_err(fail)?;
    let mut report = RecoveryReport::default();
    recover::recover_workspace(&journals, &key, observer, &mut report).map_err(fail)?;
    if let Some(failed) = report.failed.first() {
        return Err(ApplyError::RecoveryNeeded {
            reason: format!("{} ({})", failed.reason, failed.journal),
        });
    }
    let mut tree = workspace.tree()?;
    let plan = plan::plan(patch, &workspace, &mut tree)?;
    if let Break(stopped) = judge(&mut Preview::new(&plan, &mut tree)?) {
        return Ok(Break(stopped));
    }
    if !plan.changes.is_empty() {
        commit::commit(&journals, &key, &workspace, &mut tree, &plan, observer)?;
    }
    Ok(Continue(plan.summary))
}
