//! One call of a tool: told of while it lasts, ended when its client says so, asked about where a
//! person is.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use interlock_command::display::Secrets;
use interlock_host::PendingApproval;
use interlock_host::parameters::ParameterError;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequest,
    InputRequest, InputRequests, InputRequiredResult, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, Peer, RoleServer};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::elicit::{self, Offers, Person};
use super::server::{Era, Server};
use super::state::Asked;
use crate::tools::{self, Asking, Call, CallError, Progress, ToolResult, blocking};

/// The name of the one question that a call may have.
const QUESTION: &str = "approval";

/// Notices of progress come no closer than this; what was written meanwhile comes together.
const PAUSE: Duration = Duration::from_millis(200);

/// How long a notice that is on its way may hold back the result.
const LAST_NOTICE: Duration = Duration::from_secs(1);

pub(super) async fn call(
    server: &Server,
    request: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let caller = server.caller(&context.extensions)?;
    let gateway = &server.mcp.gateway;
    let era = Era::of(&context);
    let cancellation = server.cancellation(era, &context);
    let asks = caller.elicitation && elicit::shows_forms(context.client_capabilities().as_ref());
    let person = Person::new(
        gateway,
        format!("elicitation:{}", server.connection),
        context.client_info().as_ref(),
        match era {
            Era::Initialize => Offers::Session,
            Era::Newest => Offers::Once,
        },
    );
    let mut call = Call {
        session_key: server.session_key(&caller, era),
        agent: caller.agent.clone(),
        cwd: caller.cwd.clone(),
        requester: format!("mcp:{}", server.connection),
        progress: None,
        asking: match era {
            Era::Initialize if asks => Asking::Here(Arc::new(elicit::Client {
                person: person.clone(),
                peer: context.peer.clone(),
            })),
            Era::Newest if asks => Asking::Returned(elicit::is_shown_whole),
            _ => Asking::Elsewhere,
        },
        approval: None,
        cancelled: cancellation.token.clone(),
    };
    if let Some(sealed) = &request.request_state {
        let asked = server.mcp.states.open(sealed, &caller);
        let Some(asked) = asked.filter(|_| asks && request.name == "exec") else {
            return Ok(complete(&foreign_state()));
        };
        let person = Person {
            surface: asked.surface,
            ..person.clone()
        };
        let answer = request.input_responses.as_ref();
        let answer = answer.and_then(|all| all.get(QUESTION)).cloned();
        // What is no answer leaves the question to others.
        if let Some(answer) = answer.and_then(|answer| serde_json::from_value(answer).ok()) {
            let told = person.answered(&asked.approval, &asked.plan_digest, &answer);
            if let Err(error) = told.await {
                return finished(Err(error)).map(|result| complete(&result));
            }
        }
        call.asking = Asking::Elsewhere;
        call.approval = Some(asked.approval);
    }
    let arguments = request.arguments.map_or_else(|| json!({}), Value::Object);
    let token = context.meta.get_progress_token();
    let told = token.map(|token| Notices {
        token,
        peer: context.peer.clone(),
        count: 0,
    });
    let returns = matches!(call.asking, Asking::Returned(_));
    let result = finished(run(server, &request.name, call, &arguments, told).await)?;
    if returns && let Some(id) = result.details["approvalId"].as_str() {
        let (reader, id) = (Arc::clone(gateway), id.to_owned());
        let approval = blocking(move || reader.host.desk().approval(&id, Secrets::Masked)).await;
        if let Ok(Ok(approval)) = approval
            && let Some(asked) = question(server, &caller, &person, &approval).await
        {
            return Ok(asked.into());
        }
    }
    Ok(complete(&result))
}

/// The call, with notices of its progress.
async fn run(
    server: &Server,
    name: &str,
    mut call: Call,
    arguments: &Value,
    told: Option<Notices>,
) -> Result<ToolResult, CallError> {
    let Some(mut notices) = told else {
        return tools::call(&server.mcp.gateway, name, &call, arguments).await;
    };
    // Who writes faster than is told waits, and tells what came meanwhile together.
    let (sender, mut receiver) = mpsc::channel(1);
    call.progress = Some(sender);
    let work = tools::call(&server.mcp.gateway, name, &call, arguments);
    tokio::pin!(work);
    let mut notice = None;
    let result = loop {
        tokio::select! {
            biased;
            result = &mut work => break result,
            () = sent(&mut notice), if notice.is_some() => notice = None,
            Some(progress) = receiver.recv(), if notice.is_none() => {
                notice = Some(notices.send(progress).boxed());
            }
        }
    };
    // None may follow the result.
    if let Some(notice) = notice {
        let _ = tokio::time::timeout(LAST_NOTICE, notice).await;
    }
    result
}

async fn sent(notice: &mut Option<BoxFuture<'static, ()>>) {
    if let Some(notice) = notice {
        notice.await;
    }
}

/// Who is told of progress, and how often it has been.
struct Notices {
    token: ProgressToken,
    peer: Peer<RoleServer>,
    count: u32,
}

impl Notices {
    fn send(&mut self, progress: Progress) -> impl Future<Output = ()> + Send + use<> {
        self.count = self.count.saturating_add(1);
        let message = match progress {
            Progress::Output(text) | Progress::Waiting(text) => text,
        };
        let notice = ProgressNotificationParam::new(self.token.clone(), f64::from(self.count));
        let (notice, peer) = (notice.with_message(message), self.peer.clone());
        async move {
            // A client that is gone is told nothing.
            let _ = peer.notify_progress(notice).await;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The question, for a client that comes again with the answer. Without it, the call has the result
/// that it has for everybody else.
async fn question(
    server: &Server,
    caller: &super::caller::Caller,
    person: &Person,
    approval: &PendingApproval,
) -> Option<InputRequiredResult> {
    let asked = Asked {
        approval: approval.id.clone(),
        plan_digest: approval.plan_digest.clone(),
        surface: person.surface.clone(),
    };
    let form = elicit::form(approval, person.offers)?;
    let sealed = server.mcp.states.seal(&asked, caller)?;
    person.shown(approval).await.ok()?;
    let form = InputRequest::Elicitation(ElicitRequest::new(form));
    let questions = InputRequests::from([(QUESTION.to_owned(), form)]);
    Some(InputRequiredResult::new(Some(questions), Some(sealed)))
}

/// Whatever a model can mend, or a person should read, is a result. An error is a request that
/// makes no sense.
fn finished(result: Result<ToolResult, CallError>) -> Result<ToolResult, ErrorData> {
    match result {
        Ok(result) => Ok(result),
        Err(CallError::Parameters(error)) => Ok(wrong_parameters(&error)),
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

fn wrong_parameters(error: &ParameterError) -> ToolResult {
    let hint = error.hint();
    let mut result = ToolResult::failed(error.code(), &error.to_string(), hint);
    result.details["field"] = error.field().into();
    result.details["hint"] = hint.into();
    result
}

fn foreign_state() -> ToolResult {
    ToolResult::failed(
        "REQUEST_STATE_INVALID",
        "the requestState is not one that this client was given, or too old",
        Some("call the tool without it; what was asked before still waits for an answer"),
    )
}

fn complete(result: &ToolResult) -> CallToolResponse {
    let text = ContentBlock::text(result.text.as_str());
    let mut complete = CallToolResult::success(vec![text]);
    complete.structured_content = Some(result.details.clone());
    complete.is_error = Some(result.is_error);
    complete.into()
}
