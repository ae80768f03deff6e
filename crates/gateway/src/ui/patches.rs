//! What changes in pages that are open.
//!
//! A connection that opened a page gets no raw events of approvals: it gets rows to put into its inbox, and
//! can allow only what it opened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use interlock_approvals::PendingApproval;
use interlock_store::{ApprovalEnd, ApprovalSummary};
use interlock_web::{ended_card, ended_row, inbox_row};
use interlock_wire::results::{UiPatch, UiPatchOp};
use interlock_wire::{Event, event};

use crate::ws::client::Client;

/// The topic of approvals, which every page follows.
pub(super) const APPROVALS: &str = "approvals";

/// Topics of one connection at most.
const MOST_TOPICS: usize = 64;

/// What a connection follows, with the number of the last patch of each topic. None: it has opened no
/// page.
#[derive(Debug, Default)]
pub(crate) struct PageTopics(Mutex<Option<HashMap<String, u64>>>);

impl PageTopics {
    /// Follows a topic, and returns the number of its last patch.
    pub(super) fn follow(&self, topic: &str) -> u64 {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let topics = topics.get_or_insert_default();
        if topics.len() >= MOST_TOPICS && !topics.contains_key(topic) {
            topics.retain(|name, _| name == APPROVALS);
        }
        *topics.entry(topic.to_owned()).or_default()
    }

    pub(super) fn leave(&self, topic: &str) -> bool {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_left = topic != APPROVALS;
        has_left
            && topics
                .as_mut()
                .is_some_and(|topics| topics.remove(topic).is_some())
    }

    pub(crate) fn follows(&self, topic: &str) -> bool {
        let topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        topics
            .as_ref()
            .is_some_and(|topics| topics.contains_key(topic))
    }

    /// Whether this connection is a page.
    pub(crate) fn has_page(&self) -> bool {
        let topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        topics.is_some()
    }

    /// Sends a patch, if the topic is followed. Its number is given while the queue is held, so that
    /// patches arrive in their order.
    fn send(&self, client: &Client, topic: &str, ops: &[UiPatchOp], change: Option<i64>) {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seq) = topics.as_mut().and_then(|topics| topics.get_mut(topic)) else {
            return;
        };
        *seq += 1;
        let patch = UiPatch {
            topic: topic.to_owned(),
            seq: *seq,
            ops: ops.to_vec(),
            pending_change: change,
        };
        if let Ok(event) = Event::new(event::UI_PATCH, &patch) {
            client.tell(&event);
        }
    }
}

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
