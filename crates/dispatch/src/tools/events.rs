//! Delivers the undelivered events of a session with its next answer.

use std::sync::Arc;

use interlock_approvals::WaitingEvents;
use interlock_store::{EventKind, SessionEvent};

use super::result::{EventDetails, ToolResult};
use super::{CallError, ToolCall, blocking};
use crate::dispatcher::Dispatcher;

/// Whether no event waits for a conversation. The thread that has an outcome checks this itself, so
/// that a result without events needs no further thread.
pub(super) fn has_none(dispatcher: &Dispatcher, session_key: &str) -> bool {
    let waiting = dispatcher
        .host
        .waiting_events(session_key, 1, &dispatcher.supervisor);
    waiting.is_ok_and(|events| events.is_empty())
}

/// The most events in one answer.
const MOST: usize = 20;

pub(super) async fn with_events(
    dispatcher: &Arc<Dispatcher>,
    call: &ToolCall,
    mut result: ToolResult,
) -> Result<ToolResult, CallError> {
    if result.has_no_events {
        return Ok(result);
    }
    let (reader, key) = (Arc::clone(dispatcher), call.session_key.clone());
    let taken = blocking(move || reader.host.take_events(&key, MOST, &reader.supervisor)).await?;
    match taken {
        Ok(events) => add(&mut result, &events),
        // The answer matters more than the events; they wait for the next answer.
        Err(error) => tracing::warn!(%error, "events cannot be read"),
    }
    Ok(result)
}

fn add(result: &mut ToolResult, waiting: &WaitingEvents) {
    // The result itself already contains the reason of the denial.
    let is_told = |event: &&SessionEvent| {
        event.kind == EventKind::Denied
            && result
                .refusal
                .as_ref()
                .is_some_and(|refusal| refusal.is_denial)
            && result.approval.as_ref() == Some(&event.run_id)
    };
    let events: Vec<&SessionEvent> = waiting
        .events
        .iter()
        .filter(|event| !is_told(event))
        .collect();
    if events.is_empty() {
        return;
    }
    let lines = &mut result.events;
    for event in events {
        lines.push(format!("System: {}", event.text));
        result.event_details.push(EventDetails {
            id: event.id,
            kind: event.kind.as_str(),
            run_id: event.run_id.clone(),
            text: event.text.clone(),
            created_at_ms: event.created_at_ms,
        });
    }
    if waiting.dropped > 0 {
        lines.push(format!(
            "System: {} earlier events were dropped",
            waiting.dropped
        ));
    }
}
