//! The run plan: exactly what will run, with every file pinned.
//!
//! This crate answers the questions about a command line that depend on the file system. It only
//! reads: it starts, writes and removes nothing, and does not decide whether a command may run.
//!
//! Read in this order: [`FsResolver`] (lookups as a shell makes them), `walk` (from `/` to the
//! file, link by link, and who could change something on the way), `kind` (the first bytes), `glob`
//! (expansion), [`Ownership`] (the same facts in words), [`Exposure`] (what could change before the
//! use), [`PinnedFile`] (identity), [`PlanBinding`] (the files that an approval binds),
//! [`RunPlan`].

#![forbid(unsafe_code)]

mod account;
mod binding;
#[macro_use]
mod choice;
mod destination;
mod directory;
mod elevation;
mod elf;
mod errors;
mod executables;
mod exposure;
mod git_files;
mod git_settings;
mod glob;
mod host_tree;
mod identity;
mod kind;
mod known;
mod libraries;
mod mount_table;
mod ownership;
mod paths;
mod race;
mod resolver;
mod run_plan;
mod sandbox;
mod walk;

pub use account::{AccountError, AssumedAccount, PlanAccount, RunAccount};
pub use binding::{PlanBinding, PlanBoundFile};
pub use destination::PinnedPath;
pub use elevation::{Elevation, PlanRetry};
pub use executables::executable_closure;
pub use exposure::Exposure;
pub use git_settings::{FILLED_BY_TOOLS, ObeyedKind, ObeyedPath, git_obeys, repositories_below};
pub use host_tree::{PlanTree, gains_privileges, is_left_to_shell};
pub use identity::{Drift, PinnedFile, hex};
pub use interlock_binding::{BindingKind, BoundRole};
pub use known::{
    HashLimitReached, KnownContent, MAX_HASHED_BYTES, MAX_HASHING_TIME, Writers, is_young,
    known_content, read_content, read_sha256,
};
pub use libraries::LoadedFiles;
pub use mount_table::MountTable;
pub use ownership::Ownership;
pub use race::{RaceCause, RaceFreedom, RaceRisk};
pub use resolver::FsResolver;
pub use run_plan::{
    PinnedDirectory, PlanAction, PlanDigest, PlanNext, PlanPipeline, PlanProgram, PlanRedirection,
    PlanShield, PlanStage, PlanStdin, PlanStream, PlanTarget, PtySize, RunPlan, TimeFormat,
};
pub use sandbox::{
    AddressReach, ContainerPlan, DeniedProgram, FarRun, HOST_INTERNAL, HostEntry, HostEntryList,
    HostName, HostVerdict, LayerRecord, MountAccess, MountOwner, ProgramLogRules, SandboxBackend,
    SandboxEffects, SandboxLimits, SandboxMount, SandboxNetworkRules, SandboxPlan, SandboxSummary,
    SandboxTree, SandboxUser, SandboxView, SshPlan, StartedProgram, StartedPrograms, TargetHost,
    UnixSockets, WorkspaceAccess, is_own_block, layer_directory, plain_address,
};
