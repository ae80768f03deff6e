//! `approval.*`: approvals in the form that newer clients use, and the grants that decisions
//! created.

use std::sync::Arc;

use interlock_approvals::{
    ApprovalDecision, ApprovalRefusal, DecisionBy, PendingApproval, ViewDetail,
};
use interlock_connections::Client;
use interlock_policy::AlwaysForm;
use interlock_store::{ApprovalEnd, ApprovalEnding, Grant};
use interlock_wire::approval::{ApprovalListed, DecisionWord};
use interlock_wire::approval_record::{
    ApprovalHistoryPage, ApprovalOrigin, ApprovalPresentation, ApprovalResolver, ApprovalSettled,
    ApprovalSnapshot, ApprovalSnapshotFound, ApprovalStatus, GrantRevoked, StandingGrant,
    StandingGrants,
};
use interlock_wire::{WireError, params, refusal};

use super::approvals::{check_shown, decision, details, find, may_see, refused, time};
use super::{Context, approvals_unavailable, store_failed, work};
use crate::gateway::Gateway;

/// The only kind of approvals of this gateway.
const EXEC: &str = "exec";

/// The limit of the text that is shown beside a command.
const TEXT_BYTES: usize = 16 * 1024;

/// Entries on one page if the client names no limit.
const PAGE: u64 = 50;
const GRANTS: u64 = 200;

/// The longest command that a list shows of a grant.
const GRANT_CHARS: usize = 512;

/// Lists the pending approvals of kinds that this gateway does not have.
pub(super) fn none() -> Vec<ApprovalListed> {
    Vec::new()
}

pub(super) async fn get(
    context: Context<'_>,
    params: params::ApprovalGet,
) -> Result<ApprovalSnapshotFound, WireError> {
    let client = Arc::clone(context.client);
    work(context, move |gateway| {
        let approval = visible(gateway, &client, &params.id)?;
        client.show(&approval.id);
        gateway.dispatcher.hub.note_read(&client, &approval.id);
        Ok(ApprovalSnapshotFound {
            approval: snapshot(&approval),
        })
    })
    .await
}

/// Decides as `exec.approval.resolve` does. The reference takes a decision that it cannot read for
/// a denial. This gateway refuses it, so that a mistake decides nothing.
pub(super) async fn resolve(
    context: Context<'_>,
    params: params::ApprovalResolve,
) -> Result<ApprovalSettled, WireError> {
    if params.reviewer.is_some() || params.kind != EXEC {
        return Err(refusal::APPROVAL_RECORD_NOT_FOUND.error());
    }
    if params.grant_expires_in_days.is_some() {
        let problem = "at /grantExpiresInDays: there are no automations here; use a lease: exec.approval.resolve with `lease`";
        return Err(WireError::params("approval.resolve", &[problem.to_owned()]));
    }
    let decision = match params.decision.as_str() {
        "allow-once" => ApprovalDecision::AllowOnce,
        "allow-always" => ApprovalDecision::AllowAlways,
        "deny" => ApprovalDecision::Deny,
        _ => return Err(refusal::INVALID_DECISION.error()),
    };
    let client = Arc::clone(context.client);
    work(context, move |gateway| {
        let approval = visible(gateway, &client, &params.id)?;
        if approval.ended.is_some() {
            return Ok(settled(false, &approval));
        }
        let was_shown = client.was_shown(&approval.id)
            || gateway
                .dispatcher
                .hub
                .was_read_by_program(&client, &approval.id);
        // No caller of this method has a ticket: pages decide by `exec.approval.resolve`.
        check_shown(gateway, &client, (&approval, was_shown), decision, None)?;
        decide(gateway, &client, approval, decision)
    })
    .await
}

