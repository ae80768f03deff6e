//! One execution host: the path of a command, shared by everything that runs commands.
//!
//! Read `local` (the state of this host and who may change it), `route` (whether a call is for it),
//! then `evaluate` (prepare and judge), `preflight` and `refusals` (what is not worth judging),
//! `prepare` (the plan of what was judged), `exec`, `pipeline` (from an approval to a run, and from a
//! run to its end), [`process`] (background sessions), `patch`, then [`parameters`] (the JSON of a call), [`cases`] (policies
//! under test) and `replay` (the history under another policy).

#![forbid(unsafe_code)]

mod account;
mod agent_tokens;
mod caller_context;
pub mod cases;
mod config_cache;
mod edit;
mod elsewhere;
mod evaluate;
mod exec;
mod gateway_layer;
mod hex;
mod local;
mod login_path;
pub mod parameters;
mod patch;
mod permission;
mod pipeline;
mod policy_cache;
mod preflight;
mod prepare;
pub mod process;
mod refusals;
mod repair;
mod replay;
mod role_tokens;
mod route;
mod session;
mod shield;
mod suggest;
mod template;
mod uses;
mod workspace;

pub use agent_tokens::AgentRights;
pub use caller_context::{CallerContext, NO_CALLER_CONTEXT};
pub use edit::{DenyRuleEdit, DenyRuleSelection, EntryEdit, RemovedEntries};
pub use elsewhere::{ElsewhereRequest, ElsewhereVerdict};
pub use evaluate::{Evaluation, RunRequest, evaluate};
pub use exec::{Exec, ExecError, ExecRequest, Pending, Running, Yield};
pub use gateway_layer::GatewayLayer;
pub use local::{
    FirstStart, HostError, LocalHost, OpenOptions, Starter, levels, levels_in, now_ms, policy,
};
pub use login_path::{LoginPathError, LoginShell, PathSource};
pub use patch::{PatchError, PatchOutcome, PatchRequest, tool_levels};
pub use pipeline::{
    ApproverNotes, CarriedPlan, DriftedPart, EndListener, ForwardedRun, ForwardedRunError,
    NewRemoteRun, NoSession, PreparedPlan, RecoveredRun, ResumableRun, RunTicket, is_too_late,
    record_outcome,
};
pub use preflight::{Language, Mistake};
pub use prepare::{PrepareError, RunSettings, ShellError, choose_shell, prepare};
pub use refusals::{Refusal, refusal};
pub use repair::DocumentRepair;
pub use replay::{Direction, Replay, ReplayFilter, Replayed};
pub use role_tokens::OPERATOR_TOKEN_PREFIX;
pub use route::{Route, RouteRefusal, route};
pub use session::{Elevation, SessionLevels, SessionValues, host_named};
pub use shield::{ShieldMissing, guard_only, plan_shield};
pub use suggest::{Suggestion, Suggestions};
pub use template::{
    Template, TemplateCaseResult, TemplateRemoval, TemplateRemovalMode, TemplateSummary, templates,
};
pub use workspace::{ConfigInWorkspace, WorkspaceError};

/// What surfaces need of the store's vocabulary besides approvals.
pub use interlock_store::{
    AgentToken, Author, DocumentStanding, KnownSession, OpenRun, RoleToken, TokenRole,
};
