//! Old audit records are moved to files, and nothing can be hidden by that.

use std::fs;
use std::path::Path;

use interlock_store::{
    ApprovalsStore as _, ArchiveError, AuditFilter, AuditHead, AuditKind, AuditVerification,
    Author, ChainProblem, DATABASE_NAME, Store,
};
use rusqlite::Connection;
use serde_json::{Value, json};

const BLOCK: i64 = 1024;

/// A store with so many records, one every millisecond, each of a few hundred bytes.
fn store_with(records: i64) -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let author = Author::new("test".to_owned()).unwrap();
    store.repair_document(&author, "{\"version\":1}").unwrap();
    store
        .change(|change| {
            for time in 1..records {
                let body = json!({ "agent": "main", "number": time, "text": "x".repeat(300) });
                change.append(AuditKind::Verdict, &body, time)?;
            }
            Ok::<_, interlock_store::StoreError>(())
        })
        .unwrap();
    (directory, store)
}

/// Without the present: the record of the document has the time of the test.
fn archive(store: &Store, before: i64) -> Result<Vec<(u64, u64)>, ArchiveError> {
    let author = Author::new("owner".to_owned()).unwrap();
    let directory = store.state_dir().join("audit-archive");
    let archived = store.archive_audit(before, &directory, &author, i64::MAX / 2)?;
    Ok(archived
        .iter()
        .map(|one| (one.first, one.head.seq))
        .collect())
}

fn is_intact(store: &Store, head: Option<&AuditHead>) -> bool {
    matches!(
        store.verify_audit(head).unwrap(),
        AuditVerification::Intact(_)
    )
}

fn problem(store: &Store, head: Option<&AuditHead>) -> ChainProblem {
    match store.verify_audit(head).unwrap() {
        AuditVerification::Broken(broken) => broken.problem,
        AuditVerification::Intact(head) => panic!("intact: {head}"),
    }
}

fn raw(directory: &Path) -> Connection {
    Connection::open(directory.join(DATABASE_NAME)).unwrap()
}

