//! What a client is offered. One server per client session; where the protocol has none, one per
//! request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelledNotificationParam, Extensions,
    Implementation, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    RequestId, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::{Mcp, call, resources};
use crate::tools::{self, Described};

const INSTRUCTIONS: &str = "Runs commands on this machine under its owner's policy. A command may need a \
    person's approval: then the call waits, or returns `approval-pending`, which says how to decide. Do not \
    send the same command again meanwhile. Long commands go on in the background; look at them with `process`.";

#[derive(Debug)]
pub(super) struct Server {
    pub(super) mcp: Arc<Mcp>,
    /// Of a connection that is one client's; otherwise every request says it.
    caller: Option<Caller>,
    /// Tells this client's connection, or session, from others.
    pub(super) connection: String,
    /// Calls of a client whose lost connection ends none of them: only its word does.
    calls: Mutex<HashMap<RequestId, CancellationToken>>,
}

impl Server {
    pub(super) fn new(mcp: &Arc<Mcp>, caller: Option<Caller>) -> Self {
        let id = uuid::Uuid::new_v4().simple().to_string();
        Self {
            mcp: Arc::clone(mcp),
            caller,
            connection: id[..16].to_owned(),
            calls: Mutex::default(),
        }
    }

    /// As whom a request is made.
    pub(super) fn caller(&self, extensions: &Extensions) -> Result<Caller, ErrorData> {
        let of_request = || extensions.get::<Parts>()?.extensions.get::<Caller>();
        let caller = self.caller.as_ref().or_else(of_request);
        caller
            .cloned()
            .ok_or_else(|| ErrorData::internal_error("it is not known who calls", None))
    }

    /// Sessions begin with `initialize`; the newest era has none.
    pub(super) fn session_key(&self, caller: &Caller, era: Era) -> String {
        let agent = &caller.agent;
        match era {
            Era::Newest => format!("agent:{agent}:main"),
            Era::Initialize => format!("agent:{agent}:mcp-{}", &self.connection[..12]),
        }
    }

    /// What ends a call before it has a result.
    pub(super) fn cancellation(
        &self,
        era: Era,
        context: &RequestContext<RoleServer>,
    ) -> Cancellation<'_> {
        match era {
            // By the client's word, or with its connection: it comes again under another id.
            Era::Newest => Cancellation {
                token: context.ct.clone(),
                listed: None,
            },
            Era::Initialize => {
                let token = CancellationToken::new();
                self.calls().insert(context.id.clone(), token.clone());
                Cancellation {
                    token,
                    listed: Some((self, context.id.clone())),
                }
            }
        }
    }

    fn calls(&self) -> std::sync::MutexGuard<'_, HashMap<RequestId, CancellationToken>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ways in which clients speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Era {
    /// `initialize` begins a session in which servers may ask, and a lost connection cancels nothing.
    Initialize,
    /// Since 2026-07-28: every request stands for itself.
    Newest,
}

impl Era {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        let newest = ProtocolVersion::V_2026_07_28;
        match context.protocol_version() {
            // Dates: they sort as texts.
            Some(version) if version.as_str() >= newest.as_str() => Self::Newest,
            _ => Self::Initialize,
        }
    }
}

/// Forgotten with the call.
pub(super) struct Cancellation<'a> {
    pub(super) token: CancellationToken,
    listed: Option<(&'a Server, RequestId)>,
}

impl Drop for Cancellation<'_> {
    fn drop(&mut self) {
        if let Some((server, id)) = &self.listed {
            server.calls().remove(id);
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .build();
        let version = self.mcp.gateway.version;
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("interlock", version).with_title("Interlock"))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = self.caller(&context.extensions)?;
        let config = self.mcp.gateway.host.config();
        let config = config.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let tools = tools::available(&config, &caller.agent);
        Ok(ListToolsResult::with_all_items(
            tools.into_iter().map(tool).collect(),
        ))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        call::call(self, request, context).await
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        resources::list(self, &context).await
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        resources::read(self, &request.uri, &context).await
    }

    async fn on_cancelled(
        &self,
        notification: CancelledNotificationParam,
        _context: NotificationContext<RoleServer>,
    ) {
        let id = notification.request_id;
        let token = id.and_then(|id| self.calls().remove(&id));
        if let Some(token) = token {
            token.cancel();
        }
    }
}

fn tool(described: &Described) -> Tool {
    let schema = |value: &Value| Arc::new(value.as_object().cloned().unwrap_or_default());
    let hints = ToolAnnotations::with_title(described.title)
        .read_only(false)
        .destructive(described.is_destructive)
        .idempotent(false)
        .open_world(described.is_open_world);
    Tool::new(
        described.name,
        described.description,
        schema(&described.input),
    )
    .with_title(described.title)
    .with_raw_output_schema(schema(&described.output))
    .with_annotations(hints)
}