fn decide(
    gateway: &Gateway,
    client: &Client,
    approval: PendingApproval,
    decision: ApprovalDecision,
) -> Result<ApprovalSettled, WireError> {
    let surface = client.surface();
    let by = DecisionBy {
        decider: client.name(),
        surface: &surface,
        reason: None,
        has_shown: true,
        outside: gateway.outside,
    };
    let approvals = gateway.dispatcher.host.approvals();
    let digest = approval.plan_digest.clone();
    let stored = approvals.decide_in_form(&approval.id, &digest, decision, AlwaysForm::Exact, by);
    let stored = match stored {
        Ok(stored) => stored,
        Err(error) => {
            // If another approver was quicker, the answer is that approver's decision.
            let now = find(gateway, &approval.id)?;
            return match now.ended {
                Some(_) => Ok(settled(false, &now)),
                None => Err(refused(&error)),
            };
        }
    };
    let ended = PendingApproval {
        ended: Some(stored.ended),
        ..approval
    };
    let answer = settled(!stored.again, &ended);
    if !stored.again {
        gateway
            .dispatcher
            .approvals
            .tell(&gateway.dispatcher, ended);
    }
    Ok(answer)
}

pub(super) async fn history(
    context: Context<'_>,
    params: params::ApprovalHistory,
) -> Result<ApprovalHistoryPage, WireError> {
    if params.kind.as_deref().is_some_and(|kind| kind != EXEC) {
        return Ok(ApprovalHistoryPage::default());
    }
    let before = match params.cursor.as_deref().map(str::parse::<i64>) {
        None => None,
        Some(Ok(number)) => Some(number),
        Some(Err(_)) => return Err(WireError::invalid("invalid approval.history cursor")),
    };
    let limit = usize::try_from(params.limit.unwrap_or(PAGE)).unwrap_or(usize::MAX);
    let client = Arc::clone(context.client);
    work(context, move |gateway| {
        let page = gateway
            .dispatcher
            .host
            .store()
            .ended_approvals(before, limit);
        let page = page.map_err(store_failed)?;
        let items = page.ids.iter().filter_map(|id| {
            // An approval that cannot be read must not hide the others.
            let approval = find(gateway, id).ok()?;
            may_see(&client, &approval).then(|| snapshot(&approval))
        });
        Ok(ApprovalHistoryPage {
            items: items.collect(),
            next_cursor: page.next.map(|number| number.to_string()),
        })
    })
    .await
}

pub(super) async fn grants(
    context: Context<'_>,
    params: params::ExecApprovalGrantsList,
) -> Result<StandingGrants, WireError> {
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let limit = size(params.limit.unwrap_or(GRANTS));
    let offset = size(params.offset.unwrap_or(0));
    work(context, move |gateway| {
        let grants = gateway.dispatcher.host.approvals().grants();
        let grants = grants.map_err(|error| approvals_unavailable(&error))?;
        let page: Vec<_> = grants.iter().skip(offset).take(limit).collect();
        Ok(StandingGrants {
            total: (page.len() < grants.len()).then_some(grants.len()),
            grants: page.into_iter().map(standing_grant).collect(),
        })
    })
    .await
}

pub(super) async fn revoke_grant(
    context: Context<'_>,
    params: params::ExecApprovalGrantsRevoke,
) -> Result<GrantRevoked, WireError> {
    let client = Arc::clone(context.client);
    work(context, move |gateway| {
        let approvals = gateway.dispatcher.host.approvals();
        let grants = approvals
            .grants()
            .map_err(|error| approvals_unavailable(&error))?;
        // The whole id must match, so that a program cannot revoke another grant with the same
        // prefix.
        let is_there = grants.iter().any(|grant| grant.id == params.grant_id);
        let outcome = if is_there {
            let revoked = approvals.revoke_grant(&params.grant_id, client.name(), gateway.outside);
            match revoked {
                Ok(_) => "revoked",
                Err(ApprovalRefusal::NoGrant(_)) => "not-found",
                Err(error) => return Err(refused(&error)),
            }
        } else {
            "not-found"
        };
        Ok(GrantRevoked {
            outcome: outcome.to_owned(),
        })
    })
    .await
}

/// Returns an approval that the client may see.
fn visible(gateway: &Gateway, client: &Client, id: &str) -> Result<PendingApproval, WireError> {
    let approval = find(gateway, id).map_err(|error| match error.code.as_str() {
        "INVALID_REQUEST" => refusal::APPROVAL_RECORD_NOT_FOUND.error(),
        _ => error,
    })?;
    if may_see(client, &approval) {
        Ok(approval)
    } else {
        Err(refusal::APPROVAL_RECORD_NOT_FOUND.error())
    }
}

