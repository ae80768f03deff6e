//! What a tool answers: text in the form of the reference, the same as data for programs, and a text for
//! models (`model_text`).

use interlock_approvals::{ApprovalRefusal, PendingApproval};
use interlock_command::display::ShownLine;
use interlock_host::ExecError;
use interlock_plan::PlanShield;
use interlock_run::RunStatus;
use interlock_run::spool::{LineRange, SpoolReader};
use interlock_run::supervisor::{EndedRun, StartedRun, SupervisorPaths};
use serde_json::{Value, json};

use super::model_text::{ModelText, RunLocation, ended_status, line_of_gap, read_rest};

/// What a result shows of a run that goes on.
const TAIL_LINES: u64 = 20;
const TAIL_BYTES: usize = 4_000;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolResult {
    /// As the reference writes it.
    pub(crate) text: String,
    pub(crate) details: Value,
    /// The tool did not do what was asked.
    pub(crate) is_error: bool,
    /// As models read it, where that is not the same text.
    pub(crate) model: Option<ModelText>,
    /// What the conversation is notified of along with this result.
    pub(crate) events: Vec<String>,
}

impl ToolResult {
    pub(crate) fn new(text: String, details: Value, is_error: bool) -> Self {
        Self {
            text,
            details,
            is_error,
            model: None,
            events: Vec::new(),
        }
    }

    pub(crate) fn with_model(self, model: ModelText) -> Self {
        Self {
            model: Some(model),
            ..self
        }
    }

    /// With the approval that it is about: no event of the same result repeats its end.
    pub(crate) fn about(mut self, approval: &str) -> Self {
        self.details["approvalId"] = approval.into();
        self
    }

    /// As it goes to callers of HTTP and WebSocket.
    pub(crate) fn to_json(&self) -> Value {
        let text = if self.events.is_empty() {
            self.text.clone()
        } else {
            format!("{}\n\n{}", self.events.join("\n"), self.text)
        };
        json!({
            "content": [{ "type": "text", "text": text }],
            "details": self.details,
        })
    }

