//! May it run?

mod agent;
mod allowlist;
mod arguments;
mod document;
mod effective;
mod entry;
pub mod env;
mod level;
mod pattern;
pub mod safe_bin;

pub use agent::{AgentId, AgentIdError};
pub use allowlist::{Allowlist, Candidate, Match, NearMiss};
pub use arguments::{ArgumentError, ArgumentRule, digest_pattern};
pub use document::{Document, EVERY_AGENT, Problem, Scope, Socket, agent_path};
pub use effective::{
    Joined, Layer, Levels, Preset, Source, Sourced, auto_allow_skills, deny_rules, entries,
};
pub use entry::{ALLOW_ALWAYS, DenyRule, Entry, EntryError};
pub use level::{Ask, Fallback, Security, Strictness};
pub use pattern::{PatternError, path_matches};
