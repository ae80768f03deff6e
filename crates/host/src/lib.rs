//! One execution host: the path of a command, shared by everything that runs commands.
//!
//! Start with `local` (the host, whose state is in `interlock_local`) and `exec` (judge, prepare,
//! ask, start). Then read `prepare` (the plan of a judged request), `pipeline` (from an approval to
//! a run, and from a run to its end), `patch`, and [`parameters`] (the JSON of a call).
//! `interlock_effects` handles the files that runs change, and `interlock_sessions` background
//! sessions.

#![forbid(unsafe_code)]

mod account;
mod checked;
mod elsewhere;
mod exec;
mod executables;
mod local;
mod network_asks;
pub mod parameters;
mod patch;
mod permission;
mod pipeline;
mod prepare;
mod preview;
mod retry;
mod sandbox;
mod sandbox_backend;

pub use elsewhere::{ElsewhereRequest, ElsewhereVerdict};
pub use exec::{Exec, ExecError, ExecRequest, Pending, RequestedPlace, Running, Yield};
pub use local::LocalHost;
pub use network_asks::{NetworkAsker, NetworkLinks};
pub use patch::{PatchError, PatchOutcome, PatchRequest};
pub use pipeline::{
    ASK_AGAIN_MS, ApproverNotes, CarriedPlan, DriftedPart, EndListener, ForwardedRun,
    ForwardedRunError, NewRemoteRun, NoSession, PreparedPlan, RecoveredRun, ResumableRun,
    RunTicket, is_too_late, may_ask_again, record_outcome, settle_background_run,
};
pub use prepare::{PrepareError, RunSettings, ShellError, choose_shell, prepare};
pub use preview::{CallEffects, PreviewRefusal};
pub use retry::{NotedDenials, RanInside, RetryRefusal, RetryRequest};
pub use sandbox::{SandboxCaller, check_sandbox_tool};

/// The state of this host, and what a call derives from it.
pub use interlock_local::{
    AgentRights, AgentScope, CallerContext, ConfigInWorkspace, ElevationFacts, ElevationGate,
    ElevationRefusal, FirstStart, HostError, LoginPathError, LoginShell, NO_CALLER_CONTEXT,
    OPERATOR_TOKEN_PREFIX, OpenOptions, PathSource, Route, RouteFacts, RouteRefusal, RoutedCall,
    SessionValues, ShieldMissing, Starter, WorkspaceError, guard_only, host_named, may_set_level,
    now_ms, plan_shield, policy, route, route_call, tool_levels,
};

/// The changes of runs under `cow`.
pub use interlock_effects::{EffectReport, EffectState, LayerDescription, LayerError, RunEffects};

/// Who makes a call.
pub use interlock_approvals::CallSender;

/// How far a run leaves its sandbox.
pub use interlock_plan::Elevation;

/// Whether a conversation is sandboxed.
pub use interlock_sandbox::{SandboxDenial, SandboxStanding, standing_of};

/// Types of the store, besides those of approvals, that surfaces use.
pub use interlock_store::{
    AgentToken, Author, DocumentStanding, KnownSession, OpenRun, RoleToken, TokenRole,
};
