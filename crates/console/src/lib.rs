//! The output of commands: data goes to stdout, everything else to stderr.
//!
//! `output` prints tables, colors and JSON. `failure` has the errors of commands with their codes,
//! hints and exit codes. `rule_text` and `time_text` format entries, levels, times and durations.
//! Nothing here opens a state or calls a gateway. Start reading at [`Failure`].

#![forbid(unsafe_code)]

mod failure;
pub mod output;
mod rule_text;
mod time_text;

pub use failure::{CommandOutcome, Failure, NOT_ALLOWED, input_hint, is_not_allowed};
pub use rule_text::{bounds, level_row, rule_terms};
pub use time_text::{duration, milliseconds, time, time_left};
