//! `interlock exec`: judged by the policy of this host, then run, output as it comes.

mod effect;
mod events;
mod follow;
mod input;
mod networks;
mod node;
mod notice;
mod remote_wait;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use interlock_approvals::companion::CourierWaits;
use interlock_approvals::process_name;
use interlock_arguments::{ExecArguments, StateArguments};
use interlock_client::{
    RemoteGateway, agent_id, caller_context, command_line_sender, known_agent, open, request,
    routed_call, supervisor,
};
use interlock_config::Host;
use interlock_console::{CommandOutcome, Failure, output};
use interlock_engine::{RunStatus, Signal};
use interlock_host::{
    CallEffects, CallSender, Elevation, EndListener, Exec, ExecError, ExecRequest, LocalHost,
    NotedDenials, RequestedPlace, RetryRequest, Route, RouteRefusal, RunTicket, Running, Yield,
    host_named,
};
use interlock_inbox::approval_wait::{self, AwaitedApproval, Settled, Unawaited};
use interlock_plan::{PlanStdin, PtySize};
use interlock_policy::{AgentId, CallerInput, Verdict, quote};
use interlock_sessions::{Process, ProcessCaller, ProcessError};
use interlock_supervisor::{ClientError, EndedRun, StartedRun, SupervisorClient, Waited};
use interlock_transcript::{LineRange, TranscriptReader};
use serde_json::{Value, json};
use signal_hook::iterator::Signals;

use super::process::attach::{self, AttachBegin, AttachEnd, DetachKey, attach};
use effect::SettledEffect;
use events::UndeliveredEvents;
use follow::OutputFollower;

/// How long the last words of a run that is being interrupted may take to be shown.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a result shows of a run that goes on.
const TAIL_LINES: u64 = 20;
const TAIL_BYTES: usize = 4_000;

