//! The only renderer: turns an outcome into the result of a tool, for programs and for models.

use interlock_approvals::{DENIAL_TEXT, PendingApproval};
use interlock_command::display::ShownLine;
use interlock_host::{NotedDenials, SandboxDenial};
use interlock_patch::PatchSummary;
use interlock_plan::PlanShield;
use interlock_store::NullableField;
use serde_json::json;

use super::details::{
    EndedDetails, HostDetails, PendingDetails, RefusedDetails, RunningDetails, SandboxDetails,
};
use super::model_text::{ModelText, ended_status, line_of_gap, read_rest};
use super::result::{RefusalLabel, ToolResult, with_hint};
use super::run_outcome::{
    InsideReport, OutputRest, RunEndReport, RunEnding, RunLocation, RunRefusal, RunningReport,
    ToolOutcome,
};

/// How many characters of a command a progress report shows.
const WAITING_CHARS: usize = 200;

impl From<ToolOutcome> for ToolResult {
    fn from(outcome: ToolOutcome) -> Self {
        match outcome {
            ToolOutcome::Ended(report) => ToolResult {
                has_no_events: report.has_no_events,
                ..ended(&report)
            },
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
    let mut details = EndedDetails {
        status,
        exit_code,
        timed_out: report.ending == RunEnding::TimedOut,
        duration_ms: report.duration_ms,
        cwd: report.location.cwd.as_deref(),
        race_free: report.race_free,
        shield: match report.location.node {
            None => report.shield.map(PlanShield::words).into(),
            Some(_) => NullableField::Absent,
        },
        aggregated: &output.text,
        total_bytes: report.counts_output.then_some(output.total_bytes),
        shown_bytes: report.counts_output.then_some(output.shown_bytes),
        signal: match report.ending {
            RunEnding::Signaled(signal) => Some(signal_name(signal)),
            _ => None,
        },
        out_of_memory: report.out_of_memory,
        elevated: report.elevation,
        sandbox: report.inside.as_ref().map(|inside| SandboxDetails {
            run_id: &inside.noted.run_id,
            denials: &inside.noted.denials,
        }),
        limit: report.limit,
        protected_created: &report.protected_created,
        session_id: None,
        omitted_bytes: None,
        output_fault: report.output_fault.as_deref(),
        dropped_env: &report.dropped_variables,
        programs: report.programs.as_ref(),
        tree: report.tree,
        effect: report.effect.as_ref(),
        host: HostDetails::at(&report.location),
    };
    // The end itself is noted first. For models it is in the status line.
    let (note, how) = ending_texts(report);
    let mut notes = Vec::new();
    if report.out_of_memory {
        notes.push("The command ran out of its memory limit.".to_owned());
    }
    if report.elevation.leaves() {
        notes.push(format!("({})", report.elevation.words()));
    }
    if let Some(limit) = report.limit {
        notes.push(format!("(the sandbox ended or refused something: {limit})"));
    }
    if !report.protected_created.is_empty() {
        let paths = ShownLine::new(&report.protected_created.join(", "));
        notes.push(format!(
            "(the run made or changed files that programs of the owner obey: {paths}; look at them before using the workspace outside)"
        ));
    }
    notes.extend(report.inside.iter().flat_map(denial_notes));
    if !report.dropped_variables.is_empty() {
        notes.push(format!(
            "(the node does not pass these variables to shell text: {}; a single plain command gets them)",
            report.dropped_variables.join(", ")
        ));
    }
    for (pid, command) in &report.leftovers {
        notes.push(format!("(left behind: {command}, pid {pid})"));
    }
    if let Some(effect) = report.effect.as_ref().filter(|one| one.is_noteworthy()) {
        notes.push(format!("({})", effect.words()));
    }
    let mut model_notes = notes.clone();
    match &report.rest {
        OutputRest::None => {}
        OutputRest::Session(session) => {
            details.session_id = Some(session);
            details.omitted_bytes = Some(output.omitted_bytes);
            notes.push(format!(
                "({} of {} bytes are shown; read the rest with process log, sessionId {session})",
                output.shown_bytes, output.total_bytes
            ));
            let line = line_of_gap(&output.text, output.omitted_bytes, output.omitted_lines);
            let counts = (output.omitted_bytes, output.total_bytes);
            model_notes.push(read_rest(counts, session, line));
        }
        OutputRest::Lost => {
            details.omitted_bytes = Some(output.omitted_bytes);
            let note = "(what is left out cannot be read from here: the node keeps no sessions)";
            notes.push(note.to_owned());
            model_notes.push(note.to_owned());
        }
    }
    if let Some(fault) = &report.output_fault {
        let note = format!("(output could not be kept: {fault})");
        notes.push(note.clone());
        model_notes.push(note);
    }
    notes.splice(..0, note);
    let is_error = exit_code.is_none();
    ToolResult::new(join(&output.text, &notes), json!(details), is_error).with_model(ModelText {
        status: ended_status(&how, report.duration_ms, &report.location),
        output: Some(output.text.clone()),
        notes: model_notes,
    })
}

/// The caller's notes about the denials of its sandbox.
fn denial_notes(inside: &InsideReport) -> Vec<String> {
    let NotedDenials { run_id, denials } = &inside.noted;
    let shown = |denial: &SandboxDenial| ShownLine::new(&denial.to_string()).to_string();
    let mut notes: Vec<String> = denials
        .iter()
        .map(|denial| format!("(denied by the sandbox: {})", shown(denial)))
        .collect();
    if inside.may_ask && !denials.is_empty() {
        notes.push(format!(
            "(if the command has to run outside, send it again once with elevated true, retryOf {run_id} and a justification; an approver decides)"
        ));
    }
    notes
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
    let details = json!(RunningDetails {
        status: "running",
        message: &message,
        session_id: session,
        pid: *pid,
        started_at: *started_at_ms,
        cwd: location.cwd.as_deref(),
        tail,
        host: HostDetails::at(location),
    });
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
    let mut details = PendingDetails {
        status: "approval-pending",
        approval_id: &approval.id,
        approval_slug: approval.id.get(..8),
        short_id: &approval.short_id,
        expires_at_ms: approval.expires_at_ms,
        allowed_decisions: choices.collect(),
        command: &approval.command.text,
        binding: &approval.binding,
        approve: approve_command(approval),
        cwd: None,
        warning_text: NullableField::Absent,
        reason: None,
        message: "",
        host: HostDetails::of(location.node.as_ref()),
    };
    let decide = format!(
        "Waits for approval {} ({}). A person decides with: {}",
        approval.short_id,
        approval.id,
        approve_command(approval)
    );
    let (text, advice) = match &location.node {
        Some(node) => {
            let advice = "It runs when an approver allows it; the outcome comes as an event.";
            details.cwd = Some(&approval.cwd);
            details.warning_text = NullableField::Null;
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
            details.cwd = location.cwd.as_deref();
            details.reason = Some(reason);
            let text = format!("Approval required: {reason}\n{decide}\n{advice}");
            (text, advice)
        }
    };
    details.message = advice;
    ToolResult {
        approval: Some(approval.id.clone()),
        ..ToolResult::new(text, json!(details), false)
    }
}

/// The advice to the agent of a waiting patch.
const PATCH_ADVICE: &str = "No file has changed. Once the patch is allowed it is applied by itself, once, and this session is notified of the outcome. Do not send it again unless nothing is heard of it: then it is applied once all the same.";

/// The advice to the agent of a waiting run.
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
    let label = RefusalLabel {
        is_denial: *is_denial,
        code: code.clone(),
    };
    let text = if refusal.explains_denial {
        format!("{message}\n{DENIAL_TEXT}")
    } else {
        with_hint(message, remedy.as_deref())
    };
    let details = RefusedDetails {
        status: label.status(),
        code,
        message,
        remedy: remedy.as_deref(),
        retry_will_fail: *is_denial,
        denial: refusal.explains_denial.then_some(DENIAL_TEXT),
        reason: match &refusal.denial {
            Some(denial) => denial.reason.as_deref().into(),
            None => NullableField::Absent,
        },
        approval_id: refusal.approval.as_deref(),
        host: refusal
            .node
            .as_ref()
            .map(|node| HostDetails::of(Some(node))),
        parameter: refusal.parameter.as_ref(),
    };
    ToolResult {
        approval: refusal.approval.clone(),
        refusal: Some(label),
        ..ToolResult::new(text, json!(details), true)
    }
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
    match interlock_sessions::signal_name(signal) {
        Some(name) => format!("SIG{name}"),
        None => signal.to_string(),
    }
}
