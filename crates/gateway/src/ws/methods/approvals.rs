//! Approvals: asking, showing, deciding.

use std::sync::Arc;
use std::time::Duration;

use interlock_command::display::Secrets;
use interlock_host::{
    Choice, DecisionBy, DeskError, HostError, PendingApproval, RemoteQuestion, now_ms,
};
use interlock_store::{ApprovalError, Decision as Decided, Ended, Ending, Lease, StoreError};
use interlock_wire::approval::{
    ApprovalAccepted, ApprovalDecided, ApprovalDetails, ApprovalListed, ApprovalRecord,
    ApprovalRequested, ApprovalResolved, DEFAULT_TIMEOUT_MS, Decision, RESERVED_ID_PREFIX,
    SystemRunBinding, allowed_decisions,
};
use interlock_wire::params;
use interlock_wire::{Event, Request, Response, Scope, WireError, event, refusal};
use serde::Deserialize as _;
use serde_json::json;

use super::{Answer, Context, read, unavailable, work};
use crate::approvals::EndedApproval;
use crate::gateway::Gateway;
use crate::nodes::approval::ASKED_BY_DEVICE;
use crate::ws::client::Client;

/// The most that are listed at once.
const MOST: usize = 500;

/// The longest that a client may let people take.
const MAX_TIMEOUT_MS: u64 = 24 * 60 * 60 * 1000;

/// Tells operators of a question or its answer, whoever asked and whoever decided.
pub(crate) fn tell(gateway: &Gateway, approval: &PendingApproval) {
    if gateway.hub.count() == 0 {
        return;
    }
    match &approval.ended {
        Some(ended) => tell_end(gateway, approval, ended),
        None => tell_question(gateway, approval),
    }
}

/// To everybody who may decide, but for who asks.
fn tell_question(gateway: &Gateway, approval: &PendingApproval) {
    let Ok(event) = Event::new(event::EXEC_APPROVAL_REQUESTED, &requested(approval)) else {
        return;
    };
    for client in gateway.hub.approvers("") {
        if client.surface() != approval.requester {
            client.show(&approval.id);
            client.tell(&event);
        }
    }
}

/// To everybody who may decide, and to who asked.
fn tell_end(gateway: &Gateway, approval: &PendingApproval, ended: &Ended) {
    let resolved = ApprovalResolved {
        id: approval.id.clone(),
        decision: decision(ended.ending).unwrap_or(Decision::Deny),
        resolved_by: ended.decider.clone(),
        ts: now_ms(),
        request: details(approval),
    };
    if let Ok(event) = Event::new(event::EXEC_APPROVAL_RESOLVED, &resolved) {
        for client in gateway.hub.approvers("") {
            client.tell(&event);
        }
    }
}

/// What was decided, in the words of the protocol. Expiry is no decision.
fn decision(ending: Ending) -> Option<Decision> {
    match ending {
        Ending::Decision(Decided::AllowOnce | Decided::Lease(_)) | Ending::FallbackAllow => {
            Some(Decision::AllowOnce)
        }
        Ending::Decision(Decided::AllowSession) => Some(Decision::AllowSession),
        Ending::Decision(Decided::AllowAlways) => Some(Decision::AllowAlways),
        Ending::Decision(Decided::Deny) | Ending::FallbackDeny => Some(Decision::Deny),
        Ending::Expired | Ending::Withdrawn => None,
    }
}

fn time(milliseconds: i64) -> u64 {
    u64::try_from(milliseconds).unwrap_or_default()
}

fn requested(approval: &PendingApproval) -> ApprovalRequested {
    ApprovalRequested {
        id: approval.id.clone(),
        created_at_ms: time(approval.created_at_ms),
        expires_at_ms: time(approval.expires_at_ms),
        request: details(approval),
    }
}

