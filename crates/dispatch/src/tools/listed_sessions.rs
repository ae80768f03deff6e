//! `process list` for an agent: a page that fits into a few kilobytes, with the total number of
//! sessions and the cursor of the next page.

use std::sync::Arc;

use interlock_sessions::{ProcessAnswer, SessionListRequest, SessionPage, SessionSummary};
use serde_json::json;

use super::process::{details, refused};
use super::result::ToolResult;
use super::{CallError, ListedSessions, ToolCall};
use crate::dispatcher::Dispatcher;
use crate::nodes::sessions::SessionHandler;
use crate::session_pages;

/// The size of a page's rows, as data and as text, if the caller names no limit. The frame around
/// them takes less than the rest of 8 kB.
const PAGE_BYTES: usize = 7_000;

/// The most sessions on such a page.
const PAGE_SESSIONS: usize = 50;

/// The texts of a larger row are shortened to this many characters.
const ROW_BYTES: usize = 2_000;
const SHORT_CHARS: usize = 200;

/// The sessions shown to the caller, and the number of the agent's other sessions.
pub(super) async fn list(
    dispatcher: &Arc<Dispatcher>,
    call: &ToolCall,
    who: &SessionHandler,
    mut request: SessionListRequest,
) -> Result<ToolResult, CallError> {
    if call.listed == ListedSessions::OfConversation {
        request.conversation = Some(call.session_key.clone());
    }
    let is_sized = request.limit.is_none();
    request.limit.get_or_insert(PAGE_SESSIONS);
    let mut page = match session_pages::page(dispatcher, who, request).await? {
        Ok(page) => page,
        Err(error) => return Ok(refused(&error)),
    };
    page.sessions.iter_mut().for_each(shorten);
    if is_sized {
        let fitting = fitting(&page.sessions);
        page.truncate(fitting);
    }
    let text = text(&page);
    let data = details(&ProcessAnswer::List(page));
    Ok(ToolResult::new(text, data, false))
}

/// How many of the first sessions fit into a page. At least one always does.
fn fitting(sessions: &[SessionSummary]) -> usize {
    let mut room = PAGE_BYTES;
    let fits = sessions.iter().take_while(|session| {
        let bytes = row_bytes(session);
        let fits = bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    });
    fits.count().max(1)
}

/// The size of a session in the data, and in the text as JSON writes it.
fn row_bytes(session: &SessionSummary) -> usize {
    json!(session).to_string().len() + json!(row(session)).to_string().len()
}

/// Shortens the texts of a row: a command can be as long as a script, and a list need not repeat
/// it.
fn shorten(session: &mut SessionSummary) {
    if row_bytes(session) <= ROW_BYTES {
        return;
    }
    for text in [&mut session.name, &mut session.command, &mut session.cwd] {
        if let Some((at, _)) = text.char_indices().nth(SHORT_CHARS) {
            text.truncate(at);
            text.push('…');
        }
    }
}

pub(super) fn text(page: &SessionPage) -> String {
    let rows: Vec<String> = page.sessions.iter().map(row).collect();
    let mut text = if rows.is_empty() {
        "No running or recent sessions.".to_owned()
    } else {
        rows.join("\n")
    };
    if let (Some(next), Some(total)) = (&page.next_cursor, page.total) {
        text.push_str(&format!(
            "\n({} of {total} sessions, the newest first; go on with process: action list, cursor {next})",
            page.sessions.len()
        ));
    }
    if let Some(elsewhere) = page.other_conversations {
        text.push_str(&format!(
            "\n({elsewhere} of this agent belong to other conversations; they can be used by their ids)"
        ));
    }
    text
}

fn row(session: &SessionSummary) -> String {
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
