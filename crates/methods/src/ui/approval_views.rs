//! The inbox, and the card of one approval.

use std::collections::BTreeMap;
use std::sync::Arc;

use interlock_approvals::{AuditFilter, AuditKind, PendingApproval};
use interlock_command::display::Secrets;
use interlock_connections::Client;
use interlock_host::{ASK_AGAIN_MS, now_ms};
use interlock_store::{ApprovalEnding, ApprovalSummary, Delivery, DeliveryState};
use interlock_web::{
    AskableApproval, CardFacts, CardFrame, CommandColors, InboxFacts, InboxRow, RecentDecision,
};
use interlock_wire::results::UiOpened;
use interlock_wire::{OperatorScope, WireError, method};
use serde_json::{Map, Value};

use super::allowed_runs;
use super::open::ViewParams;
use super::patches::{may_be_asked_again, tell_receipts};
use super::receipts::surface;
use super::views::page;
use crate::gateway::Gateway;
use crate::handlers::{Context, approvals_unavailable, find_approval, work};

/// Rows on one page of the inbox.
const ROWS: usize = 60;

/// The most pending approvals that are searched for those of one agent.
const LOOKED_THROUGH: usize = 10_000;

/// The most equal approvals that one row stands for. Together with its own, that is as many as can
/// be decided at once.
const MOST_EQUAL: usize = 99;

/// The most rows of one agent that stand together before the next agent's.
const ROWS_IN_TURN: usize = 10;

/// The most recent decisions that are searched for expired approvals.
const MOST_ENDED: usize = 200;

/// The most expired approvals that the inbox offers to ask again.
const MOST_EXPIRED: usize = 5;

/// The limit of each text of a card.
const CARD_BYTES: usize = 512 * 1024;

pub(super) async fn inbox(
    context: Context<'_>,
    wanted: &ViewParams,
) -> Result<UiOpened, WireError> {
    let agent = wanted.text("agent").map(str::to_owned);
    let host = wanted.text("host").map(str::to_owned);
    let offset = wanted.number("offset").unwrap_or(0);
    work(context, move |gateway| {
        let approvals = gateway.dispatcher.host.approvals();
        let all = approvals.pending(0, LOOKED_THROUGH);
        let all = all.map_err(|error| approvals_unavailable(&error))?;
        let mut agents: BTreeMap<String, u64> = BTreeMap::new();
        for row in &all.approvals {
            *agents.entry(row.agent.clone()).or_default() += 1;
        }
        let agents: Vec<(String, u64)> = agents.into_iter().collect();
        let mut rows: Vec<ApprovalSummary> = all.approvals;
        // A page that loads further rows needs only the rows.
        let is_first = offset == 0;
        let hosts = if is_first { hosts(&rows) } else { Vec::new() };
        if let Some(agent) = &agent {
            rows.retain(|row| row.agent == *agent);
        }
        if let Some(host) = &host {
            rows.retain(|row| place(row) == host);
        }
        let total = match (&agent, &host) {
            (None, None) => all.unexpired,
            _ => rows.len() as u64,
        };
        // The newest row comes first, because pages insert new rows at the top.
        rows.reverse();
        let rows = in_turns(grouped(gateway, rows));
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(rows.len());
        let until = from.saturating_add(ROWS).min(rows.len());
        let has_more = until < rows.len();
        let (grants, expired) = if is_first {
            let grants = approvals.grants();
            let grants = grants.map_err(|error| approvals_unavailable(&error))?;
            (grants, expired(gateway))
        } else {
            (Vec::new(), Vec::new())
        };
        let recent = if rows.is_empty() {
            recent(gateway)?
        } else {
            Vec::new()
        };
        Ok(page(interlock_web::inbox_page(&InboxFacts {
            rows: &rows[from..until],
            total,
            offset,
            has_more,
            agents: &agents,
            agent: agent.as_deref(),
            hosts: &hosts,
            host: host.as_deref(),
            grants: &grants,
            recent: &recent,
            expired: &expired,
        })))
    })
    .await
}

