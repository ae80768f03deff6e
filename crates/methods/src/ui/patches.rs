//! Sends changes to open pages.
//!
//! A connection that opened a page receives no raw events of approvals. It receives rows for its
//! inbox, and can allow only approvals that it opened.

use std::sync::Arc;

use interlock_approvals::{EFFECT_BINDING, NETWORK_BINDING, PATCH_BINDING, PendingApproval};
use interlock_command::display::Secrets;
use interlock_connections::Client;
use interlock_host::may_ask_again;
use interlock_store::{ApprovalEnd, ApprovalSummary};
use interlock_web::{CommandColors, InboxRow, ended_card, ended_row, inbox_row, receipts};
use interlock_wire::results::UiPatchOp;

use crate::gateway::Gateway;

pub(super) use interlock_connections::{APPROVALS, send_patch as send};

fn op(name: &str, id: String, html: interlock_web::Markup) -> UiPatchOp {
    UiPatchOp {
        op: name.to_owned(),
        id,
        html: html.into_string(),
    }
}

/// Sends a new row, rendered once, to the open pages.
pub(crate) fn tell_question(pages: &[Arc<Client>], approval: &PendingApproval) {
    let row = inbox_row(&InboxRow {
        summary: summary(approval),
        equal: Vec::new(),
        colors: colors(approval),
    });
    send(
        pages,
        APPROVALS,
        &[op("prepend", "rows".to_owned(), row)],
        Some(1),
    );
}

/// Sends the end of an approval to the open pages.
pub(crate) fn tell_end(pages: &[Arc<Client>], approval: &PendingApproval, ended: &ApprovalEnd) {
    let may_ask_again = may_be_asked_again(approval);
    let ops = [
        op(
            "replace",
            format!("row-{}", approval.id),
            ended_row(approval, ended, may_ask_again),
        ),
        op(
            "replace",
            format!("card-{}", approval.id),
            ended_card(approval, ended, may_ask_again),
        ),
    ];
    send(pages, APPROVALS, &ops, Some(-1));
}

/// Sends the state of an allowed run, rendered once, to the pages on which its card is open.
pub(super) fn tell_run(pages: &[Arc<Client>], id: &str, line: &str) {
    let ops = [UiPatchOp {
        op: "replace".to_owned(),
        id: format!("run-{id}"),
        html: line.to_owned(),
    }];
    send(pages, APPROVALS, &ops, None);
}

/// Sends the receipts of an approval to the pages on which its card is open.
pub(super) fn tell_receipts(pages: &[Arc<Client>], approval: &PendingApproval) {
    let id = format!("receipts-{}", approval.id);
    let ops = [op("replace", id, receipts(approval))];
    send(pages, APPROVALS, &ops, None);
}

/// Updates the pages that show the card after a receipt was recorded.
pub(crate) fn receipts_changed(gateway: &Gateway, id: &str) {
    let approval = gateway
        .dispatcher
        .host
        .approvals()
        .approval(id, Secrets::Masked);
    if let Ok(approval) = approval {
        tell_receipts(&gateway.dispatcher.hub.approvers(""), &approval);
    }
}

/// Whether a page offers to ask again. The host makes the final decision when it receives the call.
pub(super) fn may_be_asked_again(approval: &PendingApproval) -> bool {
    let is_here = approval.remote.is_none() && approval.node.is_none();
    let is_run =
        ![PATCH_BINDING, EFFECT_BINDING, NETWORK_BINDING].contains(&approval.binding.as_str());
    let ended = approval.ended.as_ref();
    is_here && is_run && ended.is_some_and(|ended| may_ask_again(ended.ending, ended.at_ms))
}

/// Whether the owner wants this agent's commands in colors.
pub(super) fn colors(approval: &PendingApproval) -> CommandColors {
    if approval.view.has_colors() {
        CommandColors::On
    } else {
        CommandColors::Off
    }
}

/// Returns what a row shows of an approval.
fn summary(approval: &PendingApproval) -> ApprovalSummary {
    ApprovalSummary {
        id: approval.id.clone(),
        short_id: approval.short_id.clone(),
        plan_digest: approval.plan_digest.clone(),
        content_digest: String::new(),
        binding: approval.binding.clone(),
        preview: approval.command.text.clone(),
        agent: approval.agent.clone(),
        session_key: approval.session_key.clone(),
        host: approval.host.clone(),
        node: approval.node.clone(),
        requester: approval.requester.clone(),
        created_at_ms: approval.created_at_ms,
        expires_at_ms: approval.expires_at_ms,
    }
}
