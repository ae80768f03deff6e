//! One call of a tool. It reports progress, ends when its client cancels it, and asks an approver
//! at the client if there is one.

use std::sync::Arc;

use interlock_approvals::PendingApproval;
use interlock_command::display::Secrets;
use interlock_dispatch::tools::{self, Asking, Audience, ListedSessions, ToolCall, ToolResult};
use interlock_dispatch::work::{CallError, blocking};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequest,
    InputRequest, InputRequests, InputRequiredResult,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use super::connection::{McpConnection, McpVersion, foreign_state};
use super::elicit::{self, ElicitPerson, Offers};
use super::progress;
use super::server::reads_data_only;
use super::state::ClientQuestion;

/// The name of the only question that a call may have.
const QUESTION: &str = "approval";

pub(super) async fn call(
    connection: &McpConnection,
    request: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let caller = connection.caller(&context.extensions)?;
    let dispatcher = &connection.mcp.dispatcher;
    let version = McpVersion::of(&context);
    let cancellation = connection.cancellation(&context);
    let asks = caller.elicitation && elicit::shows_forms(context.client_capabilities().as_ref());
    let person = ElicitPerson::new(
        dispatcher,
        format!("elicitation:{}", connection.id),
        context.client_info().as_ref(),
        match version {
            McpVersion::Initialize => Offers::Session,
            McpVersion::Newest => Offers::Once,
        },
    );
    let config = dispatcher.host.config();
    let config = config.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let audience = Audience::models(&config, &caller.agent);
    let form = ResultForm {
        audience,
        shows_data: !reads_data_only(context.client_info().as_ref()),
    };
    let mut call = ToolCall {
        session_key: connection.session_key(&caller, version),
        agent: caller.agent.clone(),
        cwd: caller.cwd.clone(),
        context: connection.context(&caller, &context).await,
        listed: ListedSessions::OfConversation,
        requester: format!("mcp:{}", connection.id),
        sender: caller.sender.clone(),
        progress: None,
        asking: match version {
            McpVersion::Initialize if asks => Asking::Here(Arc::new(elicit::ElicitClient {
                person: person.clone(),
                peer: context.peer.clone(),
            })),
            McpVersion::Newest if asks => Asking::Returned(elicit::is_shown_whole),
            _ => Asking::Elsewhere,
        },
        approval: None,
        approval_wait: None,
        audience,
        cancellation: Some(cancellation.token.clone()),
    };
    let mut held = None;
    if let Some(sealed) = &request.request_state {
        let asked: ClientQuestion = connection.open(sealed, &context)?;
        if !asks || request.name != "exec" {
            return Err(foreign_state());
        }
        let person = ElicitPerson {
            surface: asked.surface,
            ..person.clone()
        };
        // Held before the decision, so that the allowed run is carried out for this caller.
        held = Some(dispatcher.approvals.hold(&asked.approval));
        let answer = request.input_responses.as_ref();
        let answer = answer.and_then(|all| all.get(QUESTION)).cloned();
        // A malformed answer leaves the decision to other surfaces.
        if let Some(answer) = answer.and_then(|answer| serde_json::from_value(answer).ok()) {
            let recorded = person.answered(&asked.approval, &asked.plan_digest, &answer);
            if let Err(error) = recorded.await {
                return finished(Err(error)).map(|result| complete(&result, form));
            }
        }
        call.asking = Asking::Elsewhere;
        call.approval = Some(asked.approval);
    }
    let arguments = request.arguments.map_or_else(|| json!({}), Value::Object);
    let returns = matches!(call.asking, Asking::Returned(_));
    let work = async |progress| {
        let call = ToolCall { progress, ..call };
        tools::call(dispatcher, &config, &request.name, &call, &arguments).await
    };
    let result = finished(progress::report_progress(&context, work).await)?;
    drop(held);
    if returns && let Some(id) = result.approval.clone() {
        let reader = Arc::clone(dispatcher);
        let approval =
            blocking(move || reader.host.approvals().approval(&id, Secrets::Masked)).await;
        if let Ok(Ok(approval)) = approval
            && let Some(asked) = question(connection, &context, &person, &approval).await
        {
            return Ok(asked.into());
        }
    }
    Ok(complete(&result, form))
}

/// The question for a client that will come back with the answer. Without a question, the call has
/// the same result as for any other client.
async fn question(
    connection: &McpConnection,
    context: &RequestContext<RoleServer>,
    person: &ElicitPerson,
    approval: &PendingApproval,
) -> Option<InputRequiredResult> {
    let asked = ClientQuestion {
        approval: approval.id.clone(),
        plan_digest: approval.plan_digest.clone(),
        surface: person.surface.clone(),
    };
    let form = elicit::form(approval, person.offers)?;
    let sealed = connection.seal(&asked, context)?;
    person.shown(approval).await.ok()?;
    let form = InputRequest::Elicitation(ElicitRequest::new(form));
    let questions = InputRequests::from([(QUESTION.to_owned(), form)]);
    Some(InputRequiredResult::new(Some(questions), Some(sealed)))
}

/// Turns failures into results, so that a model can correct them or a person can read them. Only a
/// malformed request is an error.
fn finished(result: Result<ToolResult, CallError>) -> Result<ToolResult, ErrorData> {
    match result {
        Ok(result) => Ok(result),
        Err(CallError::Parameters(error)) => Ok(ToolResult::wrong_parameters(&error)),
        Err(error @ CallError::NotAvailable(_)) => {
            Err(ErrorData::invalid_params(error.to_string(), None))
        }
        Err(CallError::Host(error)) => Ok(ToolResult::failed(
            error.code(),
            &error.to_string(),
            error.remedy().as_deref(),
        )),
        Err(error @ CallError::Stopping) => Ok(ToolResult::failed(
            "STOPPING",
            &error.to_string(),
            Some("call again when it is back"),
        )),
    }
}

/// How results are sent to a client.
#[derive(Debug, Clone, Copy)]
struct ResultForm {
    audience: Audience,
    /// Whether the client gets the data of a result besides its text.
    shows_data: bool,
}

fn complete(result: &ToolResult, form: ResultForm) -> CallToolResponse {
    let text = match form.audience {
        Audience::Models { result_chars } => result.for_model(result_chars),
        Audience::Programs => result.text.clone(),
    };
    let mut complete = CallToolResult::success(vec![ContentBlock::text(text)]);
    complete.structured_content = form.shows_data.then(|| result.without_text());
    complete.is_error = Some(result.is_error);
    complete.into()
}
