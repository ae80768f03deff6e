//! The data of tool results, for programs. The order of the fields is their order in the JSON.

use interlock_host::{EffectReport, SandboxDenial};
use interlock_plan::{Elevation, SandboxTree, StartedPrograms};
use interlock_store::NullableField;
use interlock_supervisor::LimitReached;
use serde::Serialize;

use super::run_outcome::{NodeLabel, RefusedParameter, RunLocation};

/// A run that has ended.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndedDetails<'a> {
    pub(super) status: &'static str,
    pub(super) exit_code: Option<i64>,
    pub(super) timed_out: bool,
    pub(super) duration_ms: u64,
    pub(super) cwd: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) race_free: Option<bool>,
    #[serde(skip_serializing_if = "NullableField::is_absent")]
    pub(super) shield: NullableField<&'static str>,
    pub(super) aggregated: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) total_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shown_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) signal: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) out_of_memory: bool,
    #[serde(skip_serializing_if = "Elevation::is_off")]
    pub(super) elevated: Elevation,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sandbox: Option<SandboxDetails<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<LimitReached>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) protected_created: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) omitted_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output_fault: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) dropped_env: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) programs: Option<&'a StartedPrograms>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tree: Option<SandboxTree>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) effect: Option<&'a EffectReport>,
    #[serde(flatten)]
    pub(super) host: HostDetails<'a>,
}

/// What its sandbox denied to a run.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SandboxDetails<'a> {
    /// The value for `retryOf`.
    pub(super) run_id: &'a str,
    pub(super) denials: &'a [SandboxDenial],
}

/// A run that continues in the background.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunningDetails<'a> {
    pub(super) status: &'static str,
    pub(super) message: &'a str,
    pub(super) session_id: &'a str,
    pub(super) pid: Option<i32>,
    pub(super) started_at: Option<u64>,
    pub(super) cwd: Option<&'a str>,
    pub(super) tail: &'a str,
    #[serde(flatten)]
    pub(super) host: HostDetails<'a>,
}

/// A call that waits for an approver.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PendingDetails<'a> {
    pub(super) status: &'static str,
    pub(super) approval_id: &'a str,
    pub(super) approval_slug: Option<&'a str>,
    pub(super) short_id: &'a str,
    pub(super) expires_at_ms: i64,
    pub(super) allowed_decisions: Vec<&'static str>,
    pub(super) command: &'a str,
    pub(super) binding: &'a str,
    pub(super) approve: String,
    pub(super) cwd: Option<&'a str>,
    #[serde(skip_serializing_if = "NullableField::is_absent")]
    pub(super) warning_text: NullableField<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'a str>,
    pub(super) message: &'a str,
    #[serde(flatten)]
    pub(super) host: HostDetails<'a>,
}

/// A call that was not carried out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RefusedDetails<'a> {
    pub(super) status: &'static str,
    pub(super) code: &'a str,
    pub(super) message: &'a str,
    pub(super) remedy: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) retry_will_fail: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) denial: Option<&'static str>,
    #[serde(skip_serializing_if = "NullableField::is_absent")]
    pub(super) reason: NullableField<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approval_id: Option<&'a str>,
    #[serde(flatten)]
    pub(super) host: Option<HostDetails<'a>>,
    #[serde(flatten)]
    pub(super) parameter: Option<&'a RefusedParameter>,
}

/// The host of a run, as every result names it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HostDetails<'a> {
    host: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_id: Option<&'a str>,
}

impl<'a> HostDetails<'a> {
    pub(super) fn of(node: Option<&'a NodeLabel>) -> Self {
        Self {
            host: if node.is_some() { "node" } else { "gateway" },
            node: node.map(|node| node.name.as_str()),
            node_id: node.map(|node| node.id.as_str()),
        }
    }

    /// Where a run was started.
    pub(super) fn at(location: &'a RunLocation) -> Self {
        let machine = Self::of(location.node.as_ref());
        if location.is_sandboxed {
            return Self {
                host: "sandbox",
                ..machine
            };
        }
        machine
    }
}
