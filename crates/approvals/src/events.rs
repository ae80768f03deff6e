//! The events of a conversation about its runs: a run takes long, ended, or was denied.
//!
//! Each event is written in the transaction of the change that it reports, so it exists exactly
//! once. A conversation gets its events with its next call, unless a client subscribes to them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interlock_config::ConfigFile;
use interlock_config::types::ExecConfig;
use interlock_store::{
    Approval, Change, EventKind, NewEvent, OpenRun, RecordedOutcome, RecordedStatus, SessionEvent,
    Store, StoreError, WaitingEvents, lenient_field,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::approvals::Approvals;
use crate::claim::gateway_run_id;
use crate::clock::now;
use crate::effect_plan::EFFECT_BINDING;
use crate::network_plan::NETWORK_BINDING;
use crate::remote::REMOTE;
use interlock_rules::RulesError;

/// How many characters of output an event shows. It shows the last ones.
pub const EVENT_TAIL_CHARS: usize = 400;

/// How many characters of a command an event shows.
const COMMAND_CHARS: usize = 1000;

/// What the agent must know after its run was denied.
pub const DENIAL_TEXT: &str =
    "no output exists for this command; do not reuse output of earlier runs; do not retry";

/// The text for a run that asked for a host: the run was started and continues without that host.
const HOST_DENIAL_TEXT: &str =
    "the command goes on without this host; do not ask for the host again";

/// The text for a run whose changes were denied.
const EFFECT_DENIAL_TEXT: &str =
    "the changes of this command were discarded; do not count on them, and do not retry";

/// The title and advice of the event about a denial, by the binding of the denied approval.
fn denial_words(binding: &str) -> (&'static str, &'static str) {
    match binding {
        NETWORK_BINDING => ("Host denied", HOST_DENIAL_TEXT),
        EFFECT_BINDING => ("Changes denied", EFFECT_DENIAL_TEXT),
        _ => ("Exec denied", DENIAL_TEXT),
    }
}

/// The events that the config wants a conversation to be notified of.
#[derive(Debug, Clone, Copy)]
pub struct NotifySettings {
    on_exit: bool,
    on_empty_success: bool,
    running_after: Option<Duration>,
}

impl NotifySettings {
    /// Settings for runs that no conversation is notified of.
    pub const NOTHING: Self = Self {
        on_exit: false,
        on_empty_success: false,
        running_after: None,
    };

    /// Loads the settings of an agent. An unreadable config must not prevent an end from being
    /// recorded.
    pub fn load(config: &Path, agent: &str) -> Self {
        let config = ConfigFile::load(config).ok();
        Self::of(config.map(|config| config.config().exec_for(agent)))
    }

    /// The settings of one agent. Without a config, the defaults apply.
    pub fn of(exec: Option<ExecConfig>) -> Self {
        let exec = exec.unwrap_or_default();
        Self {
            on_exit: exec.notifies_on_exit(),
            on_empty_success: exec.notifies_on_empty_success(),
            running_after: exec.running_notice(),
        }
    }
}

/// The session key of a call that names none.
pub fn usual_session_key(agent: &str) -> String {
    format!("agent:{agent}:main")
}

impl Approvals<'_> {
    /// Records that the session got these events. They are not offered again.
    pub fn delivered(self, session_key: &str, events: &WaitingEvents) -> Result<(), RulesError> {
        let last = events.events.last().map_or(0, |event| event.id);
        let store = self.store;
        store.mark_delivered(session_key, last, events.dropped, now())?;
        Ok(())
    }

    /// Events of all sessions with ids above `id`, for subscribers.
    pub fn events_after(self, id: i64, limit: usize) -> Result<Vec<SessionEvent>, RulesError> {
        Ok(self.store.events_after(id, limit)?)
    }

    /// Stores an operator's note for a session, which gets it with its next call.
    pub fn note(
        self,
        session_key: &str,
        agent: &str,
        text: &str,
        payload: &Value,
    ) -> Result<(), RulesError> {
        let run_id = uuid::Uuid::new_v4().to_string();
        let event = NewEvent {
            session_key,
            agent,
            kind: EventKind::Note,
            run_id: &run_id,
            text,
            payload,
            wakes: false,
            now_ms: now(),
        };
        self.store.change(|change| change.append_event(&event))?;
        Ok(())
    }

    /// Records that the caller of an approval got the outcome in its own call's result.
    pub fn mark_outcome_delivered(self, approval: &str) -> Result<(), RulesError> {
        let store = self.store;
        let id = store.approval(approval)?.id;
        store.mark_run_events_delivered(&id, now())?;
        Ok(())
    }

    /// Queues an event for each of these approved runs that takes long and has no such event yet.
    pub fn announce_due(self, runs: &[OpenRun]) -> Result<(), RulesError> {
        let unannounced = |run: &&OpenRun| run.approval_id.is_some() && !run.announced;
        for run in runs.iter().filter(unannounced) {
            let notify = self.notify_settings(&run.agent);
            let Some(after) = notify.running_after else {
                continue;
            };
            let due = run.started_at_ms.saturating_add(milliseconds(after));
            if due <= now() {
                announce(self.store, &run.id, after, notify.on_exit)?;
            }
        }
        Ok(())
    }

    /// The notify settings of an agent. An unreadable config must not prevent an end from being
    /// recorded.
    pub fn notify_settings(self, agent: &str) -> NotifySettings {
        let config = self.config().ok();
        NotifySettings::of(config.map(|config| config.config().exec_for(agent)))
    }
}

