//! The outer object of a frame, whose values are still text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::BadFrame;
use crate::json::duplicate_key;
use crate::schema::ObjectSchema;

/// No frame has nearly as many properties. Further properties are dropped.
const MAX_FIELDS: usize = 24;

/// The properties in their order of arrival. If a name occurs twice, the last value counts.
pub(super) struct RawFrame<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> RawFrame<'a> {
    /// Reads the properties of a JSON object. Other JSON is a bad frame without an id.
    pub(super) fn read(text: &'a str, what: &'static str) -> Result<Self, BadFrame> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let read = deserializer.deserialize_map(RawFrameVisitor);
        match read.and_then(|frame| deserializer.end().map(|()| frame)) {
            Ok(frame) => match duplicate_key(text.as_bytes()) {
                None => Ok(frame),
                Some(key) => Err(BadFrame::DuplicateKey {
                    id: frame.id().filter(|_| key != "id"),
                    key,
                }),
            },
            Err(_) if serde_json::from_str::<IgnoredAny>(text).is_ok() => Err(BadFrame::NotFrame {
                what,
                id: None,
                problems: "must be object".to_owned(),
            }),
            Err(_) => Err(BadFrame::NotJson),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let named = |(key, _): &&(Cow<'_, str>, _)| key == name;
        self.0.iter().find(named).map(|(_, value)| *value)
    }

    /// The frame's `type`.
    pub(super) fn kind(&self) -> Option<String> {
        serde_json::from_str(self.get("type")?.get()).ok()
    }

    /// The small properties as values, if the frame has the right shape. Only objects and lists
    /// named in `deep` are read; the payload never is.
    pub(super) fn checked(
        &self,
        what: &'static str,
        shape: &ObjectSchema,
        deep: &[&str],
    ) -> Result<Map<String, Value>, BadFrame> {
        let mut fields = Map::new();
        for (name, raw) in &self.0 {
            let value = match raw.get().as_bytes().first() {
                _ if matches!(name.as_ref(), "params" | "payload") => Value::Null,
                Some(b'{') if !deep.contains(&name.as_ref()) => Value::Object(Map::new()),
                Some(b'[') if !deep.contains(&name.as_ref()) => Value::Array(Vec::new()),
                _ => {
                    let value = serde_json::from_str(raw.get());
                    value.map_err(|error| self.bad(what, format!("at /{name}: {error}")))?
                }
            };
            fields.insert(name.clone().into_owned(), value);
        }
        let mut value = Value::Object(fields);
        let problems = shape.problems(&mut value);
        match value {
            Value::Object(fields) if problems.is_empty() => Ok(fields),
            _ => Err(self.bad(what, problems.join("; "))),
        }
    }

    /// A refusal, which can be answered if the id is usable.
    pub(super) fn bad(&self, what: &'static str, problems: String) -> BadFrame {
        BadFrame::NotFrame {
            what,
            id: self.id(),
            problems,
        }
    }

    fn id(&self) -> Option<String> {
        let id = serde_json::from_str::<String>(self.get("id")?.get());
        id.ok().filter(|id| !id.is_empty())
    }
}

struct RawFrameVisitor;

impl<'de> Visitor<'de> for RawFrameVisitor {
    type Value = RawFrame<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a frame")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields: Vec<(Cow<'de, str>, &'de RawValue)> = Vec::new();
        while let Some(name) = map.next_key::<BorrowedName<'de>>()? {
            let value = map.next_value::<&'de RawValue>()?;
            if let Some(field) = fields.iter_mut().find(|(known, _)| *known == name.0) {
                field.1 = value;
            } else if fields.len() < MAX_FIELDS {
                fields.push((name.0, value));
            }
        }
        Ok(RawFrame(fields))
    }
}

/// A name that is borrowed if it contains no escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct BorrowedName<'a>(#[serde(borrow)] Cow<'a, str>);
