//! The gateway with other things behind `/mcp`: what the protocol's conformance suite expects of
//! the server that it tests. Transports, access, sessions, protocol versions, progress, cancelling,
//! prompts to a person and log messages are the gateway's own. `offered.json` has everything that
//! needs no code.
//!
//!     mcp_fixture STATE_DIRECTORY PORT       prints the address of `/mcp` when it can be called

#![forbid(unsafe_code)]
#![allow(
    deprecated,
    reason = "the suite tests what older protocol versions have"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use interlock_gateway::{GatewayOptions, LogLines, serve_offering};
use interlock_host::OpenOptions;
use interlock_mcp::{self as mcp, McpConnection, Progress};
use interlock_supervisor::{SupervisorClient, SupervisorPaths};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelledNotificationParam,
    CompleteRequestParams, CompleteResult, CompletionInfo, ContentBlock,
    CreateMessageRequestParams, ElicitRequestParams, GetPromptRequestParams, GetPromptResponse,
    GetPromptResult, Implementation, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ResultType, ServerCapabilities, ServerConfig,
    SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

mod newest;

const OFFERED: &str = include_str!("offered.json");

/// Between two things that a tool tells.
const PAUSE: Duration = Duration::from_millis(50);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(state), Some(port)) = (arguments.next(), arguments.next()) else {
        return Err("usage: mcp_fixture STATE_DIRECTORY PORT".into());
    };
    let options = GatewayOptions {
        host: OpenOptions {
            state_dir: Some(state.clone().into()),
            home: std::env::var("HOME").ok(),
            path: std::env::var("PATH").ok(),
            ..OpenOptions::default()
        },
        // Nothing that is offered here runs a command.
        supervisor: SupervisorClient::new(
            SupervisorPaths::new(state.as_ref()),
            env!("CARGO_PKG_VERSION"),
        ),
        port: Some(port.parse()?),
        tick_ms: None,
        environment: BTreeMap::new(),
        version: env!("CARGO_PKG_VERSION"),
        logs: LogLines::default(),
    };
    let stop = CancellationToken::new();
    let tell =
        |ready: &interlock_gateway::ReadyGateway| println!("http://{}/mcp", ready.info.address);
    serve_offering(options, stop, tell, Fixture::new).await?;
    Ok(())
}

#[derive(Debug)]
struct Fixture {
    connection: McpConnection,
    offered: Value,
}

impl Fixture {
    fn new(connection: McpConnection) -> Self {
        let offered = serde_json::from_str(OFFERED).unwrap_or_default();
        Self {
            connection,
            offered,
        }
    }

    /// What is written down under these names.
    fn written<T: DeserializeOwned>(&self, kind: &str, name: &str) -> Result<T, ErrorData> {
        read(self.offered[kind][name].clone())
    }

    fn result(&self, name: &str) -> Result<CallToolResult, ErrorData> {
        let mut result: CallToolResult = self.written("results", name)?;
        result.result_type = Some(ResultType::COMPLETE);
        Ok(result)
    }

    fn list<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<T>, ErrorData> {
        read(self.offered[kind].clone())
    }

