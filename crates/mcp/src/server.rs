//! The server for a client: the tools, and the sessions that they left in the background.

use std::sync::Arc;

use interlock_dispatch::tools::{self, Described};
#[expect(
    deprecated,
    reason = "protocol versions that have log messages keep them"
)]
use rmcp::model::SetLevelRequestParams;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelledNotificationParam, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;

use super::connection::McpConnection;
use super::{call, resources};

const INSTRUCTIONS: &str = "Runs commands on this machine under its owner's policy. A command may need a \
    person's approval: then the call waits, or returns `approval-pending`, which says how to decide. Do not \
    send the same command again meanwhile. Plain commands, one for each call, need the fewest approvals. Long \
    commands go on in the background; look at them with `process`.";

#[derive(Debug)]
pub struct McpServer {
    connection: McpConnection,
}

impl McpServer {
    pub fn new(connection: McpConnection) -> Self {
        Self { connection }
    }
}

impl ServerHandler for McpServer {
    #[expect(
        deprecated,
        reason = "protocol versions that have log messages keep them"
    )]
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_logging()
            .build();
        let version = self.connection.mcp.version;
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("interlock", version).with_title("Interlock"))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = self.connection.caller(&context.extensions)?;
        let config = self.connection.mcp.dispatcher.host.config();
        let config = config.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let tools = tools::available(&config, &caller.agent);
        let has_data = !reads_data_only(context.client_info().as_ref());
        let tools = tools.into_iter().map(|described| {
            let offered = tool(described);
            if has_data {
                offered.with_raw_output_schema(schema(&described.output))
            } else {
                offered
            }
        });
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        call::call(&self.connection, request, context).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        resources::list(&self.connection, cursor.as_deref(), &context).await
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
        resources::read(&self.connection, &request.uri, &context).await
    }

    #[expect(
        deprecated,
        reason = "protocol versions that have log messages keep them"
    )]
    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.connection.log.set_level(request.level);
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.connection.tell_events(&context);
    }

    async fn on_roots_list_changed(&self, _context: NotificationContext<RoleServer>) {
        self.connection.roots_changed().await;
    }

    async fn on_cancelled(
        &self,
        notification: CancelledNotificationParam,
        _context: NotificationContext<RoleServer>,
    ) {
        self.connection.cancelled(notification);
    }
}

/// Clients, by a part of the name that they report, that show a model the data of a result *instead
/// of* its text. Only the text contains the output, so these clients get no data; then they show
/// the text.
const DATA_ONLY_CLIENTS: &[(&str, &str)] = &[
    (
        "claude",
        "Claude Code: the model gets `structuredContent` as JSON",
    ),
    ("codex", "Codex: the same, whenever it is there"),
    ("visual studio code", "VS Code: the same"),
    ("vscode", "VS Code: the same"),
];

/// Whether a client would show its model the data of a result instead of the text.
pub(super) fn reads_data_only(client: Option<&Implementation>) -> bool {
    client.is_some_and(|client| {
        let name = client.name.to_lowercase();
        DATA_ONLY_CLIENTS
            .iter()
            .any(|(part, _)| name.contains(part))
    })
}

fn schema(value: &Value) -> Arc<serde_json::Map<String, Value>> {
    Arc::new(value.as_object().cloned().unwrap_or_default())
}

fn tool(described: &Described) -> Tool {
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
    .with_annotations(hints)
}
