//! Approvals for runs of other hosts: they are stored and decided here, and nothing of them runs
//! here.

use interlock_command::display::{Secrets, ShownText};
use interlock_plan::hex;
use interlock_store::{
    Approval, ApprovalDecision, ApprovalEnding, ApprovalRequest, CreatedApproval, RecordedOutcome,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::approvals::Approvals;
use crate::claim::check_claim;
use crate::clock::now;
use crate::error::ApprovalRefusal;
use crate::pending::{PendingApproval, add_binding, add_reasons, add_session};
use crate::process::process_name;
use crate::stored_verdict::StoredVerdict;
use crate::view::{RemoteSubject, ViewLabel, build_remote_view};
use interlock_rules::RulesError;

/// The binding of such an approval: the other host binds it.
pub(crate) const REMOTE: &str = "remote";

/// An approval that another host, or a client for it, requests.
#[derive(Debug, Clone)]
pub struct RemoteApproval<'a> {
    /// An id that the caller chose.
    pub id: Option<&'a str>,
    /// Everything that the caller sent, as it is stored and returned. Approvers are shown its
    /// `command`.
    pub subject: &'a Value,
    pub agent: &'a str,
    pub session_key: &'a str,
    pub host: &'a str,
    pub node: Option<&'a str>,
    pub requester: &'a str,
    pub expires_in_ms: u64,
    /// Whether the other host can store *always*.
    pub offers_always: bool,
}

impl Approvals<'_> {
    /// Stores the approval and returns it. `None` if its id is taken.
    ///
    /// `show` receives the approval slightly earlier, when only the write to disk remains.
    /// Approvers may read it meanwhile; a decision waits until it is written. If the write fails,
    /// this function fails, and the surfaces must withdraw the approval.
    pub fn request_remote(
        self,
        requested: &RemoteApproval<'_>,
        show: impl FnOnce(&PendingApproval),
    ) -> Result<Option<PendingApproval>, ApprovalRefusal> {
        let plan = requested.subject.to_string();
        let now = now();
        let config = self.config()?;
        let exec = config.config().exec_for(requested.agent);
        let (most, highlighting) = (exec.most_pending(), exec.command_highlighting);
        let life = i64::try_from(requested.expires_in_ms).unwrap_or(i64::MAX);
        let read = RemoteSubject::read(requested.subject);
        let preview = read.shown_command(Secrets::Masked);
        let plan_digest = digest(&plan);
        let request = ApprovalRequest {
            content_digest: plan_digest.clone(),
            plan_digest,
            plan,
            verdict: StoredVerdict::of_reason(None, "another host asks").to_value(),
            binding: REMOTE.to_owned(),
            preview: preview.text.clone(),
            agent: requested.agent.to_owned(),
            session_key: requested.session_key.to_owned(),
            host: requested.host.to_owned(),
            node: requested.node.map(str::to_owned),
            requester: requested.requester.to_owned(),
            created_at_ms: now,
            expires_at_ms: now.saturating_add(life),
            always: requested.offers_always.then(|| json!([])),
        };
        self.store.change(|change| {
            change.check_pending(requested.agent, most, now)?;
            let CreatedApproval { id, short_id } = match requested.id {
                Some(id) if change.has_approval(id)? => return Ok(None),
                Some(id) => change.create_approval_as(id, &request)?,
                None => change.create_approval(&request)?,
            };
            let approval = Approval {
                id,
                short_id,
                request,
                deliveries: Vec::new(),
                ended: None,
                claim: None,
            };
            let subject = requested.subject.clone();
            let mut pending = pending(approval, subject, read, preview, Secrets::Masked);
            pending.view.command_highlighting = highlighting;
            show(&pending);
            Ok(Some(pending))
        })
    }

    /// Claims the single use of an approval for another host, and returns the decision. The claim
    /// is on disk when this function returns: no caller gets the decision twice.
    pub fn use_remote(self, id: &str) -> Result<ApprovalDecision, ApprovalRefusal> {
        let store = self.store;
        let approval = store.approval(id)?;
        let short_id = approval.short_id.clone();
        let ending = approval.ended.as_ref().map(|ended| ended.ending);
        let Some(ApprovalEnding::Decision(decision)) = ending.filter(|ending| ending.allows())
        else {
            return Err(match &approval.ended {
                None => ApprovalRefusal::Undecided { short_id },
                Some(ended) => match ended.ending {
                    ApprovalEnding::Expired => ApprovalRefusal::Expired { short_id },
                    ApprovalEnding::Decision(ApprovalDecision::Deny) => {
                        ApprovalRefusal::denied(short_id, ended)
                    }
                    ending => ApprovalRefusal::Ended {
                        short_id,
                        why: ending.as_str().to_owned(),
                    },
                },
            });
        };
        let digest = &approval.request.plan_digest;
        let claiming = store.claim(&approval.id, digest, process_name(), now())?;
        check_claim(claiming, &short_id)?;
        Ok(decision)
    }

    /// The ids of up to `most` approvals for node runs that may still run. For a gateway that
    /// starts and continues the work of an earlier process.
    pub fn unclaimed_remote(self, most: usize) -> Result<Vec<String>, RulesError> {
        Ok(self.store.unclaimed_on_nodes(REMOTE, most)?)
    }

    /// Records the outcome of another host's run; `None` if it is unknown.
    pub fn finish_remote(
        self,
        id: &str,
        outcome: Option<&RecordedOutcome>,
    ) -> Result<(), RulesError> {
        let store = self.store;
        match outcome {
            Some(outcome) => store.finish_claim(id, outcome, now())?,
            None => store.mark_unknown(id, now())?,
        }
        Ok(())
    }
}

