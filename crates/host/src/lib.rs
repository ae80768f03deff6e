//! One execution host: the path of a command, shared by everything that runs commands.
//!
//! Read `local` (the state of this host and who may change it), `route` (whether a call is for it),
//! then `evaluate` (prepare and judge), `preflight` and `refusals` (what is not worth judging),
//! `prepare` (the plan of what was judged), `exec`, `desk` (which approver is asked, and what a
//! decision allows), [`companion`] (a program of this machine that shows approvals), [`process`]
//! (background sessions), `patch`, then [`parameters`] (the JSON of a call), [`cases`] (policies
//! under test) and `replay` (the history under another policy).

#![forbid(unsafe_code)]

mod account;
mod agent_tokens;
mod caller_context;
pub mod cases;
pub mod companion;
mod config_cache;
mod desk;
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
pub use desk::{
    ApprovalView, ApproverNotes, CarriedPlan, Choice, DENIAL_TEXT, DecisionBy, Desk, DeskError,
    DriftedPart, EVENT_TAIL_CHARS, EndListener, Forwarded, ForwardedApproval, ForwardedError,
    HandedRun, LeftRun, MESSAGE_BYTES, NOTES, NoSession, OutsideRuns, PendingApproval,
    PreparedPlan, RecoveredRun, RemoteQuestion, RemoteRunFacts, RunTicket, RunningNotice,
    ScriptDiff, Stored, UnboundRefusal, UnreadableApproval, ViewBlock, ViewDetail, ViewField,
    ViewLabel, ViewLine, ViewPart, ViewTone, can_be_approved, is_too_late, process_name,
    read_summaries, record_config_write, record_outcome, requester_at_home, requester_has_ended,
    summary_to_send, usual_session_key,
};
pub use edit::{DenyRuleEdit, DenyRuleSelection, EntryEdit, RemovedEntries};
pub use elsewhere::{ElsewhereRequest, ElsewhereVerdict};
pub use evaluate::{Evaluation, RunRequest, evaluate};
pub use exec::{Exec, ExecError, ExecRequest, Pending, Running, Yield};
pub use gateway_layer::GatewayLayer;
pub use local::{
    FirstStart, HostError, LocalHost, OpenOptions, Starter, levels, levels_in, now_ms, policy,
};
pub use login_path::{LoginPathError, LoginShell, PathSource};
pub use patch::{
    PatchDiff, PatchError, PatchOutcome, PatchPlan, PatchRequest, ProtectedFile, tool_levels,
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

/// What surfaces need of the store's vocabulary.
pub use interlock_store::{
    AgentToken, ApprovalDecision, ApprovalEnd, ApprovalEnding, ApprovalSummary, AuditFilter,
    AuditHead, AuditKind, AuditOrder, AuditPage, AuditRecord, AuditVerification, Author,
    DocumentStanding, EventKind, Grant, KnownSession, Lease, OpenRun, PendingPage, RoleToken,
    SessionEvent, TokenRole, WaitingEvents,
};
