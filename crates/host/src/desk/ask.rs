//! Putting a question down: what is stored, so that any surface can show it and any answer binds.

use interlock_command::Binding;
use interlock_command::display::{self, Secrets};
use interlock_config::UnboundApprovals;
use interlock_config::types::ExecConfig;
use interlock_plan::RunPlan;
use interlock_policy::{Ask, BoundContent, Decision, Entry, Verdict, can_be_approved};
use interlock_store::{
    ApprovalRequest, Change, CreatedApproval, GrantKey, PinnedScript, StoreError,
};
use interlock_supervisor::Manner;
use serde_json::json;

use super::always::Always;
use super::claim::Claim;
use super::fallback::StoredFallback;
use super::later::LaterFacts;
use super::records::{RunTicket, open};
use super::view::RunManner;
use super::{HOST, now};

/// So long an approval waits for an answer.
pub(super) const EXPIRES_AFTER_MS: i64 = 30 * 60 * 1000;

/// Differ between two requests that are the same, and say nothing to a program: shells write them
/// anew.
const IDLE_VARIABLES: [&str; 2] = ["_", "SHLVL"];

/// Nothing of the command could be pinned, and the config forbids asking an approver about such a
/// command.
#[derive(Debug, thiserror::Error)]
#[error("refused: an approval could not bind this command: {}", self.said())]
pub struct UnboundRefusal {
    pub binding: Box<Binding>,
}

impl UnboundRefusal {
    fn said(&self) -> String {
        let reason = &self.binding.reason;
        match &self.binding.unbound {
            Some(unbound) if !unbound.remedies.is_empty() => {
                let program = reason.strip_suffix(unbound.found.as_str());
                let executable = unbound.executable.as_deref();
                format!(
                    "{}{}expected {}, found {}",
                    program.unwrap_or_default(),
                    executable.map_or(String::new(), |path| format!("{path}, ")),
                    unbound.expected,
                    unbound.found
                )
            }
            _ => reason.clone(),
        }
    }

    /// The next step, ready to be pasted, and what it does.
    pub fn remedy(&self) -> Option<String> {
        let unbound = self.binding.unbound.as_ref()?;
        let step = &unbound.next_step;
        if let Some(advice) = unbound.split_advice() {
            return Some(advice);
        }
        Some(if unbound.remedies.is_empty() {
            format!(
                "`{step}` shows whether it is there; then name {}",
                unbound.expected
            )
        } else {
            format!(
                "`{step}` lets an approver allow it once, marked unbound; other ways: {}",
                unbound.remedies[..unbound.remedies.len() - 1].join("; or ")
            )
        })
    }
}

/// Whether people may be asked about this at all.
pub(crate) fn check_bound(binding: &Binding, config: &ExecConfig) -> Result<(), UnboundRefusal> {
    let asks = config.unbound_approvals == Some(UnboundApprovals::Ask);
    if !can_be_approved(binding, asks) {
        return Err(UnboundRefusal {
            binding: Box::new(binding.clone()),
        });
    }
    Ok(())
}

/// A run that the policy wants a person to see.
#[derive(Debug, Clone)]
pub(crate) struct ApprovalQuestion<'a> {
    pub(crate) plan: &'a RunPlan,
    pub(crate) verdict: &'a Verdict,
    /// In force, with the call's own.
    pub(crate) ask: Ask,
    pub(crate) session_key: &'a str,
    pub(crate) requester: &'a str,
    /// Where this host runs it by itself once it is allowed.
    pub(crate) later: Option<LaterFacts>,
    /// How the run would be carried out; the approver reads its limits.
    pub(crate) manner: Option<&'a Manner>,
    /// What the approver reads of the bound scripts: `content::pinned_scripts`.
    pub(crate) scripts: Vec<PinnedScript>,
}

impl<'a> ApprovalQuestion<'a> {
    /// What a grant must have in common with it: all that the plan holds, but for what differs
    /// between two requests that are the same.
    pub(crate) fn content_digest(&self) -> String {
        let mut plan = self.plan.clone();
        plan.session_key = None;
        plan.env
            .retain(|key, _| !IDLE_VARIABLES.contains(&key.as_str()));
        plan.digest().as_str().to_owned()
    }

