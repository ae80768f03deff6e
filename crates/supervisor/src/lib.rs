//! The supervisor owns running processes. It consists of small processes of the same binary,
//! without network, that continue when the caller of a run is gone.
//!
//! ```text
//! client ──hello──► supervisor ──the connection itself──► shim ──start──► the run
//!    ▲                  │ forks shims ahead of time         │  subreaper, transcript, screen
//!    └──────────────────┼───── result, answers ─────────────┘
//! guard ────────────────┘ its parent: ends and collects everything when the supervisor dies
//! ```
//!
//! The supervisor checks who connects and hands the connection on; it reads no plan, runs nothing
//! and never blocks on a client. A shim serves one run at a time and ends with its last.
//! Transcripts are files, which clients read without a request.
//!
//! Callers start at [`SupervisorClient`]. Read `message` (the protocol), `peer` (who may use it),
//! `supervisor`, `shim`, `guard`, `agent_init` (the namespaces of an agent), then `client` for the
//! other side; [`cgroup`], [`names`], [`tcp_peer`] and [`memory`] stand alone.

mod agent_init;
pub mod cgroup;
mod client;
mod connection_owner;
mod frame;
mod guard;
mod handover;
pub mod memory;
mod message;
pub mod names;
mod paths;
mod peer;
mod pool;
mod retention;
mod session_index;
mod shim;
mod supervisor;
pub mod tcp_peer;
mod unsafe_fork;
mod unsafe_process;

pub use client::{Announced, ClientError, Drawing, RunConversation, SessionLink, SupervisorClient};
pub use connection_owner::{InnerConnection, run_of_connection};
pub use guard::guard;
pub use message::{
    About, EndedRun, LimitReached, Manner, SandboxLimit, SessionStanding, StartedRun,
    SupervisorRefusal, Waited,
};
pub use paths::SupervisorPaths;
use peer::descent;
pub use peer::{PeerOrigin, check_peer, origin, process_origin};
pub use retention::{ListedSession, SessionState, list, served_by};
pub use session_index::{IndexedSession, SessionIndex};

/// The process name of the supervisor and its shims.
const SUPERVISOR_NAME: &str = "interlock-super";
