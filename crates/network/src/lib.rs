//! Which hosts do sandboxed runs reach, and who carries the bytes? `interlock netd`: one process per state
//! directory that serves the sockets which keepers made in the networks of their scopes.
//!
//! Read `netd` (the process), `scope` (the sockets of one scope), `proxy` (from a connection to a host),
//! then what it asks on the way: `dns` and `names` (which name an address stands for), `hello` (which name a
//! TLS client asks for), `http` (which host each request is for), `socks`, `addresses` (what is public),
//! `askers` (who is asked about a name that no entry lists), and `journal` (what is recorded).

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
