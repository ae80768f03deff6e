//! `interlock.process`: the `process` tool for the sessions that the calling gateway ordered here.

use interlock_sessions::{
    PollFrom, Process, ProcessAnswer, ProcessCaller, ProcessError, ProcessParameters,
    SessionAction, SessionListRequest,
};
use interlock_wire::node::NodeInvokeRequest;
use interlock_wire::node::extension::{ProcessCall, ProcessPageAsked};
use interlock_wire::{ErrorCode, WireError};

use super::call;
use super::ordered::owner;
use crate::serve::NodeService;

pub(crate) fn process(
    service: &NodeService,
    request: &NodeInvokeRequest,
) -> Result<ProcessAnswer, WireError> {
    let asked: ProcessCall = request.read()?;
    let caller = ProcessCaller::Gateway {
        owner: owner(&asked.owner)?,
        agent: match &asked.agent_id {
            Some(name) => Some(call::agent(Some(name))?),
            None => None,
        },
        session_key: asked.session_key.unwrap_or_default(),
    };
    let parameters = ProcessParameters::parse(&asked.arguments);
    let parameters =
        parameters.map_err(|error| WireError::invalid(format!("INVALID_REQUEST: {error}")))?;
    let performed = process_of(service, caller).and_then(|process| {
        match (SessionAction::from(parameters), asked.poll_from) {
            (
                SessionAction::Poll {
                    session_id,
                    timeout,
                },
                Some(offset),
            ) => {
                let polled = process.poll(&session_id, PollFrom::Offset(offset), timeout)?;
                Ok(ProcessAnswer::Poll(polled))
            }
            (SessionAction::List(request), _) => {
                let request = match asked.page {
                    Some(page) => wanted_page(page)?,
                    None => request,
                };
                Ok(ProcessAnswer::List(process.page(&request)?))
            }
            (action, _) => process.perform(action),
        }
    });
    performed.map_err(|error| failed(&error))
}

/// The requested page of a list. An unreadable cursor is an error: otherwise the gateway would get
/// the first page again and again.
fn wanted_page(asked: ProcessPageAsked) -> Result<SessionListRequest, ProcessError> {
    let after = asked.cursor.map(|cursor| cursor.parse());
    Ok(SessionListRequest {
        after: after.transpose()?,
        limit: asked.limit,
        conversation: asked.conversation,
        agent_id: asked.agent_id,
        background: asked.background,
        prefix: asked.prefix,
        except: asked.except,
    })
}

pub(super) fn process_of(
    service: &NodeService,
    caller: ProcessCaller,
) -> Result<Process, ProcessError> {
    Process::open(&service.host, caller, service.supervisor.clone())
}

/// An error with the tool's own code.
pub(super) fn failed(error: &ProcessError) -> WireError {
    let message = match error {
        ProcessError::NotFound { id } => format!("No session found for {id}"),
        error => error.to_string(),
    };
    WireError::new(ErrorCode::from(error.code().to_owned()), message)
}
