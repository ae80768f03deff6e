//! Shortens lists in audit records, whose size is limited.

use interlock_store::MAX_AUDIT_BODY_BYTES;
use serde::Serialize;
use serde_json::json;

/// Shortens the list of a record: for a change of very many files, the record lists only the first
/// ones. Its digest still covers the whole change. Returns how many were omitted, if any.
pub fn shorten_list<T: Serialize>(list: &mut Vec<T>) -> Option<usize> {
    let mut bytes = 0;
    let fitting = list.iter().take_while(|one| {
        bytes += json!(one).to_string().len() + 1;
        bytes <= MAX_AUDIT_BODY_BYTES / 4
    });
    let (kept, total) = (fitting.count(), list.len());
    list.truncate(kept);
    (kept < total).then_some(total - kept)
}
