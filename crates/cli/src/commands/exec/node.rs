//! A command for a node, or for a gateway elsewhere: sent through the gateway, asked about here, its output
//! shown as it comes.

use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::time::Duration;

use interlock_approvals::{PendingApproval, usual_session_key};
use interlock_command::Source;
use interlock_command::display::Secrets;
use interlock_config::{Host, YIELD_MS};
use interlock_host::LocalHost;
use interlock_host::process::signal_named;
use interlock_policy::{AgentId, Ask, quote};
use serde_json::{Value, json};
use signal_hook::iterator::Signals;

use super::super::approval_wait::{self, AwaitedApproval, Settled};
use super::super::{CommandOutcome, request};
use super::input;
use super::remote_wait::RemoteWait;
use crate::args::{ExecArguments, StateArguments};
use crate::failure::{Failure, NOT_ALLOWED};
use crate::gateway_client::{CallFailure, GatewayClient};
use crate::output::{self, visible};

/// Between two looks for an answer, a question and a signal.
const LOOK: Duration = Duration::from_millis(100);

/// Pieces of output that wait here to be printed, of 64 KiB at most.
const PIECES: usize = 256;

/// How much output a result for programs holds.
const SHOWN_BYTES: usize = 200_000;

/// A person takes as long as the question lives.
const PATIENT_MS: u64 = 24 * 60 * 60 * 1000;

/// Questions that are looked through for our own.
const QUESTIONS: usize = 200;

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
    let params = json!({
        "name": "exec",
        "args": parameters(all, asked_host, is_input_passed)?,
        "agentId": agent.as_str(),
        "approvalWaitMs": if all.no_wait { 0 } else { PATIENT_MS },
    });
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
    let details = details(answer?)?;
    let events = details["events"].as_array().cloned().unwrap_or_default();
    if !all.request.json {
        tell_events(&events, None);
    }
    let is_json = all.request.json;
    let is_followed = !all.background && all.yield_ms.is_none();
    // It ended at once, and there is more of it than a result shows.
    let has_more = details["sessionId"].is_string() && details["omittedBytes"].is_u64();
    let follow = |details: Value| {
        let mut run = FollowedRun::of(&details, agent)?;
        let other_way = || GatewayClient::connect_running(state, host);
        if is_input_passed && details["status"] == "running" {
            input::pass_elsewhere(other_way()?, &run.session);
        }
        let gateway = run.follow(gateway, other_way, is_json, &mut signals)?;
        Ok(ExitCode::from(run.end(gateway, is_json, details)))
    };
    match details["status"].as_str() {
        Some("approval-pending") => pending(state, all, &details),
        Some("running") if is_followed => follow(details),
        Some("running") => {
            if all.request.json {
                output::print_json(&details);
            } else {
                let session = text(&details["sessionId"]);
                let place = place_of(&details);
                output::note(&format!("interlock: running {place} as {session}"));
            }
            Ok(ExitCode::SUCCESS)
        }
        _ if details["code"].is_string() => Err(refused(&details)),
        _ if has_more && !is_json => follow(details),
        _ => Ok(ExitCode::from(ended(all, details))),
    }
}

/// Where a run is, as the gateway says.
fn place_of(details: &Value) -> String {
    match details["node"].as_str() {
        Some(_) => format!("on the node {}", text(&details["node"])),
        None => "at the gateway".to_owned(),
    }
}

/// The parameters of the tool.
fn parameters(
    all: &ExecArguments,
    asked_host: Option<Host>,
    is_input_passed: bool,
) -> Result<Value, Failure> {
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
    let mut parameters = json!({
        "command": command,
        "host": asked_host.map(Host::as_str),
        "node": all.node,
        "workdir": workdir.transpose()?,
        "env": request::environment(&request.env)?,
        "ask": request.ask.map(|ask| Ask::from(ask).to_string()),
        "timeout": all.timeout,
        "pty": all.pty,
        "background": all.background,
    });
    if all.stdin || is_input_passed {
        parameters["stdin"] = "pipe".into();
    }
    if !all.background {
        // What is followed is a session of its node: from there, output can be read as it comes.
        parameters["yieldMs"] = all.yield_ms.unwrap_or(*YIELD_MS.start()).into();
    }
    Ok(parameters)
}

