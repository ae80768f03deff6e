//! Follows a run on a node or at a remote gateway until it ends: shows its output as it arrives,
//! then reports how it ended.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};

use interlock_client::GatewayClient;
use interlock_console::Failure;
use interlock_console::output;
use interlock_policy::AgentId;
use interlock_wire::event::{PROCESS_ENDED, PROCESS_OUTPUT};
use interlock_wire::params::{ProcessKill, ProcessPerform, ProcessSubscribe, ToolsInvoke};
use interlock_wire::results::{DeliveredEvent, ExecDetails, ProcessEnded, ProcessOutput, Relayed};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use signal_hook::iterator::Signals;

use super::node::{POLL_INTERVAL, no_answer, text};

/// How many pieces of output, of at most 64 KiB each, are buffered for printing.
const PIECES: usize = 256;

/// How much output a JSON result holds at most.
const SHOWN_BYTES: usize = 200_000;

/// A run on a node or at a remote gateway whose output this command follows.
pub(super) struct FollowedRun {
    pub(super) session: String,
    agent: String,
    /// The output for the JSON result.
    shown: String,
    not_shown: u64,
    /// How the run ended, as the gateway's event reports it; empty until then.
    ended: ProcessEnded,
    signal: Option<i32>,
}

/// An event about a run, from the gateway.
enum FollowedEvent {
    Output(ProcessOutput),
    Ended(ProcessEnded),
}

impl FollowedRun {
    /// The run whose session the gateway's answer names.
    pub(super) fn of(details: &ExecDetails, agent: &AgentId) -> Result<Self, Failure> {
        let session = details.session_id.clone().ok_or_else(no_answer)?;
        Ok(Self {
            session,
            agent: agent.to_string(),
            shown: String::new(),
            not_shown: 0,
            ended: ProcessEnded::default(),
            signal: None,
        })
    }

