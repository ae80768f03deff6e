//! `exec.approval.request`: approvals for other hosts, and for clients that run commands
//! themselves.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use interlock_approvals::{RemoteApproval, RemoteRunFacts, companion};
use interlock_connections::Client;
use interlock_dispatch::approvals::EndedApproval;
use interlock_dispatch::nodes::approval::ASKED_BY_DEVICE;
use interlock_host::now_ms;
use interlock_store::MAX_APPROVAL_ID_BYTES;
use interlock_wire::approval::{
    ApprovalAccepted, ApprovalDecided, ApprovalDetails, DEFAULT_TIMEOUT_MS, DecisionWord,
    RESERVED_ID_PREFIX, SystemRunBinding, allowed_decisions,
};
use interlock_wire::{Request, Response, WireError, params, refusal};
use serde_json::json;
use tokio::sync::Notify;

use super::approvals::{decided, standing, unreadable};
use super::{Context, read, work};
use crate::gateway::Gateway;

/// The longest time that a client may give approvers for their decision.
const MAX_TIMEOUT_MS: u64 = 24 * 60 * 60 * 1000;

/// Requests an approval and answers with its decision. Returns `None` if that answer was already
/// sent.
pub(super) async fn request(
    context: Context<'_>,
    request: &Request,
) -> Option<Result<ApprovalDecided, WireError>> {
    let answers = Answers::to(context.client, &request.id);
    let asked = match ask(context, request, &answers).await {
        Ok(asked) if asked.is_shown => asked,
        Ok(asked) => return Some(withdraw(context, asked).await),
        Err(error) => return Some(Err(error)),
    };
    let wait = Duration::from_millis(asked.expires_in_ms + 2_000);
    let _ = tokio::time::timeout(wait, answers.until_ended.notified()).await;
    match answers.close() {
        AskAnswer::All => None,
        _ => Some(decided(context, &asked.accepted.id).await),
    }
}

/// An approval that was stored.
struct AskedApproval {
    accepted: ApprovalAccepted,
    expires_in_ms: u64,
    /// Whether the client of an approver received it.
    is_shown: bool,
}

/// The answers that a client receives, in this order: that its approval was stored, if it wants to
/// know, and how it ended. The thread that learns either sends it, which may be the thread that
/// decides.
struct Answers {
    client: Arc<Client>,
    request: String,
    answered: Mutex<AskAnswer>,
    /// Notified when the end is known and its answer was sent, if it could be.
    until_ended: Notify,
}

enum AskAnswer {
    Nothing,
    /// Nothing was sent yet, but the approval has ended.
    NothingYet(EndedApproval),
    Accepted,
    All,
}

impl Answers {
    fn to(client: &Arc<Client>, request: &str) -> Arc<Self> {
        Arc::new(Self {
            client: Arc::clone(client),
            request: request.to_owned(),
            answered: Mutex::new(AskAnswer::Nothing),
            until_ended: Notify::new(),
        })
    }

    /// Marks the approval as stored on disk. If `accepted` is given, it is sent to the client.
    fn accept(&self, accepted: Option<&ApprovalAccepted>) {
        let mut answered = self.answered();
        if let Some(accepted) = accepted {
            self.client
                .answer(&Response::success(&self.request, accepted));
        }
        let before = std::mem::replace(&mut *answered, AskAnswer::Accepted);
        if let AskAnswer::NothingYet(ended) = before {
            *answered = self.answer_end(ended);
            self.until_ended.notify_one();
        }
    }

    fn end(&self, ended: EndedApproval) {
        let mut answered = self.answered();
        match *answered {
            AskAnswer::Nothing => *answered = AskAnswer::NothingYet(ended),
            AskAnswer::Accepted => {
                *answered = self.answer_end(ended);
                drop(answered);
                self.until_ended.notify_one();
            }
            AskAnswer::NothingYet(_) | AskAnswer::All => {}
        }
    }

    /// Sends how the approval ended. An approval that cannot be read is left to the task that waits
    /// for it.
    fn answer_end(&self, ended: EndedApproval) -> AskAnswer {
        let Some(approval) = ended else {
            return AskAnswer::Accepted;
        };
        let decided = standing(&approval);
        self.client
            .answer(&Response::success(&self.request, &decided));
        AskAnswer::All
    }