/// Makes one row of all approvals that ask for exactly the same in one conversation.
fn grouped(gateway: &Gateway, all: Vec<ApprovalSummary>) -> Vec<InboxRow> {
    let config = gateway.dispatcher.host.config().ok();
    let colors = |agent: &str| {
        let exec = config.as_ref().map(|file| file.config().exec_for(agent));
        match exec.and_then(|exec| exec.command_highlighting) {
            Some(false) => CommandColors::Off,
            _ => CommandColors::On,
        }
    };
    let mut rows: Vec<InboxRow> = Vec::with_capacity(all.len());
    let mut places: BTreeMap<(String, String), usize> = BTreeMap::new();
    for summary in all {
        let key = (summary.content_digest.clone(), summary.session_key.clone());
        if let Some(row) = places.get(&key).and_then(|at| rows.get_mut(*at))
            && row.equal.len() < MOST_EQUAL
            && is_equal(&row.summary, &summary)
        {
            row.equal.push(summary.id);
            continue;
        }
        places.insert(key, rows.len());
        rows.push(InboxRow {
            colors: colors(&summary.agent),
            summary,
            equal: Vec::new(),
        });
    }
    rows
}

/// Returns the machines of these approvals, each once.
fn hosts(rows: &[ApprovalSummary]) -> Vec<String> {
    let mut names: Vec<&str> = rows.iter().map(place).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(str::to_owned).collect()
}

/// Returns where an approval's command would run.
fn place(row: &ApprovalSummary) -> &str {
    row.node.as_deref().unwrap_or(&row.host)
}

/// Orders rows by agent, a few of each in turn, so that no agent buries another's approvals,
/// however many it has.
fn in_turns(rows: Vec<InboxRow>) -> Vec<InboxRow> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut keyed: Vec<(usize, String, InboxRow)> = Vec::with_capacity(rows.len());
    for row in rows {
        let agent = row.summary.agent.clone();
        let count = counts.entry(agent.clone()).or_default();
        keyed.push((*count / ROWS_IN_TURN, agent, row));
        *count += 1;
    }
    // Rows of one agent keep their order.
    keyed.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    keyed.into_iter().map(|(_, _, row)| row).collect()
}

/// Whether two approvals belong to one conversation and show the same, so that an approver who has
/// read one has read the other.
fn is_equal(one: &ApprovalSummary, other: &ApprovalSummary) -> bool {
    one.asks_the_same(other) && one.session_key == other.session_key
}

/// Returns the approvals that expired in the last minutes and may be asked again. Those that cannot
/// be read are left out.
fn expired(gateway: &Gateway) -> Vec<AskableApproval> {
    let approvals = gateway.dispatcher.host.approvals();
    let since = i64::try_from(now_ms()).unwrap_or(i64::MAX) - ASK_AGAIN_MS;
    let records = approvals.audit_log(&AuditFilter {
        kind: Some(AuditKind::Decision),
        since_ms: Some(since),
        limit: Some(MOST_ENDED),
        ..AuditFilter::default()
    });
    let records = records.unwrap_or_default().into_iter();
    let ids = records.filter_map(|record| {
        let is_expiry = record.body.get("decision")?.as_str()? == ApprovalEnding::Expired.as_str();
        let id = record.body.get("approvalId")?.as_str()?.to_owned();
        is_expiry.then_some(id)
    });
    let read = ids.filter_map(|id| approvals.approval(&id, Secrets::Masked).ok());
    let offered = read.filter(may_be_asked_again).take(MOST_EXPIRED);
    let shown = offered.filter_map(|approval| {
        Some(AskableApproval {
            ended: approval.ended?,
            id: approval.id,
            short_id: approval.short_id,
            agent: approval.agent,
            command: approval.command.text,
        })
    });
    shown.collect()
}

/// Returns the latest decisions of approvers.
fn recent(gateway: &Gateway) -> Result<Vec<RecentDecision>, WireError> {
    let approvals = gateway.dispatcher.host.approvals();
    let records = approvals.audit_log(&AuditFilter {
        kind: Some(AuditKind::Decision),
        limit: Some(3),
        ..AuditFilter::default()
    });
    let records = records.map_err(|error| approvals_unavailable(&error))?;
    let read = records.iter().filter_map(|record| {
        let id = record.body.get("approvalId")?.as_str()?;
        let approval = approvals.approval(id, Secrets::Masked).ok()?;
        Some(RecentDecision {
            command: approval.command.text,
            ended: approval.ended?,
        })
    });
    Ok(read.collect())
}

