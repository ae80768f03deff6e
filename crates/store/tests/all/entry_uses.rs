//! The last use of entries: kept with the change that it belongs to, and nowhere else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use crate::common::{NOW, code};
use interlock_store::{ApprovalsStore, EntryUse, Store, StoreError};

fn open() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    (directory, store)
}

fn used(entry: &str, at: i64, command: &str) -> EntryUse {
    EntryUse {
        entry: entry.to_owned(),
        used_at_ms: at,
        command: command.to_owned(),
        resolved: Some("/usr/bin/rg".to_owned()),
    }
}

fn record(store: &Store, last: &EntryUse) -> Result<(), StoreError> {
    store.change(|change| change.use_entry(last))
}

#[test]
fn the_latest_use_stays_and_neither_document_nor_audit_changes() {
    let (_directory, store) = open();
    let document = store.replace_document(None, "{}").unwrap();
    let head = store.audit_head().unwrap();
    record(&store, &used("a", NOW, "first")).unwrap();
    record(&store, &used("a", NOW + 5, "second")).unwrap();
    // A clock that went back does not bring an older use to the front.
    record(&store, &used("a", NOW + 1, "late")).unwrap();
    record(&store, &used("b", NOW, "other")).unwrap();
    let expected = [used("a", NOW + 5, "second"), used("b", NOW, "other")];
    assert_eq!(store.entry_uses().unwrap(), expected);
    assert_eq!(store.document().unwrap(), Some(document));
    assert_eq!(store.audit_head().unwrap(), head);
    let present = BTreeSet::from(["b".to_owned()]);
    assert_eq!(store.forget_entry_uses(&present).unwrap(), 1);
    assert_eq!(store.entry_uses().unwrap(), expected[1..]);
    assert_eq!(store.forget_entry_uses(&present).unwrap(), 0);
}

#[test]
fn a_change_that_fails_leaves_no_use() {
    let (_directory, store) = open();
    let failed: Result<(), StoreError> = store.change(|change| {
        change.use_entry(&used("a", NOW, "x"))?;
        change.use_entry(&used("", NOW, "x"))
    });
    assert_eq!(code(failed), "INPUT_EMPTY");
    assert_eq!(store.entry_uses().unwrap(), []);
    let long = "x".repeat(5000);
    record(&store, &used("a", NOW, &long)).unwrap();
    assert_eq!(store.entry_uses().unwrap()[0].command.len(), 400);
}
