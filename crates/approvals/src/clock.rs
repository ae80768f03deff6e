//! The time in records: milliseconds since 1970.

pub use interlock_rules::now_ms;

/// The present time in milliseconds since 1970.
pub fn now() -> i64 {
    i64::try_from(now_ms()).unwrap_or(i64::MAX)
}
