//! Handles the changes that a run under `cow` made: they are committed to the workspace when the
//! run has ended, all or nothing. Protected paths among them need an approver, and so do all
//! changes of a preview. A conflict keeps the layer.
//!
//! Everything about a layer is in its directory, so that whichever process looks next can continue:
//! the caller that waited, the gateway that comes back, the owner's command.

use std::collections::HashSet;
use std::ops::ControlFlow::{Break, Continue};
use std::path::PathBuf;
use std::time::Duration;

use interlock_approvals::clock::now;
use interlock_approvals::{
    ApprovalRefusal, EffectPlan, ProtectedFile, is_unattended, process_name, stored_effect_plan,
    usual_session_key,
};
use interlock_local::{HostError, LocalState};
use interlock_patch::{
    EffectHashes, EffectSource, EffectTarget, ReservedPaths, RunEffect, commit_effect,
};
use interlock_plan::LayerRecord;
use interlock_sandbox::{HeldLayer, KeptLayer, RunLayerState, ScopeStore};
use interlock_store::{Approval, ApprovalDecision, ApprovalEnding, AuditKind};
use interlock_supervisor::EndedRun;
use serde_json::json;

use crate::audit_list::shorten_list;
use crate::effect_guard::EffectGuard;
use crate::report::{EffectReport, EffectState, MAX_LISTED};

/// Why the layer of a preview is kept until a decision.
pub(crate) const EFFECT_PREVIEW: &str = "EFFECT_PREVIEW";

/// How long the end of a run waits until everything inside is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// The changes of runs on one host.
#[derive(Debug)]
pub struct RunEffects<'a> {
    pub(crate) local: &'a LocalState,
}

/// The reason for a commit, which determines whether protected paths may pass.
pub(crate) enum CommittedBy<'a> {
    /// The run ended: protected paths need an approver.
    RunEnd,
    /// An approver allowed exactly this effect.
    Approval(&'a Approval, Box<EffectPlan>),
    /// The owner commits, outside every run.
    Owner,
}

/// Why a commit stopped before anything changed.
enum CommitStop {
    /// An approver must decide, because the run was a preview or these paths are protected.
    NeedsApprover(Vec<ProtectedFile>),
    Drift,
    Refused(ApprovalRefusal),
}

impl<'a> RunEffects<'a> {
    pub fn new(local: &'a LocalState) -> Self {
        Self { local }
    }

    /// Commits what a run changed under `cow`, once everything of the run is gone. If protected
    /// paths are among the changes, or the run was a preview, this asks an approver and reports how
    /// that ended. Returns `None` for a run without a layer.
    pub fn settle_effect(
        &self,
        run_id: &str,
        requester: &str,
        ended: Option<(&str, &EndedRun)>,
    ) -> Option<EffectReport> {
        let layer = self.scopes().layer_of_run(run_id)?;
        let held = match layer.hold(PATIENCE) {
            Ok(held) => held?,
            Err(error) => return Some(unusable(run_id, &error.to_string())),
        };
        if !held.layer.is_ended() {
            return Some(unusable(run_id, "the run may still have a process"));
        }
        if let (true, Some((session, ended))) = (held.layer.record.is_preview, ended) {
            self.note_preview(&held, session, ended);
        }
        let report = self.settle_held(held, requester);
        self.scopes().sweep_layers();
        Some(report)
    }

    /// Continues with every layer that a process left behind: those of ended runs, and those whose
    /// approval was decided. A run with a living waiter is left to that waiter.
    pub fn settle_layers(&self) -> Result<(), HostError> {
        let scopes = self.scopes();
        let layers = scopes.layers();
        if layers.is_empty() {
            scopes.sweep_layers();
            return Ok(());
        }
        let runs = self.local.store().open_runs()?;
        let attended = runs.iter().filter(|run| !is_unattended(run));
        let attended: HashSet<&str> = attended.map(|run| run.id.as_str()).collect();
        for layer in layers {
            if attended.contains(layer.record.run_id.as_str()) {
                continue;
            }
            let waits = layer.kept.as_ref().map(|kept| kept.approval_id.clone());
            match waits {
                Some(Some(approval)) => self.settle_decided(&layer, &approval),
                None if layer.is_ended() => {
                    if let Ok(Some(held)) = layer.hold(Duration::ZERO) {
                        let record = held.layer.record.clone();
                        let report = self.settle_held(held, process_name());
                        self.note_effect(&record, &report);
                    }
                }
                // The layer belongs to the owner, or its run is still going.
                Some(None) | None => {}
            }
        }
        scopes.sweep_layers();
        Ok(())
    }

