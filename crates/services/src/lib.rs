//! The services of this machine: the gateway, the node host and the desktop companion, in the
//! foreground or installed.
//!
//! `gateway` and `node` run the two servers and show the status of a running one. `service`
//! installs, starts and stops them through systemd or launchd. `role_tokens` mints the tokens that
//! clients need. `companion` installs the companion. `guard` becomes the guard of a supervisor.
//! Start reading at [`gateway::run`].

#![forbid(unsafe_code)]

pub mod companion;
pub mod gateway;
pub mod guard;
pub mod node;
pub mod role_tokens;
mod service;
