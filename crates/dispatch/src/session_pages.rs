//! Pages of sessions, of this machine and of the nodes, as a single list with the newest first.

use std::sync::Arc;

use interlock_sessions::{
    ProcessCaller, ProcessError, SessionListRequest, SessionPage, SessionSummary,
};

use crate::dispatcher::Dispatcher;
use crate::nodes::sessions::{self, SessionHandler};
use crate::work::{CallError, blocking};

/// How many sessions are requested at once if all are needed.
const STRIDE: usize = 500;

/// Indexes all sessions once, so that the first list does not wait for that.
pub async fn prepare(dispatcher: Arc<Dispatcher>) {
    let _ = blocking(move || dispatcher.supervisor.session_index()).await;
}

/// One page for this caller.
pub async fn page(
    dispatcher: &Arc<Dispatcher>,
    who: &SessionHandler,
    request: SessionListRequest,
) -> Result<Result<SessionPage, ProcessError>, CallError> {
    let caller = match &who.agent {
        Some(agent) => ProcessCaller::Agent {
            agent: agent.clone(),
            session_key: who.session_key.clone(),
        },
        None => ProcessCaller::Operator,
    };
    let (here, wanted) = (Arc::clone(dispatcher), request.clone());
    let here = blocking(move || {
        let process = here.process(caller)?;
        process.page(&wanted)
    });
    let here = match here.await? {
        Ok(here) => here,
        Err(error) => return Ok(Err(error)),
    };
    let elsewhere = sessions::page(dispatcher, who, &request).await;
    Ok(Ok(SessionPage::merged([here, elsewhere], request.limit)))
}

/// All sessions that pass the filter, page by page: the first ones after the request's position,
/// and the total number.
pub async fn filtered(
    dispatcher: &Arc<Dispatcher>,
    who: &SessionHandler,
    mut request: SessionListRequest,
    passes: impl Fn(&SessionSummary) -> bool,
) -> Result<Result<SessionPage, ProcessError>, CallError> {
    let begin = request.after.take();
    let limit = request.limit.replace(STRIDE).unwrap_or(usize::MAX);
    let mut found = SessionPage::default();
    let mut total = 0_u64;
    loop {
        let page = match page(dispatcher, who, request.clone()).await? {
            Ok(page) => page,
            Err(error) => return Ok(Err(error)),
        };
        for session in page.sessions.into_iter().filter(&passes) {
            total += 1;
            let is_behind = begin.as_ref().is_none_or(|begin| begin.is_before(&session));
            // One session more than the limit shows that there is a next page.
            if is_behind && found.sessions.len() <= limit {
                found.sessions.push(session);
            }
        }
        request.after = match page.next_cursor.map(|cursor| cursor.parse()) {
            Some(Ok(next)) => Some(next),
            _ => break,
        };
    }
    found.truncate(limit);
    found.total = Some(total);
    Ok(Ok(found))
}
