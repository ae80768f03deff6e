//! All tests of this crate against its public interface, in one program: no host is needed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod remote;
