//! An audit chain that was changed behind the program's back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common::chain::Chain;
use crate::common::{NOW, code, verified};
use interlock_store::{AuditKind, AuditVerification, ChainProblem, StoreError};
use serde_json::{Value, json};

#[test]
fn a_changed_record_is_found() {
    for change in [
        "body = '{\"agent\":\"a0\",\"n\":99}'",
        "time_ms = time_ms + 1",
        "kind = 'decision'",
        "kind = 'unheard-of'",
        "body = 'not JSON'",
        "hash = zeroblob(32)",
        "hash = x'00'",
    ] {
        let chain = Chain::of(10);
        chain.tamper(&format!("UPDATE audit SET {change} WHERE seq = 4"));
        let (seq, problem, message) = chain.broken(None);
        assert_eq!((seq, problem), (4, ChainProblem::Changed), "{change}");
        assert!(
            message.starts_with("record 4 does not match its hash"),
            "{message}"
        );
    }
}

#[test]
fn a_removed_record_is_found() {
    let chain = Chain::of(2000);
    chain.tamper("DELETE FROM audit WHERE seq BETWEEN 700 AND 702");
    let (seq, problem, message) = chain.broken(None);
    assert_eq!(
        (seq, problem),
        (700, ChainProblem::Removed { through: 702 })
    );
    assert_eq!(message, "records 700 to 702 were removed");
    let chain = Chain::of(5);
    chain.tamper("DELETE FROM audit WHERE seq = 1");
    assert_eq!(chain.broken(None).2, "record 1 was removed");
}

#[test]
fn a_removed_record_is_found_also_when_the_rest_is_numbered_anew() {
    let chain = Chain::of(10);
    chain.tamper(
        "DELETE FROM audit WHERE seq = 4;
         UPDATE audit SET seq = -seq WHERE seq > 4; UPDATE audit SET seq = -seq - 1 WHERE seq < 0;",
    );
    let (seq, problem, _) = chain.broken(None);
    assert_eq!((seq, problem), (4, ChainProblem::Changed));
}

#[test]
fn reordered_records_are_found() {
    let chain = Chain::of(10);
    chain.tamper(
        "UPDATE audit SET seq = 100 WHERE seq = 3; UPDATE audit SET seq = 3 WHERE seq = 7;
         UPDATE audit SET seq = 7 WHERE seq = 100;",
    );
    let (seq, problem, message) = chain.broken(None);
    assert_eq!((seq, problem), (3, ChainProblem::Moved { now_at: 7 }));
    assert_eq!(message, "record 3 was moved: it stands at 7 now");
    let chain = Chain::of(10);
    chain.tamper("UPDATE audit SET seq = 50 WHERE seq = 3;");
    let (seq, problem, _) = chain.broken(None);
    assert_eq!((seq, problem), (3, ChainProblem::Moved { now_at: 50 }));
}

#[test]
fn an_inserted_record_is_found() {
    let chain = Chain::of(3);
    chain.tamper("INSERT INTO audit (seq, time_ms, kind, body, hash) VALUES (-5, 0, 'verdict', '{}', zeroblob(32))");
    let (seq, problem, _) = chain.broken(None);
    assert_eq!((seq, problem), (1, ChainProblem::Foreign { number: -5 }));
    let chain = Chain::of(3);
    chain.tamper("INSERT INTO audit (seq, time_ms, kind, body, hash) VALUES (4, 0, 'verdict', '{}', zeroblob(32))");
    assert_eq!(chain.broken(None).0, 4);
    let chain = Chain::of(3);
    chain.tamper("INSERT INTO audit (seq, time_ms, kind, body, hash) VALUES (9223372036854775807, 0, 'verdict', '{}', zeroblob(32))");
    assert_eq!(chain.broken(None).0, 4);
    assert_eq!(
        code(chain.store.append(AuditKind::Patch, &json!({}), NOW)),
        "STORE_CORRUPT"
    );
}

#[test]
fn a_cut_tail_is_found_with_the_published_head_only() {
    let chain = Chain::of(10);
    let head = chain.store.audit_head().unwrap();
    chain.tamper("DELETE FROM audit WHERE seq > 6");
    let cut = verified(&chain.store);
    assert_eq!(cut.seq, 6, "whole without the head");
    let (seq, problem, message) = chain.broken(Some(&head));
    assert_eq!((seq, problem), (7, ChainProblem::Cut { head }));
    assert_eq!(
        message,
        "records from 7 on were cut off: record 10 was published"
    );
    // Grown again over the cut.
    for number in 0..8 {
        chain
            .store
            .append(AuditKind::Verdict, &json!({ "n": number }), NOW)
            .unwrap();
    }
    let (seq, problem, _) = chain.broken(Some(&head));
    assert_eq!((seq, problem), (10, ChainProblem::Rewritten { head }));
    let intact = chain.store.verify_audit(Some(&cut)).unwrap();
    assert!(matches!(intact, AuditVerification::Intact(head) if head.seq == 14));
}

#[test]
fn an_export_of_a_damaged_chain_stays_lines_of_json() {
    let chain = Chain::of(3);
    chain.tamper("UPDATE audit SET body = 'not' || char(10) || 'JSON' WHERE seq = 2");
    let lines: Vec<String> = chain
        .store
        .audit_export()
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(lines.len(), 4);
    for line in lines {
        assert!(!line.contains('\n'));
        serde_json::from_str::<Value>(&line).unwrap();
    }
}

#[test]
fn a_part_that_could_not_be_written_is_not_ignored() {
    let chain = Chain::of(2);
    chain.tamper("CREATE TRIGGER no_patch BEFORE INSERT ON audit WHEN new.kind = 'patch' BEGIN SELECT raise(ABORT, 'no'); END");
    let result: Result<(), StoreError> = chain.store.change(|change| {
        change.append(AuditKind::Verdict, &json!({}), NOW)?;
        let _ = change.append(AuditKind::Patch, &json!({}), NOW);
        Ok(())
    });
    assert_eq!(code(result), "STORE_FAILED");
    assert_eq!(verified(&chain.store).seq, 2);
}
