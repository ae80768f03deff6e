//! May it run?

mod level;

pub use level::{Ask, Fallback, Security, Strictness};
