//! All tests of this crate against its public interface, in one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bound_files;
mod env;
mod harmless;
mod properties;
mod safe_bin_config;
mod safe_bin_properties;
mod safe_bins;
mod support;
