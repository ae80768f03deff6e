//! What does the owner ask for, and where is it kept?
//!
//! Read in this order: [`state`] (the directory), [`json5`] (texts with positions and edits),
//! [`schema`] (the one table of keys), [`types`] (the values the program uses), [`file`] (load and edit).

mod diagnostic;
mod excerpt;
pub mod json5;
mod path;

pub use diagnostic::{Diagnostic, Diagnostics, Position};
pub use json5::{EditError, Json5Text};
pub use path::{KeyPath, KeyPathError, Segment};