type NodeCallAnswer = (Result<Value, CallFailure>, GatewayClient);

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
fn begin(mut gateway: GatewayClient, params: Value) -> Receiver<NodeCallAnswer> {
    let (tell, answer) = channel();
    std::thread::spawn(move || {
        let answer = gateway.call("tools.invoke", &params);
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
        let page = approvals.pending(0, QUESTIONS).ok()?;
        let new = page.approvals.into_iter().map(|one| one.id);
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

/// What the tool said; an error if it could not be called.
fn details(mut answer: Value) -> Result<Value, Failure> {
    if answer["ok"] == true {
        return Ok(answer["output"]["details"].take());
    }
    let error = &answer["error"];
    let code = error["details"]["code"].as_str().or(error["code"].as_str());
    Err(Failure::Reported {
        code: code.unwrap_or("GATEWAY_REFUSED").to_owned(),
        message: text(&error["message"]),
        hint: error["details"]["hint"].as_str().map(visible),
        denial: None,
    })
}

fn refused(details: &Value) -> Failure {
    Failure::Reported {
        code: text(&details["code"]),
        message: text(&details["message"]),
        hint: details["remedy"].as_str().map(visible),
        denial: details["denial"].as_str().map(visible),
    }
}

fn pending(state: &StateArguments, all: &ExecArguments, details: &Value) -> CommandOutcome {
    let short = text(&details["shortId"]);
    let approve = state.in_command(&format!("interlock approvals approve {short}"));
    if all.request.json {
        let mut details = details.clone();
        details["approve"] = approve.into();
        output::print_json(&details);
        return Ok(ExitCode::from(NOT_ALLOWED));
    }
    let message = format!(
        "approval required {}\napproval-pending: {short} ({})\napprove it: {approve}",
        place_of(details),
        text(&details["approvalId"]),
    );
    Err(Failure::pending(message).with_hint(text(&details["message"])))
}

/// What is heard of a run.
enum FollowedEvent {
    Output(Value),
    Ended(Value),
}

/// A run on its node, which is followed.
struct FollowedRun {
    session: String,
    agent: String,
    /// What is shown at the end, for programs.
    shown: String,
    not_shown: u64,
    /// How it ended, as `process.ended` says it.
    ended: Value,
    signal: Option<i32>,
}

impl FollowedRun {
    fn of(details: &Value, agent: &AgentId) -> Result<Self, Failure> {
        let session = details["sessionId"].as_str().ok_or_else(gone)?;
        Ok(Self {
            session: session.to_owned(),
            agent: agent.to_string(),
            shown: String::new(),
            not_shown: 0,
            ended: Value::Null,
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
        let params = json!({ "sessionId": self.session });
        let reader = std::thread::spawn(move || {
            let heard = gateway.subscribe("process.subscribe", &params, |name, payload| {
                let event = match name {
                    "process.output" => FollowedEvent::Output(payload.clone()),
                    "process.ended" => FollowedEvent::Ended(payload.clone()),
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
                let kill = json!({ "sessionId": self.session });
                let way = other_way();
                let killed = way.is_ok_and(|mut way| way.call("process.kill", &kill).is_ok());
                if !killed {
                    output::note("interlock: the command could not be ended there");
                }
            }
        }
    }

    fn show(&mut self, piece: &Value, is_json: bool) {
        self.not_shown += piece["missedBytes"].as_u64().unwrap_or(0);
        let text = piece["text"].as_str().unwrap_or_default();
        if !is_json {
            output::print_bytes(text.as_bytes());
        } else if self.shown.len() + text.len() <= SHOWN_BYTES {
            self.shown.push_str(text);
        } else {
            self.not_shown += u64::try_from(text.len()).unwrap_or(u64::MAX);
        }
    }

    /// Says how it ended. A session of which all was shown is forgotten.
    fn end(self, gateway: Option<GatewayClient>, is_json: bool, mut details: Value) -> u8 {
        let mut events = Vec::new();
        // What was lost sight of may still run.
        let is_lost = self.ended["status"] == "lost";
        if let Some(mut gateway) = gateway.filter(|_| self.not_shown == 0 && !is_lost) {
            let remove = json!({
                "name": "process",
                "args": { "action": "remove", "sessionId": self.session },
                "agentId": self.agent,
            });
            if let Ok(answer) = gateway.call("tools.invoke", &remove) {
                let told = &answer["output"]["details"]["events"];
                events = told.as_array().cloned().unwrap_or_default();
            }
        }
        let code = match (self.signal, self.ended["exitCode"].as_u64()) {
            (Some(signal), _) => u64::try_from(128 + signal).unwrap_or(1),
            (None, Some(code)) => code,
            (None, None) => 1,
        };
        if is_json {
            let is_completed = self.ended["status"] == "completed";
            details["status"] = if is_completed { "completed" } else { "failed" }.into();
            for field in ["exitCode", "signal", "timedOut"] {
                details[field] = self.ended[field].clone();
            }
            let shown = self.shown.len();
            let total = u64::try_from(shown).unwrap_or(u64::MAX) + self.not_shown;
            details["output"] = json!({
                "text": self.shown,
                "totalBytes": total,
                "shownBytes": shown,
                "omittedBytes": self.not_shown,
            });
            for field in ["tail", "message"] {
                details.as_object_mut().map(|fields| fields.remove(field));
            }
            if self.not_shown == 0 && !is_lost {
                details
                    .as_object_mut()
                    .map(|fields| fields.remove("sessionId"));
            }
            output::print_json(&details);
        } else {
            if self.ended["timedOut"] == true {
                output::note("interlock: the time is over; the command was ended");
            }
            if is_lost {
                let why = self.ended["reason"].as_str().unwrap_or("its output ended");
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
fn ended(all: &ExecArguments, mut details: Value) -> u8 {
    let is_completed = details["status"] == "completed";
    let code = match details["exitCode"].as_u64() {
        Some(code) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        None if details["timedOut"] == true => 124,
        None => match details["signal"].as_str().map(signal_named) {
            Some(Ok(signal)) => u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX),
            _ => 1,
        },
    };
    let shown = details["aggregated"].take();
    if all.request.json {
        let mut output = json!({ "text": shown });
        for field in ["totalBytes", "shownBytes", "omittedBytes"] {
            if let Some(value) = details.as_object_mut().and_then(|all| all.remove(field)) {
                output[field] = value;
            }
        }
        details["output"] = output;
        details.as_object_mut().map(|all| all.remove("aggregated"));
        output::print_json(&details);
        return code;
    }
    output::print_bytes(shown.as_str().unwrap_or_default().as_bytes());
    if details["timedOut"] == true {
        output::note("interlock: the time is over; the command was ended");
    } else if let Some(signal) = details["signal"].as_str() {
        output::note(&format!("interlock: ended by {}", visible(signal)));
    } else if !is_completed {
        output::note("interlock: the command failed");
    }
    code
}

/// Undelivered events of the session; it knows of the run that was just followed.
fn tell_events(events: &[Value], but: Option<&str>) {
    let own = but.map(|session| format!("session={session}"));
    for event in events {
        let said = text(&event["text"]);
        let is_own = own.as_ref().is_some_and(|own| said.contains(own.as_str()));
        if !is_own && !said.is_empty() {
            output::note(&format!("interlock: {said}"));
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().map(visible).unwrap_or_default()
}

fn signalled(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}

fn gone() -> Failure {
    Failure::refused("GATEWAY_UNREACHABLE", "the gateway gave no answer")
}
