//! `process`: the background sessions of the calling agent.

use std::sync::Arc;

use interlock_sessions::{
    EndedSession, ProcessAnswer, ProcessCaller, ProcessError, ProcessParameters, SessionAction,
    SessionStatus, Stale,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::listed_sessions::{self, list};
use super::model_text::{KeptEnd, ModelText, fitting_lines, output_room, read_rest};
use super::result::ToolResult;
use super::{Audience, CallError, ToolCall};
use crate::dispatcher::Dispatcher;
use crate::nodes::sessions::{self, SessionHandler, SessionWanted};
use crate::work::waiting;

pub(super) async fn process(
    dispatcher: &Arc<Dispatcher>,
    call: &ToolCall,
    arguments: &Value,
) -> Result<ToolResult, CallError> {
    let action = SessionAction::from(ProcessParameters::parse(arguments)?);
    let page = TranscriptPage {
        room: match call.audience {
            Audience::Models { result_chars } => output_room(result_chars),
            Audience::Programs => usize::MAX,
        },
        // Without an offset, the end of the transcript is requested.
        kept: match &action {
            SessionAction::Log { range, .. } if range.offset.is_some() => KeptEnd::First,
            _ => KeptEnd::Last,
        },
    };
    let who = SessionHandler {
        agent: Some(call.agent.clone()),
        session_key: call.session_key.clone(),
    };
    if action.session_id().is_some_and(sessions::is_remote) {
        let wanted = SessionWanted {
            action,
            arguments: arguments.clone(),
            poll_from: None,
        };
        return Ok(match sessions::perform(dispatcher, &who, wanted).await {
            Ok(answer) => answered(answer, page),
            Err(error) => ToolResult::failed(error.code(), &error.to_string(), None),
        });
    }
    if let SessionAction::List(request) = action {
        return list(dispatcher, call, &who, request).await;
    }
    let caller = ProcessCaller::Agent {
        agent: call.agent.clone(),
        session_key: call.session_key.clone(),
    };
    let here = Arc::clone(dispatcher);
    let answer = waiting(dispatcher, move || {
        let process = here.process(caller)?;
        process.perform(action)
    })
    .await?;
    Ok(match answer {
        Ok(answer) => answered(answer, page),
        Err(error) => refused(&error),
    })
}

/// The data of a session's output, as far as it fits.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PageDetails {
    #[serde(flatten)]
    answer: Value,
    /// The number of omitted lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted_lines: Option<u64>,
}

/// How much of a transcript fits into a result, and which end of it is kept.
#[derive(Debug, Clone, Copy)]
struct TranscriptPage {
    room: usize,
    kept: KeptEnd,
}

fn answered(mut answer: ProcessAnswer, page: TranscriptPage) -> ToolResult {
    let text = text(&answer);
    let mut omitted_lines = None;
    let model = model_text(&mut answer, page, &mut omitted_lines);
    let details = PageDetails {
        answer: details(&answer),
        omitted_lines,
    };
    let result = ToolResult::new(text, json!(details), false);
    match model {
        Some(model) => result.with_model(model),
        None => result,
    }
}

/// A transcript as a model reads it: the state of the session, then the lines that fit. Omitted
/// lines are counted, also in the data: the range of a log becomes the shown range.
fn model_text(
    answer: &mut ProcessAnswer,
    page: TranscriptPage,
    omitted_lines: &mut Option<u64>,
) -> Option<ModelText> {
    match answer {
        ProcessAnswer::Poll(polled) => {
            let (id, output) = (&polled.session_id, &polled.output);
            let (text, dropped) = fitting_lines(&output.text, page.room, KeptEnd::Last);
            let mut notes = Vec::new();
            if output.omitted_bytes > 0 {
                let counts = (output.omitted_bytes, output.total_bytes);
                notes.push(read_rest(counts, id, None));
            }
            if dropped > 0 {
                *omitted_lines = Some(dropped);
                notes.push(format!(
                    "({dropped} earlier lines are left out; read them with process: action log, sessionId {id}, offset 0)"
                ));
            }
            let text = if output.text.is_empty() {
                "(no new output)".to_owned()
            } else {
                text
            };
            Some(ModelText {
                status: session_status(id, &polled.ended, polled.stale),
                output: Some(text),
                notes,
            })
        }
        ProcessAnswer::Log(log) => {
            let (text, dropped) = fitting_lines(&log.text, page.room, page.kept);
            let shown = u64::try_from(log.text.lines().count()).unwrap_or(u64::MAX);
            let shown = shown.saturating_sub(dropped);
            let (first, next) = match page.kept {
                KeptEnd::First if dropped > 0 => (log.offset, Some(log.offset + shown)),
                KeptEnd::First => (log.offset, log.next_offset),
                KeptEnd::Last => (log.offset.saturating_add(dropped), log.next_offset),
            };
            (log.offset, log.next_offset) = (first, next);
            let mut status = session_status(&log.session_id, &log.ended, log.stale);
            status.push_str(&format!(" Lines from {first} of {}", log.total_lines));
            if let Some(next) = next {
                status.push_str(&format!("; next offset {next}"));
            }
            let mut notes = Vec::new();
            if log.omitted_bytes > 0 {
                notes.push(format!(
                    "({} bytes of this page were not kept, or belong to lines that are too long)",
                    log.omitted_bytes
                ));
            }
            if first > 0 && page.kept == KeptEnd::Last {
                notes.push("(earlier lines: action log with offset 0)".to_owned());
            }
            Some(ModelText {
                status,
                output: Some(text),
                notes,
            })
        }
        ProcessAnswer::Screen(screen) => Some(ModelText {
            status: session_status(&screen.session_id, &screen.ended, Stale::default()),
            output: Some(screen.picture.rows.join("\n")),
            notes: Vec::new(),
        }),
        _ => None,
    }
}

