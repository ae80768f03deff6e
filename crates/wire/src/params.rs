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
use crate::schema::ObjectSchema;

/// Makes a type and its shape out of one table. Each row: name in Rust, name on the wire, type,
/// kind. `required` must be there; `optional` may be missing; `patch` may be missing (leave it as
/// it is) or null (take it away).
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
            pub const SHAPE: $crate::schema::ObjectSchema = $crate::schema::ObjectSchema::closed(&[
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
            const SHAPE: $crate::schema::ObjectSchema = Self::SHAPE;
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
    const SHAPE: ObjectSchema;
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
pub struct MethodEntry {
    pub method: &'static str,
    pub shape: ObjectSchema,
    /// Reads parameters and writes them again.
    pub rewrite: fn(&RawValue) -> Result<Value, WireError>,
}

impl MethodEntry {
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
pub const ALL: &[MethodEntry] = &[
    MethodEntry::of::<Connect>(),
    MethodEntry::of::<Health>(),
    MethodEntry::of::<Status>(),
    MethodEntry::of::<NodeList>(),
    MethodEntry::of::<NodeDescribe>(),
    MethodEntry::of::<NodeExplain>(),
    MethodEntry::of::<NodePolicy>(),
    MethodEntry::of::<NodeRename>(),
    MethodEntry::of::<NodeInvoke>(),
    MethodEntry::of::<NodeInvokeResult>(),
    MethodEntry::of::<NodeEvent>(),
    MethodEntry::of::<NodePairRequest>(),
    MethodEntry::of::<NodePairList>(),
    MethodEntry::of::<NodePairApprove>(),
    MethodEntry::of::<NodePairReject>(),
    MethodEntry::of::<NodePairRemove>(),
    MethodEntry::of::<NodePairVerify>(),
    MethodEntry::of::<DevicePairList>(),
    MethodEntry::of::<DevicePairApprove>(),
    MethodEntry::of::<DevicePairReject>(),
    MethodEntry::of::<DevicePairRemove>(),
    MethodEntry::of::<DevicePairRename>(),
    MethodEntry::of::<DeviceTokenRotate>(),
    MethodEntry::of::<DeviceTokenRevoke>(),
    MethodEntry::of::<ExecApprovalRequest>(),
    MethodEntry::of::<ExecApprovalWaitDecision>(),
    MethodEntry::of::<ExecApprovalResolve>(),
    MethodEntry::of::<ExecApprovalList>(),
    MethodEntry::of::<ExecApprovalGet>(),
    MethodEntry::of::<ExecApprovalsGet>(),
    MethodEntry::of::<ExecApprovalsSet>(),
    MethodEntry::of::<ExecApprovalsNodeGet>(),
    MethodEntry::of::<ExecApprovalsNodeSet>(),
    MethodEntry::of::<ToolsCatalog>(),
    MethodEntry::of::<ToolsEffective>(),
    MethodEntry::of::<ToolsInvoke>(),
    MethodEntry::of::<ConfigGet>(),
    MethodEntry::of::<ConfigSet>(),
    MethodEntry::of::<ConfigPatch>(),
    MethodEntry::of::<ConfigSchema>(),
    MethodEntry::of::<SystemEvent>(),
    MethodEntry::of::<SystemPresence>(),
    MethodEntry::of::<SkillsBins>(),
    MethodEntry::of::<AgentsList>(),
    MethodEntry::of::<SessionsList>(),
    MethodEntry::of::<SessionsPatch>(),
    MethodEntry::of::<TasksList>(),
    MethodEntry::of::<TasksGet>(),
    MethodEntry::of::<TasksCancel>(),
    MethodEntry::of::<LogsTail>(),
    MethodEntry::of::<AuditList>(),
    MethodEntry::of::<AuditVerify>(),
    MethodEntry::of::<AuditHead>(),
    MethodEntry::of::<SessionsDirective>(),
    MethodEntry::of::<ProcessList>(),
    MethodEntry::of::<ProcessPoll>(),
    MethodEntry::of::<ProcessLog>(),
    MethodEntry::of::<ProcessWrite>(),
    MethodEntry::of::<ProcessKill>(),
    MethodEntry::of::<ProcessPerform>(),
    MethodEntry::of::<ProcessSubscribe>(),
    MethodEntry::of::<ProcessUnsubscribe>(),
];
