//! Judges commands that the caller's own shell runs. They go through the same judge and the same
//! inbox as any other command, but the caller starts them. Interlock pins, shields and limits
//! nothing of them, and the approval says so to the approver.

use interlock_approvals::{
    ApprovalRefusal, ElsewhereNotes, ElsewhereSubject, PendingApproval, RemoteApproval,
    check_bound, verdict_reasons,
};
use interlock_checks::refusal;
use interlock_command::Source;
use interlock_policy::{Outcome, Verdict, quote};
use interlock_store::{Change, StoreError};
use serde_json::json;

use crate::exec::{ExecError, ExecRequest};
use crate::local::{HostError, LocalHost};
use crate::pipeline::{RecordedConfinement, record_closed, record_verdict};

/// A command that the caller is about to run itself.
#[derive(Debug)]
pub struct ElsewhereRequest<'a> {
    /// The command that would run. Its terminal, limits and waiting have no effect here.
    pub exec: &'a ExecRequest<'a>,
    /// The program that would run the command, as the approver reads it: `Claude Code's own shell`.
    pub runner: &'a str,
    /// Further statements of the caller about the call, one line each.
    pub facts: &'a [String],
    /// How long an approver may take.
    pub expires_in_ms: u64,
}

/// The verdict of a command that was not refused.
#[derive(Debug)]
pub enum ElsewhereVerdict {
    Allowed(Box<Verdict>),
    /// The approval covers exactly this text in this directory, for one use:
    /// [`interlock_approvals::Approvals::use_remote`].
    Asked(Box<PendingApproval>),
}

impl LocalHost {
    /// Judges a command that runs outside of Interlock. The verdict is in the audit before this
    /// function returns.
    ///
    /// The verdict gives no permission that could start anything here: the caller itself runs an
    /// allowed command.
    pub fn judge_elsewhere(
        &self,
        request: &ElsewhereRequest<'_>,
    ) -> Result<ElsewhereVerdict, ExecError> {
        let exec = request.exec;
        let judged = match self.judge(exec) {
            Err(ExecError::Tool(refusal)) => {
                let recorded = self.store().change(|change| record_closed(change, exec));
                recorded.map_err(HostError::from)?;
                return Err(refusal.into());
            }
            judged => judged?,
        };
        if judged.sandbox.is_some() {
            return Err(HostError::SandboxUnavailable(format!(
                "{} is outside of it; use the tool exec",
                request.runner
            ))
            .into());
        }
        let verdict = &judged.evaluation.verdict;
        let refused = || -> Result<(), ExecError> {
            if let Some(refusal) = refusal(&judged.evaluation.analysis) {
                return Err(refusal.into());
            }
            if verdict.outcome == Outcome::Deny {
                return Err(ExecError::Denied(Box::new(verdict.clone())));
            }
            if verdict.outcome == Outcome::Ask {
                check_bound(&verdict.binding, judged.scope.exec())?;
            }
            Ok(())
        };
        let refused = refused();
        let code = refused.as_ref().err().map(ExecError::code);
        let recorded = self.store().change(|change: &Change<'_>| {
            record_verdict(change, exec, verdict, code, RecordedConfinement::default())?;
            Ok::<_, StoreError>(())
        });
        recorded.map_err(HostError::from)?;
        refused?;
        if verdict.outcome != Outcome::Ask {
            return Ok(ElsewhereVerdict::Allowed(Box::new(verdict.clone())));
        }
        let approval = self.ask_elsewhere(request, verdict)?;
        Ok(ElsewhereVerdict::Asked(Box::new(approval)))
    }

    fn ask_elsewhere(
        &self,
        request: &ElsewhereRequest<'_>,
        verdict: &Verdict,
    ) -> Result<PendingApproval, ApprovalRefusal> {
        let exec = request.exec;
        let session_key = exec.session_key();
        let mut reasons = verdict_reasons(verdict);
        reasons.extend(request.facts.iter().cloned());
        let subject = json!(ElsewhereSubject {
            command: &command_text(&exec.source),
            cwd: &exec.cwd,
            host: "gateway",
            agent_id: exec.agent.as_str(),
            session_key: &session_key,
            allowed_decisions: ["allow-once", "deny"],
            runs_elsewhere: request.runner,
            notes: ElsewhereNotes {
                binding: "elsewhere",
                binding_reason: format!("{} runs it: nothing of it is pinned", request.runner),
                reasons,
                no_always: format!("{} runs it, and asks Interlock every time", request.runner),
            },
        });
        let requested = RemoteApproval {
            id: None,
            subject: &subject,
            agent: exec.agent.as_str(),
            session_key: &session_key,
            host: "gateway",
            node: None,
            requester: exec.requester,
            expires_in_ms: request.expires_in_ms,
            offers_always: false,
        };
        let stored = self.approvals().request_remote(&requested, |_| {})?;
        // `None` means that the id is taken, which only happens to a request that brings its own
        // id.
        stored.ok_or_else(|| ApprovalRefusal::Undecided {
            short_id: String::new(),
        })
    }
}

fn command_text(source: &Source) -> String {
    match source {
        Source::Text(text) => text.clone(),
        Source::Argv(words) => {
            let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
            words.join(" ")
        }
    }
}
