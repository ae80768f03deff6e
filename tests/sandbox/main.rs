//! The sandbox, against the real binary: each test runs something inside and then looks at the host, as
//! root and as an ordinary user.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod ahead;
mod attacks;
mod backends;
mod caches;
mod commands;
mod containers;
mod cow;
mod crash;
mod denials;
mod elsewhere;
mod holes;
mod host_tree;
mod kernel;
mod landlock;
mod leave;
mod limits;
mod network;
mod network_ask;
mod nodes;
mod obeyed;
mod preview;
mod routes;
mod scopes;
mod setup;
mod shown;
mod site;
mod ssh;
mod tree;
mod tree_log;
mod work;
