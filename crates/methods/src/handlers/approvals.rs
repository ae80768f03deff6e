//! `exec.approval.*`: shows approvals and takes decisions.

use std::sync::Arc;
use std::time::Duration;

use interlock_approvals::{
    ApprovalDecision, ApprovalRefusal, DecisionBy, PendingApproval, PendingCursor, ViewDetail,
    ViewLabel, requester_has_ended, summary_to_send,
};
use interlock_command::display::Secrets;
use interlock_command::{HighlightStyle, highlight};
use interlock_connections::{Client, Hub};
use interlock_host::now_ms;
use interlock_policy::AlwaysForm;
use interlock_rules::RulesError;
use interlock_store::{ApprovalEnd, ApprovalEnding, ApprovalError, Lease, StoreError};
use interlock_wire::approval::{
    ApprovalAskedAgain, ApprovalDecided, ApprovalDecisionResult, ApprovalDecisionStored,
    ApprovalDetails, ApprovalListed, ApprovalListing, ApprovalOpened, ApprovalRecord,
    ApprovalRequested, ApprovalResolved, ApprovalRows, ApprovalsDecided, DecisionWord,
};
use interlock_wire::method::require;
use interlock_wire::params::{self, Params as _};
use interlock_wire::{Event, OperatorScope, WireError, event, refusal};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{Context, approvals_unavailable, work};
use crate::gateway::Gateway;

/// The limit of each text in an event or a list. `exec.approval.get` returns the rest.
const EVENT_BYTES: usize = 16 * 1024;
/// The limit of each text when a client reads one approval.
const OPENED_BYTES: usize = 512 * 1024;

/// Approvals on one page if the caller names no limit.
const PAGE: usize = 500;

/// Notifies operators of an approval or its decision, whichever process created or decided it. If
/// `ended_at_ms` is given, the approval is over: clients that connected later have nothing to
/// decide.
pub(crate) fn show(hub: &Hub, approval: &PendingApproval, ended_at_ms: Option<i64>) {
    if hub.count() == 0 {
        return;
    }
    match (&approval.ended, ended_at_ms) {
        (Some(ended), None) => tell_end(hub, approval, ended),
        (_, ended_at_ms) => tell_question(hub, approval, ended_at_ms.unwrap_or(i64::MAX)),
    }
}

/// Notifies every client that may decide, except the requester and clients that connected after the
/// approval ended.
fn tell_question(hub: &Hub, approval: &PendingApproval, ended_at_ms: i64) {
    let Ok(event) = Event::new(event::EXEC_APPROVAL_REQUESTED, &requested(approval)) else {
        return;
    };
    let (pages, others) = approvers(hub);
    if !pages.is_empty() {
        crate::ui::tell_question(&pages, approval);
    }
    for client in others {
        if client.surface() != approval.requester && client.connected_at_ms <= time(ended_at_ms) {
            client.show(&approval.id);
            client.tell(&event);
        }
    }
}

/// Returns the clients that can show approvals: pages of the Control UI, and all others.
fn approvers(hub: &Hub) -> (Vec<Arc<Client>>, Vec<Arc<Client>>) {
    let all = hub.approvers("").into_iter();
    all.partition(|client| client.topics.has_page())
}

/// Notifies every client that may decide, and the requester. Clients that connected after the end
/// are notified only if they were shown the approval.
fn tell_end(hub: &Hub, approval: &PendingApproval, ended: &ApprovalEnd) {
    let resolved = ApprovalResolved {
        id: approval.id.clone(),
        decision: decision(ended.ending).unwrap_or(DecisionWord::DENY),
        resolved_by: ended.decider.clone(),
        ts: now_ms(),
        request: details(approval),
    };
    let (pages, others) = approvers(hub);
    if !pages.is_empty() {
        crate::ui::tell_end(&pages, approval, ended);
    }
    if let Ok(event) = Event::new(event::EXEC_APPROVAL_RESOLVED, &resolved) {
        for client in others {
            let was_there = client.connected_at_ms <= time(ended.at_ms);
            if was_there || client.was_shown(&approval.id) {
                client.tell(&event);
            }
        }
    }
}

