//! The placeholder for unknown words.

/// Stands for a word that only the shell will know, when it runs.
pub const DYNAMIC: &str = "\0";
