//! Lists of audit records, which have a most that they may hold.

use interlock_store::MAX_AUDIT_BODY_BYTES;
use serde::Serialize;
use serde_json::json;

/// Shortens the list of a record: of a change of very many files the first ones are in it. The digest names
/// the whole change. Returns how many are left out, if any.
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
