//! `interlock exec`: the policy of this host judges the command, then the command runs and its
//! output is shown as it arrives.
//!
//! Read [`run`] first: it decides where the command goes and builds the request. `call` carries out
//! a command on this machine (verdict, approval, run and end); `result` and `hint` build the answer
//! to the caller. `node` and `followed` carry out a command on a node or at a remote gateway.

mod attended;
mod call;
mod effect;
mod events;
mod follow;
mod followed;
mod hint;
mod input;
mod interrupt;
mod networks;
mod node;
mod notice;
mod remote_wait;
mod result;
mod route;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use interlock_approvals::process_name;
use interlock_arguments::{ExecArguments, StateArguments};
use interlock_client::{
    RemoteGateway, agent_id, caller_context, command_line_sender, known_agent, open, request,
    supervisor,
};
use interlock_config::Host;
use interlock_console::{CommandOutcome, Failure};
use interlock_host::{
    CallEffects, CallSender, CallerContext, ExecRequest, LocalHost, RequestedPlace, RetryRequest,
    Route, Yield,
};
use interlock_inbox::approval_wait;
use interlock_plan::PlanStdin;
use interlock_policy::{AgentId, CallerInput, RunRequest};

use attended::{is_attended, pty_size};
use call::{BegunCall, TerminalCall};
use events::UndeliveredEvents;
use route::{asked_host, checked_route};

pub fn run(state: &StateArguments, all: &ExecArguments) -> CommandOutcome {
    agent_id(&all.request.agent)?;
    let host = open(state)?;
    if RemoteGateway::followed(state, &host)?.is_some() {
        return run_elsewhere(state, &host, all);
    }
    let agent = known_agent(&host, &all.request.agent)?;
    let sender = command_line_sender(&host, &agent)?;
    match checked_route(state, &host, all, (&agent, sender.as_ref()))? {
        Route::Gateway | Route::Sandbox => run_here(state, &host, all, (&agent, sender)),
        Route::Node => node::run(state, &host, all, &agent, Some(Host::Node)),
    }
}

/// Sends the command to a remote gateway. The remote gateway knows its agents and where their
/// commands run, so neither is checked here.
fn run_elsewhere(state: &StateArguments, host: &LocalHost, all: &ExecArguments) -> CommandOutcome {
    if all.sandbox {
        let message = "--sandbox is for this machine; the remote gateway has its own sandbox";
        return Err(Failure::usage("HOST_CONFLICT", message));
    }
    let agent = agent_id(&all.request.agent)?;
    node::run(state, host, all, &agent, asked_host(all)?)
}

fn run_here(
    state: &StateArguments,
    host: &LocalHost,
    all: &ExecArguments,
    (agent, sender): (&AgentId, Option<CallSender>),
) -> CommandOutcome {
    let is_input_passed = input::is_passed(host, agent, all)?;
    let has_pipe = all.stdin || is_input_passed;
    let asked = request::request(&all.request, CallerInput::from_call(all.pty, has_pipe))?;
    let caller = caller_context(Path::new(&asked.cwd));
    let base_env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let client = supervisor(host)?;
    let is_attended = is_attended(all);
    let exec = ExecRequest {
        stdin: if has_pipe {
            PlanStdin::Pipe
        } else {
            PlanStdin::Null
        },
        pty: all.pty.then(|| pty_size(is_attended)),
        place: requested_place(all, sender)?,
        ..exec_request(all, asked, (agent, &caller, &base_env))
    };
    // Install the handlers before anything runs: a signal that arrives before the start stays
    // pending until there is a run to end.
    let mut signals = approval_wait::ending_signals()?;
    let events = UndeliveredEvents::begin(host, &client, agent, all.request.json);
    let call = TerminalCall {
        host,
        state,
        all,
        client: &client,
        request: &exec,
        events: &events,
        is_input_passed,
        has_pipe,
        is_attended,
    };
    match call.begin(&mut signals)? {
        BegunCall::Running(running) => call.see_through(*running, signals),
        BegunCall::Left(code) => Ok(code),
    }
}

/// Builds the request without input and with the default place. The caller fills in both.
fn exec_request<'a>(
    all: &ExecArguments,
    asked: RunRequest,
    (agent, caller, base_env): (&'a AgentId, &'a CallerContext, &'a BTreeMap<String, String>),
) -> ExecRequest<'a> {
    ExecRequest {
        agent,
        config: None,
        caller,
        source: asked.source,
        cwd: asked.cwd,
        env: asked.env,
        ask: all.request.ask.map(Into::into),
        gateway: None,
        timeout_seconds: all.timeout,
        base_env,
        session_key: None,
        pty: None,
        stdin: PlanStdin::Null,
        yields: match (all.background, all.yield_ms) {
            (true, _) => Yield::After(Duration::ZERO),
            (false, Some(time)) => Yield::After(Duration::from_millis(time)),
            (false, None) => Yield::Never,
        },
        show_chars: (!all.request.json).then_some(0),
        requester: process_name(),
        runs_later: false,
        place: RequestedPlace::default(),
    }
}

/// Where the command line asks the command to run.
fn requested_place(
    all: &ExecArguments,
    sender: Option<CallSender>,
) -> Result<RequestedPlace, Failure> {
    Ok(RequestedPlace {
        host: asked_host(all)?,
        needs_sandbox: all.sandbox,
        is_cwd_usual: false,
        elevated: all.elevated.then_some(true),
        sender,
        retry: retry(all),
        effects: all
            .effects
            .and_then(|effects| CallEffects::parse(effects.as_str())),
    })
}

/// The sandboxed run that this call repeats outside the sandbox, and the justification for it.
fn retry(all: &ExecArguments) -> Option<RetryRequest> {
    Some(RetryRequest {
        run: all.retry_of.clone()?,
        justification: all.justification.clone()?,
    })
}
