//! Results that another program wrote.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// A result that another program wrote and that is forwarded unchanged. A foreign or newer node
/// writes more fields than `T` knows, and a typed copy would lose them.
pub struct Relayed<T> {
    json: Value,
    known: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Relayed<T> {
    /// The fields that `T` knows.
    pub fn read(&self) -> Result<T, serde_json::Error> {
        T::deserialize(&self.json)
    }
}

impl<T> Relayed<T> {
    pub fn new(json: Value) -> Self {
        let known = PhantomData;
        Self { json, known }
    }

    /// Adds a field or replaces its value. A result that is not an object stays as it is.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        if let Value::Object(fields) = &mut self.json {
            fields.insert(name.to_owned(), value.into());
        }
        self
    }

    /// Removes a field. The order of the other fields may change.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.json.as_object_mut()?.remove(name)
    }

    /// The text in the field of this name. Other parts may have any shape.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.json.get(name)?.as_str()
    }

    /// The whole result as received, for printing.
    pub fn into_json(self) -> Value {
        self.json
    }
}

impl<T> Clone for Relayed<T> {
    fn clone(&self) -> Self {
        Self::new(self.json.clone())
    }
}

impl<T> Default for Relayed<T> {
    fn default() -> Self {
        Self::new(Value::Null)
    }
}

impl<T> Serialize for Relayed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

impl<'de, T> Deserialize<'de> for Relayed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::new)
    }
}

impl<T: JsonSchema> JsonSchema for Relayed<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl<T> fmt::Debug for Relayed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.json.fmt(f)
    }
}
