//! The parameters of each method: one table per method, which gives both the check and the type.
//!
//! A property that is not in the table is refused, so a client never believes that an unsupported
//! property had an effect. Every table accepts what clients of either generation of the protocol
//! send.

use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::WireError;
use crate::schema::Shape;

/// Makes a type and its shape out of one table. Each row: name in Rust, name on the wire, type, kind.
/// `required` must be there; `optional` may be missing; `patch` may be missing (leave it as it is) or
/// null (take it away).
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
        #[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
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
            pub const SHAPE: $crate::schema::Shape = $crate::schema::Shape::closed(&[
                $($($crate::schema::Field::required($rwire, $rkind),)*)?
                $($($crate::schema::Field::optional($owire, $okind),)*)?
                $($($crate::schema::Field::optional($pwire, $pkind),)*)?
            ]);
        }
    };
}

/// An [`object`] that is the parameters of a method.
macro_rules! params {
    ($(#[$meta:meta])* $name:ident for $method:literal { $($rest:tt)* }) => {
        object! { $(#[$meta])* $name { $($rest)* } }

        impl $crate::params::Params for $name {
            const METHOD: &'static str = $method;
            const SHAPE: $crate::schema::Shape = Self::SHAPE;
        }
    };
}

mod approvals;
mod connect;
mod control;
mod nodes;
mod pairing;

pub use approvals::*;
pub use connect::*;
pub use control::*;
pub use nodes::*;
pub use pairing::*;

/// The parameters of a method.
pub trait Params: Serialize + DeserializeOwned {
    const METHOD: &'static str;
    const SHAPE: Shape;
}

/// Checks and types parameters as they came. None at all, and null, are an empty object.
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

/// A value that is there, be it null.
pub(crate) fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// One method, for who wants to go through all of them.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub method: &'static str,
    pub shape: Shape,
    /// Reads parameters and writes them again.
    pub rewrite: fn(&RawValue) -> Result<Value, WireError>,
}

impl Entry {
    const fn of<P: Params>() -> Self {
        Self {
            method: P::METHOD,
            shape: P::SHAPE,
            rewrite: |raw| {
                let params = read::<P>(Some(raw))?;
                serde_json::to_value(params).map_err(|error| WireError::invalid(error.to_string()))
            },
        }
    }
}

/// Every method whose parameters are known here.
pub const ALL: &[Entry] = &[
    Entry::of::<Connect>(),
    Entry::of::<Health>(),
    Entry::of::<Status>(),
    Entry::of::<NodeList>(),
    Entry::of::<NodeDescribe>(),
    Entry::of::<NodeExplain>(),
    Entry::of::<NodePolicy>(),
    Entry::of::<NodeRename>(),
    Entry::of::<NodeInvoke>(),
    Entry::of::<NodeInvokeResult>(),
    Entry::of::<NodeEvent>(),
    Entry::of::<NodePairRequest>(),
    Entry::of::<NodePairList>(),
    Entry::of::<NodePairApprove>(),
    Entry::of::<NodePairReject>(),
    Entry::of::<NodePairRemove>(),
    Entry::of::<NodePairVerify>(),
    Entry::of::<DevicePairList>(),
    Entry::of::<DevicePairApprove>(),
    Entry::of::<DevicePairReject>(),
    Entry::of::<DevicePairRemove>(),
    Entry::of::<DevicePairRename>(),
    Entry::of::<DeviceTokenRotate>(),
    Entry::of::<DeviceTokenRevoke>(),
    Entry::of::<ExecApprovalRequest>(),
    Entry::of::<ExecApprovalWaitDecision>(),
    Entry::of::<ExecApprovalResolve>(),
    Entry::of::<ExecApprovalList>(),
    Entry::of::<ExecApprovalGet>(),
    Entry::of::<ExecApprovalsGet>(),
    Entry::of::<ExecApprovalsSet>(),
    Entry::of::<ExecApprovalsNodeGet>(),
    Entry::of::<ExecApprovalsNodeSet>(),
    Entry::of::<ToolsCatalog>(),
    Entry::of::<ToolsEffective>(),
    Entry::of::<ToolsInvoke>(),
    Entry::of::<ConfigGet>(),
    Entry::of::<ConfigSet>(),
    Entry::of::<ConfigPatch>(),
    Entry::of::<ConfigSchema>(),
    Entry::of::<SystemEvent>(),
    Entry::of::<SystemPresence>(),
    Entry::of::<SkillsBins>(),
    Entry::of::<AgentsList>(),
    Entry::of::<SessionsList>(),
    Entry::of::<SessionsPatch>(),
    Entry::of::<TasksList>(),
    Entry::of::<TasksGet>(),
    Entry::of::<TasksCancel>(),
    Entry::of::<LogsTail>(),
    Entry::of::<AuditList>(),
    Entry::of::<AuditVerify>(),
    Entry::of::<AuditHead>(),
    Entry::of::<SessionsDirective>(),
    Entry::of::<ProcessList>(),
    Entry::of::<ProcessPoll>(),
    Entry::of::<ProcessLog>(),
    Entry::of::<ProcessWrite>(),
    Entry::of::<ProcessKill>(),
    Entry::of::<ProcessPerform>(),
    Entry::of::<ProcessSubscribe>(),
    Entry::of::<ProcessUnsubscribe>(),
];
