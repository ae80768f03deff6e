//! `interlock exec`: judged by the policy of this host, then run, output as it comes.

mod capture;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use interlock_host::ExecRequest;
use interlock_policy::AgentId;
use interlock_run::{OutputSink, Run, Settings, Signal, Status, StreamKind};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{Outcome, open, request};
use crate::args::{ExecArguments, StateArguments};
use crate::failure::Failure;
use crate::output;
use capture::Capture;

pub fn run(state: &StateArguments, arguments: &ExecArguments) -> Outcome {
    let timeout = arguments.timeout;
    let arguments = &arguments.request;
    let agent = AgentId::new(&arguments.agent)
        .map_err(|error| Failure::usage("AGENT_INVALID", error.to_string()))?;
    let request = request::request(arguments)?;
    let base_env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let host = open(state)?;
    let capture = arguments.json.then(|| Arc::new(Capture::default()));
    let cwd = request.cwd.clone();
    let exec = ExecRequest {
        agent: &agent,
        source: request.source,
        cwd: request.cwd,
        env: request.env,
        ask: arguments.ask.map(Into::into),
        timeout_ms: timeout.map(|seconds| seconds.saturating_mul(1000)),
        base_env: &base_env,
    };
    let sink: Box<dyn OutputSink> = match &capture {
        Some(capture) => Box::new(Captured(Arc::clone(capture))),
        None => Box::new(Live),
    };
    let run = Arc::new(host.exec(exec, &Settings::default(), Sink(sink))?);
    end_with_us(&run)?;
    let outcome = run.wait();
    if let Some(capture) = capture {
        output::print_json(&json!({
            "status": match outcome.status { Status::Exited(_) => "completed", _ => "failed" },
            "exitCode": exit_code(outcome.status),
            "timedOut": outcome.status == Status::TimedOut,
            "signal": match outcome.status { Status::Signaled(signal) => Some(signal), _ => None },
            "durationMs": u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
            "cwd": cwd,
            "host": "gateway",
            "output": capture.shown(),
        }));
    } else if outcome.status == Status::TimedOut {
        output::note("interlock: the time is over; the command was ended");
    }
    for leftover in &outcome.leftovers {
        output::note(&format!(
            "interlock: left behind and ended: {} (pid {})",
            output::visible(&leftover.command),
            leftover.pid
        ));
    }
    // What it left behind must not outlive this process.
    if let Err(survivors) = run.wait_until_gone() {
        output::note(&format!("interlock: {survivors}"));
    }
    Ok(ExitCode::from(exit_code(outcome.status)))
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

/// A signal that ends this process ends the run first.
fn end_with_us(run: &Arc<Run>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::refused("SIGNALS_UNUSABLE", error.to_string()))?;
    let run = Arc::clone(run);
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Whoever could not be ended is no reason to stay.
            let _ = run.kill(Signal::TERM);
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

struct Sink(Box<dyn OutputSink>);

impl OutputSink for Sink {
    fn output(&self, stream: StreamKind, bytes: &[u8]) {
        self.0.output(stream, bytes);
    }
}

/// To our own streams. A reader that went away stops the showing, not the run.
struct Live;

impl OutputSink for Live {
    fn output(&self, stream: StreamKind, bytes: &[u8]) {
        let _ = match stream {
            StreamKind::Stderr => std::io::stderr().write_all(bytes),
            StreamKind::Stdout | StreamKind::Terminal => {
                let mut out = std::io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())
            }
        };
    }
}

struct Captured(Arc<Capture>);

impl OutputSink for Captured {
    fn output(&self, _stream: StreamKind, bytes: &[u8]) {
        self.0.push(bytes);
    }
}
