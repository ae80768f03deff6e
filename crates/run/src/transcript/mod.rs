//! Who has read how much of a session.

pub mod poll;