    /// Returns what was sent so far, and prevents that more is sent.
    fn close(&self) -> AskAnswer {
        std::mem::replace(&mut *self.answered(), AskAnswer::All)
    }

    fn answered(&self) -> MutexGuard<'_, AskAnswer> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask(
    context: Context<'_>,
    request: &Request,
    answers: &Arc<Answers>,
) -> Result<AskedApproval, WireError> {
    let params: params::ExecApprovalRequest = read(request)?;
    let host = params.host.clone().unwrap_or_else(|| "gateway".to_owned());
    if host == "node" && params.node_id.is_none() {
        return Err(refusal::APPROVAL_NODE_ID_REQUIRED.error());
    }
    if host == "node" && params.system_run_plan.is_none() {
        return Err(refusal::APPROVAL_PLAN_REQUIRED.error());
    }
    if let Some(plan) = &params.system_run_plan {
        let checked = plan.check_texts();
        checked.map_err(|mismatch| WireError::raw_command_mismatch(&mismatch))?;
    }
    let command = match (&params.system_run_plan, &params.command) {
        (Some(plan), _) => plan.command_text.clone(),
        (None, Some(command)) => command.clone(),
        (None, None) => return Err(refusal::APPROVAL_COMMAND_REQUIRED.error()),
    };
    if let Some(id) = &params.id {
        check_id(id)?;
    }
    let details = asked_details(&params, &host, command);
    let offers_always = details
        .allowed_decisions
        .contains(&DecisionWord::ALLOW_ALWAYS);
    let expires_in_ms = params
        .timeout_ms
        .unwrap_or(DEFAULT_TIMEOUT_MS)
        .min(MAX_TIMEOUT_MS);
    let requester = context.client.surface();
    let mut subject = json!(details);
    subject[ASKED_BY_DEVICE] = json!(context.client.device);
    let node = details.node_id.as_deref();
    if let Some(node) = node.and_then(|id| context.gateway.dispatcher.nodes.get(id)) {
        subject[RemoteRunFacts::NODE_NAME_KEY] = node.name().into();
    }
    if let Some(env) = &params.env {
        subject[RemoteRunFacts::ENV_KEY] = json!(env);
    }
    let others = context
        .gateway
        .dispatcher
        .hub
        .approvers(&context.client.connection);
    let is_watched = !others.is_empty();
    let answers = Arc::clone(answers);
    work(context, move |gateway| {
        let is_shown = is_watched || companion::is_listening(gateway.dispatcher.host.state_dir());
        let question = RemoteApproval {
            id: params.id.as_deref(),
            subject: &subject,
            agent: details.agent_id.as_deref().unwrap_or("main"),
            session_key: details.session_key.as_deref().unwrap_or("agent:main:main"),
            host: &host,
            node: details.node_id.as_deref(),
            requester: &requester,
            expires_in_ms,
            offers_always,
        };
        let id = put_down(gateway, &question, is_shown.then_some(&answers))?;
        let now = now_ms();
        let accepted = ApprovalAccepted::new(&id, now, now.saturating_add(expires_in_ms));
        if is_shown {
            let is_two_phase = params.two_phase == Some(true);
            answers.accept(is_two_phase.then_some(&accepted));
        }
        Ok(AskedApproval {
            accepted,
            expires_in_ms,
            is_shown,
        })
    })
    .await
}

/// Stores an approval and returns its id. Approvers see it while it is being written, and their
/// decision waits until it is written.
fn put_down(
    gateway: &Gateway,
    question: &RemoteApproval<'_>,
    shown: Option<&Arc<Answers>>,
) -> Result<String, WireError> {
    let mut shown_as = None;
    let asked = gateway
        .dispatcher
        .host
        .approvals()
        .request_remote(question, |approval| {
            if let Some(answers) = shown {
                let answers = Arc::clone(answers);
                let answer = move |ended| answers.end(ended);
                gateway
                    .dispatcher
                    .approvals
                    .when_ended(&approval.id, answer);
                gateway
                    .dispatcher
                    .approvals
                    .tell(&gateway.dispatcher, approval.clone());
                shown_as = Some(approval.id.clone());
            }
        });
    match asked {
        Ok(Some(asked)) => Ok(asked.id),
        Ok(None) => Err(refusal::APPROVAL_ALREADY_PENDING.error()),
        Err(error) => {
            if let Some(id) = shown_as {
                gateway
                    .dispatcher
                    .approvals
                    .take_back(&gateway.dispatcher, &id);
            }
            Err(unreadable(&error))
        }
    }
}

