//! `POST /tools/invoke`: calls one tool and returns one answer.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use interlock_access::ProvenCaller;
use interlock_config::ConfigFile;
use interlock_dispatch::tools::{self, Asking, CallerError, ToolCall};
use interlock_host::CallerContext;
use interlock_methods::tool_answer;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Doors, refusal};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolInvocation {
    #[serde(alias = "name")]
    tool: Option<String>,
    action: Option<String>,
    args: Option<Value>,
    session_key: Option<String>,
    agent_id: Option<String>,
    idempotency_key: Option<String>,
    /// Unknown properties are ignored, unless they are misspellings of the known ones.
    #[serde(flatten)]
    others: serde_json::Map<String, Value>,
}

const NAMES: &[&str] = &[
    "tool",
    "action",
    "args",
    "sessionKey",
    "agentId",
    "idempotencyKey",
];

/// Finds a name that is almost a known property: a caller that wrote `agent_id` meant that agent,
/// not the default one.
fn misspelt(invocation: &ToolInvocation) -> Option<String> {
    let plain = |name: &str| -> String {
        let letters = name.chars().filter(char::is_ascii_alphanumeric);
        letters.map(|letter| letter.to_ascii_lowercase()).collect()
    };
    invocation.others.keys().find_map(|key| {
        let meant = NAMES.iter().find(|name| plain(name) == plain(key))?;
        Some(format!("unknown field `{key}`: did you mean `{meant}`?"))
    })
}

pub(super) async fn not_post() -> Response {
    let mut response = refusal(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "Method Not Allowed",
    );
    let post = axum::http::HeaderValue::from_static("POST");
    response.headers_mut().insert(header::ALLOW, post);
    response
}

pub(super) async fn invoke(
    State(doors): State<Doors>,
    Extension(who): Extension<ProvenCaller>,
    body: Bytes,
) -> Response {
    let invocation: ToolInvocation = match serde_json::from_slice(&body) {
        Ok(invocation) => invocation,
        Err(error) => {
            let body = json!({ "error": {
                "message": format!("invalid JSON body: {error}"),
                "type": "invalid_request_error",
            } });
            return (StatusCode::BAD_REQUEST, Json(body)).into_response();
        }
    };
    if let Some(problem) = misspelt(&invocation) {
        return bad(&problem);
    }
    let Some(name) = invocation.tool.clone().filter(|name| !name.is_empty()) else {
        return bad("tools.invoke requires name");
    };
    let arguments = match arguments(&invocation) {
        Ok(arguments) => arguments,
        Err(response) => return *response,
    };
    let config = match doors.gateway.dispatcher.host.config() {
        Ok(config) => config,
        Err(error) => {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            return refusal(status, error.code(), &error.to_string());
        }
    };
    let call = match call(&config, &who, &invocation) {
        Ok(call) => call,
        Err(response) => return *response,
    };
    let key = invocation
        .idempotency_key
        .map(|key| tools::once_key(&call, &key, &name, &arguments));
    let gateway = Arc::clone(&doors.gateway);
    let work = async move {
        tool_answer::answer(
            tools::call(&gateway.dispatcher, &config, &name, &call, &arguments).await,
        )
    };
    let once = &doors.gateway.dispatcher.once;
    let answer = once.run(key, tools::had_effect, work).await;
    let (status, body) = answer.unwrap_or_else(|reused| tool_answer::key_reused(&reused));
    (status, Json(body)).into_response()
}

/// The arguments. Some callers put the action beside them.
fn arguments(invocation: &ToolInvocation) -> Result<Value, Box<Response>> {
    let mut arguments = invocation.args.clone().unwrap_or_else(|| json!({}));
    let Value::Object(fields) = &mut arguments else {
        return Err(Box::new(bad("args must be an object")));
    };
    if let Some(action) = &invocation.action
        && !fields.contains_key("action")
    {
        fields.insert("action".to_owned(), action.as_str().into());
    }
    Ok(arguments)
}

/// The agent and conversation of the call.
fn call(
    config: &ConfigFile,
    who: &ProvenCaller,
    invocation: &ToolInvocation,
) -> Result<ToolCall, Box<Response>> {
    let named = (
        invocation.agent_id.as_deref(),
        invocation.session_key.as_deref(),
    );
    let (agent, session_key) = tools::caller(config, who, named.0, named.1).map_err(|error| {
        let message = error.to_string();
        Box::new(match error {
            CallerError::OtherAgent(_) | CallerError::OtherSession(_) => {
                refusal(StatusCode::FORBIDDEN, "forbidden", &message)
            }
            _ => bad(&message),
        })
    })?;
    Ok(ToolCall {
        requester: format!("http:{}", uuid::Uuid::new_v4()),
        sender: tools::sender("http", who),
        agent,
        session_key,
        cwd: None,
        context: CallerContext::default(),
        listed: tools::ListedSessions::OfAgent,
        progress: None,
        asking: Asking::Elsewhere,
        approval: None,
        approval_wait: None,
        audience: tools::Audience::Programs,
        cancellation: None,
    })
}

fn bad(message: &str) -> Response {
    refusal(StatusCode::BAD_REQUEST, "invalid_request", message)
}
