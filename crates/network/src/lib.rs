//! Decides which hosts sandboxed runs reach, and carries their bytes. `interlock netd` is one
//! process per state directory that serves the sockets which keepers made in the networks of their
//! scopes.
//!
//! Read `netd` (the process), `scope` (the sockets of one scope), `proxy` (from a connection to a
//! host), then the modules that `proxy` uses: `dns` and `names` (the name that an address stands
//! for), `hello` (the name that a TLS client asks for), `http` (the host that each request is for),
//! `socks`, `addresses` (which addresses are public), `askers` (the processes that decide about
//! names that no entry lists), and `journal` (what is recorded).

#![forbid(unsafe_code)]

mod addresses;
mod askers;
mod dns;
mod hello;
mod http;
mod journal;
mod names;
mod netd;
mod proxy;
mod scope;
mod socks;

pub use journal::{
    ConnectionJournal, ConnectionJournalReader, ConnectionRecord, ConnectionVerdict,
};
pub use netd::become_netd;
