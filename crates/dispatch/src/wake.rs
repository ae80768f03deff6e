//! Wakes sessions by a call of `gateway.wake` for every event that should wake one.
//!
//! The progress is durable, so a restart forgets no event. An event may then be sent twice, and
//! carries its id for receivers to which that matters. A failed wake is in the audit.

mod command;
mod post;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use interlock_approvals::{AuditKind, SessionEvent};
use interlock_config::types::GatewayWake;
use interlock_host::{ConfigInWorkspace, HostError, now_ms};
use serde_json::json;

use crate::dispatcher::Dispatcher;
use crate::events::{self, read_when_there};
use crate::work::blocking;

/// The name of this reader of events in the store.
const READER: &str = "wake";

/// How many events are sent at once. Further ones wait.
const AT_ONCE: usize = 16;

/// The pauses before each retry. There is one attempt more than pauses.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// Wakes sessions until the gateway stops.
pub async fn follow(dispatcher: Arc<Dispatcher>) {
    let mut look = dispatcher.record.look(events::LOOK);
    let begin = |from: &Dispatcher| Ok(Some(from.host.store().events_reader(READER)?));
    let Some(mut up_to) = read_when_there(&dispatcher, &mut look, begin).await else {
        return;
    };
    loop {
        let read = move |from: &Dispatcher| read(from, up_to);
        let Some((events, wake)) = read_when_there(&dispatcher, &mut look, read).await else {
            return;
        };
        up_to = events.last().map_or(up_to, |last| last.id);
        tell_all(&dispatcher, &wake, events).await;
    }
}

/// The wake settings of the config.
struct Wake {
    settings: GatewayWake,
    /// Whether its command may be started.
    command: Result<(), ConfigInWorkspace>,
}

/// The events after this one, and how they wake; `None` if there are no events.
fn read(
    dispatcher: &Dispatcher,
    after: i64,
) -> Result<Option<(Vec<SessionEvent>, Wake)>, HostError> {
    let events = dispatcher.host.approvals().events_after(after, AT_ONCE)?;
    if events.is_empty() {
        return Ok(None);
    }
    let config = dispatcher.host.config()?;
    // Checked each time: config, workspaces and links change while the gateway runs.
    let command = dispatcher.host.check_wake_command(config.config());
    let wake = Wake {
        settings: config.config().gateway.wake.clone(),
        command,
    };
    Ok(Some((events, wake)))
}

async fn tell_all(dispatcher: &Arc<Dispatcher>, wake: &Wake, events: Vec<SessionEvent>) {
    let last = events.last().map_or(0, |event| event.id);
    // An event that was delivered in the answer to a call wakes no session.
    let wakes = |event: &&SessionEvent| event.wakes && event.delivered_at_ms.is_none();
    let calls = events
        .iter()
        .filter(wakes)
        .map(|event| tell(dispatcher, wake, event));
    join_all(calls).await;
    let writer = Arc::clone(dispatcher);
    let marked = blocking(move || writer.host.store().events_read(READER, last)).await;
    if let Ok(Err(error)) = marked {
        tracing::warn!(%error, "a wake call may be made again");
    }
}

/// Tries until it succeeds or gives up.
async fn tell(dispatcher: &Arc<Dispatcher>, wake: &Wake, event: &SessionEvent) {
    let body = json!({ "type": "session.event", "event": events::view(event) }).to_string();
    let settings = &wake.settings;
    let (url, command) = (settings.url.as_deref(), settings.command.as_deref());
    if let Some(url) = url {
        let fingerprint = settings.tls_fingerprint.as_deref();
        let call = || post::post(&dispatcher.wake_key, url, fingerprint, event.id, &body);
        let sent = attempts(call).await;
        gave_up(dispatcher, "wake:url", event, sent).await;
    }
    if let Some(argv) = command.filter(|argv| !argv.is_empty()) {
        let sent = match &wake.command {
            Ok(()) => attempts(|| command::run(dispatcher, argv, event, &body)).await,
            Err(refused) => Err(format!("{}: {refused}", ConfigInWorkspace::CODE)),
        };
        gave_up(dispatcher, "wake:command", event, sent).await;
    }
}

async fn attempts<F: Future<Output = Result<(), String>>>(
    mut call: impl FnMut() -> F,
) -> Result<(), String> {
    let mut sent = call().await;
    for pause in PAUSES {
        if sent.is_ok() {
            break;
        }
        tokio::time::sleep(pause).await;
        sent = call().await;
    }
    sent
}

/// Records a failed wake without the URL, which may contain a secret.
async fn gave_up(
    dispatcher: &Arc<Dispatcher>,
    surface: &'static str,
    event: &SessionEvent,
    sent: Result<(), String>,
) {
    let Err(detail) = sent else { return };
    tracing::warn!(event = event.id, surface, detail, "a session was not woken");
    let record = json!({
        "agent": event.agent,
        "surface": surface,
        "state": "failed",
        "eventId": event.id,
        "sessionKey": event.session_key,
        "runId": event.run_id,
        "attempts": PAUSES.len() + 1,
        "detail": detail.chars().take(1000).collect::<String>(),
    });
    let writer = Arc::clone(dispatcher);
    let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
    let written = blocking(move || {
        writer
            .host
            .store()
            .append(AuditKind::Delivery, &record, now)
    });
    if let Ok(Err(error)) = written.await {
        tracing::error!(%error, "a session was not woken, and that is not recorded");
    }
}
