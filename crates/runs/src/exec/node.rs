//! A command for a node, or for a gateway elsewhere: sent through the gateway, asked about here, its output
//! shown as it comes.

use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::time::Duration;

use interlock_approvals::{PendingApproval, usual_session_key};
use interlock_arguments::{EffectsArgument, ExecArguments, StateArguments};
use interlock_client::{CallFailure, GatewayClient, request};
use interlock_command::Source;
use interlock_command::display::Secrets;
use interlock_config::{Host, YIELD_MS};
use interlock_console::output::{self, visible};
use interlock_console::{CommandOutcome, Failure, NOT_ALLOWED};
use interlock_host::LocalHost;
use interlock_inbox::approval_wait::{self, AwaitedApproval, Settled};
use interlock_policy::{AgentId, Ask, quote};
use interlock_sessions::signal_named;
use interlock_wire::event::{PROCESS_ENDED, PROCESS_OUTPUT};
use interlock_wire::params::{ProcessKill, ProcessPerform, ProcessSubscribe, ToolsInvoke};
use interlock_wire::results::{
    DeliveredEvent, ExecDetails, ProcessEnded, ProcessOutput, Relayed, ToolError, ToolInvoked,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use signal_hook::iterator::Signals;

use super::input;
use super::remote_wait::RemoteWait;

/// Between two looks for an answer, a question and a signal.
const LOOK: Duration = Duration::from_millis(100);

/// Pieces of output that wait here to be printed, of 64 KiB at most.
const PIECES: usize = 256;

/// How much output a result for programs holds.
const SHOWN_BYTES: usize = 200_000;

/// A person takes as long as the question lives.
const PATIENT_MS: u64 = 24 * 60 * 60 * 1000;

/// Sends the call. `asked_host` is where it has to run; a gateway elsewhere decides where that is not said.
pub(super) fn run(
    state: &StateArguments,
    host: &LocalHost,
    all: &ExecArguments,
    agent: &AgentId,
    asked_host: Option<Host>,
) -> CommandOutcome {
    if all.approval.is_some() {
        let message =
            "what was approved elsewhere runs there by itself: --approval is for this machine";
        return Err(Failure::usage("APPROVAL_OF_NODE", message));
    }
    let is_input_passed = input::is_passed_elsewhere(all);
    let params = ToolsInvoke {
        name: "exec".to_owned(),
        args: Some(arguments(all, asked_host, is_input_passed)?),
        agent_id: Some(agent.to_string()),
        approval_wait_ms: Some(if all.no_wait { 0 } else { PATIENT_MS }),
        ..ToolsInvoke::default()
    };
    let mut signals = approval_wait::ending_signals()?;
    let gateway = GatewayClient::connect(state, host)?;
    if let Some(signal) = signals.pending().next() {
        return Ok(signalled(signal));
    }
    let remote = gateway.remote_url().map(|_| gateway.requester());
    let mut remote = remote.map(|requester| RemoteWait::new(state, host, requester));
    if let Some(url) = gateway.remote_url() {
        let watch = state.in_command("interlock approvals watch");
        let place = all
            .node
            .as_ref()
            .map_or("it runs there", |_| "it runs on the node");
        output::note(&format!(
            "interlock: sent to the gateway {url}; {place}, and what has to be asked waits there: {watch}"
        ));
    }
    let mut call = PendingNodeCall {
        host,
        session_key: usual_session_key(agent.as_str()),
        requester: gateway.requester(),
        answer: begin(gateway, params),
        is_asked: false,
        others: HashSet::new(),
    };
    let (answer, gateway) = loop {
        match call.answer.recv_timeout(LOOK) {
            Ok(answered) => break answered,
            Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(signal) = signals.pending().next() {
            match remote {
                Some(remote) => remote.give_up(),
                None => output::note("interlock: the command may have begun, and may go on there"),
            }
            return Ok(signalled(signal));
        }
        if let Some(remote) = remote.as_mut().filter(|_| !all.no_wait) {
            remote.look();
        } else if !all.no_wait
            && let Some(approval) = call.question()
        {
            let reason = approval.reasons.first().map_or("", String::as_str);
            let asked = AwaitedApproval {
                approval: &approval,
                reason,
                json: all.request.json,
                // The gateway has shown it to the companion.
                courier: None,
            };
            match approval_wait::settle(host, state, asked, &mut signals)? {
                Settled::Decided => {}
                Settled::Left { code, decided } => {
                    if decided.is_some_and(|ended| ended.ending.allows()) {
                        output::note("interlock: it may run there");
                    }
                    return Ok(code);
                }
            }
        }
    };
    let run = GatewayExec::read(answer?)?;
    if !all.request.json {
        tell_events(&run.details.events, None);
    }
    let is_json = all.request.json;
    let is_followed = !all.background && all.yield_ms.is_none();
    // It ended at once, and there is more of it than a result shows.
    let has_more = run.details.session_id.is_some() && run.details.omitted_bytes.is_some();
    let follow = |run: GatewayExec| {
        let mut followed = FollowedRun::of(&run.details, agent)?;
        let other_way = || GatewayClient::connect_running(state, host);
        if is_input_passed && run.details.status.as_deref() == Some("running") {
            input::pass_elsewhere(other_way()?, &followed.session);
        }
        let gateway = followed.follow(gateway, other_way, is_json, &mut signals)?;
        Ok(ExitCode::from(followed.end(gateway, is_json, run.whole)))
    };
    match run.details.status.as_deref() {
        Some("approval-pending") => pending(state, all, run),
        Some("running") if is_followed => follow(run),
        Some("running") => {
            if all.request.json {
                output::print_json(&run.whole.into_json());
            } else {
                let session = text(run.details.session_id.as_deref());
                let place = place_of(&run.details);
                output::note(&format!("interlock: running {place} as {session}"));
            }
            Ok(ExitCode::SUCCESS)
        }
        _ if run.details.code.is_some() => Err(refused(&run.details)),
        _ if has_more && !is_json => follow(run),
        _ => Ok(ExitCode::from(ended(all, run))),
    }
}

/// Where a run is, as the gateway says.
fn place_of(details: &ExecDetails) -> String {
    match &details.node {
        Some(node) => format!("on the node {}", visible(node)),
        None => "at the gateway".to_owned(),
    }
}

/// The arguments of the tool.
fn arguments(
    all: &ExecArguments,
    asked_host: Option<Host>,
    is_input_passed: bool,
) -> Result<Map<String, Value>, Failure> {
    let request = &all.request;
    let command = match request::source(request)? {
        Source::Text(text) => text,
        Source::Argv(words) => {
            let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
            words.join(" ")
        }
    };
    let workdir = request.cwd.as_ref();
    let workdir = workdir.map(|cwd| request::utf8(&cwd.clone().into_os_string()));
    let mut arguments = Map::new();
    let mut add = |name: &str, value: Value| arguments.insert(name.to_owned(), value);
    add("command", command.into());
    add("host", asked_host.map(Host::as_str).into());
    add("node", all.node.clone().into());
    add("elevated", all.elevated.then_some(true).into());
    add("retryOf", all.retry_of.clone().into());
    add("justification", all.justification.clone().into());
    add("effects", all.effects.map(EffectsArgument::as_str).into());
    add("workdir", workdir.transpose()?.into());
    add("env", json!(request::environment(&request.env)?));
    add(
        "ask",
        request.ask.map(|ask| Ask::from(ask).to_string()).into(),
    );
    add("timeout", json!(all.timeout));
    add("pty", all.pty.into());
    add("background", all.background.into());
    if all.stdin || is_input_passed {
        add("stdin", "pipe".into());
    }
    if !all.background {
        // What is followed is a session of its node: from there, output can be read as it comes.
        add("yieldMs", all.yield_ms.unwrap_or(*YIELD_MS.start()).into());
    }
    Ok(arguments)
}

type NodeCallAnswer = (Result<ToolInvoked, CallFailure>, GatewayClient);

/// A call that is under way.
struct PendingNodeCall<'a> {
    host: &'a LocalHost,
    session_key: String,
    requester: String,
    answer: Receiver<NodeCallAnswer>,
    is_asked: bool,
    /// Questions of others.
    others: HashSet<String>,
}

/// On a thread of its own: the gateway cuts off a client that does not read its connection.
fn begin(mut gateway: GatewayClient, params: ToolsInvoke) -> Receiver<NodeCallAnswer> {
    let (tell, answer) = channel();
    std::thread::spawn(move || {
        let answer = gateway.request(&params);
        let _ = tell.send((answer, gateway));
    });
    answer
}

impl PendingNodeCall<'_> {
    /// The question that the call waits for, once.
    fn question(&mut self) -> Option<PendingApproval> {
        if self.is_asked {
            return None;
        }
        let approvals = self.host.approvals();
        let new = approvals.all_pending().ok()?.into_iter().map(|one| one.id);
        let new: Vec<String> = new.filter(|id| !self.others.contains(id)).collect();
        let mut questions = new
            .iter()
            .filter_map(|id| approvals.approval(id, Secrets::Masked).ok());
        let own = questions
            .find(|one| one.requester == self.requester && one.session_key == self.session_key);
        let Some(own) = own else {
            self.others.extend(new);
            return None;
        };
        self.is_asked = true;
        Some(own)
    }
}

