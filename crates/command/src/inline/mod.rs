//! Inline code and program-starting options: what an argv asks of a program beyond its name.
//!
//! A hit can only tighten a verdict. That nothing was found is no proof of harmlessness: the
//! tables know common programs, not all of them.
//!
//! Read [`detect`] first, then `grammar` (the form of the tables) and
//! `matcher` (how command lines are read), then the tables.

mod carriers;
mod databases;
mod detect;
mod editors;
mod files;
mod git;
mod git_settings;
mod grammar;
mod hit;
mod interpreters;
mod jvm;
mod languages;
mod matcher;
mod network;
mod packages;
mod patterns;
mod payloads;
mod runtimes;
mod sed;
pub(crate) mod split_string;
mod stream;
mod toolchains;

pub use carriers::detect_through_carriers;
pub use detect::{Reach, detect, reach};
pub use hit::{HitKind, InlineHit};
pub use patterns::{is_inline_capable_pattern, is_interpreter_like_safe_bin};
pub use payloads::{CarriedBuiltin, carried_builtin, payloads};
pub(crate) use runtimes::{Code, code};