/// Announces an approved run that takes long. The caller that waits for the run calls
/// [`RunningEvent::publish`] after [`RunningEvent::after`]. A run that has ended by then, or was
/// announced before, causes no event.
#[derive(Debug)]
pub struct RunningEvent {
    store: Arc<Store>,
    run_id: String,
    after: Duration,
    wakes: bool,
}

impl RunningEvent {
    /// The event of a run that was just started; `None` if the config wants no such event.
    pub fn new(store: Arc<Store>, run_id: &str, notify: NotifySettings) -> Option<Self> {
        Some(Self {
            store,
            run_id: run_id.to_owned(),
            after: notify.running_after?,
            wakes: notify.on_exit,
        })
    }

    /// The time from the start of the run until the event.
    pub fn after(&self) -> Duration {
        self.after
    }

    /// Queues the event. `false` if it was not needed.
    pub fn publish(&self) -> Result<bool, RulesError> {
        Ok(announce(&self.store, &self.run_id, self.after, self.wakes)?)
    }
}

fn announce(store: &Store, run_id: &str, after: Duration, wakes: bool) -> Result<bool, StoreError> {
    store.change(|change| {
        let Some(run) = change.announce_run(run_id)? else {
            return Ok(false);
        };
        let text = format!(
            "Exec running ({}, >{}s): {}",
            place(&run, run.session.as_deref()),
            after.as_secs_f64(),
            clipped_command(&run.command)
        );
        let payload = json!(RunningPayload {
            run: RunPayload::of(&run),
            started_at_ms: run.started_at_ms,
        });
        queue(change, &run, EventKind::Running, &text, &payload, wakes)
    })
}

/// The end of a run, as its session is notified of it.
#[derive(Debug, Clone, Copy)]
pub struct SessionRunEnd<'a> {
    /// `None` if the outcome is unknown.
    pub outcome: Option<&'a RecordedOutcome>,
    /// The end of the output.
    pub tail: &'a str,
    pub notify: NotifySettings,
}

/// Queues the event for the end of a run. A session is always notified of the end of an approved
/// run. The config decides about background runs, and separately about silent successes.
pub fn queue_finished(
    change: &Change<'_>,
    run: &OpenRun,
    end: &SessionRunEnd<'_>,
) -> Result<(), StoreError> {
    // The gateway notifies its own conversation.
    if gateway_run_id(&run.id).is_some() {
        return Ok(());
    }
    let code = end
        .outcome
        .and_then(|outcome| outcome.exit_code.value().copied());
    let tail = end.tail.trim();
    let is_silent_success = code == Some(0) && tail.is_empty();
    let is_wanted = end.notify.on_exit && (!is_silent_success || end.notify.on_empty_success);
    let is_background = run.session.is_some();
    if run.approval_id.is_none() && !(is_background && is_wanted) {
        return Ok(());
    }
    let status = end.outcome.and_then(|outcome| outcome.status.as_ref());
    if status == Some(&RecordedStatus::NotStarted) {
        return queue_denied(
            change,
            run,
            DenialReason::of("invoke-failed"),
            denial_words(REMOTE),
            end.notify.on_exit,
        );
    }
    let how = match (status, code) {
        (Some(RecordedStatus::TimedOut), _) => "timeout".to_owned(),
        (Some(RecordedStatus::Signaled), _) => {
            let signal = end.outcome.and_then(|outcome| outcome.signal);
            format!("signal {}", signal.unwrap_or_default())
        }
        (_, Some(code)) => format!("code {code}"),
        _ => "outcome unknown".to_owned(),
    };
    let session = end.outcome.and_then(|outcome| outcome.session.value());
    let session = session.or(run.session.as_ref()).map(String::as_str);
    let place = place(run, session);
    let mut text = format!("Exec finished ({place}, {how})");
    if !tail.is_empty() {
        text.push('\n');
        text.push_str(tail);
    }
    let payload = json!(FinishedPayload {
        run: RunPayload::of(run),
        exit_code: code,
        output: tail,
        outcome: end.outcome,
        session,
        success: code == Some(0),
        timed_out: status == Some(&RecordedStatus::TimedOut),
    });
    let wakes = end.notify.on_exit;
    queue(change, run, EventKind::Finished, &text, &payload, wakes)?;
    Ok(())
}

/// Why an approval was denied: a code, and the approver's words if there are any.
#[derive(Debug, Clone, Copy)]
pub struct DenialReason<'a> {
    pub code: &'static str,
    pub words: Option<&'a str>,
}

