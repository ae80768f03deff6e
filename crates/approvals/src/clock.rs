//! The time as records count it: milliseconds since 1970.

pub use interlock_rules::now_ms;

/// Milliseconds since 1970, as the store counts them.
pub fn now() -> i64 {
    i64::try_from(now_ms()).unwrap_or(i64::MAX)
}