/// What the tool returned.
struct GatewayExec {
    /// What is known of it.
    details: ExecDetails,
    /// All of it, for programs.
    whole: Relayed<ExecDetails>,
}

impl GatewayExec {
    /// An error if the tool could not be called.
    fn read(invoked: ToolInvoked) -> Result<Self, Failure> {
        if invoked.ok {
            let whole = invoked.into_details();
            let details = whole.read().unwrap_or_default();
            return Ok(Self { details, whole });
        }
        let ToolError {
            code,
            message,
            details,
        } = invoked.error.unwrap_or_default();
        let code = details.code.or(code);
        Err(Failure::Reported {
            code: code.unwrap_or_else(|| "GATEWAY_REFUSED".to_owned()),
            message: text(message.as_deref()),
            hint: details.hint.as_deref().map(visible),
            denial: None,
        })
    }
}

fn refused(details: &ExecDetails) -> Failure {
    Failure::Reported {
        code: text(details.code.as_deref()),
        message: text(details.message.as_deref()),
        hint: details.remedy.as_deref().map(visible),
        denial: details.denial.as_deref().map(visible),
    }
}

fn pending(state: &StateArguments, all: &ExecArguments, run: GatewayExec) -> CommandOutcome {
    let GatewayExec { details, whole } = run;
    let short = text(details.short_id.as_deref());
    let approve = state.in_command(&format!("interlock approvals approve {short}"));
    if all.request.json {
        output::print_json(&whole.with("approve", approve).into_json());
        return Ok(ExitCode::from(NOT_ALLOWED));
    }
    let message = format!(
        "approval required {}\napproval-pending: {short} ({})\napprove it: {approve}",
        place_of(&details),
        text(details.approval_id.as_deref()),
    );
    Err(Failure::pending(message).with_hint(text(details.message.as_deref())))
}