impl DenialReason<'_> {
    /// A denial without words of an approver.
    pub fn of(code: &'static str) -> Self {
        Self { code, words: None }
    }
}

/// Queues the event that an approval did not become a run, and marks earlier results of the command
/// as stale.
pub fn queue_denial(
    change: &Change<'_>,
    approval: &Approval,
    reason: DenialReason<'_>,
    notify: NotifySettings,
) -> Result<(), StoreError> {
    let request = &approval.request;
    // A plan that cannot be read was never run.
    let plan: DeniedPlan = serde_json::from_str(&request.plan).unwrap_or_default();
    // A caller that named another host and no conversation waits for the decision itself.
    if request.binding == REMOTE && plan.session_key.is_null() {
        return Ok(());
    }
    let run = OpenRun {
        id: approval.id.clone(),
        approval_id: Some(approval.id.clone()),
        agent: request.agent.clone(),
        session_key: request.session_key.clone(),
        host: request.host.clone(),
        node: request.node.clone(),
        command: request.preview.clone(),
        waiter: String::new(),
        started_at_ms: now(),
        session: None,
        announced: false,
    };
    let words = denial_words(&request.binding);
    queue_denied(change, &run, reason, words, notify.on_exit)?;
    // The run that asked for a host continues, and its output remains valid.
    if request.binding == NETWORK_BINDING {
        return Ok(());
    }
    // Stale results are found by the text as written, not as shown.
    match &plan.command {
        Some(command) => change.mark_stale(&request.session_key, command, now()),
        None => Ok(()),
    }
}

fn queue_denied(
    change: &Change<'_>,
    run: &OpenRun,
    reason: DenialReason<'_>,
    (title, advice): (&str, &str),
    wakes: bool,
) -> Result<(), StoreError> {
    let words = reason.words.map(|words| format!("\nReason: {words}"));
    let text = format!(
        "{title} ({}, {}): {}{}\n{advice}",
        place(run, None),
        reason.code,
        clipped_command(&run.command),
        words.unwrap_or_default(),
    );
    let payload = json!(DeniedPayload {
        run: RunPayload::of(run),
        reason: reason.code,
        message: reason.words,
    });
    queue(change, run, EventKind::Denied, &text, &payload, wakes)?;
    Ok(())
}

/// The host and id of a run, for the text of an event.
fn place(run: &OpenRun, session: Option<&str>) -> String {
    let at = match &run.node {
        Some(node) => format!("node={node} id={}", run.id),
        None => format!("{} id={}", run.host, run.id),
    };
    match session {
        Some(session) => format!("{at}, session={session}"),
        None => at,
    }
}

/// The run that an event is about, in the event's payload.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RunPayload<'a> {
    approval_id: Option<&'a str>,
    command: String,
    host: &'a str,
    node: Option<&'a str>,
    run_id: &'a str,
    session_key: &'a str,
}

impl<'a> RunPayload<'a> {
    fn of(run: &'a OpenRun) -> Self {
        Self {
            approval_id: run.approval_id.as_deref(),
            command: clipped_command(&run.command),
            host: &run.host,
            node: run.node.as_deref(),
            run_id: &run.id,
            session_key: &run.session_key,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RunningPayload<'a> {
    #[serde(flatten)]
    run: RunPayload<'a>,
    started_at_ms: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FinishedPayload<'a> {
    #[serde(flatten)]
    run: RunPayload<'a>,
    exit_code: Option<i64>,
    output: &'a str,
    outcome: Option<&'a RecordedOutcome>,
    session: Option<&'a str>,
    success: bool,
    timed_out: bool,
}

#[derive(Serialize)]
struct DeniedPayload<'a> {
    #[serde(flatten)]
    run: RunPayload<'a>,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

/// The fields that a denial reads from the stored plan of an approval. Run plans and the subjects
/// of remote approvals both have them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeniedPlan {
    #[serde(deserialize_with = "lenient_field")]
    command: Option<String>,
    session_key: Value,
}

/// Queues an event. Returns whether it is new.
fn queue(
    change: &Change<'_>,
    run: &OpenRun,
    kind: EventKind,
    text: &str,
    payload: &Value,
    wakes: bool,
) -> Result<bool, StoreError> {
    let appended = change.append_event(&NewEvent {
        session_key: &run.session_key,
        agent: &run.agent,
        kind,
        run_id: &run.id,
        text,
        payload,
        wakes,
        now_ms: now(),
    })?;
    Ok(appended.is_some())
}

/// The last characters of an output, up to the limit of an event.
pub fn last_characters(text: &str) -> String {
    let skip = text.chars().count().saturating_sub(EVENT_TAIL_CHARS);
    text.chars().skip(skip).collect()
}

/// The beginning of a command, up to the limit of an event.
pub fn clipped_command(command: &str) -> String {
    match command.char_indices().nth(COMMAND_CHARS) {
        Some((at, _)) => format!("{}…", &command[..at]),
        None => command.to_owned(),
    }
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
