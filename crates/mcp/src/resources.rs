//! Background sessions as resources: their transcripts, and their screens.

use std::sync::Arc;

use interlock_dispatch::nodes::sessions::{self, SessionHandler, SessionWanted};
use interlock_dispatch::session_pages;
use interlock_dispatch::work::blocking;
use interlock_sessions::{
    Process, ProcessAnswer, ProcessCaller, ProcessError, SessionAction, SessionCursor,
    SessionListRequest, SessionPage,
};
use interlock_transcript::LineRange;
use rmcp::model::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceResponse, ReadResourceResult,
    Resource, ResourceContents, ResourceTemplate,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};

use serde_json::json;

use super::connection::{McpConnection, McpVersion};

const PREFIX: &str = "interlock://sessions/";

/// How many lines of a transcript a resource shows. `process log` reads the rest.
const LOG_LINES: u64 = 2_000;

/// How many sessions a page shows.
const PAGE_SESSIONS: usize = 200;

/// The part of a session that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionView {
    Log,
    Screen,
}

pub(super) fn templates() -> ListResourceTemplatesResult {
    let template = |end: &str, title: &str, description: &str| {
        ResourceTemplate::new(format!("{PREFIX}{{id}}/{end}"), format!("session-{end}"))
            .with_title(title)
            .with_description(description)
            .with_mime_type("text/plain")
    };
    ListResourceTemplatesResult::with_all_items(vec![
        template("log", "Transcript", "The last lines that a session wrote"),
        template(
            "screen",
            "Screen",
            "The terminal of a session as a person would see it",
        ),
    ])
}

/// The sessions of the client's conversation, the newest first, page by page. Sessions of other
/// agents do not exist for the client.
pub(super) async fn list(
    connection: &McpConnection,
    cursor: Option<&str>,
    context: &RequestContext<RoleServer>,
) -> Result<ListResourcesResult, ErrorData> {
    let after = cursor.map(str::parse::<SessionCursor>).transpose();
    let after =
        after.map_err(|error| ErrorData::invalid_params(format!("cursor {error}"), None))?;
    let who = who(connection, context)?;
    let request = SessionListRequest {
        after,
        limit: Some(PAGE_SESSIONS),
        conversation: Some(who.session_key.clone()),
        ..SessionListRequest::default()
    };
    let listed = session_pages::page(&connection.mcp.dispatcher, &who, request).await;
    let listed = listed.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let page = match listed {
        // An agent without the tool has no sessions.
        Err(ProcessError::Tool(_)) => SessionPage::default(),
        listed => listed.map_err(|error| broken(&error))?,
    };
    let mut all = Vec::new();
    for session in page.sessions {
        let id = &session.session_id;
        let status = session.ended.status.as_str();
        let resource = |end: &str| {
            Resource::new(format!("{PREFIX}{id}/{end}"), format!("{id} {end}"))
                .with_title(session.name.clone())
                .with_description(format!("{end} of a session that is {status}"))
                .with_mime_type("text/plain")
        };
        all.push(resource("log"));
        if session.pty {
            all.push(resource("screen"));
        }
    }
    let mut listed = ListResourcesResult::with_all_items(all);
    listed.next_cursor = page.next_cursor;
    Ok(listed)
}

pub(super) async fn read(
    connection: &McpConnection,
    uri: &str,
    context: &RequestContext<RoleServer>,
) -> Result<ReadResourceResponse, ErrorData> {
    let not_found = || {
        let uri = serde_json::json!({ "uri": uri });
        ErrorData::resource_not_found("no such resource", Some(uri))
    };
    let (id, view) = parse(uri).ok_or_else(not_found)?;
    if sessions::is_remote(id) {
        let text = read_elsewhere(connection, context, id, view).await?;
        let contents = vec![ResourceContents::text(text.ok_or_else(not_found)?, uri)];
        return Ok(ReadResourceResult::new(contents).into());
    }
    let id = id.to_owned();
    let text = with_process(connection, context, move |process| match view {
        SessionView::Log => {
            let last = LineRange {
                offset: None,
                limit: Some(LOG_LINES),
            };
            process.log(&id, last).map(|log| log.text)
        }
        SessionView::Screen => process
            .screen(&id)
            .map(|screen| screen.picture.rows.join("\n")),
    })
    .await?;
    let text = match text {
        Ok(text) => text,
        Err(
            ProcessError::NotFound { .. } | ProcessError::NoTerminal { .. } | ProcessError::Tool(_),
        ) => return Err(not_found()),
        Err(error) => return Err(broken(&error)),
    };
    let contents = vec![ResourceContents::text(text, uri)];
    Ok(ReadResourceResult::new(contents).into())
}

