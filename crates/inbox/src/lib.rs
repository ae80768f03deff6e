//! How an approver decides at a terminal: what waits, what it would do, and the decision.
//!
//! `source` is where approvals wait: on this machine, or at the gateway elsewhere that the owner follows.
//! `decide` lists them and stores decisions, `watch` is the inbox on the whole screen or line by line,
//! `approval_wait` asks the caller that sits at the terminal itself, `prompt` is the text that all of them
//! show. Start reading at [`watch::run`].

#![forbid(unsafe_code)]

pub mod approval_wait;
pub mod decide;
pub mod grants;
mod prompt;
pub mod socket;
mod source;
pub mod watch;

pub use source::ApprovalSource;