/// Returns the decision in the words of the protocol. Expiry is not a decision.
pub(super) fn decision(ending: ApprovalEnding) -> Option<DecisionWord> {
    match ending {
        ApprovalEnding::Decision(ApprovalDecision::Lease(_)) | ApprovalEnding::FallbackAllow => {
            Some(DecisionWord::ALLOW_ONCE)
        }
        ApprovalEnding::Decision(decision) => DecisionWord::parse(decision.as_str()),
        ApprovalEnding::FallbackDeny => Some(DecisionWord::DENY),
        ApprovalEnding::Expired | ApprovalEnding::Withdrawn => None,
    }
}

pub(super) fn time(milliseconds: i64) -> u64 {
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

/// Returns an approval as clients know it: as another host described it, or as this host found it.
pub(super) fn details(approval: &PendingApproval) -> ApprovalDetails {
    // Not every client knows a word for a lease.
    let word = |decision: &ApprovalDecision| DecisionWord::parse(decision.as_str());
    let allowed: Vec<DecisionWord> = approval.offered.iter().filter_map(word).collect();
    let remote = approval.remote.as_ref();
    if let Some(mut details) = remote.and_then(|said| ApprovalDetails::deserialize(said).ok()) {
        details.command.clone_from(&approval.command.text);
        details.plan_digest = Some(approval.plan_digest.clone());
        details
            .allowed_decisions
            .retain(|decision| allowed.contains(decision));
        add_view(&mut details, approval);
        return details;
    }
    let mut warnings = vec![format!("{}: {}", approval.binding, approval.binding_reason)];
    warnings.extend(approval.reasons.iter().cloned());
    let mut command = approval.command.text.clone();
    // Clients show the command, and an approver judges a patch by its changes.
    if let ("patch", Some(diff)) = (approval.binding.as_str(), &approval.diff) {
        command = format!("{command}\n{}", diff.text);
    }
    let mut details = ApprovalDetails {
        command,
        cwd: Some(approval.cwd.clone()),
        node_id: approval.node.clone(),
        host: Some(approval.host.clone()),
        warning_text: Some(warnings.join("\n")),
        allowed_decisions: allowed,
        agent_id: Some(approval.agent.clone()),
        session_key: Some(approval.session_key.clone()),
        plan_digest: Some(approval.plan_digest.clone()),
        ..ApprovalDetails::default()
    };
    let names = approval.view.values(ViewLabel::Env).filter_map(|value| {
        let (name, _) = value.as_str().split_once('=')?;
        Some(name.to_owned())
    });
    let names: Vec<String> = names.collect();
    details.env_keys = (!names.is_empty()).then_some(names);
    if approval.view.command_highlighting == Some(true) {
        details.command_spans = Some(program_spans(&details.command));
    }
    add_view(&mut details, approval);
    details
}

/// Returns where programs stand in a command, counted in the units of JavaScript strings.
fn program_spans(command: &str) -> Vec<params::CommandSpan> {
    let units = |bytes: usize| command[..bytes].encode_utf16().count() as u64;
    let programs = highlight(command).into_iter();
    let programs = programs.filter(|found| found.style == HighlightStyle::Program);
    let spans = programs.map(|found| params::CommandSpan {
        start_index: units(found.span.start),
        end_index: units(found.span.end),
    });
    spans.collect()
}

/// Adds the whole view, so that every kind of surface can show it.
fn add_view(details: &mut ApprovalDetails, approval: &PendingApproval) {
    let view = approval.view.bounded(EVENT_BYTES);
    details.view = serde_json::to_value(&view).ok();
    details.view_text = Some(view.text(ViewDetail::Whole, ""));
}

/// Returns the state of an approval.
pub(super) async fn decided(context: Context<'_>, id: &str) -> Result<ApprovalDecided, WireError> {
    let id = id.to_owned();
    work(context, move |gateway| {
        let approval = find(gateway, &id).map_err(|_| refusal::APPROVAL_WAIT_NOT_FOUND.error())?;
        Ok(standing(&approval))
    })
    .await
}

pub(super) fn standing(approval: &PendingApproval) -> ApprovalDecided {
    let ended = approval.ended.as_ref();
    ApprovalDecided {
        id: approval.id.clone(),
        decision: ended.and_then(|ended| decision(ended.ending)),
        created_at_ms: time(approval.created_at_ms),
        expires_at_ms: time(approval.expires_at_ms),
    }
}

pub(super) fn find(gateway: &Gateway, id: &str) -> Result<PendingApproval, WireError> {
    find_with(gateway, id, Secrets::Masked)
}

pub(crate) fn find_with(
    gateway: &Gateway,
    id: &str,
    secrets: Secrets,
) -> Result<PendingApproval, WireError> {
    match gateway.dispatcher.host.approvals().approval(id, secrets) {
        Ok(approval) => Ok(approval),
        // An approval may be shown before it is written to the store.
        Err(ApprovalRefusal::State(RulesError::Store(StoreError::Approval(_)))) => {
            let shown = gateway.dispatcher.approvals.pending(id);
            shown.map(Arc::unwrap_or_clone).ok_or_else(not_found)
        }
        Err(error) => Err(unreadable(&error)),
    }
}

pub(super) fn unreadable(error: &ApprovalRefusal) -> WireError {
    let wire = WireError::unavailable(error.to_string()).with("code", error.code());
    match error.remedy() {
        Some(remedy) => wire.with("remediation", remedy),
        None => wire,
    }
}

fn not_found() -> WireError {
    refusal::APPROVAL_NOT_FOUND
        .error()
        .with("remediation", "list what waits: exec.approval.list")
}

/// Whether a client may see an approval. Administrators and approvers see all, other clients see
/// what they asked themselves.
pub(super) fn may_see(client: &Client, approval: &PendingApproval) -> bool {
    client.scopes.allow(OperatorScope::Approvals) || client.surface() == approval.requester
}

pub(super) async fn wait_decision(
    context: Context<'_>,
    params: params::ExecApprovalWaitDecision,
) -> Result<ApprovalDecided, WireError> {
    let id = params.id;
    let approval = work(context, move |gateway| {
        find(gateway, &id).map_err(|_| refusal::APPROVAL_WAIT_NOT_FOUND.error())
    })
    .await?;
    let waiting = context.gateway.dispatcher.approvals.wait_for(&approval.id);
    let left = time(approval.expires_at_ms).saturating_sub(now_ms()) + 2_000;
    // The approval may have been decided before this call began to listen.
    let answer = decided(context, &approval.id).await?;
    if approval.ended.is_some() || answer.decision.is_some() {
        return Ok(answer);
    }
    let _ = tokio::time::timeout(Duration::from_millis(left), waiting).await;
    decided(context, &approval.id).await
}

/// `exec.approval.list`: all pending approvals, the first to expire in front. A page of them comes
/// with their number and the cursor of the next page.
pub(super) async fn list(
    context: Context<'_>,
    asked: params::ExecApprovalList,
) -> Result<ApprovalListing, WireError> {
    let after = asked.cursor.as_deref().map(str::parse::<PendingCursor>);
    let after = after.transpose().map_err(|error| {
        WireError::invalid(format!("cursor {error}")).with("code", "CURSOR_INVALID")
    })?;
    let is_summary = asked.summary == Some(true);
    if !is_summary && asked.limit.is_none() && after.is_none() {
        return list_all(context).await;
    }
    let limit = asked.limit.and_then(|limit| usize::try_from(limit).ok());
    let client = Arc::clone(context.client);
    work(context, move |gateway| {
        let approvals = gateway.dispatcher.host.approvals();
        let page = approvals
            .pending_page(after, limit.unwrap_or(PAGE))
            .map_err(|error| approvals_unavailable(&error))?;
        let rows: Value = if is_summary {
            // A row of a list is not a prompt, so it does not count as shown.
            page.approvals.iter().map(summary_to_send).collect()
        } else {
            let listed = page.approvals.iter();
            let listed = listed.filter_map(|one| show_listed(gateway, &client, &one.id));
            json!(listed.collect::<Vec<_>>())
        };
        Ok(ApprovalListing::Summary(ApprovalRows {
            approvals: rows,
            total: Some(page.unexpired),
            next_cursor: page.next.map(|next| next.to_string()),
        }))
    })
    .await
}

/// Returns the bare list of all pending approvals, as foreign clients expect it.
async fn list_all(context: Context<'_>) -> Result<ApprovalListing, WireError> {
    let client = Arc::clone(context.client);
    work(context, move |gateway| {
        let approvals = gateway.dispatcher.host.approvals();
        let all = approvals
            .all_pending()
            .map_err(|error| approvals_unavailable(&error))?;
        let listed = all.iter();
        let listed = listed.filter_map(|one| show_listed(gateway, &client, &one.id));
        Ok(ApprovalListing::Listed(listed.collect()))
    })
    .await
}

/// Returns one approval for a list, and marks it as shown to the client. An approval that cannot be
/// read must not hide the others.
fn show_listed(gateway: &Gateway, client: &Client, id: &str) -> Option<ApprovalListed> {
    let approval = gateway
        .dispatcher
        .host
        .approvals()
        .approval(id, Secrets::Masked)
        .ok()?;
    let is_listed = approval.ended.is_none() && may_see(client, &approval);
    is_listed.then(|| {
        client.show(&approval.id);
        gateway.dispatcher.hub.note_read(client, &approval.id);
        ApprovalListed::from(requested(&approval))
    })
}

pub(super) async fn get(
    context: Context<'_>,
    params: params::ExecApprovalGet,
) -> Result<ApprovalOpened, WireError> {
    let client = Arc::clone(context.client);
    let secrets = if params.reveal == Some(true) {
        require(OperatorScope::Admin, &client.scopes)?;
        Secrets::Revealed
    } else {
        Secrets::Masked
    };
    work(context, move |gateway| {
        let approval = find_with(gateway, &params.id, secrets)?;
        if !may_see(&client, &approval) {
            return Err(not_found());
        }
        client.show(&approval.id);
        gateway.dispatcher.hub.note_read(&client, &approval.id);
        if params.inbox == Some(true) {
            let approval = approval.to_send(OPENED_BYTES);
            return Ok(ApprovalOpened::Inbox { approval });
        }
        let details = details(&approval);
        let view = approval.view.bounded(OPENED_BYTES);
        let record = ApprovalRecord {
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
            plan_digest: approval.plan_digest,
            view_text: view.text(ViewDetail::Whole, ""),
            sandbox: view.sandbox.as_ref().map(|sandbox| json!(sandbox)),
            elevated: view.elevated.leaves().then(|| view.elevated.to_string()),
            view: json!(view),
        };
        Ok(ApprovalOpened::Record(Box::new(record)))
    })
    .await
}

pub(super) async fn resolve(
    context: Context<'_>,
    params: params::ExecApprovalResolve,
) -> Result<ApprovalDecisionStored, WireError> {
    let decision = match params.decision.as_str() {
        "lease" => ApprovalDecision::Lease(Lease {
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
        word => ApprovalDecision::from_word(word, None)
            .ok_or_else(|| refusal::INVALID_DECISION.error())?,
    };
    let named = match (&params.form, &params.always_form) {
        (Some(form), Some(other)) if form != other => {
            let problem = format!("at /alwaysForm: `{other}` is not the form `{form}`");
            return Err(WireError::params("exec.approval.resolve", &[problem]));
        }
        (form, other) => form.as_ref().or(other.as_ref()),
    };
    let form = match named {
        None => AlwaysForm::Exact,
        Some(word) => word.parse::<AlwaysForm>().map_err(|error| {
            WireError::params("exec.approval.resolve", &[format!("at /form: {error}")])
        })?,
    };
    let client = Arc::clone(context.client);
    work(context, move |gateway| {
        let approval = match gateway.dispatcher.approvals.pending(&params.id) {
            Some(approval) => approval,
            None => Arc::new(find(gateway, &params.id)?),
        };
        let ticket = params.ticket.as_deref();
        let was_shown = client.was_shown(&approval.id);
        check_shown(gateway, &client, (&approval, was_shown), decision, ticket)?;
        let digest = params
            .plan_digest
            .as_deref()
            .unwrap_or(&approval.plan_digest);
        let surface = client.surface();
        let by = DecisionBy {
            decider: client.name(),
            surface: &surface,
            reason: params.reason.as_deref(),
            has_shown: true,
            outside: gateway.outside,
        };
        let stored = gateway.dispatcher.host.approvals().decide_in_form(
            &approval.id,
            digest,
            decision,
            form,
            by,
        );
        let stored = stored.map_err(|error| refused(&error))?;
        let answer = ApprovalDecisionStored {
            ok: true,
            again: stored.again,
            form: stored.form.map(String::from),
            reason: stored.ended.reason.clone(),
            stored: stored.entries.iter().map(|entry| json!(entry)).collect(),
            caller_has_ended: requester_has_ended(&approval.requester),
        };
        if !stored.again {
            let ended = Some(stored.ended);
            let approval = PendingApproval::clone(&approval);
            let ended = PendingApproval { ended, ..approval };
            gateway
                .dispatcher
                .approvals
                .tell(&gateway.dispatcher, ended);
        }
        Ok(answer)
    })
    .await
}

/// Refuses a decision about anything that the approver was not shown. A page allows with a ticket,
/// which it receives with the whole view, and may deny from its list without one.
pub(super) fn check_shown(
    gateway: &Gateway,
    client: &Client,
    (approval, was_shown): (&PendingApproval, bool),
    decision: ApprovalDecision,
    ticket: Option<&str>,
) -> Result<(), WireError> {
    let is_denial = decision == ApprovalDecision::Deny;
    if client.topics.has_page() {
        if !is_denial {
            gateway.ui.tickets.check(client, approval, ticket)?;
        }
    } else if !was_shown {
        return Err(
            WireError::invalid("this approval was not shown to this connection")
                .with("reason", "APPROVAL_NOT_SHOWN")
                .with("remediation", "read it first: exec.approval.get"),
        );
    }
    if !is_denial && !approval.offers(ApprovalDecision::AllowOnce) {
        let message = "not all of it can be shown, so it can only be denied";
        return Err(WireError::invalid(message).with("reason", "APPROVAL_NOT_SHOWN"));
    }
    Ok(())
}

/// Decides several approvals, each by itself. If one is refused, the others are still decided.
pub(super) async fn resolve_many(
    context: Context<'_>,
    params: params::ExecApprovalResolveMany,
) -> Result<ApprovalsDecided, WireError> {
    let mut results = Vec::with_capacity(params.items.len());
    for item in params.items {
        let one = params::ExecApprovalResolve {
            id: item.id.clone(),
            decision: params.decision.clone(),
            plan_digest: Some(item.plan_digest),
            ticket: item.ticket,
            reason: params.reason.clone(),
            ..params::ExecApprovalResolve::default()
        };
        let (ok, error) = match resolve(context, one).await {
            Ok(_) => (true, None),
            Err(error) => {
                let method = params::ExecApprovalResolveMany::METHOD;
                let refused = &context.gateway.refused;
                refused.note_call(context.client, method, &error, Some(&item.id));
                (false, Some(error))
            }
        };
        let code = error.as_ref().and_then(|error| {
            let reason = error.detail("reason").and_then(Value::as_str);
            error.detail_code().or(reason).map(str::to_owned)
        });
        results.push(ApprovalDecisionResult {
            id: item.id,
            ok,
            code,
            message: error.map(|error| error.message),
        });
    }
    Ok(ApprovalsDecided { results })
}

/// `exec.approval.askAgain`.
pub(super) async fn ask_again(
    context: Context<'_>,
    params: params::ExecApprovalAskAgain,
) -> Result<ApprovalAskedAgain, WireError> {
    let dispatcher = &context.gateway.dispatcher;
    let asked = interlock_dispatch::tools::ask_again(dispatcher, &params.id).await?;
    let approval = asked.map_err(|error| refused(&error))?;
    Ok(ApprovalAskedAgain {
        id: approval.id,
        short_id: approval.short_id,
        expires_at_ms: time(approval.expires_at_ms),
    })
}

pub(super) fn refused(error: &ApprovalRefusal) -> WireError {
    let ApprovalRefusal::State(RulesError::Store(StoreError::Approval(problem))) = error else {
        return match error {
            ApprovalRefusal::NotOffered { choice, .. } if *choice == "allow-always" => {
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