pub fn run(state: &StateArguments, all: &ExecArguments) -> CommandOutcome {
    let arguments = &all.request;
    agent_id(&arguments.agent)?;
    let host = open(state)?;
    if RemoteGateway::followed(state, &host)?.is_some() {
        if all.sandbox {
            let message =
                "--sandbox is for this machine: the gateway elsewhere has a sandbox of its own";
            return Err(Failure::usage("HOST_CONFLICT", message));
        }
        // That gateway knows its agents, and where their commands run.
        let agent = agent_id(&arguments.agent)?;
        return node::run(state, &host, all, &agent, asked_host(all)?);
    }
    let agent = known_agent(&host, &arguments.agent)?;
    let sender = command_line_sender(&host, &agent)?;
    match checked_route(state, &host, all, (&agent, sender.as_ref()))? {
        Route::Gateway | Route::Sandbox => {}
        Route::Node => return node::run(state, &host, all, &agent, Some(Host::Node)),
    }
    let is_input_passed = input::is_passed(&host, &agent, all)?;
    let has_pipe = all.stdin || is_input_passed;
    let input = CallerInput::from_call(all.pty, has_pipe);
    let request = request::request(arguments, input)?;
    let base_env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let client = supervisor(&host)?;
    let cwd = request.cwd.clone();
    let caller = caller_context(Path::new(&cwd));
    let attended = is_attended(all);
    let requester = process_name();
    let exec = ExecRequest {
        agent: &agent,
        config: None,
        caller: &caller,
        source: request.source,
        cwd: request.cwd,
        env: request.env,
        ask: arguments.ask.map(Into::into),
        gateway: None,
        timeout_seconds: all.timeout,
        base_env: &base_env,
        session_key: None,
        pty: all.pty.then(|| pty_size(attended)),
        stdin: if has_pipe {
            PlanStdin::Pipe
        } else {
            PlanStdin::Null
        },
        yields: match (all.background, all.yield_ms) {
            (true, _) => Yield::After(Duration::ZERO),
            (false, Some(time)) => Yield::After(Duration::from_millis(time)),
            (false, None) => Yield::Never,
        },
        show_chars: (!arguments.json).then_some(0),
        requester,
        runs_later: false,
        place: RequestedPlace {
            host: asked_host(all)?,
            needs_sandbox: all.sandbox,
            is_cwd_usual: false,
            elevated: all.elevated.then_some(true),
            sender,
            retry: retry(all),
            effects: all
                .effects
                .and_then(|effects| CallEffects::parse(effects.as_str())),
        },
    };
    // Before anything runs: a signal from now on waits for the run that it has to end.
    let mut signals = approval_wait::ending_signals()?;
    let failed = |error: ExecError| {
        let hint = hint(&error, state, (all, has_pipe));
        Failure::Exec {
            error: Box::new(error),
            hint,
        }
    };
    let told = UndeliveredEvents::begin(&host, &client, &agent, arguments.json);
    let approved = |id: &str| {
        let running = host.run_approved(id, &exec, &client);
        if running.is_err() {
            // The answer to this call tells of it.
            let _ = host.approvals().mark_outcome_delivered(id);
        }
        running
    };
    let begun = match &all.approval {
        Some(id) => approved(id).map(|running| Exec::Started(Box::new(running))),
        None => host.exec(&exec, &client),
    };
    let Running {
        conversation,
        ticket,
        elevation,
        inside,
    } = match begun.map_err(failed)? {
        Exec::Started(running) => *running,
        Exec::Pending(pending) => {
            if all.no_wait {
                let print = |result| told.print(result);
                let left = Unawaited {
                    approval: &pending.approval,
                    reason: &pending.verdict.reason.message,
                    hint: remedy(&pending.verdict, state, (all, has_pipe)),
                };
                let print: Option<&dyn Fn(Value)> = arguments.json.then_some(&print);
                return approval_wait::leave(&host, state, left, print);
            }
            let asked = AwaitedApproval {
                approval: &pending.approval,
                reason: &pending.verdict.reason.message,
                json: arguments.json,
                courier: host
                    .approvals()
                    .courier(&pending.approval, CourierWaits::ForDecision),
            };
            match approval_wait::settle(&host, state, asked, &mut signals)? {
                Settled::Decided => approved(&pending.approval.id).map_err(failed)?,
                Settled::Left { code, .. } => return Ok(code),
            }
        }
    };
    let started = conversation.started().clone();
    let session = started.session.name.as_str();
    if inside
        .as_ref()
        .is_some_and(|inside| inside.asks_for_hosts())
    {
        networks::begin(state, &client, arguments.json, attended);
    }
    if is_input_passed {
        input::pass(&client, session);
    }
    let notice = notice::begin(&host, &ticket);
    let (done, is_done) = channel::<()>();
    let interrupted = end_with_us(&client, &started.session.name, signals, is_done);
    if attended {
        match attend(&host, &client, &started) {
            Ok(AttachEnd::Detached) => {
                record(&host, &ticket, session, Ok(&Waited::Yielded));
                attach::tell_detached(state, &started.session.name);
                return Ok(ExitCode::SUCCESS);
            }
            Ok(AttachEnd::Ended | AttachEnd::Signalled(_)) => {}
            // Its end says more.
            Err(error) => output::note(&format!("interlock: {error}")),
        }
    }
    let mut follower = OutputFollower::new(&client, &started);
    if !arguments.json && !all.background && !attended {
        follower.follow(&client);
    }
    let waited = conversation.wait();
    drop(notice);
    let effect = match &waited {
        Ok(Waited::Ended(ended)) if shown_host(&started) == "sandbox" => SettledEffect {
            host: &host,
            state,
            all,
            run_id: &ticket.run_id,
            ended: (session, ended),
        }
        .settle(),
        _ => None,
    };
    record(&host, &ticket, session, waited.as_ref());
    let ended = match waited {
        Ok(Waited::Ended(ended)) => ended,
        Ok(Waited::Yielded) => {
            if arguments.json {
                told.print(running(&started, &cwd, &client));
            } else {
                tell_running(&started, state);
            }
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(lost(error)),
    };
    let denied = inside.and_then(|inside| {
        let noted = host.note_denials(&inside, &ticket, session, &ended);
        noted
            .inspect_err(|error| output::note(&format!("interlock: {error}")))
            .ok()
    });
    let shown_whole = if arguments.json {
        let mut result = result(&started, &ended, &cwd, elevation);
        if let Some(noted) = &denied {
            result["sandbox"] = json!({ "runId": noted.run_id, "denials": noted.denials });
        }
        if let Some(effect) = &effect {
            result["effect"] = json!(effect);
        }
        told.print(result);
        ended.shown.omitted_bytes == 0
    } else {
        if !attended {
            follower.show_rest();
        }
        tell(&ended, follower.not_shown(), elevation);
        if let Some(effect) = effect.as_ref().filter(|effect| effect.is_noteworthy()) {
            output::note(&format!("interlock: {}", output::line(&effect.words())));
        }
        tell_denials(denied.as_ref());
        true
    };
    if shown_whole {
        // Kept otherwise, so that the rest can be read.
        let _ = conversation.taken();
    }
    drop(done);
    // What cannot be recorded now stays where it is, for the next process that looks.
    let _ = host.record_connections();
    if let Some(code) = interrupted.get() {
        return Ok(ExitCode::from(*code));
    }
    Ok(ExitCode::from(exit_code(ended.outcome.status)))
}

/// Where it runs: by the same rule as a call of the gateway's tool.
fn checked_route(
    state: &StateArguments,
    host: &LocalHost,
    all: &ExecArguments,
    (agent, sender): (&AgentId, Option<&CallSender>),
) -> Result<Route, Failure> {
    let asked = asked_host(all)?;
    if all.sandbox {
        return Ok(Route::Sandbox);
    }
    let elevated = all.elevated.then_some(true);
    let routed = match routed_call(host, agent, (asked, elevated), sender)? {
        // The judge of this host refuses it once more, and that is recorded.
        Err(RouteRefusal::Elevation(_)) => return Ok(Route::Sandbox),
        routed => routed,
    };
    let routed = routed.map(|routed| routed.route);
    routed.map_err(|refused| {
        let look = state.in_command("interlock config get");
        let hint = format!("{}; look at it: {look}", refused.remedy());
        Failure::refused(refused.code(), refused.to_string()).with_hint(hint)
    })
}

/// The host that the command line names: a node is one.
fn asked_host(all: &ExecArguments) -> Result<Option<Host>, Failure> {
    let asked = all.host.as_deref().and_then(host_named);
    match (asked, &all.node) {
        (None | Some(Host::Node), Some(_)) => Ok(Some(Host::Node)),
        (Some(other), Some(_)) => {
            let message = format!("--node goes with --host node, not {}", other.as_str());
            Err(Failure::usage("HOST_CONFLICT", message))
        }
        (asked, None) => Ok(asked),
    }
}

/// A caller that waits here gets the answer: no event repeats it.
fn record(
    host: &LocalHost,
    ticket: &RunTicket,
    session: &str,
    waited: Result<&Waited, &ClientError>,
) {
    let recorded = host.record_end(ticket, session, waited, EndListener::Caller);
    if let Err(error) = recorded {
        output::note(&format!(
            "interlock: the end of the run is not recorded: {error}"
        ));
    }
}

/// A person sits at a terminal and wants one for the command.
fn is_attended(all: &ExecArguments) -> bool {
    all.pty
        && !all.request.json
        && !all.background
        && all.yield_ms.is_none()
        && std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
}

/// Connects the person to the command until it ends or the person detaches. What ends this process
/// ends the command, as without a terminal; see [`end_with_us`].
fn attend(
    host: &LocalHost,
    client: &SupervisorClient,
    started: &StartedRun,
) -> Result<AttachEnd, ProcessError> {
    let process = Process::open(host, ProcessCaller::Operator, client.clone())?;
    let id = &started.session.name;
    // A command may have ended before this process could look.
    let session = process.look(id)?;
    let left = match attach(
        &process,
        &session,
        DetachKey::USUAL,
        AttachBegin::FromStart,
        &[],
    ) {
        Err(ProcessError::Finished { .. }) => {
            attach::show_transcript(&process, id)?;
            AttachEnd::Ended
        }
        left => left?,
    };
    if matches!(left, AttachEnd::Detached) {
        process.connect(id)?.to_background()?;
    }
    Ok(left)
}

fn pty_size(attended: bool) -> PtySize {
    let own = if attended {
        attach::terminal_size()
    } else {
        None
    };
    own.unwrap_or(PTY_SIZE)
}

/// Default size of a detached terminal.
const PTY_SIZE: PtySize = PtySize {
    columns: 120,
    rows: 30,
};

fn result(started: &StartedRun, ended: &EndedRun, cwd: &str, elevation: Elevation) -> Value {
    let outcome = &ended.outcome;
    let leftovers: Vec<Value> = outcome
        .leftovers
        .iter()
        .map(|leftover| json!({ "pid": leftover.pid, "command": leftover.command }))
        .collect();
    let mut result = json!({
        "status": match outcome.status { RunStatus::Exited(_) => "completed", _ => "failed" },
        "exitCode": exit_code(outcome.status),
        "timedOut": outcome.status == RunStatus::TimedOut,
        "signal": match outcome.status { RunStatus::Signaled(signal) => Some(signal), _ => None },
        "durationMs": u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
        "cwd": cwd,
        "host": shown_host(started),
        "raceFree": started.session.race_free,
        "shield": started.session.shield.map(interlock_plan::PlanShield::words),
        "output": ended.shown,
        "leftovers": leftovers,
    });
    if let Some(programs) = &outcome.programs {
        result["programs"] = json!(programs);
    }
    if elevation.leaves() {
        result["elevated"] = json!(elevation);
    }
    if let Some(limit) = ended.limit {
        result["limit"] = json!(limit);
    }
    if ended.out_of_memory {
        result["outOfMemory"] = true.into();
    }
    if !ended.protected_created.is_empty() {
        result["protectedCreated"] = json!(ended.protected_created);
    }
    if ended.shown.omitted_bytes > 0 {
        result["sessionId"] = started.session.name.clone().into();
    }
    if let Some(fault) = &ended.fault {
        result["outputFault"] = fault.clone().into();
    }
    result
}

fn running(started: &StartedRun, cwd: &str, client: &SupervisorClient) -> Value {
    let last = LineRange {
        offset: None,
        limit: Some(TAIL_LINES),
    };
    let tail = TranscriptReader::open(&client.place().session(&started.session.name))
        .and_then(|spool| spool.by_lines(last, TAIL_BYTES))
        .map(|page| page.text)
        .unwrap_or_default();
    json!({
        "status": "running",
        "sessionId": started.session.name,
        "pid": started.session.pid,
        "startedAtMs": started.started_ms,
        "tail": tail,
        "cwd": cwd,
        "host": shown_host(started),
    })
}

/// Where a run of this machine is.
fn shown_host(started: &StartedRun) -> &'static str {
    match started.session.shield {
        Some(interlock_plan::PlanShield::Sandbox) => "sandbox",
        _ => "gateway",
    }
}

