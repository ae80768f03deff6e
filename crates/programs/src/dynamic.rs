//! How a word that is not known yet stands in a command.

/// A word that the shell would only know when it runs.
pub const DYNAMIC: &str = "\0";
