//! Finds sessions and acts on them: sessions of this machine, sessions on its nodes (through its
//! gateway), or sessions of the remote gateway that `gateway.remote` names.

use std::cell::RefCell;
use std::time::Duration;

use interlock_arguments::{CallerArguments, StateArguments};
use interlock_client::{CallFailure, GatewayClient, RemoteGateway, open};
use interlock_console::Failure;
use interlock_engine::Signal;
use interlock_sessions::{
    EndedSession, KeysInput, KeysSent, LogAnswer, PollAnswer, PollFrom, Process, ProcessAnswer,
    ProcessError, RemovedSession, ScreenAnswer, SessionAction, SessionListRequest, SessionPage,
    SessionSummary, Written, signal_name,
};
use interlock_transcript::LineRange;
use interlock_transcript::keys::Bracketed;
use interlock_wire::params::{self, ProcessPerform};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure;

/// Separates the name of a session from the beginning of the id of its node.
pub(super) const NODE_MARK: char = '@';

/// Where a session is.
pub(super) enum SessionPlace<'a> {
    Here(&'a StateArguments, Process),
    /// On a node or at a remote gateway. Every action goes through the gateway.
    Gateway(RefCell<GatewayClient>),
}

/// A connection to the remote gateway that commands use instead of this machine.
pub(super) struct FollowedGateway(GatewayClient);

impl FollowedGateway {
    /// Returns `None` if commands act on this machine. Only the operator may act on sessions of a
    /// remote gateway: this machine does not know the remote agents and cannot check `--agent`.
    pub(super) fn find(
        state: &StateArguments,
        caller: &CallerArguments,
    ) -> Result<Option<Self>, Failure> {
        let host = open(state)?;
        if RemoteGateway::followed(state, &host)?.is_none() {
            return Ok(None);
        }
        if caller.agent.is_some() {
            let message = "only the operator can handle sessions of a remote gateway";
            return Err(Failure::usage("AGENT_ON_GATEWAY", message)
                .with_hint("leave out --agent, or use --local for the sessions of this machine"));
        }
        let gateway = GatewayClient::connect_running(state, &host)?;
        Ok(Some(Self(gateway)))
    }

    /// A page of all sessions that the gateway knows, including those on its nodes.
    pub(super) fn page(&mut self, asked: &params::ProcessList) -> Result<SessionPage, Failure> {
        read_page(self.0.request_json(asked)?).ok_or_else(|| {
            Failure::refused("GATEWAY_REFUSED", "the list of the gateway cannot be read")
        })
    }

    /// Finds the session whose id is `text` or begins with it.
    pub(super) fn session<'a>(
        mut self,
        state: &'a StateArguments,
        text: &str,
    ) -> Result<(SessionPlace<'a>, String), Failure> {
        let begun = match text {
            "" => Vec::new(),
            _ => self.page(&beginning_with(text))?.sessions,
        };
        let id = match named(state, begun, text)? {
            Some(id) => id,
            // The session is not listed. The gateway answers with the reason.
            None => text.to_owned(),
        };
        Ok((SessionPlace::Gateway(RefCell::new(self.0)), id))
    }
}

/// The id of the only session whose id is `text` or begins with it.
fn named(
    state: &StateArguments,
    sessions: Vec<SessionSummary>,
    text: &str,
) -> Result<Option<String>, Failure> {
    let begins = |id: &String| !text.is_empty() && id.starts_with(text);
    let ids = sessions.into_iter().rev().map(|one| one.session_id);
    let mut found: Vec<String> = ids.filter(begins).collect();
    if let Some(whole) = found.iter().position(|id| id == text) {
        return Ok(Some(found.swap_remove(whole)));
    }
    if found.len() > 1 {
        let ambiguous = ProcessError::Ambiguous {
            text: text.to_owned(),
            candidates: found,
        };
        return Err(failure(state, ambiguous));
    }
    Ok(found.pop())
}