/// What is heard of a run.
enum FollowedEvent {
    Output(ProcessOutput),
    Ended(ProcessEnded),
}

/// A run on its node, which is followed.
struct FollowedRun {
    session: String,
    agent: String,
    /// What is shown at the end, for programs.
    shown: String,
    not_shown: u64,
    /// How it ended, as the event says it; nothing is known before.
    ended: ProcessEnded,
    signal: Option<i32>,
}

impl FollowedRun {
    fn of(details: &ExecDetails, agent: &AgentId) -> Result<Self, Failure> {
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

    /// Shows output until it has ended. A signal that ends this process ends the run first. Gives the
    /// connection back, unless it is still in use.
    fn follow(
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

    /// Says how it ended. A session of which all was shown is forgotten.
    fn end(
        self,
        gateway: Option<GatewayClient>,
        is_json: bool,
        mut whole: Relayed<ExecDetails>,
    ) -> u8 {
        let mut events = Vec::new();
        let ended = &self.ended;
        // What was lost sight of may still run.
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
            tell_events(&events, Some(&self.session));
        }
        u8::try_from(code & 0xff).unwrap_or(u8::MAX)
    }
}

/// A run that had ended when the answer came.
fn ended(all: &ExecArguments, run: GatewayExec) -> u8 {
    let GatewayExec { details, mut whole } = run;
    let code = match (details.exit_code, &details.signal) {
        (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        (None, _) if details.timed_out => 124,
        (None, signal) => match signal.as_deref().map(signal_named) {
            Some(Ok(signal)) => u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX),
            _ => 1,
        },
    };
    if all.request.json {
        let mut output = Map::new();
        output.insert("text".to_owned(), details.aggregated.into());
        for field in ["totalBytes", "shownBytes", "omittedBytes"] {
            if let Some(value) = whole.remove(field) {
                output.insert(field.to_owned(), value);
            }
        }
        whole = whole.with("output", output);
        whole.remove("aggregated");
        output::print_json(&whole.into_json());
        return code;
    }
    output::print_bytes(details.aggregated.unwrap_or_default().as_bytes());
    if details.timed_out {
        output::note("interlock: the time is over; the command was ended");
    } else if let Some(signal) = &details.signal {
        output::note(&format!("interlock: ended by {}", visible(signal)));
    } else if details.status.as_deref() != Some("completed") {
        output::note("interlock: the command failed");
    }
    code
}

/// Undelivered events of the session; it knows of the run that was just followed.
fn tell_events(events: &[DeliveredEvent], but: Option<&str>) {
    let own = but.map(|session| format!("session={session}"));
    for event in events {
        let said = text(event.text.as_deref());
        let is_own = own.as_ref().is_some_and(|own| said.contains(own.as_str()));
        if !is_own && !said.is_empty() {
            output::note(&format!("interlock: {said}"));
        }
    }
}

fn text(text: Option<&str>) -> String {
    text.map(visible).unwrap_or_default()
}

/// The payload of an event. One of another shape says nothing.
fn read_event<T: DeserializeOwned + Default>(payload: &Value) -> T {
    T::deserialize(payload).unwrap_or_default()
}

fn signalled(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}

fn gone() -> Failure {
    Failure::refused("GATEWAY_UNREACHABLE", "the gateway gave no answer")
}
