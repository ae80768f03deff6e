//! One message: a request, its response, or an event.
//!
//! The content of a frame stays text until a reader parses it. Therefore a message costs only its
//! own length, an unknown method is refused without reading its parameters, and an event is written
//! once for all the connections that receive it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::error::WireError;
use crate::json::{DUPLICATE_KEY, duplicate_key_message};
use crate::params::{self, Params};
use crate::schema::{COUNT, Field, ObjectSchema, PropertyKind, STRING, TEXT};

mod raw;

use raw::RawFrame;

/// The longest message of a client before it was welcomed.
pub const MAX_HANDSHAKE_BYTES: usize = 64 * 1024;
/// The longest message of a client after it was welcomed.
pub const MAX_FRAME_BYTES: usize = 25 * 1024 * 1024;
/// The id of an answer to a request without an id.
pub const NO_ID: &str = "invalid";

/// Any message.
#[derive(Debug, Clone)]
pub enum Frame {
    Request(Request),
    Response(Response),
    Event(Event),
}

/// A call of a method.
#[derive(Debug, Clone)]
pub struct Request {
    pub id: String,
    pub method: String,
    pub params: Option<Box<RawValue>>,
    /// For tracing. Newer clients send it.
    pub traceparent: Option<String>,
    /// Sent by newer clients.
    pub expected_profile_id: Option<String>,
}

/// The answer to a request. One request may get two: the first says that it was accepted, the
/// second is final.
#[derive(Debug, Clone)]
pub struct Response {
    pub id: String,
    pub ok: bool,
    pub payload: Option<Box<RawValue>>,
    pub error: Option<WireError>,
}

/// An event. A clone shares the payload.
#[derive(Debug, Clone)]
pub struct Event {
    pub event: String,
    pub payload: Option<Arc<RawValue>>,
    /// The number of a broadcast event on one connection. Events for a single receiver have none.
    pub seq: Option<u64>,
    pub state_version: Option<StateVersion>,
}

/// How often presence and health have changed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct StateVersion {
    pub presence: u64,
    pub health: u64,
}

/// Why a text is not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    #[error("message is not JSON")]
    NotJson,
    /// An object of the message contains a key twice. `id` is set if the message can be answered.
    #[error("{}", duplicate_key_message(key))]
    DuplicateKey { id: Option<String>, key: String },
    /// `problems` describes the mistakes. `id` is set if the message can be answered.
    #[error("{what}: {problems}")]
    NotFrame {
        what: &'static str,
        id: Option<String>,
        problems: String,
    },
}

impl BadFrame {
    /// The response to a connected client. A text that is not JSON gets no response.
    pub fn response(&self) -> Option<Response> {
        match self {
            Self::NotJson => None,
            Self::DuplicateKey { id, .. } => {
                let id = id.as_deref().unwrap_or(NO_ID);
                let error = WireError::invalid(self.to_string()).with("code", DUPLICATE_KEY);
                Some(Response::failed(id, error))
            }
            Self::NotFrame { id, .. } => {
                let id = id.as_deref().unwrap_or(NO_ID);
                Some(Response::failed(id, WireError::invalid(self.to_string())))
            }
        }
    }
}

const REQUEST: ObjectSchema = ObjectSchema::closed(&[
    Field::required("type", PropertyKind::Word("req")),
    Field::required("id", TEXT),
    Field::required("method", TEXT),
    Field::optional("params", PropertyKind::Any),
    Field::optional("traceparent", PropertyKind::Text(0, 128)),
    Field::optional("expectedProfileId", STRING),
]);

const RESPONSE: ObjectSchema = ObjectSchema::closed(&[
    Field::required("type", PropertyKind::Word("res")),
    Field::required("id", TEXT),
    Field::required("ok", PropertyKind::Boolean),
    Field::optional("payload", PropertyKind::Any),
    Field::optional("error", PropertyKind::Object(&ERROR)),
]);

const ERROR: ObjectSchema = ObjectSchema::closed(&[
    Field::required("code", TEXT),
    Field::required("message", TEXT),
    Field::optional("details", PropertyKind::Any),
    Field::optional("retryable", PropertyKind::Boolean),
    Field::optional("retryAfterMs", COUNT),
]);

const EVENT: ObjectSchema = ObjectSchema::closed(&[
    Field::required("type", PropertyKind::Word("event")),
    Field::required("event", TEXT),
    Field::optional("payload", PropertyKind::Any),
    Field::optional("seq", COUNT),
    Field::optional("stateVersion", PropertyKind::Object(&STATE_VERSION)),
]);