/// A question as clients know it: what another host said, or what this one found.
fn details(approval: &PendingApproval) -> ApprovalDetails {
    let decisions = |choice: &Choice| match choice {
        Choice::AllowOnce => Some(Decision::AllowOnce),
        Choice::AllowAlways => Some(Decision::AllowAlways),
        Choice::AllowSession => Some(Decision::AllowSession),
        Choice::Deny => Some(Decision::Deny),
        Choice::Lease => None,
    };
    let allowed: Vec<Decision> = approval.choices.iter().filter_map(decisions).collect();
    let remote = approval.remote.as_ref();
    if let Some(mut details) = remote.and_then(|said| ApprovalDetails::deserialize(said).ok()) {
        details.plan_digest = Some(approval.plan_digest.clone());
        return details;
    }
    let mut warnings = vec![format!("{}: {}", approval.binding, approval.binding_reason)];
    warnings.extend(approval.reasons.iter().cloned());
    ApprovalDetails {
        command: approval.command.text.clone(),
        cwd: Some(approval.cwd.clone()),
        node_id: approval.node.clone(),
        host: Some(approval.host.clone()),
        warning_text: Some(warnings.join("\n")),
        allowed_decisions: allowed,
        agent_id: Some(approval.agent.clone()),
        session_key: Some(approval.session_key.clone()),
        plan_digest: Some(approval.plan_digest.clone()),
        ..ApprovalDetails::default()
    }
}

/// Asks for another host, or for a client that runs things by itself.
pub(super) async fn request(context: Context<'_>, request: &Request) -> Answer {
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
    let details = asked_details(&params, &host, command.clone());
    let offers_always = details.allowed_decisions.contains(&Decision::AllowAlways);
    let expires_in_ms = params
        .timeout_ms
        .unwrap_or(DEFAULT_TIMEOUT_MS)
        .min(MAX_TIMEOUT_MS);
    let requester = context.client.surface();
    let mut subject = json!(details);
    subject[ASKED_BY_DEVICE] = json!(context.client.device);
    let id = params.id.clone();
    let others = context.gateway.hub.approvers(&context.client.connection);
    let is_shown = !others.is_empty() || has_companion(context.gateway);
    let (created, waiting) = work(context, move |gateway| {
        let question = RemoteQuestion {
            id: id.as_deref(),
            subject: &subject,
            command: &command,
            agent: details.agent_id.as_deref().unwrap_or("main"),
            session_key: details.session_key.as_deref().unwrap_or("agent:main:main"),
            host: &host,
            node: details.node_id.as_deref(),
            requester: &requester,
            expires_in_ms,
            offers_always,
        };
        ask(gateway, &question, is_shown)
    })
    .await?;
    let now = now_ms();
    let expires_at_ms = now.saturating_add(expires_in_ms);
    let id = created.id;
    let Some(waiting) = waiting else {
        let withdrawn = id.clone();
        work(context, move |gateway| {
            let withdrawn = gateway.host.desk().withdraw(&withdrawn);
            withdrawn.map_err(|error| WireError::unavailable(error.to_string()))
        })
        .await?;
        return Ok(json!(ApprovalDecided {
            id,
            decision: None,
            created_at_ms: now,
            expires_at_ms,
        }));
    };
    if params.two_phase == Some(true) {
        let accepted = ApprovalAccepted::new(&id, now, expires_at_ms);
        context
            .client
            .answer(&Response::success(&request.id, &accepted));
    }
    let wait = Duration::from_millis(expires_in_ms + 2_000);
    match tokio::time::timeout(wait, waiting).await {
        Ok(Some(approval)) => Ok(json!(standing(&approval))),
        Ok(None) | Err(_) => decided(context, &id).await,
    }
}

/// Puts a question down, and shows it to those who may decide while it is being written: what they
/// answer waits for that. How its end is waited for; none where nobody can be asked.
fn ask(
    gateway: &Gateway,
    question: &RemoteQuestion<'_>,
    is_shown: bool,
) -> Result<
    (
        PendingApproval,
        Option<impl Future<Output = EndedApproval> + use<>>,
    ),
    WireError,
> {
    let mut shown = None;
    let asked = gateway.host.desk().ask_remote(question, |approval| {
        if is_shown {
            let waiting = gateway.approvals.wait_for(&approval.id);
            gateway.approvals.tell(gateway, approval.clone());
            shown = Some((approval.id.clone(), waiting));
        }
    });
    match asked {
        Ok(Some(asked)) => Ok((asked, shown.map(|(_, waiting)| waiting))),
        Ok(None) => Err(refusal::APPROVAL_ALREADY_PENDING.error()),
        Err(error) => {
            if let Some((id, _)) = shown {
                gateway.approvals.take_back(gateway, &id);
            }
            Err(unreadable(&error))
        }
    }
}

