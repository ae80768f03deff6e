//! The one renderer: an outcome as the result of a tool, for programs and for models.

use interlock_approvals::{DENIAL_TEXT, PendingApproval};
use interlock_command::display::ShownLine;
use interlock_patch::PatchSummary;
use interlock_plan::PlanShield;
use serde_json::{Value, json};

use super::model_text::{ModelText, ended_status, line_of_gap, read_rest};
use super::result::{ToolResult, with_hint};
use super::run_outcome::{
    NodeLabel, OutputRest, RunEndReport, RunEnding, RunLocation, RunRefusal, RunningReport,
    ToolOutcome,
};

/// Characters of a command in a report of progress.
const WAITING_CHARS: usize = 200;

impl From<ToolOutcome> for ToolResult {
    fn from(outcome: ToolOutcome) -> Self {
        match outcome {
            ToolOutcome::Ended(report) => ended(&report),
            ToolOutcome::Running(report) => running(&report),
            ToolOutcome::Pending { approval, location } => pending(&approval, &location),
            ToolOutcome::Patched(summary) => patched(&summary),
            ToolOutcome::Refused(refusal) => refusal.into(),
        }
    }
}

impl From<RunRefusal> for ToolResult {
    fn from(refusal: RunRefusal) -> Self {
        refused(&refusal)
    }
}

/// How a run ended: the note in the form of the reference, and the words for models.
fn ending_texts(report: &RunEndReport) -> (Option<String>, String) {
    match report.ending {
        RunEnding::Exited(code) => (
            (code != 0).then(|| format!("(Command exited with code {code})")),
            format!("exit code {code}"),
        ),
        RunEnding::Signaled(signal) => {
            let signal = signal_name(signal);
            (
                Some(format!("Command aborted by signal {signal}")),
                format!("ended by {signal}"),
            )
        }
        RunEnding::TimedOut => {
            let seconds = report.duration_ms / 1_000;
            let note = format!("Command timed out after {seconds} seconds.");
            if report.ends_whole_tree {
                (
                    Some(format!(
                        "{note} It was ended with everything that it had started."
                    )),
                    "timed out and ended".to_owned(),
                )
            } else {
                (Some(note), "timed out".to_owned())
            }
        }
        RunEnding::Lost => (
            Some("The supervisor of the command on the node died, and the command with it.".into()),
            "lost".to_owned(),
        ),
        RunEnding::Failed => (None, "failed".to_owned()),
    }
}

fn ended(report: &RunEndReport) -> ToolResult {
    let output = &report.output;
    let exit_code = match report.ending {
        RunEnding::Exited(code) => Some(code),
        _ => None,
    };
    let status = if exit_code.is_some() {
        "completed"
    } else {
        "failed"
    };
    let mut details = json!({
        "status": status,
        "exitCode": exit_code,
        "timedOut": report.ending == RunEnding::TimedOut,
        "durationMs": report.duration_ms,
        "cwd": report.location.cwd,
    });
    let mut add = |name: &str, value: Value| details[name] = value;
    if let Some(race_free) = report.race_free {
        add("raceFree", race_free.into());
    }
    if report.location.node.is_none() {
        add("shield", report.shield.map(PlanShield::words).into());
    }
    add("aggregated", output.text.as_str().into());
    if report.counts_output {
        add("totalBytes", output.total_bytes.into());
        add("shownBytes", output.shown_bytes.into());
    }
    if let RunEnding::Signaled(signal) = report.ending {
        add("signal", signal_name(signal).into());
    }
    // The end itself is noted first, and stands in the status line for models.
    let (note, how) = ending_texts(report);
    let mut notes = Vec::new();
    if report.out_of_memory {
        add("outOfMemory", true.into());
        notes.push("The command ran out of its memory limit.".to_owned());
    }
    for (pid, command) in &report.leftovers {
        notes.push(format!("(left behind: {command}, pid {pid})"));
    }
    let mut model_notes = notes.clone();
    match &report.rest {
        OutputRest::None => {}
        OutputRest::Session(session) => {
            add("sessionId", session.as_str().into());
            add("omittedBytes", output.omitted_bytes.into());
            notes.push(format!(
                "({} of {} bytes are shown; read the rest with process log, sessionId {session})",
                output.shown_bytes, output.total_bytes
            ));
            let line = line_of_gap(&output.text, output.omitted_bytes, output.omitted_lines);
            let counts = (output.omitted_bytes, output.total_bytes);
            model_notes.push(read_rest(counts, session, line));
        }
        OutputRest::Lost => {
            add("omittedBytes", output.omitted_bytes.into());
            let note = "(what is left out cannot be read from here: the node keeps no sessions)";
            notes.push(note.to_owned());
            model_notes.push(note.to_owned());
        }
    }
    if let Some(fault) = &report.output_fault {
        add("outputFault", fault.as_str().into());
        let note = format!("(output could not be kept: {fault})");
        notes.push(note.clone());
        model_notes.push(note);
    }
    notes.splice(..0, note);
    add_host(&mut details, report.location.node.as_ref());
    let is_error = exit_code.is_none();
    ToolResult::new(join(&output.text, &notes), details, is_error).with_model(ModelText {
        status: ended_status(&how, report.duration_ms, &report.location),
        output: Some(output.text.clone()),
        notes: model_notes,
    })
}

