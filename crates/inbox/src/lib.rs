//! Shows pending approvals to an approver at a terminal, and stores the approver's decisions.
//!
//! `source` reads approvals from this machine or from the remote gateway that the owner follows.
//! `decide` lists them and stores decisions. `watch` is the inbox, full-screen or line by line.
//! `approval_wait` asks at the terminal of the command that needs the approval. `prompt` is the
//! text that all of them show. Start reading at [`watch::run`].

#![forbid(unsafe_code)]

pub mod approval_wait;
pub mod decide;
pub mod grants;
mod prompt;
pub mod socket;
mod source;
pub mod watch;

pub use source::ApprovalSource;