    /// Notifies the conversation of a run that no caller waits for.
    fn note_effect(&self, record: &LayerRecord, report: &EffectReport) {
        if !report.is_noteworthy() {
            return;
        }
        let key = record.session_key.clone();
        let key = key.unwrap_or_else(|| usual_session_key(&record.agent_id));
        let text = format!("Changes of run {}: {}", report.run_id, report.words());
        let payload = json!({ "approvalId": report.approval_id, "effect": report });
        let noted = self
            .local
            .approvals()
            .note(&key, &record.agent_id, &text, &payload);
        if let Err(error) = noted {
            tracing::error!(run = report.run_id, %error, "a conversation is not notified");
        }
    }

    /// Carries out the decision about the changes of a run: allowed changes are committed, denied
    /// ones are discarded. Returns `None` if nothing is decided, or another process carried it out.
    pub fn settle_decided_effect(&self, run_id: &str) -> Option<EffectReport> {
        let layer = self.scopes().layer_of_run(run_id)?;
        let approval = layer.kept.as_ref()?.approval_id.clone()?;
        let report = self.carry_out_decision(&layer, &approval);
        self.scopes().sweep_layers();
        report
    }

    fn settle_decided(&self, layer: &RunLayerState, approval: &str) {
        if let Some(report) = self.carry_out_decision(layer, approval) {
            self.note_effect(&layer.record, &report);
        }
    }

    fn carry_out_decision(&self, layer: &RunLayerState, approval: &str) -> Option<EffectReport> {
        let ended = self.local.approvals().ended(approval).ok()??;
        let mut held = layer.hold(PATIENCE).ok()??;
        let run_id = held.layer.record.run_id.clone();
        if ended.ending == ApprovalEnding::Decision(ApprovalDecision::Deny) {
            self.record_effect(&held.layer, "discarded", Some(approval), None, None);
            let _ = held.remove();
            return Some(EffectReport::new(&run_id, EffectState::Discarded));
        }
        // A fallback for a missing approver must not allow changes to files that others obey.
        let is_allowed = matches!(ended.ending, ApprovalEnding::Decision(_));
        // The layer of a preview is kept as long as its approval.
        if !is_allowed && held.layer.record.is_preview {
            let reason = "no approver allowed it in time";
            let why = Some(("EFFECT_NOT_APPROVED", reason));
            self.record_effect(&held.layer, "discarded", Some(approval), None, why);
            let _ = held.remove();
            return Some(EffectReport {
                message: Some(reason.to_owned()),
                ..EffectReport::new(&run_id, EffectState::Discarded)
            });
        }
        if !is_allowed {
            let reason = "no approver allowed it in time";
            return Some(self.keep(&mut held, ("EFFECT_NOT_APPROVED", reason), None));
        }
        let approval = self.local.store().approval(approval).ok()?;
        let plan = match stored_effect_plan(&approval) {
            Ok(plan) => Box::new(plan),
            Err(error) => {
                return Some(self.keep(&mut held, (error.code(), &error.to_string()), None));
            }
        };
        Some(self.commit(
            held,
            &CommittedBy::Approval(&approval, plan),
            process_name(),
        ))
    }

    fn settle_held(&self, held: HeldLayer, requester: &str) -> EffectReport {
        self.commit(held, &CommittedBy::RunEnd, requester)
    }

    /// Commits a layer. This is the only way into the workspace.
    pub(crate) fn commit(
        &self,
        mut held: HeldLayer,
        by: &CommittedBy<'_>,
        requester: &str,
    ) -> EffectReport {
        let run_id = held.layer.record.run_id.clone();
        let (source, guard) = match self.effect_source(&held.layer) {
            Ok(found) => found,
            Err(error) => return self.keep(&mut held, (error.code(), &error.to_string()), None),
        };
        let target = self.effect_target();
        let hashes = match by {
            CommittedBy::Approval(..) => EffectHashes::All,
            _ => EffectHashes::None,
        };
        let plan_digest = held.layer.record.plan_digest.clone();
        let mut protected = Vec::new();
        let mut claimed = false;
        let committed = commit_effect(&source, &target, hashes, |effect| {
            protected = guard.protected(effect);
            match by {
                CommittedBy::Owner => Continue(()),
                CommittedBy::RunEnd
                    if effect.is_empty()
                        || (protected.is_empty() && !held.layer.record.is_preview) =>
                {
                    Continue(())
                }
                CommittedBy::RunEnd => Break(CommitStop::NeedsApprover(protected.clone())),
                CommittedBy::Approval(_, plan)
                    if plan.effect_digest != effect.digest(&plan_digest) =>
                {
                    Break(CommitStop::Drift)
                }
                CommittedBy::Approval(approval, _) => {
                    let has_protected = !protected.is_empty();
                    match self.claim_effect(&held.layer, approval, has_protected) {
                        Ok(()) => {
                            claimed = true;
                            Continue(())
                        }
                        Err(error) => Break(CommitStop::Refused(error)),
                    }
                }
            }
        });
        let approval_id = match by {
            CommittedBy::Approval(approval, _) => Some(approval.id.as_str()),
            _ => None,
        };
        let report = match committed {
            Ok(Continue(effect)) => {
                let report = EffectReport::of_effect(&run_id, EffectState::Committed, &effect)
                    .with_protected(&protected);
                let files = Some(effect_files(&effect));
                if !effect.is_empty() {
                    self.record_effect(&held.layer, "committed", approval_id, files, None);
                }
                let _ = held.remove();
                report
            }
            Ok(Break(CommitStop::NeedsApprover(protected))) => {
                self.ask_for_effect(&mut held, &source, protected, requester)
            }
            Ok(Break(CommitStop::Drift)) => {
                let words = "the changes are not those that the approver was shown";
                self.keep(&mut held, ("EFFECT_DRIFT", words), approval_id)
            }
            Ok(Break(CommitStop::Refused(error))) => {
                self.keep(&mut held, (error.code(), &error.to_string()), approval_id)
            }
            Err(error) => {
                let mut report =
                    self.keep(&mut held, (error.code(), &error.to_string()), approval_id);
                report.conflicts = error.conflicts().iter().take(MAX_LISTED).cloned().collect();
                report
            }
        };
        if let (true, CommittedBy::Approval(approval, _)) = (claimed, by) {
            self.finish_effect_claim(approval, &report);
        }
        report
    }