fn running(report: &RunningReport) -> ToolResult {
    let RunningReport {
        session,
        pid,
        started_at_ms,
        tail,
        location,
    } = report;
    let shown_pid = pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
    let place = location
        .node
        .as_ref()
        .map_or_else(String::new, |node| format!(" on the node {}", node.name));
    let message = format!(
        "Command still running{place} (session {session}{shown_pid}). Use process (list/poll/log/write/kill/clear/remove) for follow-up."
    );
    let text = if tail.is_empty() {
        message.clone()
    } else {
        format!("{message}\n\n{tail}")
    };
    let mut details = json!({
        "status": "running",
        "message": message,
        "sessionId": session,
        "pid": pid,
        "startedAt": started_at_ms,
        "cwd": location.cwd,
        "tail": tail,
    });
    add_host(&mut details, location.node.as_ref());
    let follow =
        format!("Follow it with process: action poll (or log, write, kill), sessionId {session}.");
    ToolResult::new(text, details, false).with_model(ModelText {
        status: format!("still running, session {session}{shown_pid}, {location}"),
        output: (!tail.is_empty()).then(|| tail.clone()),
        notes: vec![follow],
    })
}

fn pending(approval: &PendingApproval, location: &RunLocation) -> ToolResult {
    let choices = approval.offered.iter().map(|decision| decision.as_str());
    let reason = approval.reasons.first().map_or("", String::as_str);
    let mut details = json!({
        "status": "approval-pending",
        "approvalId": approval.id,
        "approvalSlug": approval.id.get(..8),
        "shortId": approval.short_id,
        "expiresAtMs": approval.expires_at_ms,
        "allowedDecisions": choices.collect::<Vec<_>>(),
        "command": approval.command.text,
        "binding": approval.binding,
        "approve": approve_command(approval),
    });
    let decide = format!(
        "Waits for approval {} ({}). A person decides with: {}",
        approval.short_id,
        approval.id,
        approve_command(approval)
    );
    let (text, advice) = match &location.node {
        Some(node) => {
            let advice = "It runs when an approver allows it; the outcome comes as an event.";
            details["cwd"] = approval.cwd.as_str().into();
            details["warningText"] = Value::Null;
            let text = format!(
                "Approval required on the node {}. {decide} {advice}",
                node.name
            );
            (text, advice)
        }
        None => {
            let advice = if approval.binding == "patch" {
                PATCH_ADVICE
            } else {
                RUN_ADVICE
            };
            details["cwd"] = location.cwd.clone().into();
            details["reason"] = reason.into();
            let text = format!("Approval required: {reason}\n{decide}\n{advice}");
            (text, advice)
        }
    };
    details["message"] = advice.into();
    add_host(&mut details, location.node.as_ref());
    ToolResult::new(text, details, false)
}

/// What the agent of a waiting patch should do.
const PATCH_ADVICE: &str = "No file has changed. Once the patch is allowed it is applied by itself, once, and this session is notified of the outcome. Do not send it again unless nothing is heard of it: then it is applied once all the same.";

/// What the agent of a waiting run should do.
const RUN_ADVICE: &str = "The command has not run. Once it is allowed it runs by itself, and this session is notified of the outcome. Do not send it again unless nothing is heard of it: then it runs once all the same.";

fn patched(summary: &PatchSummary) -> ToolResult {
    let details = json!({ "status": "completed", "summary": summary, "host": "gateway" });
    ToolResult::new(summary.to_string(), details, false)
}

fn refused(refusal: &RunRefusal) -> ToolResult {
    let RunRefusal {
        is_denial,
        code,
        message,
        remedy,
        ..
    } = refusal;
    let mut details = json!({
        "status": if *is_denial { "denied" } else { "failed" },
        "code": code,
        "message": message,
        "remedy": remedy,
    });
    if *is_denial {
        details["retryWillFail"] = true.into();
    }
    let mut text = with_hint(message, remedy.as_deref());
    if refusal.explains_denial {
        text = format!("{message}\n{DENIAL_TEXT}");
        details["denial"] = DENIAL_TEXT.into();
    }
    if let Some(denial) = &refusal.denial {
        details["reason"] = denial.reason.as_deref().into();
    }
    if let Some(approval) = &refusal.approval {
        details["approvalId"] = approval.as_str().into();
    }
    if let Some(node) = &refusal.node {
        add_host(&mut details, Some(node));
    }
    ToolResult::new(text, details, true)
}

/// The host of a run, as every result names it.
fn add_host(details: &mut Value, node: Option<&NodeLabel>) {
    let Some(node) = node else {
        details["host"] = "gateway".into();
        return;
    };
    details["host"] = "node".into();
    details["node"] = node.name.as_str().into();
    details["nodeId"] = node.id.as_str().into();
}

/// What a call waits for: the command, the approval, and where to decide.
pub(super) fn waits_for(approval: &PendingApproval) -> String {
    let command = ShownLine::new(&approval.command.text).to_string();
    let mut shown: String = command.chars().take(WAITING_CHARS).collect();
    if shown.len() < command.len() {
        shown.push('…');
    }
    format!(
        "`{shown}` waits for approval {}. Decide with: {}",
        approval.short_id,
        approve_command(approval)
    )
}

fn approve_command(approval: &PendingApproval) -> String {
    format!("interlock approvals approve {}", approval.short_id)
}

fn join(output: &str, notes: &[String]) -> String {
    match (output.is_empty(), notes.is_empty()) {
        (true, true) => "(no output)".to_owned(),
        (true, false) => notes.join("\n"),
        (false, true) => output.to_owned(),
        (false, false) => format!("{}\n\n{}", output.trim_end_matches('\n'), notes.join("\n")),
    }
}

fn signal_name(signal: i32) -> String {
    match interlock_host::process::signal_name(signal) {
        Some(name) => format!("SIG{name}"),
        None => signal.to_string(),
    }
}
