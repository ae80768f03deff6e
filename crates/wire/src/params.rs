//! The parameters of each method. One table per method gives both the check and the type, and names
//! the type of the method's result (see [`crate::results`]).
//!
//! A property that is not in the table is refused, so a client never believes that an unsupported
//! property had an effect. Every table accepts what clients of either generation of the protocol
//! send.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::WireError;
use crate::schema::ObjectSchema;

/// Makes a type and its shape from one table. Each row contains the name in Rust, the name on the
/// wire, the type and the kind. `required` properties must be present; `optional` ones may be
/// missing; `patch` ones may be missing (no change) or null (remove).
macro_rules! object {
    (
        $(#[$meta:meta])*
        $name:ident {
            $(required { $($(#[$rdoc:meta])* $rname:ident $rwire:literal: $rtype:ty = $rkind:expr,)* })?
            $(optional { $($(#[$odoc:meta])* $oname:ident $owire:literal: $otype:ty = $okind:expr,)* })?
            $(patch { $($(#[$pdoc:meta])* $pname:ident $pwire:literal: $ptype:ty = $pkind:expr,)* })?
        }
    ) => {
        $(#[$meta])*
        #[derive(
            Debug,
            Clone,
            PartialEq,
            Default,
            serde::Serialize,
            serde::Deserialize,
            schemars::JsonSchema,
        )]
        pub struct $name {
            $($(
                $(#[$rdoc])*
                #[serde(rename = $rwire)]
                pub $rname: $rtype,
            )*)?
            $($(
                $(#[$odoc])*
                #[serde(rename = $owire, default, skip_serializing_if = "Option::is_none")]
                pub $oname: Option<$otype>,
            )*)?
            $($(
                $(#[$pdoc])*
                #[serde(
                    rename = $pwire,
                    default,
                    deserialize_with = "crate::params::given",
                    skip_serializing_if = "Option::is_none"
                )]
                pub $pname: Option<Option<$ptype>>,
            )*)?
        }

        impl $name {
            pub const SHAPE: $crate::schema::ObjectSchema = $crate::schema::ObjectSchema::closed(&[
                $($($crate::schema::Field::required($rwire, $rkind),)*)?
                $($($crate::schema::Field::optional($owire, $okind),)*)?
                $($($crate::schema::Field::optional($pwire, $pkind),)*)?
            ]);
        }
    };
}

/// An [`object`] with the parameters of a method, and the type of the method's result.
macro_rules! params {
    ($(#[$meta:meta])* $name:ident for $method:literal -> $answer:ty { $($rest:tt)* }) => {
        object! { $(#[$meta])* $name { $($rest)* } }

        impl $crate::params::Params for $name {
            type Answer = $answer;
            const METHOD: &'static str = $method;
            const SHAPE: $crate::schema::ObjectSchema = Self::SHAPE;
        }
    };
}

mod approval_records;
mod approvals;
mod channels;
mod connect;
mod control;
mod nodes;
mod pairing;
mod policy;
mod sandbox;
mod ui;

pub use approval_records::*;
pub use approvals::*;
pub use channels::*;
pub use connect::*;
pub use control::*;
pub use nodes::*;
pub use pairing::*;
pub use policy::*;
pub use sandbox::*;
pub use ui::*;

/// The parameters of a method.
pub trait Params: Serialize + DeserializeOwned {
    /// The result of the method. A gateway writes all of it. A client reads the fields that it
    /// knows, because the gateway may be of another version.
    type Answer: Serialize + DeserializeOwned + JsonSchema;

    const METHOD: &'static str;
    const SHAPE: ObjectSchema;
}

/// Checks received parameters and gives them their type. Absent parameters and null count as an
/// empty object.
pub fn read<P: Params>(raw: Option<&RawValue>) -> Result<P, WireError> {
    let problem = |problem: String| WireError::params(P::METHOD, &[problem]);
    let mut value = match raw {
        None => Value::Null,
        Some(raw) => serde_json::from_str(raw.get()).map_err(|error| problem(error.to_string()))?,
    };
    if value.is_null() {
        value = Value::Object(serde_json::Map::new());
    }
    let problems = P::SHAPE.problems(&mut value);
    if !problems.is_empty() {
        return Err(WireError::params(P::METHOD, &problems));
    }
    serde_json::from_value(value).map_err(|error| problem(error.to_string()))
}

/// Reads a value that is present, even if it is null.
pub(crate) fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}
