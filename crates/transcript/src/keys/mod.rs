//! Turns keys as a person would press them into the bytes that a terminal would send.

mod encode;
mod paste;
mod table;

pub use encode::{CursorMode, Encoded, KeyInput, encode};
pub use paste::{Bracketed, SUBMIT, paste};