fn tell_running(started: &StartedRun, state: &StateArguments) {
    let name = &started.session.name;
    let look = state.in_command(&format!("interlock process log {name}"));
    output::note(&format!("interlock: running as {name}; see it: {look}"));
}

/// What people should know besides the output.
fn tell(ended: &EndedRun, not_shown: u64, elevation: Elevation) {
    if elevation.leaves() {
        output::note(&format!("interlock: {}", elevation.words()));
    }
    if ended.outcome.status == RunStatus::TimedOut {
        output::note("interlock: the time is over; the command was ended");
    }
    if ended.out_of_memory {
        output::note("interlock: the command ran out of its memory limit");
    }
    if let Some(limit) = ended.limit {
        output::note(&format!("interlock: {limit}"));
    }
    if !ended.protected_created.is_empty() {
        output::note(&format!(
            "interlock: the run made or changed files that programs of the owner obey: {}; look at them before using the workspace outside",
            output::line(&ended.protected_created.join(", "))
        ));
    }
    if not_shown > 0 {
        output::note(&format!(
            "interlock: {not_shown} bytes of output are not shown: they could not be kept"
        ));
    }
    if let Some(fault) = &ended.fault {
        output::note(&format!("interlock: output could not be kept: {fault}"));
    }
    for leftover in &ended.outcome.leftovers {
        output::note(&format!(
            "interlock: left behind: {} (pid {})",
            output::line(&leftover.command),
            leftover.pid
        ));
    }
}

