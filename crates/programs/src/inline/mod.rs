//! Inline code and program-starting options: what an argv asks of a program beyond its name.
//!
//! A hit can only tighten a verdict. The absence of a hit does not prove that a call is harmless:
//! the tables know common programs, not all of them.
//!
//! Read [`detect`] first, then `grammar` (the form of the tables) and `matcher` (how command lines
//! are parsed), then the tables.

mod carried_builtin;
pub mod carriers;
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
mod runtimes;
mod sed;
pub mod split_string;
mod stream;
mod toolchains;

pub use carried_builtin::{CarriedBuiltin, carried_builtin};
pub use carriers::detect_through_carriers;
pub use detect::{Reach, detect, reach};
pub use hit::{HitKind, InlineHit};
pub use patterns::{is_inline_capable_pattern, is_interpreter_like_safe_bin};
pub use runtimes::{InterpreterCode, interpreter_code};
pub use toolchains::fetched_go_package;
