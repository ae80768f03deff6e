//! Reads the body of a call: whole, in time, and of limited size. A body with a duplicate JSON key
//! is refused before any handler sees it.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest as _, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::{Json, RequestExt as _};
use interlock_wire::json::{DUPLICATE_KEY, duplicate_key, duplicate_key_message};
use serde_json::json;
use tokio::sync::Semaphore;

use super::refusal;

/// The largest call.
pub(super) const MAX_BODY: usize = 2 * 1024 * 1024;

/// The time from the end of the headers to the end of the body, no matter how slowly it arrives.
const BODY_TIME: Duration = Duration::from_mins(1);

/// A body up to this size is read at once; a larger one, or one of unknown size, takes a place.
const SMALL: usize = 64 * 1024;

/// Places for large bodies, and how long a call waits for one: all callers together hold at most so much
/// in bodies that do not end.
const PLACES: usize = 64;
const PLACE_TIME: Duration = Duration::from_secs(5);

static LARGE: Semaphore = Semaphore::const_new(PLACES);

/// Reads the body, and hands the call on with it.
pub(crate) async fn read(request: Request, next: Next) -> Response {
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > MAX_BODY) {
        return too_large();
    }
    let (parts, body) = request.into_parts();
    let is_large = !body.is_end_stream() && announced.is_none_or(|length| length > SMALL);
    let place = if is_large {
        match tokio::time::timeout(PLACE_TIME, LARGE.acquire()).await {
            Ok(Ok(place)) => Some(place),
            Ok(Err(_)) | Err(_) => return busy(),
        }
    } else {
        None
    };
    let whole = Request::new(body).with_limited_body();
    let bytes = match tokio::time::timeout(BODY_TIME, Bytes::from_request(whole, &())).await {
        Err(_) => return too_slow(),
        Ok(Ok(bytes)) if bytes.len() > MAX_BODY => return too_large(),
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => return too_large(),
        Ok(Err(error)) => return refusal(error.status(), "invalid_request", &error.body_text()),
    };
    drop(place);
    if let Some(key) = duplicate_key(&bytes) {
        return twice(&key);
    }
    next.run(Request::from_parts(parts, Body::from(bytes)))
        .await
}

fn too_large() -> Response {
    refusal(
        StatusCode::PAYLOAD_TOO_LARGE,
        "payload_too_large",
        "the call is larger than 2 MiB",
    )
}

fn busy() -> Response {
    let message = "other callers send as many large bodies as are taken at once; call again";
    let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message);
    let pause = HeaderValue::from_static("5");
    response.headers_mut().insert(header::RETRY_AFTER, pause);
    response
}

fn too_slow() -> Response {
    let message = "the body did not come within 60 seconds";
    let mut response = refusal(StatusCode::REQUEST_TIMEOUT, "request_timeout", message);
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

fn twice(key: &str) -> Response {
    let error = json!({
        "type": "invalid_request",
        "code": DUPLICATE_KEY,
        "field": key,
        "message": duplicate_key_message(key),
    });
    let body = json!({ "ok": false, "error": error });
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}