/// What the sandbox denied, and the id by which the command can be repeated outside.
fn tell_denials(denied: Option<&NotedDenials>) {
    let Some(NotedDenials { run_id, denials }) = denied else {
        return;
    };
    for denial in denials {
        let denial = output::line(&denial.to_string());
        output::note(&format!(
            "interlock: denied by the sandbox ({run_id}): {denial}"
        ));
    }
}

/// The run that this one repeats outside.
fn retry(all: &ExecArguments) -> Option<RetryRequest> {
    Some(RetryRequest {
        run: all.retry_of.clone()?,
        justification: all.justification.clone()?,
    })
}

/// As shells report it: 128 and the signal; 124 for a time-out, as `timeout` does.
fn exit_code(status: RunStatus) -> u8 {
    let code = match status {
        RunStatus::Exited(code) => code,
        RunStatus::Signaled(signal) => 128 + signal,
        RunStatus::TimedOut => 124,
    };
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}

fn lost(error: ClientError) -> Failure {
    Failure::Exec {
        error: Box::new(error.into()),
        hint: None,
    }
}

/// A signal that ends this process ends the run first. Returns the place of the exit code that
/// tells of it.
fn end_with_us(
    client: &SupervisorClient,
    name: &str,
    mut signals: Signals,
    is_done: Receiver<()>,
) -> Arc<OnceLock<u8>> {
    let interrupted = Arc::new(OnceLock::new());
    let (client, name, place) = (client.clone(), name.to_owned(), Arc::clone(&interrupted));
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let code = exit_code(RunStatus::Signaled(signal));
            // Before the run ends, since the main thread then asks for it.
            let _ = place.set(code);
            // A run that could not be ended is no reason to stay.
            let _ = client
                .session(&name)
                .and_then(|session| session.kill(Signal::TERM));
            // The main thread may be waiting for a reader.
            if is_done.recv_timeout(LAST_WORDS) == Err(RecvTimeoutError::Timeout) {
                attach::restore();
                std::process::exit(code.into());
            }
        }
    });
    interrupted
}

