//! The connection of one client: its caller, its protocol version, and the cancellation of its
//! calls. A client session has one connection; where the protocol has no sessions, each request has
//! one.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::http::request::Parts;
use interlock_dispatch::events;
use interlock_dispatch::work::blocking;
use interlock_host::CallerContext;
use rmcp::model::{CancelledNotificationParam, Extensions, ProtocolVersion, RequestId};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::Mcp;
use super::caller::McpCaller;
use super::log::ClientLog;
use super::roots::ClientRoots;

/// A client at one of the transports. Every server object for a client owns one.
#[derive(Debug)]
pub struct McpConnection {
    pub(super) mcp: Arc<Mcp>,
    /// The caller, if the whole connection belongs to one client. Otherwise every request names its
    /// caller.
    caller: Option<McpCaller>,
    /// Distinguishes this connection, or session, from others.
    pub(super) id: String,
    /// The calls of a client for which a lost connection cancels nothing. Only a notification of
    /// the client cancels them.
    calls: Mutex<HashMap<RequestId, CancellationToken>>,
    pub log: ClientLog,
    roots: ClientRoots,
    /// The task that sends the session's events.
    event_task: OnceLock<AbortOnDropHandle<()>>,
}

impl McpConnection {
    pub(super) fn new(mcp: &Arc<Mcp>, caller: Option<McpCaller>) -> Self {
        let id = uuid::Uuid::new_v4().simple().to_string();
        Self {
            mcp: Arc::clone(mcp),
            caller,
            id: id[..16].to_owned(),
            calls: Mutex::default(),
            log: ClientLog::default(),
            roots: ClientRoots::default(),
            event_task: OnceLock::new(),
        }
    }

    /// The caller of a request.
    pub(super) fn caller(&self, extensions: &Extensions) -> Result<McpCaller, ErrorData> {
        let of_request = || extensions.get::<Parts>()?.extensions.get::<McpCaller>();
        let caller = self.caller.as_ref().or_else(of_request);
        caller
            .cloned()
            .ok_or_else(|| ErrorData::internal_error("it is not known who calls", None))
    }

    /// The conversation of a call: the one that the client requested, otherwise its own. Over HTTP,
    /// an MCP session is a client; the newest protocol version has no such sessions. A run stays in
    /// its own conversation.
    pub(super) fn session_key(&self, caller: &McpCaller, version: McpVersion) -> String {
        if let Some(own) = &caller.session_key {
            return own.clone();
        }
        let agent = &caller.agent;
        let is_one_client = self.caller.is_some();
        match version {
            McpVersion::Newest if !is_one_client => format!("agent:{agent}:main"),
            McpVersion::Newest | McpVersion::Initialize => {
                format!("agent:{agent}:mcp-{}", &self.id[..12])
            }
        }
    }

    /// The context that the client's program contributes to its calls. A program that the owner
    /// started on this machine determines where it works: by its roots, or else by its working
    /// directory. Any other program may only choose directories beneath the agent's configured
    /// workspace.
    pub(super) async fn context(
        &self,
        caller: &McpCaller,
        context: &RequestContext<RoleServer>,
    ) -> CallerContext {
        let capabilities = context.client_capabilities();
        let has_roots = capabilities.is_some_and(|all| all.roots.is_some());
        let roots = match McpVersion::of(context) {
            McpVersion::Initialize if has_roots => self.roots.get(&context.peer).await,
            _ => Vec::new(),
        };
        let (dispatcher, caller) = (Arc::clone(&self.mcp.dispatcher), caller.clone());
        let found = blocking(move || match caller.program {
            Some(program) => {
                let directories = if roots.is_empty() {
                    caller.cwd.into_iter().collect()
                } else {
                    roots
                };
                let home = dispatcher.host.home().map(Path::new);
                CallerContext::of_program(program.path, &directories, home)
            }
            None if roots.is_empty() => CallerContext::default(),
            None => match dispatcher
                .host
                .scope(&caller.agent)
                .map(|scope| scope.workspace())
            {
                Ok(Ok(workspace)) => CallerContext::within(&workspace, &roots),
                _ => CallerContext::default(),
            },
        });
        found.await.unwrap_or_default()
    }