const STATE_VERSION: ObjectSchema = ObjectSchema::closed(&[
    Field::required("presence", COUNT),
    Field::required("health", COUNT),
]);

impl Frame {
    /// Reads any message by its type, as a client does. A gateway uses [`Request::parse`].
    pub fn parse(text: &str) -> Result<Self, BadFrame> {
        let raw = RawFrame::read(text, "invalid frame")?;
        match raw.kind().as_deref() {
            Some("res") => Response::from_raw(&raw).map(Self::Response),
            Some("event") => Event::from_raw(&raw).map(Self::Event),
            _ => Request::from_raw(&raw).map(Self::Request),
        }
    }

    pub fn to_text(&self) -> String {
        match self {
            Self::Request(request) => request.to_text(),
            Self::Response(response) => response.to_text(),
            Self::Event(event) => event.to_text(),
        }
    }
}

impl Request {
    /// Reads a request. Any text gets a result, in time and space proportional to its length.
    pub fn parse(text: &str) -> Result<Self, BadFrame> {
        Self::from_raw(&RawFrame::read(text, "invalid request frame")?)
    }

    fn from_raw(raw: &RawFrame<'_>) -> Result<Self, BadFrame> {
        let mut fields = raw.checked("invalid request frame", &REQUEST, &[])?;
        Ok(Self {
            id: text(&mut fields, "id").unwrap_or_default(),
            method: text(&mut fields, "method").unwrap_or_default(),
            params: raw.get("params").map(ToOwned::to_owned),
            traceparent: text(&mut fields, "traceparent"),
            expected_profile_id: text(&mut fields, "expectedProfileId"),
        })
    }

    /// A request with typed parameters.
    pub fn new<P: Params>(id: impl Into<String>, params: &P) -> Result<Self, serde_json::Error> {
        Self::call(id, P::METHOD, params)
    }

    /// A request with any parameters.
    pub fn call(
        id: impl Into<String>,
        method: impl Into<String>,
        params: &(impl Serialize + ?Sized),
    ) -> Result<Self, serde_json::Error> {
        Ok(Self {
            id: id.into(),
            method: method.into(),
            params: Some(serde_json::value::to_raw_value(params)?),
            traceparent: None,
            expected_profile_id: None,
        })
    }

    /// The checked and typed parameters. The error is the answer.
    pub fn read<P: Params>(&self) -> Result<P, WireError> {
        params::read(self.params.as_deref())
    }

    pub fn to_text(&self) -> String {
        let mut writer = FrameWriter::new("req", self.params.as_deref());
        writer.text("id", &self.id);
        writer.text("method", &self.method);
        writer.raw("params", self.params.as_deref());
        if let Some(traceparent) = &self.traceparent {
            writer.text("traceparent", traceparent);
        }
        if let Some(profile) = &self.expected_profile_id {
            writer.text("expectedProfileId", profile);
        }
        writer.end()
    }
}

impl Response {
    pub fn parse(text: &str) -> Result<Self, BadFrame> {
        Self::from_raw(&RawFrame::read(text, "invalid response frame")?)
    }

    fn from_raw(raw: &RawFrame<'_>) -> Result<Self, BadFrame> {
        let what = "invalid response frame";
        let mut fields = raw.checked(what, &RESPONSE, &["error"])?;
        let error = fields.remove("error").map(serde_json::from_value);
        Ok(Self {
            id: text(&mut fields, "id").unwrap_or_default(),
            ok: fields.get("ok").and_then(Value::as_bool) == Some(true),
            payload: raw.get("payload").map(ToOwned::to_owned),
            error: error
                .transpose()
                .map_err(|error| raw.bad(what, error.to_string()))?,
        })
    }

    /// A success. If the payload cannot be serialized, the response is a failure. Interlock's own
    /// payloads always serialize.
    pub fn success(id: impl Into<String>, payload: &(impl Serialize + ?Sized)) -> Self {
        match serde_json::value::to_raw_value(payload) {
            Ok(payload) => Self {
                id: id.into(),
                ok: true,
                payload: Some(payload),
                error: None,
            },
            Err(error) => Self::failed(
                id,
                WireError::unavailable(format!("answer could not be written: {error}")),
            ),
        }
    }

    pub fn failed(id: impl Into<String>, error: impl Into<WireError>) -> Self {
        Self {
            id: id.into(),
            ok: false,
            payload: None,
            error: Some(error.into()),
        }
    }

