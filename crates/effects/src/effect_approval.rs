//! Changes of a run that an approver decides about: they are stored as an approval of exactly these
//! changes, which is claimed once, before any file changes.

use interlock_approvals::clock::now;
use interlock_approvals::{
    ApprovalRefusal, ApprovalSettings, EFFECT_BINDING, EXPIRES_AFTER_MS, EffectOrigin, EffectPlan,
    ProtectedFile, THIS_HOST, check_allowed, check_claim, process_name, usual_session_key,
};
use interlock_local::HostError;
use interlock_patch::{EffectHashes, EffectSource, describe_effect};
use interlock_plan::LayerRecord;
use interlock_policy::{AgentId, Ask, Security};
use interlock_sandbox::{HeldLayer, RunLayerState};
use interlock_store::{
    Approval, ApprovalRequest, Claiming, CreatedApproval, NullableField, RecordedOutcome,
    RecordedStatus, StoreError,
};

use crate::report::{EffectReport, EffectState};
use crate::run_effects::{EFFECT_PREVIEW, RunEffects};

impl RunEffects<'_> {
    /// Stores an approval of exactly this effect. If no approver can be asked, the layer is left to
    /// the owner.
    pub(crate) fn ask_for_effect(
        &self,
        held: &mut HeldLayer,
        source: &EffectSource,
        protected: Vec<ProtectedFile>,
        requester: &str,
    ) -> EffectReport {
        let record = held.layer.record.clone();
        let described = describe_effect(source, &self.effect_target(), EffectHashes::All);
        let effect = match described {
            Ok(effect) => effect,
            Err(error) => return self.keep(held, (error.code(), &error.to_string()), None),
        };
        let counted = EffectReport {
            is_preview: record.is_preview,
            ..EffectReport::of_effect(&record.run_id, EffectState::Kept, &effect)
                .with_protected(&protected)
        };
        match self.may_ask_for_effect(&record, !protected.is_empty()) {
            Ok(None) => {}
            Ok(Some(why)) => {
                let named = named(&protected);
                let why = format!("{why}; {named}");
                let kept = self.keep(held, ("EFFECT_PROTECTED", &why), None);
                return EffectReport {
                    code: kept.code,
                    message: kept.message,
                    ..counted
                };
            }
            Err(error) => return self.keep(held, (error.code(), &error.to_string()), None),
        }
        let session_key = record
            .session_key
            .clone()
            .unwrap_or_else(|| usual_session_key(&record.agent_id));
        let origin = EffectOrigin {
            agent_id: &record.agent_id,
            session_key,
            run_id: &record.run_id,
            command: &record.command,
            run_plan_digest: &record.plan_digest,
        };
        let facts = record.is_preview.then(|| Self::preview_facts(&held.layer));
        let plan = EffectPlan::new(origin, source, &effect, protected, facts);
        if plan.protected_not_shown > 0 {
            let why =
                "protected files are too long to be shown whole, so that no approver is asked";
            let kept = self.keep(held, ("EFFECT_TOO_LONG", why), None);
            return EffectReport {
                code: kept.code,
                message: kept.message,
                ..counted
            };
        }
        let created = match self.store_effect_approval(&plan, requester) {
            Ok(created) => created,
            Err(error) => return self.keep(held, (error.code(), &error.to_string()), None),
        };
        let why = if record.is_preview {
            let words = "the run was a preview, and an approver has to decide";
            (EFFECT_PREVIEW, words)
        } else {
            let words = "protected paths are among the changes, and an approver has to decide";
            ("EFFECT_PROTECTED", words)
        };
        self.keep(held, why, Some(&created.id));
        EffectReport {
            state: EffectState::ApprovalPending,
            approval_id: Some(created.id),
            short_id: Some(created.short_id),
            ..counted
        }
    }

    /// Returns why no approver can be asked about the changes of an agent, as for its patches: the
    /// setting that makes a sandbox not ask covers the command, not files that other programs will
    /// obey. A preview by itself asks for an approver, but not about files that other programs
    /// obey.
    fn may_ask_for_effect(
        &self,
        record: &LayerRecord,
        has_protected: bool,
    ) -> Result<Option<String>, HostError> {
        let Ok(agent) = AgentId::new(&record.agent_id) else {
            return Ok(Some("its agent has no name".to_owned()));
        };
        let key = record.session_key.clone();
        let key = key.unwrap_or_else(|| usual_session_key(agent.as_str()));
        let session = self.local.session(&key)?.levels();
        let scope = self.local.scope(&agent)?;
        let levels = scope.policy(session, None, None)?.levels.clone();
        Ok(if levels.security.value() == Security::Deny {
            Some(format!(
                "security is `deny` ({})",
                levels.security.effective.path
            ))
        } else if levels.ask.value() == Ask::Off && (has_protected || !record.is_preview) {
            Some("ask is `off`, so no approver can be asked".to_owned())
        } else {
            None
        })
    }

    fn store_effect_approval(
        &self,
        plan: &EffectPlan,
        requester: &str,
    ) -> Result<CreatedApproval, ApprovalRefusal> {
        let digest = plan.digest().ok_or_else(|| ApprovalRefusal::Drift {
            what: "a path of the changes is not valid UTF-8".to_owned(),
        })?;
        let config = ApprovalSettings::config(self.local)?;
        let most = config.config().exec_for(&plan.agent_id).most_pending();
        let now = now();
        Ok(self.local.store().change(|change| {
            change.check_pending(&plan.agent_id, most, now)?;
            change.create_approval(&ApprovalRequest {
                plan: serde_json::to_string(plan).unwrap_or_default(),
                plan_digest: digest.clone(),
                content_digest: digest.clone(),
                verdict: plan.stored_verdict().to_value(),
                binding: EFFECT_BINDING.to_owned(),
                preview: plan.title(),
                agent: plan.agent_id.clone(),
                session_key: plan.session_key.clone(),
                host: THIS_HOST.to_owned(),
                node: None,
                requester: requester.to_owned(),
                created_at_ms: now,
                expires_at_ms: now.saturating_add(EXPIRES_AFTER_MS),
                always: None,
            })
        })?)
    }

    /// Claims the single use of the approval, on the disk, before any file changes.
    pub(crate) fn claim_effect(
        &self,
        layer: &RunLayerState,
        approval: &Approval,
        has_protected: bool,
    ) -> Result<(), ApprovalRefusal> {
        check_allowed(approval)?;
        let asked = self.may_ask_for_effect(&layer.record, has_protected);
        if let Ok(Some(why)) = asked {
            let what = format!("the policy became stricter: {why}");
            return Err(ApprovalRefusal::Drift { what });
        }
        let Approval { id, request, .. } = approval;
        let claiming: Result<Claiming, StoreError> = self
            .local
            .store()
            .change(|change| change.claim(id, &request.plan_digest, process_name(), now()));
        check_claim(claiming?, &approval.short_id)
    }

    pub(crate) fn finish_effect_claim(&self, approval: &Approval, report: &EffectReport) {
        let outcome = if report.state == EffectState::Committed {
            RecordedOutcome {
                exit_code: NullableField::Value(0),
                ..RecordedOutcome::new(RecordedStatus::Applied)
            }
        } else {
            RecordedOutcome::new(RecordedStatus::Failed)
                .with_code(report.code.unwrap_or("EFFECT_FAILED"))
                .with_message(report.words())
        };
        let finished = self
            .local
            .store()
            .change(|change| change.finish_claim(&approval.id, &outcome, now()));
        if let Err(error) = finished {
            tracing::error!(approval = approval.id, %error, "the end of a commit is not recorded");
        }
    }
}

fn named(protected: &[ProtectedFile]) -> String {
    let text = |file: &ProtectedFile| format!("`{}` is protected: {}", file.path, file.reason);
    let named: Vec<String> = protected.iter().take(5).map(text).collect();
    named.join("; ")
}