    pub(crate) fn grant_key(&self, content_digest: &'a str) -> GrantKey<'a> {
        GrantKey {
            content_digest,
            agent: &self.plan.agent_id,
            session_key: self.session_key,
            host: HOST,
            node: None,
        }
    }

    /// Takes one use of a grant that a person gave for the same in this session, if there is one.
    /// It allows nothing before the change is on the disk.
    pub(crate) fn use_grant(
        &self,
        change: &Change<'_>,
        key: &GrantKey<'_>,
    ) -> Result<Option<(RunTicket, Claim)>, StoreError> {
        let Some((used, claim)) = Claim::of_grant(change, key, self.plan)? else {
            return Ok(None);
        };
        let ticket = RunTicket {
            run_id: used.run_id,
            agent: self.plan.agent_id.clone(),
            is_claimed: true,
        };
        let approval = Some(used.approval_id.as_str());
        open(change, &ticket, approval, self.plan, self.session_key)?;
        Ok(Some((ticket, claim)))
    }

    /// Stores the question, if fewer than `most` of its agent wait; it is on the disk when the change
    /// is.
    pub(crate) fn put(
        &self,
        change: &Change<'_>,
        content_digest: String,
        most: usize,
    ) -> Result<CreatedApproval, StoreError> {
        change.check_pending(&self.plan.agent_id, most, now())?;
        let always = self.always();
        let mut verdict = json!(self.verdict);
        if let Err(why) = &always {
            verdict["noAlways"] = why.as_str().into();
        }
        StoredFallback::of(self.verdict).write(&mut verdict);
        if let Some(later) = &self.later {
            later.write(&mut verdict);
        }
        if let Some(manner) = self.manner {
            RunManner::write(manner, &mut verdict);
        }
        let preview = display::command(&self.plan.command, Secrets::Masked);
        let now = now();
        let created = change.create_approval(&ApprovalRequest {
            plan: serde_json::to_string(self.plan).unwrap_or_default(),
            plan_digest: self.plan.digest().as_str().to_owned(),
            content_digest,
            verdict,
            binding: self.verdict.binding.kind.as_str().to_owned(),
            preview: preview.map_or_else(|bytes| format!("[{bytes} bytes]"), |shown| shown.text),
            agent: self.plan.agent_id.clone(),
            session_key: self.session_key.to_owned(),
            host: HOST.to_owned(),
            node: None,
            requester: self.requester.to_owned(),
            created_at_ms: now,
            expires_at_ms: now.saturating_add(EXPIRES_AFTER_MS),
            always: always.ok().map(|always| json!(always)),
        })?;
        change.keep_pinned_scripts(&created.id, &self.scripts)?;
        Ok(created)
    }

    /// What *always* stores, if anything.
    pub(super) fn always_entries(&self) -> Vec<Entry> {
        match self.always() {
            Ok(_) => self.verdict.remember.entries.clone(),
            Err(_) => Vec::new(),
        }
    }

    /// Why *always* would store nothing.
    pub(super) fn no_always(&self) -> Option<String> {
        self.always().err()
    }

    /// What *always* would store in each form, or why nothing.
    fn always(&self) -> Result<Always, String> {
        let remember = &self.verdict.remember;
        if let Some(why) = &remember.nothing_because {
            return Err(why.clone());
        }
        if !Decision::offered(self.ask, remember).contains(&Decision::AllowAlways) {
            return Err("ask is `always`: no entry saves the next question".to_owned());
        }
        // The plan was made a moment later: what is stored must be what would run.
        let held = remember
            .entries
            .iter()
            .filter_map(|entry| entry.bound_file.as_ref());
        for (path, sha256) in held.flat_map(BoundContent::files) {
            if !self.plan.holds_content(path, sha256) {
                return Err(format!("{path} was changed meanwhile"));
            }
        }
        Ok(Always {
            exact: remember.entries.clone(),
            form: remember.form,
            wider: remember.wider.clone(),
            not_wider: remember.not_wider.clone(),
        })
    }
}
