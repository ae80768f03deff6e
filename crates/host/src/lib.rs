//! One execution host: the path of a command, shared by everything that runs commands.
//!
//! Read `local` (the state of this host), `route` (whether a call is for it) with `elevation` (whether it may leave its sandbox), `exec` (judge, prepare,
//! ask, start) with `prepare` (the plan of what was judged), `pipeline` (from an approval to a run, and
//! from a run to its end), `patch`, `effects` (what a run under `cow` did), then [`parameters`] (the JSON of a call). Background sessions are
//! in `interlock_sessions`.

#![forbid(unsafe_code)]

mod account;
mod agent_tokens;
mod caller_context;
mod checked;
mod config_cache;
mod connections;
mod effects;
mod elevation;
mod elsewhere;
mod exec;
mod executables;
mod local;
mod login_path;
mod network_asks;
pub mod parameters;
mod patch;
mod permission;
mod pipeline;
mod policy_cache;
mod prepare;
mod preview;
mod retry;
mod role_tokens;
mod route;
mod sandbox;
mod sandbox_backend;
mod scope;
mod session;
mod shield;
mod workspace;

pub use agent_tokens::AgentRights;
pub use caller_context::{CallerContext, NO_CALLER_CONTEXT};
pub use effects::{EffectReport, EffectState, LayerDescription, LayerError};
pub use elevation::{ElevationFacts, ElevationGate, ElevationRefusal, may_set_level};
pub use elsewhere::{ElsewhereRequest, ElsewhereVerdict};
pub use exec::{Exec, ExecError, ExecRequest, Pending, RequestedPlace, Running, Yield};
pub use local::{FirstStart, HostError, LocalHost, OpenOptions, Starter, now_ms, policy};
pub use login_path::{LoginPathError, LoginShell, PathSource};
pub use network_asks::{NetworkAsker, NetworkLinks};
pub use patch::{PatchError, PatchOutcome, PatchRequest, tool_levels};
pub use pipeline::{
    ASK_AGAIN_MS, ApproverNotes, CarriedPlan, DriftedPart, EndListener, ForwardedRun,
    ForwardedRunError, NewRemoteRun, NoSession, PreparedPlan, RecoveredRun, ResumableRun,
    RunTicket, is_too_late, may_ask_again, record_outcome, settle_background_run,
};
pub use prepare::{PrepareError, RunSettings, ShellError, choose_shell, prepare};
pub use preview::{CallEffects, PreviewRefusal};
pub use retry::{NotedDenials, RanInside, RetryRefusal, RetryRequest};
pub use role_tokens::OPERATOR_TOKEN_PREFIX;
pub use route::{Route, RouteFacts, RouteRefusal, RoutedCall, route, route_call};
pub use sandbox::{SandboxCaller, check_sandbox_tool};
pub use scope::AgentScope;
pub use session::{SessionValues, host_named};
pub use shield::{ShieldMissing, guard_only, plan_shield};
pub use workspace::{ConfigInWorkspace, WorkspaceError};

/// Who makes a call.
pub use interlock_approvals::CallSender;

/// How far a run leaves its sandbox.
pub use interlock_plan::Elevation;

/// Whether a conversation is sandboxed.
pub use interlock_sandbox::{SandboxDenial, SandboxStanding, standing_of};

/// What surfaces need of the store's vocabulary besides approvals.
pub use interlock_store::{
    AgentToken, Author, DocumentStanding, KnownSession, OpenRun, RoleToken, TokenRole,
};
