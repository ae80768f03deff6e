//! `process`: the background sessions of the calling agent.

use std::sync::Arc;

use interlock_host::parameters::ProcessParameters;
use interlock_host::process::{Action, Answer, Caller, Ended, ProcessError, SessionStatus};
use serde_json::{Value, json};

use super::result::ToolResult;
use super::{Call, CallError, waiting};
use crate::gateway::Gateway;
use crate::nodes::sessions::{self, Wanted, Who};

pub(super) async fn process(
    gateway: &Arc<Gateway>,
    call: &Call,
    arguments: &Value,
) -> Result<ToolResult, CallError> {
    let action = Action::from(ProcessParameters::parse(arguments)?);
    let who = Who {
        agent: Some(call.agent.clone()),
        session_key: call.session_key.clone(),
    };
    if action.session_id().is_some_and(sessions::is_remote) {
        let wanted = Wanted {
            action,
            arguments: arguments.clone(),
            poll_from: None,
        };
        return Ok(match sessions::perform(gateway, &who, wanted).await {
            Ok(answer) => answered(&answer),
            Err(error) => ToolResult::failed(error.code(), &error.to_string(), None),
        });
    }
    let is_list = action == Action::List;
    let caller = Caller::Agent {
        agent: call.agent.clone(),
        session_key: call.session_key.clone(),
    };
    let here = Arc::clone(gateway);
    let answer = waiting(gateway, move || {
        let process = here.host.process(caller, here.supervisor.clone())?;
        process.perform(action)
    })
    .await?;
    Ok(match answer {
        Ok(Answer::List { sessions: mut all }) if is_list => {
            all.extend(sessions::all(gateway, &who).await);
            answered(&Answer::List { sessions: all })
        }
        Ok(answer) => answered(&answer),
        Err(error) => refused(&error),
    })
}

fn answered(answer: &Answer) -> ToolResult {
    ToolResult {
        text: text(answer),
        details: details(answer),
        is_error: false,
    }
}

fn refused(error: &ProcessError) -> ToolResult {
    let remedy = error.remedy();
    let message = match error {
        ProcessError::NotFound { id } => format!("No session found for {id}"),
        error => error.to_string(),
    };
    ToolResult::failed(error.code(), &message, remedy.as_deref())
}

fn details(answer: &Answer) -> Value {
    let mut details = json!(answer);
    if let Value::Object(fields) = &mut details
        && !fields.contains_key("status")
    {
        fields.insert("status".to_owned(), "completed".into());
    }
    details
}

fn text(answer: &Answer) -> String {
    match answer {
        Answer::List { sessions } if sessions.is_empty() => {
            "No running or recent sessions.".to_owned()
        }
        Answer::List { sessions } => {
            let rows = sessions.iter().map(|session| {
                let waits = if session.waiting_for_input {
                    " (waits for input)"
                } else {
                    ""
                };
                let place = match &session.node {
                    Some(node) => format!(" [node {node}]"),
                    None => String::new(),
                };
                format!(
                    "{} {:<9} {} :: {}{place}{waits}",
                    session.session_id,
                    session.ended.status.as_str(),
                    duration(session.runtime_ms),
                    session.name
                )
            });
            rows.collect::<Vec<_>>().join("\n")
        }
        Answer::Poll(polled) => {
            let output = polled.text();
            let state = standing(&polled.ended);
            if polled.output.text.is_empty() {
                format!("(no new output)\n\n{state}")
            } else {
                format!("{}\n\n{state}", output.trim_end_matches('\n'))
            }
        }
        Answer::Log(log) => {
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
        Answer::Written(written) => format!(
            "Wrote {} bytes to session {}{}.",
            written.bytes,
            written.session_id,
            if written.eof {
                " and closed its input"
            } else {
                ""
            }
        ),
        Answer::Keys(sent) if sent.warnings.is_empty() => {
            format!("Sent keys to session {}.", sent.session_id)
        }
        Answer::Keys(sent) => format!(
            "Sent keys to session {}. Warnings: {}",
            sent.session_id,
            sent.warnings.join("; ")
        ),
        Answer::Screen(screen) => screen.picture.rows.join("\n"),
        Answer::Killed { session_id, ended } => format!("Session {session_id}: {ended}."),
        Answer::Removed(removed) => format!("Removed session {}.", removed.session_id),
    }
}

fn standing(ended: &Ended) -> String {
    match (ended.status, ended.exit_code) {
        (SessionStatus::Running, _) => "Process still running.".to_owned(),
        (SessionStatus::Completed, Some(code)) => format!("Process exited with code {code}."),
        _ => format!("Process {ended}."),
    }
}

fn duration(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{milliseconds}ms"),
        1_000..60_000 => format!("{}s", milliseconds / 1_000),
        60_000..3_600_000 => format!(
            "{}m{:02}s",
            milliseconds / 60_000,
            milliseconds / 1_000 % 60
        ),
        _ => format!(
            "{}h{:02}m",
            milliseconds / 3_600_000,
            milliseconds / 60_000 % 60
        ),
    }
}
