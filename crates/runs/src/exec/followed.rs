//! A run elsewhere, followed until its end: its output as it comes, then how it ended.

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

use super::node::{LOOK, gone, text};

/// Pieces of output that wait here to be printed, of 64 KiB at most.
const PIECES: usize = 256;

/// How much output a result for programs holds.
const SHOWN_BYTES: usize = 200_000;

/// A run on its node, which is followed.
pub(super) struct FollowedRun {
    pub(super) session: String,
    agent: String,
    /// The output that the result shows, for programs.
    shown: String,
    not_shown: u64,
    /// How the run ended, as the event says; empty until then.
    ended: ProcessEnded,
    signal: Option<i32>,
}

/// What the gateway reports of a run.
enum FollowedEvent {
    Output(ProcessOutput),
    Ended(ProcessEnded),
}

impl FollowedRun {
    /// The run of an answer that names its session.
    pub(super) fn of(details: &ExecDetails, agent: &AgentId) -> Result<Self, Failure> {
        let session = details.session_id.clone().ok_or_else(gone)?;
        Ok(Self {
            session,
            agent: agent.to_string(),
            shown: String::new(),
            not_shown: 0,
            ended: ProcessEnded::default(),
            signal: None,
        })
    }

    /// Shows the output until the run has ended. A signal that ends this process ends the run first. Gives the
    /// connection back, unless it is still in use.
    pub(super) fn follow(
        &mut self,
        mut gateway: GatewayClient,
        other_way: impl Fn() -> Result<GatewayClient, Failure>,
        is_json: bool,
        signals: &mut Signals,
    ) -> Result<Option<GatewayClient>, Failure> {
        // A slow reader slows down this process, then the gateway, and then the node.
        let (tell, followed) = sync_channel(PIECES);
        let params = ProcessSubscribe {
            session_id: self.session.clone(),
            ..ProcessSubscribe::default()
        };
        let reader = std::thread::spawn(move || {
            let heard = gateway.subscribe(&params, |name, payload| {
                let event = match name {
                    PROCESS_OUTPUT => FollowedEvent::Output(read_event(payload)),
                    PROCESS_ENDED => FollowedEvent::Ended(read_event(payload)),
                    _ => return true,
                };
                let is_last = matches!(event, FollowedEvent::Ended(_));
                tell.send(event).is_ok() && !is_last
            });
            heard.map(|()| gateway)
        });
        loop {
            match followed.recv_timeout(LOOK) {
                Ok(FollowedEvent::Output(piece)) => self.show(&piece, is_json),
                Ok(FollowedEvent::Ended(ended)) => self.ended = ended,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let heard = reader.join().map_err(|_| gone())?;
                    return Ok(Some(heard?));
                }
            }
            if let Some(signal) = signals.pending().next() {
                if self.signal.is_some() {
                    output::note("interlock: the command may go on running there");
                    return Ok(None);
                }
                self.signal = Some(signal);
                let kill = ProcessKill {
                    session_id: self.session.clone(),
                    ..ProcessKill::default()
                };
                let way = other_way();
                let killed = way.is_ok_and(|mut way| way.request(&kill).is_ok());
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

    /// Says how the run ended. A session whose output was shown whole is removed.
    pub(super) fn end(
        self,
        gateway: Option<GatewayClient>,
        is_json: bool,
        mut whole: Relayed<ExecDetails>,
    ) -> u8 {
        let mut events = Vec::new();
        let ended = &self.ended;
        // A run that was lost sight of may go on.
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
                    "interlock: the command was lost sight of ({why}); it may go on as {}",
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

/// Notes undelivered events of the conversation, but for those of a run that was just followed.
pub(super) fn note_events(events: &[DeliveredEvent], but: Option<&str>) {
    let own = but.map(|session| format!("session={session}"));
    for event in events {
        let said = text(event.text.as_deref());
        let is_own = own.as_ref().is_some_and(|own| said.contains(own.as_str()));
        if !is_own && !said.is_empty() {
            output::note(&format!("interlock: {said}"));
        }
    }
}

/// The payload of an event; a payload of another shape is empty.
fn read_event<T: DeserializeOwned + Default>(payload: &Value) -> T {
    T::deserialize(payload).unwrap_or_default()
}