    pub(super) fn ended(started: &StartedRun, ended: &EndedRun, cwd: &str) -> Self {
        let outcome = &ended.outcome;
        let output = &ended.shown;
        let duration_ms = u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX);
        let mut notes = Vec::new();
        let mut status = "failed";
        // What the reference notes behind the output is in the first line for models.
        let (first, how) = match outcome.status {
            RunStatus::Exited(code) => {
                status = "completed";
                let first = (code != 0).then(|| format!("(Command exited with code {code})"));
                (first, format!("exit code {code}"))
            }
            RunStatus::Signaled(signal) => {
                let signal = signal_name(signal);
                let first = format!("Command aborted by signal {signal}");
                (Some(first), format!("ended by {signal}"))
            }
            RunStatus::TimedOut => {
                let first = format!(
                    "Command timed out after {} seconds. It was ended with everything that it had started.",
                    outcome.duration.as_secs()
                );
                (Some(first), "timed out and ended".to_owned())
            }
        };
        if ended.out_of_memory {
            notes.push("The command ran out of its memory limit.".to_owned());
        }
        for leftover in &outcome.leftovers {
            notes.push(format!(
                "(left behind: {}, pid {})",
                leftover.command, leftover.pid
            ));
        }
        let mut details = json!({
            "status": status,
            "exitCode": match outcome.status { RunStatus::Exited(code) => Some(code), _ => None },
            "timedOut": outcome.status == RunStatus::TimedOut,
            "durationMs": duration_ms,
            "cwd": cwd,
            "host": "gateway",
            "raceFree": started.session.race_free,
            "shield": started.session.shield.map(PlanShield::words),
            "aggregated": output.text,
            "totalBytes": output.total_bytes,
            "shownBytes": output.shown_bytes,
        });
        if let RunStatus::Signaled(signal) = outcome.status {
            details["signal"] = signal_name(signal).into();
        }
        if ended.out_of_memory {
            details["outOfMemory"] = true.into();
        }
        let mut model_notes = notes.clone();
        if output.omitted_bytes > 0 {
            let name = &started.session.name;
            details["sessionId"] = name.as_str().into();
            details["omittedBytes"] = output.omitted_bytes.into();
            notes.push(shown_of((output.shown_bytes, output.total_bytes), name));
            let line = line_of_gap(&output.text, output.omitted_bytes, output.omitted_lines);
            let counts = (output.omitted_bytes, output.total_bytes);
            model_notes.push(read_rest(counts, name, line));
        }
        if let Some(fault) = &ended.fault {
            details["outputFault"] = fault.as_str().into();
            let note = format!("(output could not be kept: {fault})");
            notes.push(note.clone());
            model_notes.push(note);
        }
        notes.splice(..0, first);
        let location = RunLocation {
            cwd: Some(cwd),
            node: None,
        };
        let is_error = status == "failed";
        Self::new(join(&output.text, &notes), details, is_error).with_model(ModelText {
            status: ended_status(&how, duration_ms, location),
            output: Some(output.text.clone()),
            notes: model_notes,
        })
    }

    pub(super) fn running(started: &StartedRun, cwd: &str, place: &SupervisorPaths) -> Self {
        let last = LineRange {
            offset: None,
            limit: Some(TAIL_LINES),
        };
        let session = &started.session;
        let tail = SpoolReader::open(&place.session(&session.name))
            .and_then(|spool| spool.by_lines(last, TAIL_BYTES))
            .map(|page| page.text)
            .unwrap_or_default();
        let pid = session
            .pid
            .map_or_else(String::new, |pid| format!(", pid {pid}"));
        let said = format!(
            "Command still running (session {}{pid}). Use process (list/poll/log/write/kill/clear/remove) for follow-up.",
            session.name
        );
        let text = if tail.is_empty() {
            said.clone()
        } else {
            format!("{said}\n\n{tail}")
        };
        let details = json!({
            "status": "running",
            "message": said,
            "sessionId": session.name,
            "pid": session.pid,
            "startedAt": started.started_ms,
            "cwd": cwd,
            "host": "gateway",
            "tail": tail,
        });
        let location = RunLocation {
            cwd: Some(cwd),
            node: None,
        };
        let model = running_text(&session.name, session.pid, location, &tail);
        Self::new(text, details, false).with_model(model)
    }

    pub(super) fn pending(approval: &PendingApproval, cwd: &str) -> Self {
        let reason = approval.reasons.first().map_or("", String::as_str);
        let choices: Vec<&str> = approval
            .offered
            .iter()
            .map(|decision| decision.as_str())
            .collect();
        let is_patch = approval.binding == "patch";
        let advice = if is_patch {
            "No file has changed. Once the patch is allowed it is applied by itself, once, and this session is notified of the outcome. Do not send it again unless nothing is heard of it: then it is applied once all the same."
        } else {
            "The command has not run. Once it is allowed it runs by itself, and this session is notified of the outcome. Do not send it again unless nothing is heard of it: then it runs once all the same."
        };
        Self::new(
            format!(
                "Approval required: {reason}\n{}\n{advice}",
                how_to_decide(approval)
            ),
            json!({
                "status": "approval-pending",
                "message": advice,
                "approvalId": approval.id,
                "approvalSlug": approval.id.get(..8),
                "shortId": approval.short_id,
                "expiresAtMs": approval.expires_at_ms,
                "allowedDecisions": choices,
                "host": "gateway",
                "command": approval.command.text,
                "cwd": cwd,
                "binding": approval.binding,
                "reason": reason,
                "approve": approve_command(approval),
            }),
            false,
        )
    }

    /// Policy or a person said no.
    pub(super) fn refused(error: &ExecError) -> Self {
        match error {
            ExecError::Supervisor(_) | ExecError::Host(_) => {
                Self::failed(error.code(), &error.to_string(), error.remedy().as_deref())
            }
            _ => {
                let mut result =
                    Self::denied(error.code(), &error.to_string(), error.remedy().as_deref());
                if let Some(denial) = error.denial_text() {
                    result.text = format!("{error}\n{denial}");
                    result.details["denial"] = denial.into();
                }
                if let ExecError::Approval(ApprovalRefusal::Denied { reason, .. }) = error {
                    result.details["reason"] = reason.as_deref().into();
                }
                result
            }
        }
    }

    pub(super) fn denied(code: &str, message: &str, remedy: Option<&str>) -> Self {
        Self::new(
            said(message, remedy),
            json!({
                "status": "denied",
                "code": code,
                "message": message,
                "remedy": remedy,
                "retryWillFail": true,
            }),
            true,
        )
    }

    pub(crate) fn failed(code: &str, message: &str, remedy: Option<&str>) -> Self {
        Self::new(
            said(message, remedy),
            json!({
                "status": "failed",
                "code": code,
                "message": message,
                "remedy": remedy,
            }),
            true,
        )
    }

    pub(super) fn cancelled() -> Self {
        Self::new(
            "Cancelled. The command has not run.".to_owned(),
            json!({ "status": "failed", "code": "CANCELLED", "message": "cancelled" }),
            true,
        )
    }
}

/// Where an approver decides, for a caller that can pass it on.
pub(super) fn how_to_decide(approval: &PendingApproval) -> String {
    format!(
        "Waits for approval {} ({}). A person decides with: {}",
        approval.short_id,
        approval.id,
        approve_command(approval)
    )
}

/// Characters of a command in a notice of progress.
const WAITING_CHARS: usize = 200;

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

/// How a run that goes on reads to a model.
pub(super) fn running_text(
    session: &str,
    pid: Option<i32>,
    location: RunLocation<'_>,
    tail: &str,
) -> ModelText {
    let pid = pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
    let follow =
        format!("Follow it with process: action poll (or log, write, kill), sessionId {session}.");
    ModelText {
        status: format!("still running, session {session}{pid}, {location}"),
        output: (!tail.is_empty()).then(|| tail.to_owned()),
        notes: vec![follow],
    }
}

/// How much of a transcript is shown, in the words of the reference.
pub(super) fn shown_of((shown, total): (u64, u64), session: &str) -> String {
    format!(
        "({shown} of {total} bytes are shown; read the rest with process log, sessionId {session})"
    )
}

pub(super) fn approve_command(approval: &PendingApproval) -> String {
    format!("interlock approvals approve {}", approval.short_id)
}

pub(super) fn join(output: &str, notes: &[String]) -> String {
    match (output.is_empty(), notes.is_empty()) {
        (true, true) => "(no output)".to_owned(),
        (true, false) => notes.join("\n"),
        (false, true) => output.to_owned(),
        (false, false) => format!("{}\n\n{}", output.trim_end_matches('\n'), notes.join("\n")),
    }
}

fn said(message: &str, remedy: Option<&str>) -> String {
    match remedy {
        Some(remedy) => format!("{message}\nhint: {remedy}"),
        None => message.to_owned(),
    }
}

pub(super) fn signal_name(signal: i32) -> String {
    match interlock_host::process::signal_name(signal) {
        Some(name) => format!("SIG{name}"),
        None => signal.to_string(),
    }
}
