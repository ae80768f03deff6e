//! What the judge says: explain, base, templates, suggestions, replay, policy tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The program under test.
const BINARY: &str = env!("CARGO_BIN_EXE_interlock");

mod attacks;
mod base;
mod base_readers;
mod binding;
mod cases;
mod days;
mod explain;
mod hint_errors;
mod hint_texts;
mod hints;
mod name_entries;
mod presets;
mod project_binding;
mod replay;
mod suggest;
mod templates;