/// What changes the judge's mind, or what else helps.
fn hint(error: &ExecError, state: &StateArguments, call: (&ExecArguments, bool)) -> Option<String> {
    match error {
        ExecError::Host(error) => error.remedy(),
        ExecError::Input(error) => interlock_console::input_hint(error),
        ExecError::Tool(_) => {
            let look = state.in_command("interlock config get");
            Some(format!("look at it: {look}"))
        }
        _ => {
            let verdict = error.verdict();
            let judged = || verdict.map(|verdict| remedy(verdict, state, call));
            error.remedy().or_else(judged)
        }
    }
}

/// What changes the verdict, or where all of its reasons are shown.
fn remedy(verdict: &Verdict, state: &StateArguments, call: (&ExecArguments, bool)) -> String {
    match verdict.remedies.first() {
        Some(remedy) => {
            let command = state.in_command(&remedy.command);
            format!("{}: {command}", remedy.effect)
        }
        None => match verdict.suggestion {
            Some(suggestion) => suggestion.to_owned(),
            None => format!("see the whole judgement: {}", explain(state, call)),
        },
    }
}

/// The same request, put to `explain`; it may have input of the caller.
fn explain(state: &StateArguments, (all, has_pipe): (&ExecArguments, bool)) -> String {
    let arguments = &all.request;
    let mut words = vec!["interlock explain".to_owned()];
    if arguments.agent != "main" {
        words.push(format!("--agent {}", quote(&arguments.agent)));
    }
    if let Some(cwd) = &arguments.cwd {
        words.push(format!("--cwd {}", quote(&cwd.to_string_lossy())));
    }
    let pairs = arguments.env.iter();
    words.extend(pairs.map(|pair| format!("--env {}", quote(pair))));
    if all.pty {
        words.push("--pty".to_owned());
    }
    if has_pipe {
        words.push("--stdin pipe".to_owned());
    }
    if arguments.argv {
        words.push("--argv".to_owned());
    }
    words.push("--".to_owned());
    let command = arguments.command.iter();
    words.extend(command.map(|word| quote(&word.to_string_lossy())));
    state.in_command(&words.join(" "))
}