fn settled(applied: bool, approval: &PendingApproval) -> ApprovalSettled {
    ApprovalSettled {
        applied,
        approval: snapshot(approval),
    }
}

/// Returns an approval with the properties that belong to its state.
fn snapshot(approval: &PendingApproval) -> ApprovalSnapshot {
    let pending = ApprovalSnapshot {
        id: approval.id.clone(),
        status: ApprovalStatus::Pending,
        presentation: presentation(approval),
        url_path: format!("/approve/{}", approval.id),
        created_at_ms: time(approval.created_at_ms),
        expires_at_ms: time(approval.expires_at_ms),
        ..ApprovalSnapshot::default()
    };
    let Some(ended) = &approval.ended else {
        return pending;
    };
    let (status, reason) = outcome(ended);
    ApprovalSnapshot {
        status,
        resolved_at_ms: Some(time(ended.at_ms)),
        reason: Some(reason.to_owned()),
        decision: decision(ended.ending).map(known_decision),
        source: Some(ApprovalOrigin {
            agent_id: Some(approval.agent.clone()),
            session_key: Some(approval.session_key.clone()),
        }),
        resolver: Some(match &ended.decider {
            Some(decider) => ApprovalResolver {
                kind: "runtime".to_owned(),
                id: Some(decider.clone()),
            },
            None => ApprovalResolver {
                kind: "system".to_owned(),
                id: None,
            },
        }),
        ..pending
    }
}

/// Returns how an approval ended, in the words that clients know.
fn outcome(ended: &ApprovalEnd) -> (ApprovalStatus, &'static str) {
    match ended.ending {
        ApprovalEnding::Decision(ApprovalDecision::Deny) => (ApprovalStatus::Denied, "user"),
        ApprovalEnding::FallbackDeny => (ApprovalStatus::Denied, "no-route"),
        ApprovalEnding::Decision(_) | ApprovalEnding::FallbackAllow => {
            (ApprovalStatus::Allowed, "user")
        }
        ApprovalEnding::Expired => (ApprovalStatus::Expired, "timeout"),
        ApprovalEnding::Withdrawn => (ApprovalStatus::Cancelled, "run-aborted"),
    }
}

/// Not every client knows a word for a grant for a conversation. It is reported as allowing this
/// run.
fn known_decision(word: DecisionWord) -> DecisionWord {
    if word == DecisionWord::ALLOW_SESSION {
        DecisionWord::ALLOW_ONCE
    } else {
        word
    }
}

/// Returns everything that an approver should read. Clients of this form show the command and the
/// text beside it.
fn presentation(approval: &PendingApproval) -> ApprovalPresentation {
    let details = details(approval);
    let view = approval.view.bounded(TEXT_BYTES);
    let mut allowed = details.allowed_decisions;
    allowed.retain(|word| *word != DecisionWord::ALLOW_SESSION);
    if !allowed.contains(&DecisionWord::DENY) {
        allowed.push(DecisionWord::DENY);
    }
    let some = |text: Option<String>| text.filter(|text| !text.is_empty());
    ApprovalPresentation {
        kind: EXEC.to_owned(),
        command_text: details.command,
        command_preview: details
            .system_run_plan
            .and_then(|plan| plan.command_preview),
        warning_text: some(Some(view.text(ViewDetail::Whole, ""))),
        host: details.host,
        node_id: some(details.node_id),
        agent_id: some(details.agent_id),
        allowed_decisions: allowed,
    }
}

fn standing_grant(grant: &Grant) -> StandingGrant {
    let command: String = grant.preview.chars().take(GRANT_CHARS).collect();
    StandingGrant {
        grant_id: grant.id.clone(),
        minted_by_approval_id: grant.approval_id.clone(),
        agent_id: grant.agent.clone(),
        cron_job_id: grant.session_key.clone(),
        command: if command.is_empty() {
            "(no longer known)".to_owned()
        } else {
            command
        },
        created_at_ms: time(grant.created_at_ms),
        expires_at_ms: grant.expires_at_ms.map(time),
        use_count: grant.uses.into(),
        ..StandingGrant::default()
    }
}
