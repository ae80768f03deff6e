//! Stores an approval so that every surface can show it and every decision binds its plan.

use interlock_binding::Binding;
use interlock_command::display::{self, Secrets};
use interlock_config::UnboundApprovals;
use interlock_config::types::ExecConfig;
use interlock_plan::RunPlan;
use interlock_policy::{Ask, BoundContent, Entry, Remember, Verdict, can_be_approved};
use interlock_store::{
    ApprovalDecision, ApprovalRequest, Change, CreatedApproval, GrantKey, PinnedScript, StoreError,
};
use serde_json::json;

use crate::always::AlwaysForms;
use crate::approvals::THIS_HOST;
use crate::clock::now;
use crate::stored_verdict::{ResumeFacts, RunManner, StoredVerdict};

/// How long an approval waits for a decision.
pub const EXPIRES_AFTER_MS: i64 = 30 * 60 * 1000;

/// Variables that shells rewrite. They differ between equal requests and mean nothing to a program.
const IDLE_VARIABLES: [&str; 2] = ["_", "SHLVL"];

/// The refusal of a command of which nothing could be pinned, where the config forbids asking an
/// approver about such commands.
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

    /// The next step, ready to be pasted, and its effect.
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

/// Refuses a command for which no approval may be stored.
pub fn check_bound(binding: &Binding, config: &ExecConfig) -> Result<(), UnboundRefusal> {
    let asks = config.unbound_approvals == Some(UnboundApprovals::Ask);
    if !can_be_approved(binding, asks) {
        return Err(UnboundRefusal {
            binding: Box::new(binding.clone()),
        });
    }
    Ok(())
}

/// The decisions that a prompt offers to every client. *Always* is offered only if it would store
/// something and save the next prompt. With `ask=always` it would not.
pub fn offered_decisions(ask: Ask, remember: &Remember) -> Vec<ApprovalDecision> {
    if ask == Ask::Always || remember.entries.is_empty() {
        vec![ApprovalDecision::AllowOnce, ApprovalDecision::Deny]
    } else {
        vec![
            ApprovalDecision::AllowOnce,
            ApprovalDecision::AllowAlways,
            ApprovalDecision::Deny,
        ]
    }
}

/// An approval that is about to be stored, for a run that needs a decision.
#[derive(Debug, Clone)]
pub struct NewApproval<'a> {
    pub plan: &'a RunPlan,
    pub verdict: &'a Verdict,
    /// The `ask` in force, including the call's own.
    pub ask: Ask,
    pub session_key: &'a str,
    pub requester: &'a str,
    /// Set if this host starts the run by itself once it is allowed.
    pub resume: Option<ResumeFacts>,
    /// How the run would be carried out. The approver reads its limits.
    pub manner: RunManner,
    /// The bound scripts for the approver: [`crate::pinned_scripts`].
    pub scripts: Vec<PinnedScript>,
}

impl<'a> NewApproval<'a> {
    /// The digest that a grant must share with this approval. It covers the whole plan, except for
    /// parts that differ between equal requests.
    pub fn content_digest(&self) -> String {
        let mut plan = self.plan.clone();
        plan.session_key = None;
        plan.env
            .retain(|key, _| !IDLE_VARIABLES.contains(&key.as_str()));
        plan.digest().as_str().to_owned()
    }

    pub fn grant_key(&self, content_digest: &'a str) -> GrantKey<'a> {
        GrantKey {
            content_digest,
            agent: &self.plan.agent_id,
            session_key: self.session_key,
            host: THIS_HOST,
            node: None,
        }
    }

    /// Stores the approval, if fewer than `most` approvals of its agent are pending. It is on disk
    /// as soon as the change is.
    pub fn store(
        &self,
        change: &Change<'_>,
        content_digest: String,
        most: usize,
    ) -> Result<CreatedApproval, StoreError> {
        change.check_pending(&self.plan.agent_id, most, now())?;
        let always = self.always();
        let mut verdict = StoredVerdict::of_verdict(self.verdict);
        verdict.no_always = always.as_ref().err().cloned();
        verdict.manner = self.manner.clone();
        if let Some(resume) = &self.resume {
            verdict.set_resume(resume.clone());
        }
        let preview = display::command(&self.plan.command, Secrets::Masked);
        let now = now();
        let created = change.create_approval(&ApprovalRequest {
            plan: serde_json::to_string(self.plan).unwrap_or_default(),
            plan_digest: self.plan.digest().as_str().to_owned(),
            content_digest,
            verdict: verdict.to_value(),
            binding: self.verdict.binding.kind.as_str().to_owned(),
            preview: preview.map_or_else(|bytes| format!("[{bytes} bytes]"), |shown| shown.text),
            agent: self.plan.agent_id.clone(),
            session_key: self.session_key.to_owned(),
            host: THIS_HOST.to_owned(),
            node: None,
            requester: self.requester.to_owned(),
            created_at_ms: now,
            expires_at_ms: now.saturating_add(EXPIRES_AFTER_MS),
            always: always.ok().map(|always| json!(always)),
        })?;
        change.keep_pinned_scripts(&created.id, &self.scripts)?;
        Ok(created)
    }

    /// The entries that *always* would store; empty if it is not offered.
    pub fn always_entries(&self) -> Vec<Entry> {
        match self.always() {
            Ok(_) => self.verdict.remember.entries.clone(),
            Err(_) => Vec::new(),
        }
    }

    /// Why *always* would store nothing.
    pub fn no_always(&self) -> Option<String> {
        self.always().err()
    }

    /// The entries that *always* would store in each form, or why it would store none.
    fn always(&self) -> Result<AlwaysForms, String> {
        let remember = &self.verdict.remember;
        if let Some(why) = &remember.nothing_because {
            return Err(why.clone());
        }
        if !offered_decisions(self.ask, remember).contains(&ApprovalDecision::AllowAlways) {
            return Err("ask is `always`: no entry saves the next question".to_owned());
        }
        // The plan was made after the verdict, so the entries must match the content that would
        // run.
        let held = remember
            .entries
            .iter()
            .filter_map(|entry| entry.bound_file.as_ref());
        for (path, sha256) in held.flat_map(BoundContent::files) {
            if !self.plan.holds_content(path, sha256) {
                return Err(format!("{path} was changed meanwhile"));
            }
        }
        Ok(AlwaysForms {
            exact: remember.entries.clone(),
            form: remember.form,
            wider: remember.wider.clone(),
            not_wider: remember.not_wider.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn always_is_offered_only_where_it_helps() {
        let nothing = Remember {
            nothing_because: Some("inline code".to_owned()),
            ..Remember::default()
        };
        let something = Remember {
            entries: vec![Entry::for_pattern("/usr/bin/rg")],
            ..Remember::default()
        };
        assert_eq!(offered_decisions(Ask::OnMiss, &something).len(), 3);
        for (ask, remember) in [(Ask::OnMiss, &nothing), (Ask::Always, &something)] {
            let offered = offered_decisions(ask, remember);
            assert_eq!(
                offered,
                [ApprovalDecision::AllowOnce, ApprovalDecision::Deny]
            );
        }
    }
}
