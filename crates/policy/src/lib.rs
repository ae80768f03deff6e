//! May it run?

pub mod env;
mod level;
pub mod safe_bin;

pub use level::{Ask, Fallback, Security, Strictness};
