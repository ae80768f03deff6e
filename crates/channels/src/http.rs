//! Calls services. The address is checked, no redirect is followed, and time and size are limited.
//! Each call has a connection of its own, except calls that wait for events, which reuse theirs.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use futures_util::StreamExt as _;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use interlock_wire::Secret;
use serde_json::Value;

use crate::address::ServiceAddress;
use crate::channel::ChatFailure;
use crate::settings::AccountSetup;

/// The time limit of a call that sets no other.
pub(crate) const USUAL_TIME: Duration = Duration::from_secs(10);

/// The largest answer that is read.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// The longest pause that is kept at the request of a service.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// An account of a service: the service's address, and the token that identifies the account.
#[derive(Debug)]
pub(crate) struct ServiceAccount {
    pub(crate) address: ServiceAddress,
    /// The token is masked in answers, so that a service that repeats it does not bring it into a
    /// log or a receipt.
    pub(crate) token: Secret,
    /// The connection of the last call that waited for events, for the next such call. Without it,
    /// a call every half minute would each time look up the name, read the certificate authorities
    /// and shake hands.
    kept: Mutex<Option<ServiceConnection>>,
}

/// One call.
#[derive(Debug)]
pub(crate) struct ServiceCall {
    method: Method,
    /// The path below the base of the address.
    path: String,
    headers: Vec<(&'static str, String)>,
    /// The JSON text, if any.
    body: Option<String>,
    time: Duration,
    waits: bool,
}

impl ServiceCall {
    /// Makes a call with the default time limit.
    fn new(method: Method, path: impl Into<String>, body: Option<String>) -> Self {
        Self {
            method,
            path: path.into(),
            headers: Vec::new(),
            body,
            time: USUAL_TIME,
            waits: false,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path, None)
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path, None)
    }

    pub(crate) fn post(path: impl Into<String>, body: &Value) -> Self {
        Self::new(Method::POST, path, Some(body.to_string()))
    }

    /// Posts JSON that is already text, so that exactly the signed text is sent.
    pub(crate) fn post_text(path: impl Into<String>, body: String) -> Self {
        Self::new(Method::POST, path, Some(body))
    }

    pub(crate) fn put(path: impl Into<String>, body: &Value) -> Self {
        Self::new(Method::PUT, path, Some(body.to_string()))
    }

    pub(crate) fn patch(path: impl Into<String>, body: &Value) -> Self {
        Self::new(Method::PATCH, path, Some(body.to_string()))
    }

    /// Returns the same call with a prefix on its path.
    pub(crate) fn below(self, front: &str) -> Self {
        let path = format!("{front}{}", self.path);
        Self { path, ..self }
    }

    pub(crate) fn header(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Adds the header by which most services authenticate an account.
    pub(crate) fn bearer(self, token: &Secret) -> Self {
        self.header("authorization", format!("Bearer {}", token.expose()))
    }

    pub(crate) fn within(self, time: Duration) -> Self {
        Self { time, ..self }
    }

    /// Makes a call that the service answers when there are events, or after this time. Such a call
    /// must be safe to repeat.
    pub(crate) fn waiting(self, time: Duration) -> Self {
        Self {
            time: USUAL_TIME + time,
            waits: true,
            ..self
        }
    }
}

/// A connection to a service. Dropping it ends it.
#[derive(Debug)]
struct ServiceConnection {
    sender: SendRequest<Body>,
    _task: AbortOnDrop<hyper::Result<()>>,
}

impl ServiceConnection {
    async fn open(address: &ServiceAddress) -> Result<Self, ChatFailure> {
        let stream = address.connect().await.map_err(ChatFailure::from)?;
        let opened = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(|error| broke_off(&error))?;
        Ok(Self {
            sender,
            _task: AbortOnDrop(tokio::spawn(connection)),
        })
    }

    /// Sends a request and reads the whole answer.
    async fn exchange(&mut self, request: Request<Body>) -> Result<ReadAnswer, ChatFailure> {
        let sent = self.sender.send_request(request).await;
        let reply = sent.map_err(|error| broke_off(&error))?;
        let status = reply.status().as_u16();
        let retry_after = reply
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok())
            .map(|seconds| Duration::from_secs(seconds).min(LONGEST_PAUSE));
        let mut parts = Body::new(reply.into_body()).into_data_stream();
        let mut bytes = Vec::new();
        while let Some(part) = parts.next().await {
            let part = part
                .map_err(|error| ChatFailure::Passing(format!("the answer broke off: {error}")))?;
            if bytes.len() + part.len() > MOST_BYTES {
                return Ok(ReadAnswer {
                    status,
                    retry_after,
                    bytes: None,
                });
            }
            bytes.extend_from_slice(&part);
        }
        Ok(ReadAnswer {
            status,
            retry_after,
            bytes: Some(bytes),
        })
    }
}

/// The status, the requested pause and the body of an answer.
struct ReadAnswer {
    status: u16,
    retry_after: Option<Duration>,
    /// The body, or `None` if it exceeds [`MOST_BYTES`].
    bytes: Option<Vec<u8>>,
}

