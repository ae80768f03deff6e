//! One call to a service: the address is checked, no redirect is followed, time and size have an end.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use hyper::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use interlock_wire::Secret;
use serde_json::Value;

use crate::address::ServiceAddress;
use crate::channel::ChatFailure;
use crate::settings::AccountSetup;

/// For one call, unless it says otherwise.
pub(crate) const USUAL_TIME: Duration = Duration::from_secs(10);

/// The largest answer.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// A pause that a service asks for is kept, up to this.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// An account of a service: where the service is, and the token that it knows the account by.
#[derive(Debug, Clone)]
pub(crate) struct ServiceAccount {
    pub(crate) address: ServiceAddress,
    /// A service that repeats it does not bring it into a log or a receipt.
    pub(crate) token: Secret,
}

/// One call.
#[derive(Debug)]
pub(crate) struct ServiceCall<'a> {
    pub(crate) method: Method,
    /// Below the base of the address.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(&'static str, String)],
    /// JSON, or nothing.
    pub(crate) body: Option<String>,
    pub(crate) time: Duration,
}

impl ServiceAccount {
    pub(crate) fn new(setup: &AccountSetup) -> Self {
        Self {
            address: setup.address.clone(),
            token: setup.token.clone(),
        }
    }

    /// The header by which most services know an account.
    pub(crate) fn bearer(&self) -> (&'static str, String) {
        ("authorization", format!("Bearer {}", self.token.expose()))
    }

    /// Makes one call.
    pub(crate) async fn call(&self, call: ServiceCall<'_>) -> Result<ServiceReply, ChatFailure> {
        match tokio::time::timeout(call.time, self.send(&call)).await {
            Ok(reply) => reply,
            Err(_) => Err(ChatFailure::Passing("no answer in time".to_owned())),
        }
    }

    /// Posts JSON.
    pub(crate) async fn post(
        &self,
        path: &str,
        headers: &[(&'static str, String)],
        body: String,
        time: Duration,
    ) -> Result<ServiceReply, ChatFailure> {
        let posted = ServiceCall {
            method: Method::POST,
            path,
            headers,
            body: Some(body),
            time,
        };
        self.call(posted).await
    }

    /// Posts JSON to a service that says in `error` what it did not take.
    pub(crate) async fn post_plainly(
        &self,
        path: &str,
        headers: &[(&'static str, String)],
        body: String,
    ) -> Result<Value, ChatFailure> {
        let reply = self.post(path, headers, body, USUAL_TIME).await?;
        if reply.is_success() {
            return Ok(reply.json);
        }
        let words = reply.json["error"].as_str().unwrap_or_default();
        Err(reply.failure(words))
    }

    async fn send(&self, call: &ServiceCall<'_>) -> Result<ServiceReply, ChatFailure> {
        let address = &self.address;
        let stream = address.connect().await.map_err(ChatFailure::from)?;
        let broke_off =
            |error: hyper::Error| ChatFailure::Passing(format!("the call broke off: {error}"));
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broke_off)?;
        let connection = AbortOnDrop(tokio::spawn(connection));
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}{}", address.base(), call.path))
            .header(HOST, address.authority());
        if !call.headers.iter().any(|(name, _)| *name == "user-agent") {
            request = request.header(USER_AGENT, "interlock");
        }
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        for (name, value) in call.headers {
            request = request.header(*name, value);
        }
        let body = call.body.clone().map_or_else(Body::empty, Body::from);
        // The address may hold a secret: no error repeats it.
        let request = request
            .body(body)
            .map_err(|_| ChatFailure::Refused("the call cannot be made".to_owned()))?;
        let reply = sender.send_request(request).await.map_err(broke_off)?;
        let status = reply.status().as_u16();
        let retry_after = reply
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok())
            .map(|seconds| Duration::from_secs(seconds).min(LONGEST_PAUSE));
        let bytes = to_bytes(Body::new(reply.into_body()), MOST_BYTES)
            .await
            .map_err(|error| ChatFailure::Passing(format!("the answer broke off: {error}")))?;
        drop(connection);
        Ok(ServiceReply {
            status,
            retry_after,
            json: serde_json::from_str(&without(&self.token, &bytes)).unwrap_or(Value::Null),
        })
    }
}

/// What a service answered.
#[derive(Debug)]
pub(crate) struct ServiceReply {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) json: Value,
}

impl ServiceReply {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// What a status that is no success means. The words of the service are shown on one line.
    pub(crate) fn failure(&self, words: &str) -> ChatFailure {
        let said = interlock_command::display::ShownLine::new(words);
        let said: String = said.as_str().chars().take(120).collect();
        let why = match said.as_str() {
            "" => format!("answered with status {}", self.status),
            said => format!("answered with status {}: {said}", self.status),
        };
        match self.status {
            429 => ChatFailure::Busy {
                after: self.retry_after.unwrap_or(Duration::from_secs(5)),
            },
            408 | 425 | 500..=599 => ChatFailure::Passing(why),
            _ => ChatFailure::Refused(why),
        }
    }
}

/// The text of an answer, in which a secret is masked.
fn without<'a>(secret: &Secret, bytes: &'a [u8]) -> Cow<'a, str> {
    let text = String::from_utf8_lossy(bytes);
    if secret.is_empty() || !text.contains(secret.expose()) {
        return text;
    }
    text.replace(secret.expose(), "••••").into()
}

/// A task that ends with its owner: a connection ends with its call, also when the caller gives up.
#[derive(Debug)]
pub(crate) struct AbortOnDrop<T>(pub(crate) tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A part of a path, with everything but letters, digits, `-`, `_`, `.` and `~` escaped.
pub(crate) fn escaped(part: &str) -> String {
    let mut text = String::with_capacity(part.len());
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}