fn parse(uri: &str) -> Option<(&str, SessionView)> {
    let (id, end) = uri.strip_prefix(PREFIX)?.split_once('/')?;
    match end {
        "log" => Some((id, SessionView::Log)),
        "screen" => Some((id, SessionView::Screen)),
        _ => None,
    }
}

/// Reads a resource of a session on a node; `None` if that fails.
async fn read_elsewhere(
    connection: &McpConnection,
    context: &RequestContext<RoleServer>,
    id: &str,
    view: SessionView,
) -> Result<Option<String>, ErrorData> {
    let who = who(connection, context)?;
    let dispatcher = &connection.mcp.dispatcher;
    // As for the tool: an agent without it has no sessions.
    if with_process(connection, context, |_| Ok(()))
        .await?
        .is_err()
    {
        return Ok(None);
    }
    let session_id = id.to_owned();
    let (action, arguments) = match view {
        SessionView::Log => {
            let range = LineRange {
                offset: None,
                limit: Some(LOG_LINES),
            };
            let action = SessionAction::Log { session_id, range };
            (action, json!({ "action": "log", "limit": LOG_LINES }))
        }
        SessionView::Screen => (
            SessionAction::Screen { session_id },
            json!({ "action": "screen" }),
        ),
    };
    let wanted = SessionWanted {
        action,
        arguments,
        poll_from: None,
    };
    Ok(match sessions::perform(dispatcher, &who, wanted).await {
        Ok(ProcessAnswer::Log(log)) => Some(log.text),
        Ok(ProcessAnswer::Screen(screen)) => Some(screen.picture.rows.join("\n")),
        _ => None,
    })
}

fn who(
    connection: &McpConnection,
    context: &RequestContext<RoleServer>,
) -> Result<SessionHandler, ErrorData> {
    let caller = connection.caller(&context.extensions)?;
    let session_key = connection.session_key(&caller, McpVersion::of(context));
    Ok(SessionHandler {
        agent: Some(caller.agent),
        session_key,
    })
}

async fn with_process<T: Send + 'static>(
    connection: &McpConnection,
    context: &RequestContext<RoleServer>,
    work: impl FnOnce(&Process) -> Result<T, ProcessError> + Send + 'static,
) -> Result<Result<T, ProcessError>, ErrorData> {
    let caller = connection.caller(&context.extensions)?;
    let session_key = connection.session_key(&caller, McpVersion::of(context));
    let dispatcher = Arc::clone(&connection.mcp.dispatcher);
    let done = blocking(move || {
        let agent = caller.agent;
        let caller = ProcessCaller::Agent { agent, session_key };
        work(&dispatcher.process(caller)?)
    });
    done.await
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn broken(error: &ProcessError) -> ErrorData {
    let code = serde_json::json!({ "code": error.code() });
    ErrorData::internal_error(error.to_string(), Some(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_views_of_a_session_are_resources() {
        assert_eq!(
            parse("interlock://sessions/calm-otter/log"),
            Some(("calm-otter", SessionView::Log))
        );
        assert_eq!(
            parse("interlock://sessions/calm-otter/screen"),
            Some(("calm-otter", SessionView::Screen))
        );
        for uri in [
            "",
            "interlock://sessions/",
            "interlock://sessions/calm-otter",
            "interlock://sessions/calm-otter/",
            "interlock://sessions/calm-otter/log/",
            "interlock://sessions/a/../b/log",
            "INTERLOCK://sessions/a/log",
            "file:///etc/passwd",
        ] {
            assert_eq!(parse(uri), None, "{uri}");
        }
    }
}
