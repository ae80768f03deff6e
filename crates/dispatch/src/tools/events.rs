//! Undelivered events of a session go along with the next answer that it gets.

use std::sync::Arc;

use interlock_approvals::WaitingEvents;
use interlock_store::{EventKind, SessionEvent};

use super::result::{EventDetails, ToolResult};
use super::{CallError, ToolCall, blocking};
use crate::dispatcher::Dispatcher;

/// Whether no event waits for a conversation. A thread that has an outcome looks for itself: a result without
/// events then needs no further work on another thread.
pub(super) fn has_none(dispatcher: &Dispatcher, session_key: &str) -> bool {
    let waiting = dispatcher
        .host
        .waiting_events(session_key, 1, &dispatcher.supervisor);
    waiting.is_ok_and(|events| events.is_empty())
}

/// Events in one answer.
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
        // The answer is worth more than its company; they wait for the next one.
        Err(error) => tracing::warn!(%error, "events cannot be read"),
    }
    Ok(result)
}

fn add(result: &mut ToolResult, waiting: &WaitingEvents) {
    // The result itself says why it was denied, once.
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
