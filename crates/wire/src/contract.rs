//! The contract of a method: its name, its parameters and its result, with the schemas for the
//! protocol reference.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::WireError;
use crate::params::{self, Params};
use crate::schema::ObjectSchema;

/// The parameters and result of a method. A contract can only be made from a [`Params`] type, so a
/// method without declared parameters and result cannot be listed.
#[derive(Debug, Clone, Copy)]
pub struct MethodContract {
    pub method: &'static str,
    /// The shape that is checked before the parameters are read.
    pub shape: ObjectSchema,
    /// Reads parameters and writes them again.
    pub rewrite: fn(&RawValue) -> Result<Value, WireError>,
    /// The schema of the parameters, with a description of each.
    pub params_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The schema of the result.
    pub result_schema: fn(&mut SchemaGenerator) -> Schema,
    /// Reads a result and writes it again.
    pub rewrite_result: fn(Value) -> Result<Value, serde_json::Error>,
}

impl MethodContract {
    pub(crate) const fn of<P: Params + JsonSchema>() -> Self {
        Self {
            method: P::METHOD,
            shape: P::SHAPE,
            rewrite: |raw| {
                let params = params::read::<P>(Some(raw))?;
                serde_json::to_value(params).map_err(|error| WireError::invalid(error.to_string()))
            },
            params_schema: |generator| generator.subschema_for::<P>(),
            result_schema: |generator| generator.subschema_for::<P::Answer>(),
            rewrite_result: |value| {
                serde_json::to_value(serde_json::from_value::<P::Answer>(value)?)
            },
        }
    }
}