/// The state of a session for models. Output that no longer counts is marked as stale.
fn session_status(id: &str, ended: &EndedSession, stale: Stale) -> String {
    let note = stale
        .note
        .map_or_else(String::new, |note| format!(" {note}"));
    format!("session {id}: {}{note}", standing(ended))
}

/// The next step in terms of the tools: the caller may have no shell, and its runs cannot use
/// `interlock process`.
fn tool_remedy(error: &ProcessError) -> Option<String> {
    Some(match error {
        ProcessError::NotFound { .. } => "see which there are: process, action list".to_owned(),
        ProcessError::Running { id } => {
            format!("end it and forget it: process, action remove, sessionId {id}")
        }
        ProcessError::Finished { id, .. } | ProcessError::Lost { id } => {
            format!("read what it wrote: process, action log, sessionId {id}")
        }
        ProcessError::NoTerminal { .. } => "start it on a terminal: exec with pty true".to_owned(),
        ProcessError::StdinClosed { .. } => {
            "start it with open input: exec with stdin pipe, or with pty true".to_owned()
        }
        error => return error.remedy(),
    })
}

pub(super) fn refused(error: &ProcessError) -> ToolResult {
    let remedy = tool_remedy(error);
    let message = match error {
        ProcessError::NotFound { id } => format!("No session found for {id}"),
        error => error.to_string(),
    };
    ToolResult::failed(error.code(), &message, remedy.as_deref())
}

pub(super) fn details(answer: &ProcessAnswer) -> Value {
    let mut details = json!(answer);
    if let Value::Object(fields) = &mut details
        && !fields.contains_key("status")
    {
        fields.insert("status".to_owned(), "completed".into());
    }
    details
}

fn text(answer: &ProcessAnswer) -> String {
    match answer {
        ProcessAnswer::List(page) => listed_sessions::text(page),
        ProcessAnswer::Poll(polled) => {
            let output = polled.text();
            let state = standing(&polled.ended);
            if polled.output.text.is_empty() {
                format!("(no new output)\n\n{state}")
            } else {
                format!("{}\n\n{state}", output.trim_end_matches('\n'))
            }
        }
        ProcessAnswer::Log(log) => {
            let mut text = if log.text.is_empty() {
                "(no output recorded)".to_owned()
            } else {
                log.text()
            };
            if log.offset > 0 || log.next_offset.is_some() {
                text.push_str(&format!(
                    "\n\n[lines from {} of {}{}]",
                    log.offset,
                    log.total_lines,
                    log.next_offset
                        .map_or_else(String::new, |next| format!("; next offset {next}"))
                ));
            }
            text
        }
        ProcessAnswer::Written(written) => format!(
            "Wrote {} bytes to session {}{}.",
            written.bytes,
            written.session_id,
            if written.eof {
                " and closed its input"
            } else {
                ""
            }
        ),
        ProcessAnswer::Keys(sent) if sent.warnings.is_empty() => {
            format!("Sent keys to session {}.", sent.session_id)
        }
        ProcessAnswer::Keys(sent) => format!(
            "Sent keys to session {}. Warnings: {}",
            sent.session_id,
            sent.warnings.join("; ")
        ),
        ProcessAnswer::Screen(screen) => screen.picture.rows.join("\n"),
        ProcessAnswer::Killed { session_id, ended } => format!("Session {session_id}: {ended}."),
        ProcessAnswer::Removed(removed) => format!("Removed session {}.", removed.session_id),
    }
}

fn standing(ended: &EndedSession) -> String {
    match (ended.status, ended.exit_code) {
        (SessionStatus::Running, _) => "Process still running.".to_owned(),
        (SessionStatus::Completed, Some(code)) => format!("Process exited with code {code}."),
        _ => format!("Process {ended}."),
    }
}
