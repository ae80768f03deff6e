//! All tests of this crate against its public interface, in one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod approvals;
mod authority;
mod bound;
mod bounded_fuzz;
mod exec_refused;
mod login_path;
mod prepare;
mod shell_lines;