fn broke_off(error: &hyper::Error) -> ChatFailure {
    ChatFailure::Passing(format!("the call broke off: {error}"))
}

impl ServiceAccount {
    pub(crate) fn new(setup: &AccountSetup) -> Self {
        Self::with_token(setup.address.clone(), setup.token.clone())
    }

    pub(crate) fn with_token(address: ServiceAddress, token: Secret) -> Self {
        Self {
            address,
            token,
            kept: Mutex::default(),
        }
    }

    /// Makes one call.
    pub(crate) async fn call(&self, call: ServiceCall) -> Result<ServiceReply, ChatFailure> {
        match tokio::time::timeout(call.time, self.send(&call)).await {
            Ok(reply) => reply,
            Err(_) => Err(ChatFailure::Passing("no answer in time".to_owned())),
        }
    }

    /// Makes a call to a service that explains in `error` what it did not accept.
    pub(crate) async fn call_plainly(&self, call: ServiceCall) -> Result<Value, ChatFailure> {
        let reply = self.call(call).await?;
        if reply.is_success() {
            return Ok(reply.json);
        }
        let words = reply.json["error"].as_str().unwrap_or_default();
        Err(reply.failure(words))
    }

    async fn send(&self, call: &ServiceCall) -> Result<ServiceReply, ChatFailure> {
        let answer = match self.send_on_kept(call).await? {
            Some(answer) => answer,
            None => {
                let mut connection = ServiceConnection::open(&self.address).await?;
                let answer = connection.exchange(self.request(call)?).await?;
                self.keep(call, connection, &answer);
                answer
            }
        };
        let json = answer.bytes.as_deref().map_or(Value::Null, |bytes| {
            serde_json::from_str(&without(&self.token, bytes)).unwrap_or(Value::Null)
        });
        Ok(ServiceReply {
            status: answer.status,
            retry_after: answer.retry_after,
            is_too_long: answer.bytes.is_none(),
            json,
        })
    }

    /// Sends the call over the connection that was kept. Returns `None` if there is none or the
    /// service has ended it. The call is then made again.
    async fn send_on_kept(&self, call: &ServiceCall) -> Result<Option<ReadAnswer>, ChatFailure> {
        let kept = call.waits.then(|| self.kept().take()).flatten();
        let Some(mut connection) = kept else {
            return Ok(None);
        };
        if connection.sender.ready().await.is_err() {
            return Ok(None);
        }
        let answer = connection.exchange(self.request(call)?).await.ok();
        if let Some(answer) = &answer {
            self.keep(call, connection, answer);
        }
        Ok(answer)
    }

    fn kept(&self) -> MutexGuard<'_, Option<ServiceConnection>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, call: &ServiceCall, connection: ServiceConnection, answer: &ReadAnswer) {
        if call.waits && answer.bytes.is_some() {
            *self.kept() = Some(connection);
        }
    }

    fn request(&self, call: &ServiceCall) -> Result<Request<Body>, ChatFailure> {
        let address = &self.address;
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
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        let body = call.body.clone().map_or_else(Body::empty, Body::from);
        // The path may contain a secret, so no error repeats it.
        request
            .body(body)
            .map_err(|_| ChatFailure::Refused("the call cannot be made".to_owned()))
    }
}

/// The answer of a service.
#[derive(Debug)]
pub(crate) struct ServiceReply {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    /// Whether the body was too long, so that none of it was read.
    pub(crate) is_too_long: bool,
    pub(crate) json: Value,
}

impl ServiceReply {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status) && !self.is_too_long
    }

    /// Returns the failure that an unsuccessful status means. The service's words are shown on one
    /// line.
    pub(crate) fn failure(&self, words: &str) -> ChatFailure {
        let said = short_line(words);
        let why = match said.as_str() {
            "" => format!("answered with status {}", self.status),
            said => format!("answered with status {}: {said}", self.status),
        };
        match (self.status, self.retry_after) {
            _ if self.is_too_long => ChatFailure::Passing("the answer is too long".to_owned()),
            (429, wanted) => ChatFailure::Busy {
                after: wanted.unwrap_or(Duration::from_secs(5)),
            },
            (503, Some(after)) => ChatFailure::Busy { after },
            (408 | 425 | 500..=599, _) => ChatFailure::Passing(why),
            _ => ChatFailure::Refused(why),
        }
    }
}

/// Returns the words of a service for people: on one line of limited length.
pub(crate) fn short_line(words: &str) -> String {
    let shown = interlock_command::display::ShownLine::new(words);
    shown.as_str().chars().take(120).collect()
}

/// Returns the text of an answer with the secret masked.
fn without<'a>(secret: &Secret, bytes: &'a [u8]) -> Cow<'a, str> {
    let text = String::from_utf8_lossy(bytes);
    if secret.is_empty() || !text.contains(secret.expose()) {
        return text;
    }
    text.replace(secret.expose(), "••••").into()
}

/// A task that ends with its owner. A connection thus ends with its call, even if the caller gives
/// up.
#[derive(Debug)]
pub(crate) struct AbortOnDrop<T>(pub(crate) tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Escapes everything in a part of a path except letters, digits, `-`, `_`, `.` and `~`.
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
