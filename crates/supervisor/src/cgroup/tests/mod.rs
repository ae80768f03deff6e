//! What cannot be reached from outside: other layouts than this system's, and the ways of ending
//! that its kernel makes unnecessary.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod layouts;
mod real;
mod service;