/// Shows one approval. Only a view that leaves nothing out comes with a ticket.
pub(super) async fn approval(
    context: Context<'_>,
    wanted: &ViewParams,
) -> Result<UiOpened, WireError> {
    let id = wanted.required("id")?.to_owned();
    let secrets = if wanted.flag("reveal") {
        method::require(OperatorScope::Admin, &context.client.scopes)?;
        Secrets::Revealed
    } else {
        Secrets::Masked
    };
    let frame = if wanted.flag("alone") {
        CardFrame::Alone
    } else {
        CardFrame::Row
    };
    let equal = wanted.texts("equal");
    let client = Arc::clone(context.client);
    let opened = work(context, move |gateway| {
        let mut approval = find_approval(gateway, &id, secrets)?;
        let seen = seen_now(&client, &approval);
        approval.deliveries.extend(seen.clone());
        let view = approval.view.bounded(CARD_BYTES);
        let is_whole = view.left_out_lines() == 0;
        client.show(&approval.id);
        // Masked secrets were not shown. The viewer must reveal them first.
        let is_shown = is_whole && view.masked_secrets == 0 && approval.ended.is_none();
        let (mut tickets, mut digests) = (Map::new(), Map::new());
        let mut offer = |one: &PendingApproval| {
            tickets.insert(one.id.clone(), ticket(gateway, &client, one));
            digests.insert(one.id.clone(), one.plan_digest.as_str().into());
        };
        let mut others = 0;
        if is_shown {
            let equals = equals(gateway, &approval, &equal, secrets);
            equals.iter().for_each(&mut offer);
            others = equals.len();
            offer(&approval);
        }
        let card = interlock_web::approval_card(&CardFacts {
            approval: &approval,
            view: &view,
            is_whole,
            frame,
            equal: others,
            may_ask_again: may_be_asked_again(&approval),
            run: allowed_runs::read(gateway, &approval.id),
        });
        let mut opened = page(card);
        opened.tickets = tickets;
        opened.digests = digests;
        Ok((opened, approval, seen))
    })
    .await;
    let (opened, approval, seen) = opened?;
    if let Some(seen) = seen {
        record_seen(context, approval, seen);
    }
    Ok(opened)
}

fn ticket(gateway: &Gateway, client: &Client, approval: &PendingApproval) -> Value {
    let ticket = gateway.ui.tickets.issue(client, approval);
    ticket.expose().into()
}

/// Returns those of the given approvals that are pending and show an approver exactly the same.
fn equals(
    gateway: &Gateway,
    approval: &PendingApproval,
    ids: &[String],
    secrets: Secrets,
) -> Vec<PendingApproval> {
    let ids = ids.iter().take(MOST_EQUAL).filter(|id| **id != approval.id);
    let read = ids.filter_map(|id| find_approval(gateway, id, secrets).ok());
    let is_same = |other: &PendingApproval| {
        other.ended.is_none()
            && other.view == approval.view
            && other.command == approval.command
            && other.binding == approval.binding
            && other.agent == approval.agent
            && other.session_key == approval.session_key
            && (&other.host, &other.node) == (&approval.host, &approval.node)
    };
    read.filter(is_same).collect()
}

/// Returns the receipt of an approver who opens the card, unless this device already has one.
fn seen_now(client: &Client, approval: &PendingApproval) -> Option<Delivery> {
    let surface = surface(client);
    let is_known = |one: &Delivery| one.surface == surface && one.state == DeliveryState::Seen;
    if approval.ended.is_some() || approval.deliveries.iter().any(is_known) {
        return None;
    }
    Some(Delivery {
        surface,
        state: DeliveryState::Seen,
        at_ms: i64::try_from(now_ms()).unwrap_or(i64::MAX),
        detail: Some(client.name().chars().take(100).collect()),
    })
}

/// Records a receipt, and notifies the pages that show the card. The reader does not wait for it.
fn record_seen(context: Context<'_>, approval: PendingApproval, seen: Delivery) {
    let gateway = Arc::clone(context.gateway);
    tokio::task::spawn_blocking(move || {
        let store = gateway.dispatcher.host.store();
        match store.record_delivery(&approval.id, &seen) {
            Ok(true) => tell_receipts(&gateway.dispatcher.hub.approvers(""), &approval),
            Ok(false) => {}
            // The approval may not be on the disk yet. It was seen all the same, and the receipt is
            // lost.
            Err(error) => tracing::debug!(%error, "a receipt was not recorded"),
        }
    });
}