/// Somebody else on this machine shows prompts.
fn has_companion(gateway: &Gateway) -> bool {
    std::os::unix::net::UnixStream::connect(gateway.host.state_dir().join("exec-approvals.sock"))
        .is_ok()
}

fn check_id(id: &str) -> Result<(), WireError> {
    if id.starts_with(RESERVED_ID_PREFIX) {
        return Err(refusal::APPROVAL_ID_RESERVED.error());
    }
    let fits = id.len() <= 36
        && id.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.')
        });
    if fits {
        return Ok(());
    }
    let problem = "at /id: must be a UUID, or at most 36 of a-z, 0-9, `-`, `_` and `.`".to_owned();
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
        allowed.retain(|decision| *decision != Decision::AllowAlways);
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

/// How an approval stands.
async fn decided(context: Context<'_>, id: &str) -> Answer {
    let id = id.to_owned();
    work(context, move |gateway| {
        let approval = find(gateway, &id).map_err(|_| refusal::APPROVAL_WAIT_NOT_FOUND.error())?;
        Ok(json!(standing(&approval)))
    })
    .await
}

fn standing(approval: &PendingApproval) -> ApprovalDecided {
    let ended = approval.ended.as_ref();
    ApprovalDecided {
        id: approval.id.clone(),
        decision: ended.and_then(|ended| decision(ended.ending)),
        created_at_ms: time(approval.created_at_ms),
        expires_at_ms: time(approval.expires_at_ms),
    }
}

fn find(gateway: &Gateway, id: &str) -> Result<PendingApproval, WireError> {
    match gateway.host.desk().approval(id, Secrets::Masked) {
        Ok(approval) => Ok(approval),
        // It may be shown already, and not be written yet.
        Err(DeskError::Host(HostError::Store(StoreError::Approval(_)))) => {
            let shown = gateway.approvals.pending(id);
            shown.map(Arc::unwrap_or_clone).ok_or_else(not_found)
        }
        Err(error) => Err(unreadable(&error)),
    }
}

fn unreadable(error: &DeskError) -> WireError {
    WireError::unavailable(error.to_string()).with("code", error.code())
}

fn not_found() -> WireError {
    refusal::APPROVAL_NOT_FOUND
        .error()
        .with("remediation", "list what waits: exec.approval.list")
}

/// Whether a client may know of an approval: administrators and those who decide know of all, others
/// of what they asked themselves.
fn may_see(client: &Client, approval: &PendingApproval) -> bool {
    client.scopes.allow(Scope::Approvals) || client.surface() == approval.requester
}

pub(super) async fn wait_decision(context: Context<'_>, request: &Request) -> Answer {
    let params: params::ExecApprovalWaitDecision = read(request)?;
    let id = params.id.clone();
    let approval = work(context, move |gateway| {
        find(gateway, &id).map_err(|_| refusal::APPROVAL_WAIT_NOT_FOUND.error())
    })
    .await?;
    let waiting = context.gateway.approvals.wait_for(&approval.id);
    let left = time(approval.expires_at_ms).saturating_sub(now_ms()) + 2_000;
    // Decided before we listened, perhaps.
    let answer = decided(context, &approval.id).await?;
    if approval.ended.is_some() || !answer["decision"].is_null() {
        return Ok(answer);
    }
    let _ = tokio::time::timeout(Duration::from_millis(left), waiting).await;
    decided(context, &approval.id).await
}

pub(super) async fn list(context: Context<'_>, request: &Request) -> Answer {
    read::<params::ExecApprovalList>(request)?;
    let client = Arc::clone(context.client);
    work(context, move |gateway| {
        let desk = gateway.host.desk();
        let page = desk.pending(0, MOST).map_err(|error| unavailable(&error))?;
        let mut listed = Vec::new();
        for summary in page.approvals {
            // What cannot be read is no reason to hide the rest.
            let Ok(approval) = desk.approval(&summary.id, Secrets::Masked) else {
                continue;
            };
            if approval.ended.is_none() && may_see(&client, &approval) {
                client.show(&approval.id);
                listed.push(ApprovalListed::from(requested(&approval)));
            }
        }
        Ok(json!(listed))
    })
    .await
}

