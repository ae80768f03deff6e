//! The state of this machine, its config, and what both mean for a call.
//!
//! Read `state` ([`LocalState`], the opened state directory) and `scope` ([`AgentScope`], an agent
//! under one config) with `workspace` and `login_path` (where its commands start and find
//! programs). Then read `route` and `elevation` (where a call runs, and whether it may leave its
//! sandbox). Nothing here starts a run.

#![forbid(unsafe_code)]

mod agent_tokens;
mod caller_context;
mod config_cache;
mod connections;
mod elevation;
mod login_path;
mod policy_cache;
mod role_tokens;
mod route;
mod scope;
mod session;
mod shield;
mod state;
mod tool_levels;
mod workspace;

pub use agent_tokens::AgentRights;
pub use caller_context::{CallerContext, NO_CALLER_CONTEXT};
pub use elevation::{ElevationFacts, ElevationGate, ElevationRefusal, may_set_level};
pub use login_path::{LoginPathError, LoginShell, PathSource};
pub use policy_cache::PolicyPlace;
pub use role_tokens::OPERATOR_TOKEN_PREFIX;
pub use route::{Route, RouteFacts, RouteRefusal, RoutedCall, route, route_call};
pub use scope::AgentScope;
pub use session::{SessionValues, host_named};
pub use shield::{ShieldMissing, guard_only, plan_shield};
pub use state::{FirstStart, HostError, LocalState, OpenOptions, Starter, now_ms, policy};
pub use tool_levels::tool_levels;
pub use workspace::{ConfigInWorkspace, WorkspaceError, contains};
