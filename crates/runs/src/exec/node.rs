//! Runs a command on a node or at a remote gateway. The command is sent through the gateway, this
//! process waits for the approval if one is needed, and the output is shown as it arrives.

use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
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
use interlock_wire::params::ToolsInvoke;
use interlock_wire::results::{ExecDetails, Relayed, ToolError, ToolInvoked};
use serde_json::{Map, Value, json};

use super::followed::{FollowedRun, note_events};
use super::input;
use super::remote_wait::RemoteWait;

/// How often the command checks for an answer, an approval and a signal.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long the call waits for an approver: as long as an approval can be pending.
const APPROVAL_WAIT_MS: u64 = 24 * 60 * 60 * 1000;

/// Sends the call and shows its run. `asked_host` is the host that the caller named; without one,
/// the remote gateway chooses.
pub(super) fn run(
    state: &StateArguments,
    host: &LocalHost,
    all: &ExecArguments,
    agent: &AgentId,
    asked_host: Option<Host>,
) -> CommandOutcome {
    if all.approval.is_some() {
        let message = "--approval is for this machine; a command that was approved at a remote gateway or on a node starts there by itself";
        return Err(Failure::usage("APPROVAL_OF_NODE", message));
    }
    let is_input_passed = input::is_passed_elsewhere(all);
    let params = ToolsInvoke {
        name: "exec".to_owned(),
        args: Some(arguments(all, asked_host, is_input_passed)?),
        agent_id: Some(agent.to_string()),
        approval_wait_ms: Some(if all.no_wait { 0 } else { APPROVAL_WAIT_MS }),
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
            "interlock: sent to the gateway {url}; {place}, and approvals are decided there: {watch}"
        ));
    }
    let mut call = PendingNodeCall {
        host,
        session_key: usual_session_key(agent.as_str()),
        requester: gateway.requester(),
        answer: begin(gateway, params),
        is_approval_found: false,
        others: HashSet::new(),
    };
    let (answer, gateway) = loop {
        match call.answer.recv_timeout(POLL_INTERVAL) {
            Ok(answered) => break answered,
            Err(RecvTimeoutError::Disconnected) => return Err(no_answer()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(signal) = signals.pending().next() {
            match remote {
                Some(remote) => remote.give_up(),
                None => output::note(
                    "interlock: the command may have started, and may still be running there",
                ),
            }
            return Ok(signalled(signal));
        }
        if let Some(remote) = remote.as_mut().filter(|_| !all.no_wait) {
            remote.look();
        } else if !all.no_wait
            && let Some(approval) = call.own_approval()
        {
            let reason = approval.reasons.first().map_or("", String::as_str);
            let asked = AwaitedApproval {
                approval: &approval,
                reason,
                json: all.request.json,
                // The gateway has already shown the approval to the companion.
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
        note_events(&run.details.events, None);
    }
    let is_json = all.request.json;
    let is_followed = !all.background && all.yield_ms.is_none();
    // The run has already ended, and wrote more than the result shows.
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

/// Where the run is, according to the gateway's answer.
fn place_of(details: &ExecDetails) -> String {
    match &details.node {
        Some(node) => format!("on the node {}", visible(node)),
        None => "at the gateway".to_owned(),
    }
}

/// The arguments of the `exec` tool.
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
        // Without `--yield-ms` the run yields as early as possible: its output can be followed only
        // once it is a background session of its node.
        add("yieldMs", all.yield_ms.unwrap_or(*YIELD_MS.start()).into());
    }
    Ok(arguments)
}

type NodeCallAnswer = (Result<ToolInvoked, CallFailure>, GatewayClient);

/// A call that the gateway has not answered yet.
struct PendingNodeCall<'a> {
    host: &'a LocalHost,
    session_key: String,
    requester: String,
    answer: Receiver<NodeCallAnswer>,
    is_approval_found: bool,
    /// Ids of pending approvals that belong to other calls.
    others: HashSet<String>,
}

/// Sends the call on a separate thread that reads the connection all the time: the gateway cuts off
/// a client that does not.
fn begin(mut gateway: GatewayClient, params: ToolsInvoke) -> Receiver<NodeCallAnswer> {
    let (sender, answer) = channel();
    std::thread::spawn(move || {
        let answer = gateway.request(&params);
        let _ = sender.send((answer, gateway));
    });
    answer
}

impl PendingNodeCall<'_> {
    /// Returns the approval that the call waits for, the first time it is found.
    fn own_approval(&mut self) -> Option<PendingApproval> {
        if self.is_approval_found {
            return None;
        }
        let approvals = self.host.approvals();
        let new = approvals.all_pending().ok()?.into_iter().map(|one| one.id);
        let new: Vec<String> = new.filter(|id| !self.others.contains(id)).collect();
        let mut pending = new
            .iter()
            .filter_map(|id| approvals.approval(id, Secrets::Masked).ok());
        let own = pending
            .find(|one| one.requester == self.requester && one.session_key == self.session_key);
        let Some(own) = own else {
            self.others.extend(new);
            return None;
        };
        self.is_approval_found = true;
        Some(own)
    }
}

/// The result of the `exec` tool.
struct GatewayExec {
    /// The fields that this version of Interlock knows.
    details: ExecDetails,
    /// The whole result, for JSON output.
    whole: Relayed<ExecDetails>,
}

impl GatewayExec {
    /// Reads the result. Returns an error if the tool could not be called.
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

/// Shows a run that had already ended when the answer came, and returns its exit code.
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

pub(super) fn text(text: Option<&str>) -> String {
    text.map(visible).unwrap_or_default()
}

fn signalled(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}

pub(super) fn no_answer() -> Failure {
    Failure::refused("GATEWAY_UNREACHABLE", "the gateway gave no answer")
}