impl<'a> SessionPlace<'a> {
    /// Finds the session whose id is `text` or begins with it. Returns where it is, and its full
    /// id.
    pub(super) fn with(
        state: &'a StateArguments,
        process: Process,
        agent: Option<&str>,
        text: &str,
    ) -> Result<(Self, String), Failure> {
        let not_here = match process.resolve(text) {
            Ok(id) => return Ok((Self::Here(state, process), id)),
            Err(error @ ProcessError::NotFound { .. }) => error,
            Err(error) => return Err(failure(state, error)),
        };
        let id = match named(state, on_nodes(state, agent, text), text)? {
            Some(id) => id,
            // The session is not listed. The gateway answers with the reason.
            None if text.contains(NODE_MARK) => text.to_owned(),
            None => return Err(failure(state, not_here)),
        };
        if agent.is_some() {
            let message = "only the operator can handle sessions on nodes from here";
            return Err(Failure::usage("AGENT_ON_NODE", message).with_hint("leave out --agent"));
        }
        let gateway = GatewayClient::connect_running(state, &open(state)?)?;
        Ok((Self::Gateway(RefCell::new(gateway)), id))
    }

    pub(super) fn poll(
        &self,
        id: &str,
        from: PollFrom,
        timeout: Duration,
    ) -> Result<PollAnswer, Failure> {
        match self {
            Self::Here(state, process) => here(state, process.poll(id, from, timeout)),
            Self::Gateway(gateway) => {
                let offset = match from {
                    PollFrom::LastPoll => 0,
                    PollFrom::Offset(offset) => offset,
                };
                let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                let polled = gateway.borrow_mut().request_json(&params::ProcessPoll {
                    session_id: id.to_owned(),
                    offset: Some(offset),
                    timeout_ms: Some(milliseconds),
                });
                read(polled.map_err(CallFailure::into_reported)?)
            }
        }
    }

    pub(super) fn log(&self, id: &str, range: LineRange) -> Result<LogAnswer, Failure> {
        match self {
            Self::Here(state, process) => here(state, process.log(id, range)),
            Self::Gateway(gateway) => {
                let mut action = ProcessPerform::on_session("log", id);
                if let Some(offset) = range.offset {
                    action = action.with("offset", offset);
                }
                if let Some(limit) = range.limit {
                    action = action.with("limit", limit);
                }
                perform(gateway, &action)
            }
        }
    }

    pub(super) fn write(&self, id: &str, data: Vec<u8>, eof: bool) -> Result<Written, Failure> {
        match self {
            Self::Here(state, process) => here(state, process.write(id, &data, eof)),
            Self::Gateway(gateway) => {
                let data = String::from_utf8(data).map_err(|_| {
                    let message = "only text can be sent through a gateway, and this is not UTF-8";
                    Failure::usage("INPUT_NOT_UTF8", message)
                })?;
                let action = ProcessPerform::on_session("write", id);
                perform(gateway, &action.with("data", data).with("eof", eof))
            }
        }
    }

    pub(super) fn send_keys(&self, id: &str, keys: KeysInput) -> Result<KeysSent, Failure> {
        match self {
            Self::Here(state, process) => here(state, process.send_keys(id, keys)),
            Self::Gateway(gateway) => {
                let mut action = ProcessPerform::on_session("send-keys", id)
                    .with("hex", keys.hex)
                    .with("keys", keys.keys);
                if let Some(literal) = keys.literal {
                    action = action.with("literal", literal);
                }
                perform(gateway, &action)
            }
        }
    }

    pub(super) fn submit(&self, id: &str) -> Result<Written, Failure> {
        match self {
            Self::Here(state, process) => here(state, process.submit(id)),
            Self::Gateway(gateway) => perform(gateway, &ProcessPerform::on_session("submit", id)),
        }
    }

    pub(super) fn paste(
        &self,
        id: &str,
        text: &str,
        bracketed: Bracketed,
    ) -> Result<Written, Failure> {
        match self {
            Self::Here(state, process) => here(state, process.paste(id, text, bracketed)),
            Self::Gateway(gateway) => {
                let bracketed = bracketed == Bracketed::Yes;
                let action = ProcessPerform::on_session("paste", id);
                perform(
                    gateway,
                    &action.with("text", text).with("bracketed", bracketed),
                )
            }
        }
    }

