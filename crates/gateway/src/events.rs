//! What sessions are told, for operators who watch them: as it is put down, by whichever process.
//!
//! To watch is not to be told: the session itself still hears of everything with its next call.

use std::sync::Arc;
use std::time::Duration;

use interlock_host::{HostError, SessionEvent};
use interlock_wire::event::SESSION_EVENT;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::gateway::Gateway;
use crate::tools::blocking;
use crate::ws::methods::broadcast;

/// How often other processes' events are looked for.
const LOOK: Duration = Duration::from_millis(200);

/// Events that are read at once.
const PAGE: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Events {
    changed: Notify,
}

impl Events {
    /// This process has put one down: it need not be looked for.
    pub(crate) fn look_now(&self) {
        self.changed.notify_waiters();
    }

    /// Returns when it is time to look again.
    pub(crate) async fn wait(&self) {
        tokio::select! {
            () = self.changed.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// An event as clients and wake calls get it.
pub(crate) fn view(event: &SessionEvent) -> Value {
    json!({
        "id": event.id,
        "sessionKey": event.session_key,
        "agentId": event.agent,
        "kind": event.kind.as_str(),
        "runId": event.run_id,
        "text": event.text,
        "details": event.payload,
        "createdAtMs": event.created_at_ms,
        "wakes": event.wakes,
    })
}

/// Tells operators of every event, until the gateway ends.
pub(crate) async fn follow(gateway: Arc<Gateway>) {
    let mut after = None;
    loop {
        let (reader, from) = (Arc::clone(&gateway), after);
        match blocking(move || read(&reader, from)).await {
            Ok(Ok((events, last))) => {
                after = Some(last);
                for event in &events {
                    broadcast(&gateway, SESSION_EVENT, &view(event));
                }
                if events.len() == PAGE {
                    continue;
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "events cannot be read"),
            Err(_) => return,
        }
        gateway.events.wait().await;
    }
}

/// The events behind this one, and the last of them. Without one: none, and where to begin.
fn read(gateway: &Gateway, after: Option<i64>) -> Result<(Vec<SessionEvent>, i64), HostError> {
    let Some(after) = after else {
        return Ok((Vec::new(), gateway.host.store().last_event()?));
    };
    let events = gateway.host.desk().events_after(after, PAGE)?;
    let last = events.last().map_or(after, |event| event.id);
    Ok((events, last))
}