pub(crate) fn read_remote(
    approval: Approval,
    secrets: Secrets,
) -> Result<PendingApproval, ApprovalRefusal> {
    let request = &approval.request;
    let subject: Value = serde_json::from_str(&request.plan)
        .ok()
        .filter(|_| digest(&request.plan) == request.plan_digest)
        .ok_or_else(|| ApprovalRefusal::Damaged {
            short_id: approval.short_id.clone(),
            problem: "its question cannot be read".to_owned(),
        })?;
    let read = RemoteSubject::read(&subject);
    let command = read.shown_command(secrets);
    Ok(pending(approval, subject, read, command, secrets))
}

/// Makes the approval that approvers see. `subject` is returned as stored; `read` is the part of it
/// that an approver is shown.
fn pending(
    approval: Approval,
    subject: Value,
    read: RemoteSubject,
    command: ShownText,
    secrets: Secrets,
) -> PendingApproval {
    let request = approval.request;
    let mut offered = vec![ApprovalDecision::AllowOnce];
    if request.always.is_some() {
        offered.push(ApprovalDecision::AllowAlways);
    }
    offered.push(ApprovalDecision::Deny);
    let mut view = build_remote_view(&read, request.node.as_deref(), secrets);
    let notes = read.notes;
    let binding = notes.binding.unwrap_or_else(|| REMOTE.to_owned());
    let binding_reason = notes
        .binding_reason
        .unwrap_or_else(|| "bound by the host that runs it".to_owned());
    let reasons = notes
        .reasons
        .unwrap_or_else(|| vec!["another host asks".to_owned()]);
    view.field(ViewLabel::Agent, &request.agent);
    add_session(&mut view, &request.session_key);
    add_reasons(&mut view, &reasons);
    add_binding(&mut view, &binding, &binding_reason);
    PendingApproval {
        view,
        command,
        cwd: read.cwd.unwrap_or_default(),
        binding,
        binding_reason,
        reasons,
        // Approvers see these entries; the other host stores them.
        always: notes.always,
        always_form: notes.always_form,
        wider: Vec::new(),
        not_wider: Vec::new(),
        no_always: request.always.is_none().then(|| {
            notes
                .no_always
                .unwrap_or_else(|| "the policy of that host asks every time".to_owned())
        }),
        offered,
        id: approval.id,
        short_id: approval.short_id,
        plan_digest: request.plan_digest,
        agent: request.agent,
        session_key: request.session_key,
        host: request.host,
        requester: request.requester,
        created_at_ms: request.created_at_ms,
        expires_at_ms: request.expires_at_ms,
        ended: approval.ended,
        diff: None,
        node: request.node,
        remote: Some(subject),
        deliveries: approval.deliveries,
    }
}

fn digest(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}
