//! The policy: decides whether a command may run.
//!
//! Everything in this crate is pure: no clock, no files, no async. Read the modules in this order:
//! `level` and `effective` (the levels, joined from all their layers), `document` and `entry` (the
//! approvals document), `allowlist`, `safe_bin` and `deny` (what satisfies a command, and what
//! forbids it), `evaluate` (the only way from a request to a verdict), `judge` (from an analysis to
//! a verdict), `verdict`, `approvable` (what an approver could allow), and `remember` (what
//! *always* would store).

#![forbid(unsafe_code)]

mod agent;
mod allowlist;
mod approvable;
mod arguments;
mod assemble;
mod base;
mod deny;
mod document;
mod effective;
mod entry;
mod entry_warning;
pub mod env;
mod evaluate;
mod judge;
mod level;
mod path_rule;
mod pattern;
mod protected;
mod remember;
pub mod safe_bin;
mod tools;
mod verdict;

pub use agent::{AgentId, AgentIdError};
pub use allowlist::{Allowlist, Candidate, EntryLists, Match, NearMiss, Objection};
pub use approvable::can_be_approved;
pub use arguments::{ARGUMENTS_DIGEST, ArgumentError, ArgumentRule, digest_pattern};
pub use assemble::{PolicyError, PolicyParts};
pub use base::{BASE_PROGRAMS, BaseProgram};
pub use deny::{Denied, DenyRules};
pub use document::{Document, EVERY_AGENT, Problem, Scope, Socket, agent_path};
pub use effective::{
    Joined, Layer, Levels, PolicySource, Preset, Sourced, auto_allow_skills, deny_rules, entries,
    take_entries,
};
pub use entry::{
    ALLOW_ALWAYS, BASE, BoundContent, DenyRule, Entry, EntryError, EntryShield, FileContent,
    TEMPLATE_SOURCE,
};
pub use entry_warning::EntryWarning;
pub use evaluate::{Evaluation, RunRequest, evaluate};
pub use interlock_binding::{Binding, BindingKind};
pub use judge::{CallerInput, HostIdentity, JudgedCall, Policy, SkillBin, VerdictShield, quote};
pub use level::{Ask, Fallback, Security, Strictness};
pub use path_rule::PathRuleError;
pub use pattern::{PatternError, path_matches};
pub use protected::{
    IN_REPOSITORY, PROTECTED_PATHS, ProtectedClass, ProtectedPath, RepositoryPath,
};
pub use remember::{AlwaysForm, AlwaysFormInvalid, NotWider, Remember, Wider};
pub use tools::{ToolLevel, ToolRefusal, check_tool};
pub use verdict::{
    CheckedFiles, CheckedPath, FallbackOutcome, HeldContent, JudgedCommand, Outcome, Proof, Reason,
    Remedy, SatisfiedBy, Transport, UsedEntry, Verdict,
};
