//! The answer of a tool call for transports that have a status: HTTP, and `tools.invoke` like it.

use axum::http::StatusCode;
use interlock_dispatch::once::{KeyReused, OnceAnswer};
use interlock_dispatch::tools;
use interlock_dispatch::work::CallError;
use serde::Serialize;
use serde_json::json;

/// Returns a status and a body. Other transports derive their answer from them.
pub fn answer(result: Result<tools::ToolResult, CallError>) -> OnceAnswer {
    let refused = |status, kind: &'static str, message: String| {
        let error = InvokeError::new(kind, &message);
        (status, json!({ "ok": false, "error": error }))
    };
    match result {
        Ok(result) => (
            StatusCode::OK,
            json!({ "ok": true, "result": result.to_json() }),
        ),
        Err(CallError::Parameters(error)) => {
            let message = error.to_string();
            let error = InvokeError {
                code: Some(error.code()),
                field: Some(error.field()),
                hint: error.hint(),
                ..InvokeError::new("invalid_request", &message)
            };
            (
                StatusCode::BAD_REQUEST,
                json!({ "ok": false, "error": error }),
            )
        }
        Err(error @ CallError::NotAvailable(_)) => {
            refused(StatusCode::NOT_FOUND, "not_found", error.to_string())
        }
        Err(error @ CallError::Host(_)) => refused(
            StatusCode::INTERNAL_SERVER_ERROR,
            "tool_error",
            error.to_string(),
        ),
        Err(error @ CallError::Stopping) => refused(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            error.to_string(),
        ),
    }
}

/// Returns the [`answer`] for a key that belongs to another call.
pub fn key_reused(reused: &KeyReused) -> OnceAnswer {
    let error = json!({
        "type": "invalid_request",
        "code": KeyReused::CODE,
        "field": "idempotencyKey",
        "message": reused.to_string(),
    });
    (
        StatusCode::BAD_REQUEST,
        json!({ "ok": false, "error": error }),
    )
}

/// Why a tool was not called.
#[derive(Serialize)]
struct InvokeError<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

impl<'a> InvokeError<'a> {
    fn new(kind: &'static str, message: &'a str) -> Self {
        Self {
            kind,
            message,
            code: None,
            field: None,
            hint: None,
        }
    }
}
