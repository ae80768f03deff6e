//! What changes in pages that are open.
//!
//! A connection that opened a page gets no raw events of approvals: it gets rows to put into its inbox, and
//! can allow only what it opened.

use std::sync::Arc;

use interlock_approvals::PendingApproval;
use interlock_dispatch::clients::Client;
use interlock_store::{ApprovalEnd, ApprovalSummary};
use interlock_web::{ended_card, ended_row, inbox_row};
use interlock_wire::results::UiPatchOp;

pub(super) use interlock_dispatch::clients::APPROVALS;

/// Sends one change to the connections that follow its topic.
pub(super) fn send(clients: &[Arc<Client>], topic: &str, ops: &[UiPatchOp], change: Option<i64>) {
    for client in clients {
        client.topics.send(client, topic, ops, change);
    }
}

fn op(name: &str, id: String, html: interlock_web::Markup) -> UiPatchOp {
    UiPatchOp {
        op: name.to_owned(),
        id,
        html: html.into_string(),
    }
}

/// Pages that are open: a new row, rendered once.
pub(crate) fn tell_question(pages: &[Arc<Client>], approval: &PendingApproval) {
    let row = inbox_row(&summary(approval));
    send(
        pages,
        APPROVALS,
        &[op("prepend", "rows".to_owned(), row)],
        Some(1),
    );
}

/// The same for its end.
pub(crate) fn tell_end(pages: &[Arc<Client>], approval: &PendingApproval, ended: &ApprovalEnd) {
    let ops = [
        op(
            "replace",
            format!("row-{}", approval.id),
            ended_row(approval, ended),
        ),
        op(
            "replace",
            format!("card-{}", approval.id),
            ended_card(approval, ended),
        ),
    ];
    send(pages, APPROVALS, &ops, Some(-1));
}

/// What a row shows of an approval.
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
