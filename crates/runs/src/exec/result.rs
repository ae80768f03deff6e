//! The answer of an `exec` call: JSON for programs, notes on stderr for people.

use interlock_arguments::StateArguments;
use interlock_console::output;
use interlock_engine::RunStatus;
use interlock_host::{Elevation, NotedDenials};
use interlock_supervisor::{EndedRun, StartedRun, SupervisorClient};
use interlock_transcript::{LineRange, TranscriptReader};
use serde_json::{Value, json};

/// How much of the output the result of a run in the background shows.
const TAIL_LINES: u64 = 20;
const TAIL_BYTES: usize = 4_000;

/// The result of a run that has ended.
pub(super) fn ended_result(
    started: &StartedRun,
    ended: &EndedRun,
    cwd: &str,
    elevation: Elevation,
) -> Value {
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
    if let Some(tree) = started.session.tree {
        result["tree"] = json!(tree);
    }
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

/// The result of a run that goes on in the background.
pub(super) fn running_result(started: &StartedRun, cwd: &str, client: &SupervisorClient) -> Value {
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

/// The host of a run on this machine, as results name it.
pub(super) fn shown_host(started: &StartedRun) -> &'static str {
    match started.session.shield {
        Some(interlock_plan::PlanShield::Sandbox) => "sandbox",
        _ => "gateway",
    }
}

/// Prints how to read the output of a run that continues in the background.
pub(super) fn note_running(started: &StartedRun, state: &StateArguments) {
    let name = &started.session.name;
    let look = state.in_command(&format!("interlock process log {name}"));
    output::note(&format!("interlock: running as {name}; see it: {look}"));
}

/// Prints notes about the run that its output does not show.
pub(super) fn note_end(ended: &EndedRun, not_shown: u64, elevation: Elevation) {
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

/// Prints what the sandbox denied, and the run id with which the command can be repeated outside.
pub(super) fn note_denials(denied: Option<&NotedDenials>) {
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

/// The exit code as shells report it: 128 plus the number of the signal, and 124 for a time-out, as
/// `timeout` does.
pub(super) fn exit_code(status: RunStatus) -> u8 {
    let code = match status {
        RunStatus::Exited(code) => code,
        RunStatus::Signaled(signal) => 128 + signal,
        RunStatus::TimedOut => 124,
    };
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}