/// Ends an approval for which no approver is reachable.
async fn withdraw(
    context: Context<'_>,
    asked: AskedApproval,
) -> Result<ApprovalDecided, WireError> {
    let AskedApproval { accepted, .. } = asked;
    let id = accepted.id.clone();
    work(context, move |gateway| {
        let withdrawn = gateway.dispatcher.host.approvals().withdraw(&id);
        withdrawn.map_err(|error| WireError::unavailable(error.to_string()))
    })
    .await?;
    Ok(ApprovalDecided {
        id: accepted.id,
        decision: None,
        created_at_ms: accepted.created_at_ms,
        expires_at_ms: accepted.expires_at_ms,
    })
}

fn check_id(id: &str) -> Result<(), WireError> {
    if id.starts_with(RESERVED_ID_PREFIX) {
        return Err(refusal::APPROVAL_ID_RESERVED.error());
    }
    let fits = id.len() <= MAX_APPROVAL_ID_BYTES
        && !matches!(id, "." | "..")
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':'));
    // Approvers name approvals by short ids, so no id may look like the short id of another
    // approval.
    let is_short_id = id.len() == 5 && id.bytes().all(|byte| byte.is_ascii_alphabetic());
    if fits && !is_short_id {
        return Ok(());
    }
    let problem = if is_short_id {
        "at /id: five letters are the short id of an approval; use a UUID".to_owned()
    } else {
        format!(
            "at /id: must be a UUID, or at most {MAX_APPROVAL_ID_BYTES} of A-Z, a-z, 0-9, `-`, `_`, `.` and `:`"
        )
    };
    Err(WireError::params("exec.approval.request", &[problem]))
}

fn asked_details(
    params: &params::ExecApprovalRequest,
    host: &str,
    command: String,
) -> ApprovalDetails {
    let env = params.env.clone().unwrap_or_default();
    let mut allowed = allowed_decisions(params.ask.as_deref());
    if params
        .unavailable_decisions
        .iter()
        .flatten()
        .next()
        .is_some()
    {
        allowed.retain(|decision| *decision != DecisionWord::ALLOW_ALWAYS);
    }
    let plan = params.system_run_plan.clone();
    ApprovalDetails {
        command,
        command_argv: params.command_argv.clone().filter(|_| host != "node"),
        env_keys: (!env.is_empty()).then(|| env.keys().cloned().collect()),
        system_run_binding: plan
            .as_ref()
            .map(|plan| SystemRunBinding::of_plan(plan, &env)),
        cwd: plan
            .as_ref()
            .and_then(|plan| plan.cwd.clone())
            .or_else(|| params.cwd.clone()),
        node_id: params.node_id.clone(),
        host: Some(host.to_owned()),
        security: params.security.clone(),
        ask: params.ask.clone(),
        warning_text: params.warning_text.clone(),
        command_spans: params.command_spans.clone(),
        allowed_decisions: allowed,
        agent_id: plan
            .as_ref()
            .and_then(|plan| plan.agent_id.clone())
            .or_else(|| params.agent_id.clone()),
        resolved_path: params.resolved_path.clone(),
        session_key: plan
            .as_ref()
            .and_then(|plan| plan.session_key.clone())
            .or_else(|| params.session_key.clone()),
        turn_source_channel: params.turn_source_channel.clone(),
        turn_source_to: params.turn_source_to.clone(),
        turn_source_account_id: params.turn_source_account_id.clone(),
        turn_source_thread_id: params.turn_source_thread_id.clone(),
        system_run_plan: plan,
        ..ApprovalDetails::default()
    }
}