    /// Shows the output until the run has ended. A signal to this process ends the run; a second
    /// signal stops following it. Returns the connection, or `None` if it is still in use.
    /// `connect_again` makes a second connection, because `gateway` is busy with the events.
    pub(super) fn follow(
        &mut self,
        mut gateway: GatewayClient,
        connect_again: impl Fn() -> Result<GatewayClient, Failure>,
        is_json: bool,
        signals: &mut Signals,
    ) -> Result<Option<GatewayClient>, Failure> {
        // The channel is bounded: a slow reader of the output slows down this process, then the
        // gateway, and then the node, and no buffer grows without limit.
        let (sender, events) = sync_channel(PIECES);
        let params = ProcessSubscribe {
            session_id: self.session.clone(),
            ..ProcessSubscribe::default()
        };
        let reader = std::thread::spawn(move || {
            let subscribed = gateway.subscribe(&params, |name, payload| {
                let event = match name {
                    PROCESS_OUTPUT => FollowedEvent::Output(read_event(payload)),
                    PROCESS_ENDED => FollowedEvent::Ended(read_event(payload)),
                    _ => return true,
                };
                let is_last = matches!(event, FollowedEvent::Ended(_));
                sender.send(event).is_ok() && !is_last
            });
            subscribed.map(|()| gateway)
        });
        loop {
            match events.recv_timeout(POLL_INTERVAL) {
                Ok(FollowedEvent::Output(piece)) => self.show(&piece, is_json),
                Ok(FollowedEvent::Ended(ended)) => self.ended = ended,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let subscribed = reader.join().map_err(|_| no_answer())?;
                    return Ok(Some(subscribed?));
                }
            }
            if let Some(signal) = signals.pending().next() {
                if self.signal.is_some() {
                    output::note("interlock: the command may still be running there");
                    return Ok(None);
                }
                self.signal = Some(signal);
                let kill = ProcessKill {
                    session_id: self.session.clone(),
                    ..ProcessKill::default()
                };
                let second = connect_again();
                let killed = second.is_ok_and(|mut gateway| gateway.request(&kill).is_ok());
                if !killed {
                    output::note("interlock: the command could not be ended there");
                }
            }
        }
    }

    fn show(&mut self, piece: &ProcessOutput, is_json: bool) {
        self.not_shown += piece.missed_bytes;
        let text = &piece.text;
        if !is_json {
            output::print_bytes(text.as_bytes());
        } else if self.shown.len() + text.len() <= SHOWN_BYTES {
            self.shown.push_str(text);
        } else {
            self.not_shown += u64::try_from(text.len()).unwrap_or(u64::MAX);
        }
    }

    /// Reports how the run ended and returns the exit code. The session is removed from the gateway
    /// only if all of its output was shown and the run is not lost.
    pub(super) fn end(
        self,
        gateway: Option<GatewayClient>,
        is_json: bool,
        mut whole: Relayed<ExecDetails>,
    ) -> u8 {
        let mut events = Vec::new();
        let ended = &self.ended;
        // A lost run may still be running, so its session must stay.
        let is_lost = ended.status.as_deref() == Some("lost");
        if let Some(mut gateway) = gateway.filter(|_| self.not_shown == 0 && !is_lost) {
            let remove = ProcessPerform::on_session("remove", &self.session);
            let remove = ToolsInvoke {
                name: "process".to_owned(),
                args: Some(remove.args),
                agent_id: Some(self.agent.clone()),
                ..ToolsInvoke::default()
            };
            if let Ok(answer) = gateway.request(&remove) {
                let removed: Relayed<ExecDetails> = answer.into_details();
                events = removed.read().unwrap_or_default().events;
            }
        }
        let code = match (self.signal, ended.exit_code.map(u64::try_from)) {
            (Some(signal), _) => u64::try_from(128 + signal).unwrap_or(1),
            (None, Some(Ok(code))) => code,
            (None, _) => 1,
        };
        if is_json {
            let is_completed = ended.status.as_deref() == Some("completed");
            let shown = self.shown.len();
            let total = u64::try_from(shown).unwrap_or(u64::MAX) + self.not_shown;
            let output = json!({
                "text": self.shown,
                "totalBytes": total,
                "shownBytes": shown,
                "omittedBytes": self.not_shown,
            });
            whole = whole
                .with("status", if is_completed { "completed" } else { "failed" })
                .with("exitCode", ended.exit_code)
                .with("signal", ended.signal)
                .with("timedOut", ended.timed_out)
                .with("output", output);
            whole.remove("tail");
            whole.remove("message");
            if self.not_shown == 0 && !is_lost {
                whole.remove("sessionId");
            }
            output::print_json(&whole.into_json());
        } else {
            if ended.timed_out == Some(true) {
                output::note("interlock: the time is over; the command was ended");
            }
            if is_lost {
                let why = ended.reason.as_deref().unwrap_or("its output ended");
                output::note(&format!(
                    "interlock: the connection to the command was lost ({why}); it may still be running as {}",
                    self.session
                ));
            }
            if self.not_shown > 0 {
                output::note(&format!(
                    "interlock: {} bytes of output are not shown; they are kept there as {}",
                    self.not_shown, self.session
                ));
            }
            note_events(&events, Some(&self.session));
        }
        u8::try_from(code & 0xff).unwrap_or(u8::MAX)
    }
}

/// Prints undelivered events of the conversation. Events of the session `except` are left out: the
/// caller has just followed it.
pub(super) fn note_events(events: &[DeliveredEvent], except: Option<&str>) {
    let followed = except.map(|session| format!("session={session}"));
    for event in events {
        let event_text = text(event.text.as_deref());
        let is_followed = followed
            .as_ref()
            .is_some_and(|mark| event_text.contains(mark.as_str()));
        if !is_followed && !event_text.is_empty() {
            output::note(&format!("interlock: {event_text}"));
        }
    }
}

/// Reads the payload of an event. A payload of an unknown shape counts as empty.
fn read_event<T: DeserializeOwned + Default>(payload: &Value) -> T {
    T::deserialize(payload).unwrap_or_default()
}