    pub(super) fn screen(&self, id: &str) -> Result<ScreenAnswer, Failure> {
        match self {
            Self::Here(state, process) => here(state, process.screen(id)),
            Self::Gateway(gateway) => perform(gateway, &ProcessPerform::on_session("screen", id)),
        }
    }

    pub(super) fn kill(&self, id: &str, signal: Option<Signal>) -> Result<EndedSession, Failure> {
        match self {
            Self::Here(state, process) => here(state, process.kill(id, signal)),
            Self::Gateway(gateway) => {
                let mut action = ProcessPerform::on_session("kill", id);
                if let Some(signal) = signal {
                    let number = signal.as_raw();
                    let name = signal_name(number);
                    let name = name.map_or_else(|| number.to_string(), str::to_owned);
                    action = action.with("signal", name);
                }
                perform(gateway, &action)
            }
        }
    }

    pub(super) fn clear(&self, id: &str) -> Result<RemovedSession, Failure> {
        match self {
            Self::Here(state, process) => here(state, process.clear(id)),
            Self::Gateway(gateway) => perform(gateway, &ProcessPerform::on_session("clear", id)),
        }
    }

    pub(super) fn remove(&self, id: &str) -> Result<RemovedSession, Failure> {
        match self {
            Self::Here(state, process) => here(state, process.remove(id)),
            Self::Gateway(gateway) => perform(gateway, &ProcessPerform::on_session("remove", id)),
        }
    }
}

/// A page of sessions from the gateway of this machine. Returns `None` if no gateway runs or the
/// gateway does not answer this caller.
pub(super) fn through_gateway(
    state: &StateArguments,
    asked: &params::ProcessList,
) -> Option<SessionPage> {
    let mut gateway = GatewayClient::connect_running(state, &open(state).ok()?).ok()?;
    read_page(gateway.request_json(asked).ok()?)
}

/// The sessions on nodes whose id begins with `text`, of one agent or of all agents, as the gateway
/// of this machine lists them.
fn on_nodes(state: &StateArguments, agent: Option<&str>, text: &str) -> Vec<SessionSummary> {
    if text.is_empty() {
        return Vec::new();
    }
    let asked = params::ProcessList {
        agent_id: agent.map(str::to_owned),
        ..beginning_with(text)
    };
    let page = through_gateway(state, &asked).unwrap_or_default();
    let mut sessions = page.sessions;
    sessions.retain(|one| one.node_id.is_some() && (agent.is_none() || one.background));
    sessions
}

/// The request for sessions whose id begins with `text`. The limit is the largest that one answer
/// may have; a prefix that matches more sessions is ambiguous anyway.
fn beginning_with(text: &str) -> params::ProcessList {
    params::ProcessList {
        prefix: Some(text.to_owned()),
        limit: Some(1_000),
        ..params::ProcessList::default()
    }
}

fn read_page(listed: Value) -> Option<SessionPage> {
    let action = SessionAction::List(SessionListRequest::default());
    match ProcessAnswer::of_json(&action, listed).ok()? {
        ProcessAnswer::List(page) => Some(page),
        _ => None,
    }
}

fn here<T>(state: &StateArguments, done: Result<T, ProcessError>) -> Result<T, Failure> {
    done.map_err(|error| failure(state, error))
}

fn perform<T: DeserializeOwned>(
    gateway: &RefCell<GatewayClient>,
    action: &ProcessPerform,
) -> Result<T, Failure> {
    let done = gateway.borrow_mut().request_json(action);
    read(done.map_err(CallFailure::into_reported)?)
}

fn read<T: DeserializeOwned>(answer: Value) -> Result<T, Failure> {
    serde_json::from_value(answer).map_err(|error| {
        let message = format!("the answer of the gateway cannot be read: {error}");
        Failure::refused("GATEWAY_REFUSED", message)
    })
}
