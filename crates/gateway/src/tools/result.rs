//! What a tool answers: text for a model, and the same as data for programs.

use interlock_host::{ExecError, PendingApproval};
use interlock_plan::PlanShield;
use interlock_run::Status;
use interlock_run::spool::{LineRange, SpoolReader};
use interlock_run::supervisor::{Ended, Place, Started};
use serde_json::{Value, json};

/// What a result shows of a run that goes on.
const TAIL_LINES: u64 = 20;
const TAIL_BYTES: usize = 4_000;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolResult {
    pub(crate) text: String,
    pub(crate) details: Value,
    /// The tool did not do what was asked.
    pub(crate) is_error: bool,
}

impl ToolResult {
    /// As it goes to callers of HTTP and WebSocket.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "content": [{ "type": "text", "text": self.text }],
            "details": self.details,
        })
    }

    pub(super) fn ended(started: &Started, ended: &Ended, cwd: &str) -> Self {
        let outcome = &ended.outcome;
        let output = &ended.shown;
        let mut notes = Vec::new();
        let mut status = "failed";
        match outcome.status {
            Status::Exited(code) => {
                status = "completed";
                if code != 0 {
                    notes.push(format!("(Command exited with code {code})"));
                }
            }
            Status::Signaled(signal) => {
                notes.push(format!("Command aborted by signal {}", signal_name(signal)));
            }
            Status::TimedOut => notes.push(format!(
                "Command timed out after {} seconds. It was ended with everything that it had started.",
                outcome.duration.as_secs()
            )),
        }
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
            "exitCode": match outcome.status { Status::Exited(code) => Some(code), _ => None },
            "timedOut": outcome.status == Status::TimedOut,
            "durationMs": u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
            "cwd": cwd,
            "host": "gateway",
            "raceFree": started.session.race_free,
            "shield": started.session.shield.map(PlanShield::words),
            "aggregated": output.text,
            "totalBytes": output.total_bytes,
            "shownBytes": output.shown_bytes,
        });
        if let Status::Signaled(signal) = outcome.status {
            details["signal"] = signal_name(signal).into();
        }
        if ended.out_of_memory {
            details["outOfMemory"] = true.into();
        }
        if output.omitted_bytes > 0 {
            let name = &started.session.name;
            details["sessionId"] = name.as_str().into();
            details["omittedBytes"] = output.omitted_bytes.into();
            notes.push(format!(
                "({} of {} bytes are shown; read the rest with process log, sessionId {name})",
                output.shown_bytes, output.total_bytes
            ));
        }
        if let Some(fault) = &ended.fault {
            details["outputFault"] = fault.as_str().into();
            notes.push(format!("(output could not be kept: {fault})"));
        }
        Self {
            text: join(&output.text, &notes),
            details,
            is_error: status == "failed",
        }
    }

    pub(super) fn running(started: &Started, cwd: &str, place: &Place) -> Self {
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
        Self {
            text: if tail.is_empty() {
                said.clone()
            } else {
                format!("{said}\n\n{tail}")
            },
            details: json!({
                "status": "running",
                "message": said,
                "sessionId": session.name,
                "pid": session.pid,
                "startedAt": started.started_ms,
                "cwd": cwd,
                "host": "gateway",
                "tail": tail,
            }),
            is_error: false,
        }
    }

    pub(super) fn pending(approval: &PendingApproval, cwd: &str) -> Self {
        let reason = approval.reasons.first().map_or("", String::as_str);
        let choices: Vec<&str> = approval
            .choices
            .iter()
            .map(|choice| choice.as_str())
            .collect();
        // Codex and Claude Code give their models the structured content instead of the text.
        let is_patch = approval.binding == "patch";
        let advice = if is_patch {
            "No file has changed. Once the patch is allowed it is applied by itself, once, and this session is told how it ended. Do not send it again unless nothing is heard of it: then it is applied once all the same."
        } else {
            "The command has not run. Once it is allowed it runs by itself, and this session is told how it ended. Do not send it again unless nothing is heard of it: then it runs once all the same."
        };
        Self {
            text: format!(
                "Approval required: {reason}\n{}\n{advice}",
                how_to_decide(approval)
            ),
            details: json!({
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
            is_error: false,
        }
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
                result
            }
        }
    }

    pub(super) fn denied(code: &str, message: &str, remedy: Option<&str>) -> Self {
        Self {
            text: said(message, remedy),
            details: json!({
                "status": "denied",
                "code": code,
                "message": message,
                "remedy": remedy,
                "retryWillFail": true,
            }),
            is_error: true,
        }
    }

    pub(crate) fn failed(code: &str, message: &str, remedy: Option<&str>) -> Self {
        Self {
            text: said(message, remedy),
            details: json!({
                "status": "failed",
                "code": code,
                "message": message,
                "remedy": remedy,
            }),
            is_error: true,
        }
    }

    pub(super) fn cancelled() -> Self {
        Self {
            text: "Cancelled. The command has not run.".to_owned(),
            details: json!({ "status": "failed", "code": "CANCELLED", "message": "cancelled" }),
            is_error: true,
        }
    }
}

/// Where a person decides, for whoever can tell one.
pub(super) fn how_to_decide(approval: &PendingApproval) -> String {
    format!(
        "Waits for approval {} ({}). A person decides with: {}",
        approval.short_id,
        approval.id,
        approve_command(approval)
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