    /// Whether this is the first of two answers, after which the final one follows.
    pub fn is_accepted(&self) -> bool {
        #[derive(Deserialize)]
        struct StatusPayload<'a> {
            #[serde(borrow)]
            status: std::borrow::Cow<'a, str>,
        }
        let payload = self.payload.as_deref().filter(|_| self.ok);
        // Serde would also read a list of one word as the struct.
        let payload = payload.filter(|payload| payload.get().starts_with('{'));
        payload.is_some_and(|payload| {
            serde_json::from_str::<StatusPayload<'_>>(payload.get())
                .is_ok_and(|payload| payload.status == "accepted")
        })
    }

    pub fn to_text(&self) -> String {
        let mut writer = FrameWriter::new("res", self.payload.as_deref());
        writer.text("id", &self.id);
        writer.literal("ok", if self.ok { "true" } else { "false" });
        writer.raw("payload", self.payload.as_deref());
        if let Some(error) = &self.error {
            writer.value("error", error);
        }
        writer.end()
    }
}

impl Event {
    pub fn parse(text: &str) -> Result<Self, BadFrame> {
        Self::from_raw(&RawFrame::read(text, "invalid event frame")?)
    }

    fn from_raw(raw: &RawFrame<'_>) -> Result<Self, BadFrame> {
        let what = "invalid event frame";
        let mut fields = raw.checked(what, &EVENT, &["stateVersion"])?;
        let version = fields.remove("stateVersion").map(serde_json::from_value);
        Ok(Self {
            event: text(&mut fields, "event").unwrap_or_default(),
            payload: raw.get("payload").map(|raw| Arc::from(raw.to_owned())),
            seq: fields.get("seq").and_then(Value::as_u64),
            state_version: version
                .transpose()
                .map_err(|error| raw.bad(what, error.to_string()))?,
        })
    }

    pub fn new(
        event: impl Into<String>,
        payload: &(impl Serialize + ?Sized),
    ) -> Result<Self, serde_json::Error> {
        Ok(Self {
            event: event.into(),
            payload: Some(Arc::from(serde_json::value::to_raw_value(payload)?)),
            seq: None,
            state_version: None,
        })
    }

    /// The same event as the broadcast with this number on one connection.
    #[must_use]
    pub fn numbered(&self, seq: u64) -> Self {
        Self {
            seq: Some(seq),
            ..self.clone()
        }
    }

    #[must_use]
    pub fn with_state_version(mut self, version: StateVersion) -> Self {
        self.state_version = Some(version);
        self
    }

    pub fn to_text(&self) -> String {
        self.text_with(self.seq)
    }

    /// The text of the event with another number, without copying anything else first.
    pub fn text_with(&self, seq: Option<u64>) -> String {
        let mut writer = FrameWriter::new("event", self.payload.as_deref());
        writer.text("event", &self.event);
        writer.raw("payload", self.payload.as_deref());
        if let Some(seq) = seq {
            writer.literal("seq", &seq.to_string());
        }
        if let Some(version) = &self.state_version {
            writer.value("stateVersion", version);
        }
        writer.end()
    }
}

fn text(fields: &mut Map<String, Value>, name: &str) -> Option<String> {
    match fields.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Writes the properties of a frame in order. Values that are already text are copied unchanged.
struct FrameWriter(String);

impl FrameWriter {
    fn new(kind: &str, largest: Option<&RawValue>) -> Self {
        let length = largest.map_or(0, |raw| raw.get().len());
        let mut text = String::with_capacity(length.saturating_add(256));
        text.push_str("{\"type\":\"");
        text.push_str(kind);
        text.push('"');
        Self(text)
    }

    fn literal(&mut self, name: &str, json: &str) {
        self.0.push_str(",\"");
        self.0.push_str(name);
        self.0.push_str("\":");
        self.0.push_str(json);
    }

    fn text(&mut self, name: &str, text: &str) {
        self.literal(name, &Value::from(text).to_string());
    }

    fn raw(&mut self, name: &str, raw: Option<&RawValue>) {
        if let Some(raw) = raw {
            self.literal(name, raw.get());
        }
    }

    /// Writes a value of one of this crate's types, which always serialize.
    fn value(&mut self, name: &str, value: &impl Serialize) {
        if let Ok(json) = serde_json::to_string(value) {
            self.literal(name, &json);
        }
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}
