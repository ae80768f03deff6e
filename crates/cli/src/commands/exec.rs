//! `interlock exec`: judged by the policy of this host, then run, output as it comes.

mod capture;
mod live;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use interlock_host::{ExecError, ExecRequest};
use interlock_policy::{AgentId, quote};
use interlock_run::{Outcome as RunOutcome, OutputSink, Run, Settings, Signal, Status, StreamKind};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{Outcome, open, request};
use crate::args::{ExecArguments, RequestArguments, StateArguments};
use crate::failure::Failure;
use crate::output;
use capture::Capture;
use live::Live;

/// How long the last words of a run that is being interrupted may take to be shown.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub fn run(state: &StateArguments, arguments: &ExecArguments) -> Outcome {
    let timeout_seconds = arguments.timeout;
    let arguments = &arguments.request;
    let agent = AgentId::new(&arguments.agent)
        .map_err(|error| Failure::usage("AGENT_INVALID", error.to_string()))?;
    let request = request::request(arguments)?;
    let base_env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let host = open(state)?;
    let cwd = request.cwd.clone();
    let exec = ExecRequest {
        agent: &agent,
        source: request.source,
        cwd: request.cwd,
        env: request.env,
        ask: arguments.ask.map(Into::into),
        timeout_seconds,
        base_env: &base_env,
    };
    let sink = if arguments.json {
        let config = host.config()?;
        let exec = config.config().exec_for(agent.as_str());
        Sink::Captured(Arc::new(Capture::new(exec.max_output_chars)))
    } else {
        Sink::Live(Live::start(host.time_limit(&agent, timeout_seconds)?))
    };
    // Before anything runs: a signal from now on waits for the run that it has to end.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::refused("SIGNALS_UNUSABLE", error.to_string()))?;
    let started = host.exec(exec, &Settings::default(), sink.clone());
    let run = Arc::new(started.map_err(|error| {
        let hint = hint(&error, state, arguments);
        Failure::Exec {
            error: Box::new(error),
            hint,
        }
    })?);
    let interrupted = end_with_us(&run, &sink, signals);
    let outcome = run.wait();
    // What it left behind must not outlive this process.
    let gone = run.wait_until_gone();
    if let Some(code) = interrupted.get() {
        sink.show_last_words();
        return Ok(ExitCode::from(*code));
    }
    match &sink {
        Sink::Captured(capture) => output::print_json(&result(&outcome, &cwd, capture)),
        Sink::Live(live) => tell(&outcome, live.finish(None)),
    }
    if let Err(survivors) = gone {
        output::note(&format!("interlock: {survivors}"));
    }
    Ok(ExitCode::from(exit_code(outcome.status)))
}

fn result(outcome: &RunOutcome, cwd: &str, capture: &Capture) -> Value {
    let leftovers = outcome.leftovers.iter();
    let leftovers: Vec<Value> = leftovers
        .map(|leftover| json!({ "pid": leftover.pid, "command": leftover.command }))
        .collect();
    json!({
        "status": match outcome.status { Status::Exited(_) => "completed", _ => "failed" },
        "exitCode": exit_code(outcome.status),
        "timedOut": outcome.status == Status::TimedOut,
        "signal": match outcome.status { Status::Signaled(signal) => Some(signal), _ => None },
        "durationMs": u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
        "cwd": cwd,
        "host": "gateway",
        "output": capture.shown(),
        "leftovers": leftovers,
    })
}

/// What people should know besides the output.
fn tell(outcome: &RunOutcome, not_shown: u64) {
    if outcome.status == Status::TimedOut {
        output::note("interlock: the time is over; the command was ended");
    }
    if not_shown > 0 {
        output::note(&format!(
            "interlock: {not_shown} bytes of output are not shown: they were not read in time"
        ));
    }
    for leftover in &outcome.leftovers {
        output::note(&format!(
            "interlock: left behind and ended: {} (pid {})",
            output::visible(&leftover.command),
            leftover.pid
        ));
    }
}

/// As shells report it: 128 and the signal; 124 for a time-out, as `timeout` does.
fn exit_code(status: Status) -> u8 {
    let code = match status {
        Status::Exited(code) => code,
        Status::Signaled(signal) => 128 + signal,
        Status::TimedOut => 124,
    };
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}

/// A signal that ends this process ends the run first. Returns the place of the exit code that
/// tells of it.
fn end_with_us(run: &Arc<Run>, sink: &Sink, mut signals: Signals) -> Arc<OnceLock<u8>> {
    let interrupted = Arc::new(OnceLock::new());
    let (run, sink, place) = (Arc::clone(run), sink.clone(), Arc::clone(&interrupted));
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let code = exit_code(Status::Signaled(signal));
            // Before the run ends, since the main thread then asks for it.
            let _ = place.set(code);
            if let Sink::Live(live) = &sink {
                live.hurry();
            }
            // Whoever could not be ended is no reason to stay.
            let _ = run.kill(Signal::TERM);
            sink.show_last_words();
            // The main thread may be waiting for a reader.
            std::process::exit(code.into());
        }
    });
    interrupted
}

/// What changes the judge's mind, or what else helps.
fn hint(error: &ExecError, state: &StateArguments, arguments: &RequestArguments) -> Option<String> {
    match error {
        ExecError::Host(error) => error.remedy(),
        ExecError::Input(error) => crate::failure::input_hint(error),
        ExecError::Tool(_) => {
            let look = state.in_command("interlock config get tools");
            Some(format!("look at it: {look}"))
        }
        _ => {
            let Some(verdict) = error.verdict() else {
                return error.remedy();
            };
            Some(match verdict.remedies.first() {
                Some(remedy) => {
                    let command = state.in_command(&remedy.command);
                    format!("{}: {command}", remedy.effect)
                }
                None => format!("see the whole judgement: {}", explain(state, arguments)),
            })
        }
    }
}

/// The same request, put to `explain`.
fn explain(state: &StateArguments, arguments: &RequestArguments) -> String {
    let mut words = vec!["interlock explain".to_owned()];
    if arguments.agent != "main" {
        words.push(format!("--agent {}", quote(&arguments.agent)));
    }
    if let Some(cwd) = &arguments.cwd {
        words.push(format!("--cwd {}", quote(&cwd.to_string_lossy())));
    }
    let pairs = arguments.env.iter();
    words.extend(pairs.map(|pair| format!("--env {}", quote(pair))));
    if arguments.argv {
        words.push("--argv".to_owned());
    }
    words.push("--".to_owned());
    let command = arguments.command.iter();
    words.extend(command.map(|word| quote(&word.to_string_lossy())));
    state.in_command(&words.join(" "))
}

/// Where the output goes.
#[derive(Debug, Clone)]
enum Sink {
    Live(Live),
    /// Into the JSON result.
    Captured(Arc<Capture>),
}

impl Sink {
    /// For a run that was interrupted; a JSON result is then not expected any more.
    fn show_last_words(&self) {
        if let Self::Live(live) = self {
            live.finish(Some(LAST_WORDS));
        }
    }
}

impl OutputSink for Sink {
    fn output(&self, stream: StreamKind, bytes: &[u8]) {
        match self {
            Self::Live(live) => live.output(stream, bytes),
            Self::Captured(capture) => capture.push(bytes),
        }
    }
}
