//! Decides where a run is confined: turns the owner's config into the one value that describes the
//! whole sandbox, [`SandboxPlan`](interlock_plan::SandboxPlan).
//!
//! Read `standing` (whether a conversation is sandboxed), `scope` (which runs share a sandbox, and
//! its directories; `elsewhere`: below another directory), `upkeep` and `removal` (removing them),
//! `binds` (which further paths may be shown), `hidden` (paths that are never shown), `view` (what
//! a run sees, step by step), `layers` (what runs changed under `cow`), `probe` (whether the
//! promises hold), `denials` (what a run was denied). `container` drives container engines, and
//! `ssh` reaches other machines. This crate starts no process for a caller; the engine sets up what
//! the value says.

#![forbid(unsafe_code)]

mod binds;
mod container;
mod denials;
mod elsewhere;
mod error;
mod hidden;
mod layers;
mod network;
mod probe;
mod removal;
mod scope;
mod ssh;
mod standing;
mod upkeep;
mod view;

pub use container::{ContainerRecord, ready_container};
pub use denials::{
    DenialCertainty, DenialPlace, DenialSubject, EndedInside, SandboxDenial, denials_of,
};
pub use error::SandboxError;
pub use layers::{HeldLayer, KeptLayer, RunLayerState};
pub use probe::probe_script;
pub use scope::{ScopeRecord, ScopeStore, UnusableScope};
pub use ssh::open_connection;
pub use standing::{SandboxCoverage, SandboxStanding, config_notices, standing_of, time_limit};
pub use upkeep::{RemovedScopes, ScopeRemovalError, ScopeSelection};
pub use view::{LANDLOCK_LACKS, PreparedSandbox, SandboxRequest, prepare_sandbox};
