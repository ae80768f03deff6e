//! Safe bins: small filters that need no allowlist entry, because with these arguments they can
//! only read standard input and write standard output.
//!
//! A command is a safe bin if its name is configured, its file lies in a trusted directory
//! ([`interlock_programs::in_trusted_dir`]) and its arguments fit its profile ([`check`]). All
//! three must hold. None of the checks reads the file system.
//!
//! Read `table` first (the built-in profiles), then `check`, `operand` and `profile`.

mod check;
mod operand;
mod profile;
mod refusal;
mod table;
mod view;

pub use check::check;
pub use operand::SafeBinOperandKind;
pub use profile::{Profile, ProfileProblem, ProfileProblemKind, Profiles, SafeBinProfile};
pub use refusal::SafeBinRefusal;
pub use table::DEFAULT_SAFE_BINS;
pub use view::{SafeBinView, always_refused, is_interpreter_like};