#[test]
fn old_records_are_moved_to_a_file_and_the_chain_goes_on_behind_them() {
    let (directory, store) = store_with(3 * BLOCK);
    let size = || -> u64 {
        let length = |name: String| fs::metadata(directory.path().join(name)).unwrap().len();
        length(DATABASE_NAME.to_owned()) + length(format!("{DATABASE_NAME}-wal"))
    };
    let (before, head) = (size(), store.audit_head().unwrap());
    let all: Vec<String> = store.audit_export().unwrap().map(Result::unwrap).collect();
    // The first record, the document's, is of now: nothing is old enough.
    assert_eq!(archive(&store, 2 * BLOCK).unwrap(), []);
    let present = i64::MAX / 2;
    assert_eq!(archive(&store, present).unwrap(), [(1, 3 * 1024)]);
    assert!(is_intact(&store, None));
    // The head from before is the last archived record: it can still be compared.
    assert!(is_intact(&store, Some(&head)));
    assert!(size() < before / 4, "{} of {before}", size());
    let names: Vec<_> = fs::read_dir(directory.path().join("audit-archive"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let written = fs::read_to_string(&names[0]).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    // All records byte for byte as they are exported, between the heads in front and behind.
    assert_eq!(lines[1..=3 * 1024], all[..3 * 1024]);
    assert_eq!(lines.last().copied(), all.last().map(String::as_str));
    let first: Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(first["after"]["seq"], 0);
    // The document is valid by a record that stayed, also for a process that starts now.
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    assert!(store.document().unwrap().is_some());
    let kept = store.audit_log(&AuditFilter::default()).unwrap();
    let kinds: Vec<&str> = kept.iter().map(|record| record.kind.as_str()).collect();
    assert_eq!(kinds, ["archive", "policy-write"]);
    assert_eq!(kept[0].body["last"], 3 * 1024);
    assert_eq!(kept[0].body["who"], "owner");
    // New blocks are indexed and archived behind the cut.
    store
        .change(|change| {
            for time in 0..2 * BLOCK {
                let body = json!({ "agent": "main", "number": time });
                change.append(AuditKind::RunEnded, &body, time)?;
            }
            Ok::<_, interlock_store::StoreError>(())
        })
        .unwrap();
    assert!(is_intact(&store, None));
    let filter = AuditFilter {
        agent: Some("main".to_owned()),
        ..AuditFilter::default()
    };
    assert_eq!(store.audit_page(&filter).unwrap().total, 2 * 1024);
    assert_eq!(
        archive(&store, i64::MAX).unwrap(),
        [(3 * 1024 + 1, 5 * 1024)]
    );
    assert!(is_intact(&store, None));
}

#[test]
fn a_head_of_an_archived_record_is_not_called_intact() {
    let (_directory, store) = store_with(BLOCK / 2);
    let early = store.audit_head().unwrap();
    store
        .change(|change| {
            for time in 0..BLOCK {
                change.append(AuditKind::Verdict, &json!({}), time)?;
            }
            Ok::<_, interlock_store::StoreError>(())
        })
        .unwrap();
    assert_eq!(archive(&store, i64::MAX / 2).unwrap(), [(1, 1024)]);
    assert_eq!(
        problem(&store, Some(&early)),
        ChainProblem::Archived { head: early }
    );
}

#[test]
fn records_that_are_removed_without_an_archive_are_missed() {
    let (directory, store) = store_with(2 * BLOCK);
    archive(&store, i64::MAX / 2).unwrap();
    let cut = |text: &str| raw(directory.path()).execute_batch(text).unwrap();
    // The row of the cut is copied, changed, moved forward, taken away.
    for (wrong, undo) in [
        (
            "UPDATE audit_cut SET record = record + 1",
            "UPDATE audit_cut SET record = record - 1",
        ),
        (
            "UPDATE audit_cut SET seq = seq + 1024",
            "UPDATE audit_cut SET seq = seq - 1024",
        ),
    ] {
        cut(wrong);
        assert_eq!(problem(&store, None), ChainProblem::FalseCut, "{wrong}");
        assert!(archive(&store, i64::MAX).is_err());
        cut(undo);
        assert!(is_intact(&store, None));
    }
    // The record that tells of the archive is removed, with all in front of it.
    cut("CREATE TABLE copy AS SELECT * FROM audit; CREATE TABLE cut_copy AS SELECT * FROM audit_cut;
        DELETE FROM audit WHERE kind = 'archive'");
    assert!(!is_intact(&store, None));
    cut(
        "DELETE FROM audit; INSERT INTO audit (seq, time_ms, kind, body, hash)
        SELECT seq, time_ms, kind, body, hash FROM copy",
    );
    assert!(is_intact(&store, None));
    // Without its row, what was archived is missing.
    cut("DELETE FROM audit_cut");
    assert!(matches!(
        problem(&store, None),
        ChainProblem::Removed { through: 2048 }
    ));
    cut("INSERT INTO audit_cut SELECT * FROM cut_copy");
    assert!(is_intact(&store, None));
    // A record with an old number is put in front of the chain.
    cut(
        "INSERT INTO audit (seq, time_ms, kind, body, hash) SELECT 7, time_ms, kind, body, hash FROM copy LIMIT 1",
    );
    assert!(!is_intact(&store, None));
}

#[test]
fn an_older_cut_does_not_fit_a_later_chain() {
    let (directory, store) = store_with(2 * BLOCK);
    let first = raw(directory.path());
    archive(&store, i64::MAX / 2).unwrap();
    first
        .execute_batch("CREATE TABLE kept AS SELECT * FROM audit_cut")
        .unwrap();
    store
        .change(|change| {
            for time in 0..2 * BLOCK {
                change.append(AuditKind::Verdict, &json!({}), time)?;
            }
            Ok::<_, interlock_store::StoreError>(())
        })
        .unwrap();
    archive(&store, i64::MAX).unwrap();
    first
        .execute_batch("DELETE FROM audit_cut; INSERT INTO audit_cut SELECT * FROM kept")
        .unwrap();
    assert!(!is_intact(&store, None));
}

#[test]
fn a_broken_chain_is_not_archived() {
    let (directory, store) = store_with(2 * BLOCK);
    let change = "UPDATE audit SET body = replace(body, 'main', 'evil') WHERE seq = 100";
    raw(directory.path()).execute_batch(change).unwrap();
    let refused = archive(&store, i64::MAX / 2);
    assert!(
        matches!(refused, Err(ArchiveError::Broken(_))),
        "{refused:?}"
    );
    assert_eq!(problem(&store, None), ChainProblem::Changed);
}