    async fn perform(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let argument = |name: &str| {
            let value = request.arguments.as_ref().and_then(|all| all.get(name));
            value.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let name = request.name.as_ref();
        match name {
            "test_tool_with_logging" => {
                for step in [
                    "execution started",
                    "processing data",
                    "execution completed",
                ] {
                    let said = json!(format!("Tool {step}"));
                    let told = self.connection.log.info(&context.peer, said).await;
                    told.map_err(|error| wrong(&error))?;
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(text("Logged."))
            }
            "test_tool_with_progress" => {
                mcp::report_progress(context, steps).await;
                Ok(text("Told."))
            }
            "test_sampling" => {
                let message = json!({ "role": "user", "content": { "type": "text", "text": argument("prompt") } });
                let asked: CreateMessageRequestParams =
                    read(json!({ "messages": [message], "maxTokens": 100 }))?;
                let answer = context.peer.create_message(asked).await;
                let answer = answer.map_err(|error| wrong(&error))?;
                Ok(text(&format!("LLM response: {}", json!(answer.message))))
            }
            form if self.offered["forms"].get(form).is_some() => {
                let message = match argument("message") {
                    none if none.is_empty() => "Please fill in the form.".to_owned(),
                    message => message,
                };
                self.ask(form, &message, context).await
            }
            "test_missing_capability" => newest::with_model(context).and(self.result(name)),
            "test_logging_tool" => {
                if context.meta.log_level().is_some() {
                    let told = self
                        .connection
                        .log
                        .info(&context.peer, json!("Called."))
                        .await;
                    told.map_err(|error| wrong(&error))?;
                }
                Ok(text("Called."))
            }
            _ => self.result(name),
        }
    }

    async fn ask(
        &self,
        form: &str,
        message: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        if !mcp::shows_forms(context.client_capabilities().as_ref()) {
            return Ok(failed("The client cannot show forms."));
        }
        let form = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: message.to_owned(),
            requested_schema: self.written("forms", form)?,
        };
        let Some(answer) = mcp::ask(&context.peer, form).await else {
            return Ok(failed("The client has no answer."));
        };
        Ok(text(&format!(
            "Elicitation completed: action={}, content={}",
            json!(answer.action),
            json!(answer.content)
        )))
    }
}

/// Three steps, each on its way before the next one begins.
async fn steps(progress: Option<mpsc::Sender<Progress>>) {
    for step in ["begun", "half done", "done"] {
        let Some(progress) = &progress else {
            return;
        };
        let _ = progress.send(Progress::Output(step.to_owned())).await;
        let _ = progress.reserve().await;
    }
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_prompts()
            .enable_completions()
            .enable_logging()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("interlock-mcp-fixture", "1.0.0"))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.list("tools")?))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let mut tools = self.list::<Tool>("tools").ok()?.into_iter();
        tools.find(|tool| tool.name == name)
    }

    /// A listener gets no event: nothing that is offered changes.
    fn accepted_subscription_filter(
        &self,
        asked: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(asked.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let answers = request.input_responses.as_ref();
        let state = request.request_state.as_deref();
        if let Some(asked) = self.question(&request.name, answers, state, &context)? {
            return Ok(asked.into());
        }
        let cancellation = self.connection.cancellation(&context);
        let result = tokio::select! {
            result = self.perform(&request, &context) => result?,
            () = cancellation.token.cancelled() => failed("Cancelled."),
        };
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(self.list("resources")?))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = self.list("templates")?;
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let id = uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        let contents = match id {
            Some(id) => {
                let data = format!("Data for ID: {id}");
                let text = json!({ "id": id, "templateTest": true, "data": data }).to_string();
                read(json!({ "uri": uri, "mimeType": "application/json", "text": text }))?
            }
            None => self.written("contents", uri)?,
        };
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(self.list("prompts")?))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let answers = request.input_responses.as_ref();
        let state = request.request_state.as_deref();
        if let Some(asked) = self.question(&request.name, answers, state, &context)? {
            return Ok(asked.into());
        }
        let mut messages = self.offered["messages"][&request.name].to_string();
        for (name, value) in request.arguments.unwrap_or_default() {
            // Inside a text of JSON.
            let value = value.as_str().map_or_else(String::new, |text| {
                json!(text).to_string().trim_matches('"').to_owned()
            });
            messages = messages.replace(&format!("{{{name}}}"), &value);
        }
        let messages = serde_json::from_str(&messages).map_err(|error| wrong(&error))?;
        Ok(GetPromptResult::new(messages).into())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let values = CompletionInfo::with_all_values(vec!["test".to_owned()]);
        let values = values.map_err(|error| ErrorData::internal_error(error, None))?;
        Ok(CompleteResult::new(values))
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.connection.log.set_level(request.level);
        Ok(())
    }

    async fn on_cancelled(
        &self,
        notification: CancelledNotificationParam,
        _context: NotificationContext<RoleServer>,
    ) {
        self.connection.cancelled(notification);
    }
}

fn text(said: &str) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(said)])
}

fn failed(said: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(said)])
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| wrong(&error))
}

fn wrong(error: &impl std::fmt::Display) -> ErrorData {
    ErrorData::invalid_params(error.to_string(), None)
}
