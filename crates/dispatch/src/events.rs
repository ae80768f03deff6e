//! Events of sessions, for operators and MCP clients that watch them. They are published when they
//! are stored, no matter by which process.
//!
//! A watcher does not replace the session: the session itself still gets every event with its next
//! call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use interlock_approvals::SessionEvent;
use interlock_host::HostError;
use interlock_wire::event::SESSION_EVENT;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use crate::broadcast::broadcast;
use crate::dispatcher::Dispatcher;
use crate::look::RecordLook;
use crate::work::blocking;

/// How often other processes' events are looked for while there are many.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// How many events are read at once.
const PAGE: usize = 100;

/// How many events may wait for one watcher of a session. Further ones only arrive with the
/// session's next call.
const WAITING: usize = 64;

#[derive(Debug, Default)]
pub struct Events {
    changed: Notify,
    /// The watcher of each session, by session key.
    listeners: Mutex<HashMap<String, mpsc::Sender<Value>>>,
}

impl Events {
    /// Makes followers read events now, because this process stored one.
    pub fn look_now(&self) {
        self.changed.notify_waiters();
    }

    /// Returns when it is time to read again.
    async fn wait(&self, look: &mut RecordLook) {
        tokio::select! {
            () = self.changed.notified() => {}
            () = look.again() => {}
        }
    }

    /// Sends an event to its session's watcher, unless it was delivered in the answer to a call.
    fn tell(&self, event: &SessionEvent) {
        if event.delivered_at_ms.is_none()
            && let Some(listener) = self.listeners().get(&event.session_key)
        {
            let _ = listener.try_send(view(event));
        }
    }

    fn listeners(&self) -> MutexGuard<'_, HashMap<String, mpsc::Sender<Value>>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches one session until it is dropped.
#[derive(Debug)]
pub struct SessionListener {
    dispatcher: Arc<Dispatcher>,
    session_key: String,
    events: mpsc::Receiver<Value>,
}

impl SessionListener {
    pub async fn next(&mut self) -> Option<Value> {
        self.events.recv().await
    }
}

impl Drop for SessionListener {
    fn drop(&mut self) {
        self.dispatcher.events.listeners().remove(&self.session_key);
    }
}

/// Watches a session that no other client watches: the key belongs to the listener.
pub fn listen(dispatcher: &Arc<Dispatcher>, session_key: String) -> SessionListener {
    let (sender, events) = mpsc::channel(WAITING);
    let mut listeners = dispatcher.events.listeners();
    listeners.insert(session_key.clone(), sender);
    SessionListener {
        dispatcher: Arc::clone(dispatcher),
        session_key,
        events,
    }
}

/// An event in the form for clients and wake calls.
pub fn view(event: &SessionEvent) -> Value {
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

/// Sends every event to operators, and those of their sessions to MCP clients, until the gateway
/// stops.
pub async fn follow(dispatcher: Arc<Dispatcher>) {
    let mut look = dispatcher.record.look(LOOK);
    let last = |from: &Dispatcher| Ok(Some(from.host.store().last_event()?));
    let Some(mut after) = read_when_there(&dispatcher, &mut look, last).await else {
        return;
    };
    loop {
        let read = move |from: &Dispatcher| {
            let events = from.host.approvals().events_after(after, PAGE)?;
            Ok((!events.is_empty()).then_some(events))
        };
        let Some(events) = read_when_there(&dispatcher, &mut look, read).await else {
            return;
        };
        for event in &events {
            after = event.id;
            broadcast(&dispatcher, SESSION_EVENT, &view(event));
            dispatcher.events.tell(event);
        }
    }
}

/// Reads now, and whenever something may be new, until there is a value. `None` if the gateway
/// stops.
pub(crate) async fn read_when_there<T: Send + 'static>(
    dispatcher: &Arc<Dispatcher>,
    look: &mut RecordLook,
    read: impl Fn(&Dispatcher) -> Result<Option<T>, HostError> + Clone + Send + 'static,
) -> Option<T> {
    loop {
        let (reader, read) = (Arc::clone(dispatcher), read.clone());
        match blocking(move || read(&reader)).await {
            Ok(Ok(Some(found))) => return Some(found),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "events cannot be read"),
            Err(_) => return None,
        }
        dispatcher.events.wait(look).await;
    }
}