pub(super) async fn get(context: Context<'_>, request: &Request) -> Answer {
    let params: params::ExecApprovalGet = read(request)?;
    let client = Arc::clone(context.client);
    work(context, move |gateway| {
        let approval = find(gateway, &params.id)?;
        if !may_see(&client, &approval) {
            return Err(not_found());
        }
        client.show(&approval.id);
        let details = details(&approval);
        let mut record = json!(ApprovalRecord {
            id: approval.id,
            command_preview: details
                .system_run_plan
                .as_ref()
                .and_then(|plan| plan.command_preview.clone()),
            command_text: details.command,
            allowed_decisions: details.allowed_decisions,
            host: details.host,
            node_id: details.node_id,
            agent_id: details.agent_id,
            expires_at_ms: time(approval.expires_at_ms),
        });
        record["planDigest"] = approval.plan_digest.into();
        Ok(record)
    })
    .await
}

pub(super) async fn resolve(context: Context<'_>, request: &Request) -> Answer {
    let params: params::ExecApprovalResolve = read(request)?;
    let decision = match params.decision.as_str() {
        "lease" => Decided::Lease(Lease {
            expires_in: Duration::from_millis(params.expires_in_ms.ok_or_else(|| {
                WireError::params(
                    "exec.approval.resolve",
                    &["must have required property 'expiresInMs'".to_owned()],
                )
            })?),
            max_uses: params
                .max_uses
                .and_then(|uses| u32::try_from(uses).ok())
                .and_then(std::num::NonZeroU32::new),
        }),
        word => match Decision::parse(word) {
            Some(Decision::AllowOnce) => Decided::AllowOnce,
            Some(Decision::AllowAlways) => Decided::AllowAlways,
            Some(Decision::AllowSession) => Decided::AllowSession,
            Some(Decision::Deny) => Decided::Deny,
            None => return Err(refusal::INVALID_DECISION.error()),
        },
    };
    let client = Arc::clone(context.client);
    work(context, move |gateway| {
        let approval = match gateway.approvals.pending(&params.id) {
            Some(approval) => approval,
            None => Arc::new(find(gateway, &params.id)?),
        };
        if !client.was_shown(&approval.id) {
            return Err(
                WireError::invalid("this approval was not shown to this connection")
                    .with("reason", "APPROVAL_NOT_SHOWN")
                    .with("remediation", "read it first: exec.approval.get"),
            );
        }
        let digest = params
            .plan_digest
            .as_deref()
            .unwrap_or(&approval.plan_digest);
        let surface = client.surface();
        let by = DecisionBy {
            decider: client.name(),
            surface: &surface,
            has_shown: true,
            outside: gateway.outside,
        };
        let stored = gateway
            .host
            .desk()
            .decide(&approval.id, digest, decision, by);
        let stored = stored.map_err(|error| refused(&error))?;
        if !stored.again {
            let ended = Some(stored.ended);
            let approval = PendingApproval::clone(&approval);
            let ended = PendingApproval { ended, ..approval };
            gateway.approvals.tell(gateway, ended);
        }
        Ok(json!({ "ok": true }))
    })
    .await
}

fn refused(error: &DeskError) -> WireError {
    let DeskError::Host(HostError::Store(StoreError::Approval(problem))) = error else {
        return match error {
            DeskError::NotOffered { choice, .. } if *choice == "allow-always" => {
                refusal::APPROVAL_ALLOW_ALWAYS_UNAVAILABLE
                    .error()
                    .with("why", error.to_string())
            }
            error => WireError::invalid(error.to_string()).with("reason", error.code()),
        };
    };
    match problem {
        ApprovalError::AlreadyDecided { .. } => refusal::APPROVAL_ALREADY_RESOLVED
            .error()
            .with("why", problem.to_string()),
        ApprovalError::NotFound { .. } | ApprovalError::Expired { .. } => not_found(),
        problem => WireError::invalid(problem.to_string()).with("reason", problem.code()),
    }
}