    /// Handles the client's notification that its roots changed.
    pub(super) async fn roots_changed(&self) {
        self.roots.forget().await;
    }

    /// Seals the state that the client must return with an answer. It is of no use to another
    /// client.
    pub fn seal<T: Serialize>(
        &self,
        state: &T,
        context: &RequestContext<RoleServer>,
    ) -> Option<String> {
        let caller = self.caller(&context.extensions).ok()?;
        self.mcp.states.seal(state, &caller)
    }

    /// Opens the state that the client returned. Fails for a state that was altered, is too old, or
    /// was given to another client. Such a request is itself wrong, and no model can correct it.
    pub fn open<T: DeserializeOwned>(
        &self,
        sealed: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<T, ErrorData> {
        let caller = self.caller(&context.extensions)?;
        let opened = self.mcp.states.open(sealed, &caller);
        opened.ok_or_else(foreign_state)
    }

    /// The cancellation of a call.
    pub fn cancellation(&self, context: &RequestContext<RoleServer>) -> Cancellation<'_> {
        match McpVersion::of(context) {
            // A notification or the end of the connection cancels the call. The client returns with
            // another request id.
            McpVersion::Newest => Cancellation {
                token: context.ct.clone(),
                listed: None,
            },
            McpVersion::Initialize => {
                let token = CancellationToken::new();
                self.calls().insert(context.id.clone(), token.clone());
                Cancellation {
                    token,
                    listed: Some((self, context.id.clone())),
                }
            }
        }
    }

    /// Handles the client's cancellation of a call.
    pub fn cancelled(&self, notification: CancelledNotificationParam) {
        let id = notification.request_id;
        let token = id.and_then(|id| self.calls().remove(&id));
        if let Some(token) = token {
            token.cancel();
        }
    }

    /// Starts to send the session's events to the client as they occur. Each event still
    /// accompanies the next result, because a program that received a message may not have shown it
    /// to the agent.
    pub(super) fn tell_events(&self, context: &NotificationContext<RoleServer>) {
        let Ok(caller) = self.caller(&context.extensions) else {
            return;
        };
        self.event_task.get_or_init(|| {
            let key = self.session_key(&caller, McpVersion::Initialize);
            let mut listener = events::listen(&self.mcp.dispatcher, key);
            let (log, peer) = (self.log.clone(), context.peer.clone());
            AbortOnDropHandle::new(tokio::spawn(async move {
                while let Some(event) = listener.next().await {
                    if log.info(&peer, event).await.is_err() {
                        return;
                    }
                }
            }))
        });
    }

    fn calls(&self) -> std::sync::MutexGuard<'_, HashMap<RequestId, CancellationToken>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn foreign_state() -> ErrorData {
    let message = "the requestState is not one that this client was given, or too old; call without it: what was \
        asked before still waits for an answer";
    let code = json!({ "code": "REQUEST_STATE_INVALID" });
    ErrorData::invalid_params(message, Some(code))
}

/// The kinds of MCP protocol versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum McpVersion {
    /// Versions with `initialize`: it begins a session in which servers may ask, and a lost
    /// connection cancels nothing.
    Initialize,
    /// Since 2026-07-28: every request is independent.
    Newest,
}

impl McpVersion {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        let newest = ProtocolVersion::V_2026_07_28;
        match context.protocol_version() {
            // Versions are dates, which sort as texts.
            Some(version) if version.as_str() >= newest.as_str() => Self::Newest,
            _ => Self::Initialize,
        }
    }
}

/// The cancellation of one call. Dropping it removes the call from the connection's list.
#[derive(Debug)]
pub struct Cancellation<'a> {
    pub token: CancellationToken,
    listed: Option<(&'a McpConnection, RequestId)>,
}

impl Drop for Cancellation<'_> {
    fn drop(&mut self) {
        if let Some((connection, id)) = &self.listed {
            connection.calls().remove(id);
        }
    }
}