    /// Keeps a layer for its owner, or for the approval that it waits for.
    pub(crate) fn keep(
        &self,
        held: &mut HeldLayer,
        (code, reason): (&'static str, &str),
        approval_id: Option<&str>,
    ) -> EffectReport {
        let is_waiting = [EFFECT_PREVIEW, "EFFECT_PROTECTED"].contains(&code);
        let kept = KeptLayer {
            code: code.to_owned(),
            reason: reason.to_owned(),
            approval_id: approval_id.filter(|_| is_waiting).map(str::to_owned),
            kept_at_ms: now(),
        };
        if let Err(error) = held.keep(kept) {
            tracing::error!(run = held.layer.record.run_id, %error, "a layer cannot be marked");
        }
        self.record_effect(&held.layer, "kept", approval_id, None, Some((code, reason)));
        EffectReport {
            code: Some(code),
            message: Some(reason.to_owned()),
            ..EffectReport::new(&held.layer.record.run_id, EffectState::Kept)
        }
    }

    pub(crate) fn record_effect(
        &self,
        layer: &RunLayerState,
        outcome: &str,
        approval_id: Option<&str>,
        files: Option<Vec<serde_json::Value>>,
        why: Option<(&str, &str)>,
    ) {
        let mut files = files;
        let left_out = files.as_mut().and_then(shorten_list);
        let record = json!({
            "agent": layer.record.agent_id,
            "approvalId": approval_id,
            "code": why.map(|(code, _)| code),
            "message": why.map(|(_, message)| message),
            "outcome": outcome,
            "paths": files,
            "pathsLeftOut": left_out,
            "preview": layer.record.is_preview.then_some(true),
            "root": layer.record.workspace,
            "runId": layer.record.run_id,
        });
        let appended = self.local.store().append(AuditKind::Effect, &record, now());
        if let Err(error) = appended {
            tracing::error!(run = layer.record.run_id, %error, "an effect is not recorded");
        }
    }

    pub(crate) fn scopes(&self) -> ScopeStore {
        ScopeStore::new(self.local.state_dir())
    }

    pub(crate) fn effect_source(
        &self,
        layer: &RunLayerState,
    ) -> Result<(EffectSource, EffectGuard), HostError> {
        let record = &layer.record;
        let source = EffectSource {
            upper: layer.upper(),
            committed: layer.committed_mark(),
            root: PathBuf::from(&record.workspace),
            device: record.device,
            inode: record.inode,
            started_ns: record.started_ns,
            clock_ahead_ns: record.clock_ahead_ns,
            owner: record.owner.map(|owner| (owner.uid, owner.gid)),
        };
        let guard = EffectGuard::load(self.local, record)?;
        Ok((source, guard))
    }

    /// Returns the target of commits. Interlock's own files are never part of an effect; its
    /// program is a protected path.
    pub(crate) fn effect_target(&self) -> EffectTarget {
        EffectTarget {
            journal_dir: self.local.patch_journal(),
            reserved: ReservedPaths {
                directories: vec![self.local.state_dir().to_owned()],
                files: vec![self.local.config_path().to_owned()],
            },
        }
    }
}

fn unusable(run_id: &str, why: &str) -> EffectReport {
    EffectReport {
        code: Some("LAYER_UNUSABLE"),
        message: Some(why.to_owned()),
        ..EffectReport::new(run_id, EffectState::Kept)
    }
}

/// Lists every path, for the audit record.
fn effect_files(effect: &RunEffect) -> Vec<serde_json::Value> {
    let one = |path: &interlock_patch::EffectPath| json!({ "change": path.change.as_str(), "path": path.path.display().to_string() });
    effect.paths.iter().map(one).collect()
}
