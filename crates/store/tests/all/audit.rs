//! The audit chain: what is recorded, and how it is read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::chain::Chain;
use crate::common::{NOW, code, decided, digest, exit_outcome, verified};
use interlock_store::{
    ApprovalDecision, ApprovalsStore, AuditFilter, AuditHead, AuditKind, AuditOrder,
    AuditVerification, Author, Claiming, MAX_AUDIT_BODY_BYTES, StoreError,
};
use serde_json::{Value, json};

#[test]
fn an_empty_chain_is_intact() {
    let chain = Chain::new();
    let head = verified(&chain.store);
    assert_eq!(head.seq, 0);
    assert_eq!(head, chain.store.audit_head().unwrap());
    let intact = chain.store.verify_audit(Some(&head)).unwrap();
    assert_eq!(intact, AuditVerification::Intact(head));
}

#[test]
fn every_hash_can_be_computed_by_others() {
    let chain = Chain::new();
    let mut previous = [0; 32];
    for (kind, body, canonical) in [
        (
            AuditKind::Pairing,
            json!({ "b": 1, "a": "é" }),
            r#"{"a":"é","b":1}"#,
        ),
        (AuditKind::RunEnded, json!([]), "[]"),
    ] {
        let head = chain.store.append(kind, &body, NOW).unwrap();
        let mut bytes = b"interlock audit record v1\0".to_vec();
        bytes.extend(previous);
        bytes.extend(head.seq.to_be_bytes());
        bytes.extend(NOW.to_be_bytes());
        for text in [kind.as_str(), canonical] {
            bytes.extend((text.len() as u64).to_be_bytes());
            bytes.extend(text.as_bytes());
        }
        previous = sha256(&bytes);
        let text = format!("{}:{}", head.seq, hex(&previous));
        assert_eq!(text, head.to_string());
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    digits.collect::<Vec<_>>().concat()
}

/// By the system's own tool, so that the hash is not compared with itself.
fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sha256sum");
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap().stdout;
    std::array::from_fn(|index| {
        let pair = std::str::from_utf8(&output[2 * index..2 * index + 2]).unwrap();
        u8::from_str_radix(pair, 16).unwrap()
    })
}

#[test]
fn a_head_is_read_back_from_its_text() {
    let chain = Chain::of(3);
    let head = chain.store.audit_head().unwrap();
    assert_eq!(head.to_string().parse(), Ok(head));
    let text = head.to_string();
    for wrong in [
        "",
        "3",
        "3:",
        ":",
        "x:00",
        &text[..text.len() - 1],
        &format!("{text}0"),
        &text.replace(':', " "),
    ] {
        assert!(wrong.parse::<AuditHead>().is_err(), "{wrong}");
    }
}

#[test]
fn the_log_is_filtered_by_kind_agent_time_and_number() {
    let chain = Chain::of(9);
    chain
        .store
        .append(AuditKind::Pairing, &json!({ "agent": "a1" }), NOW)
        .unwrap();
    let all = AuditFilter::default;
    let oldest = || AuditFilter {
        order: AuditOrder::OldestFirst,
        ..all()
    };
    for (filter, expected) in [
        (all(), vec![10, 9, 8, 7, 6, 5, 4, 3, 2, 1]),
        (
            AuditFilter {
                limit: Some(2),
                ..all()
            },
            vec![10, 9],
        ),
        (
            AuditFilter {
                limit: Some(2),
                from_seq: Some(8),
                ..all()
            },
            vec![8, 7],
        ),
        (
            AuditFilter {
                limit: Some(2),
                from_seq: Some(8),
                ..oldest()
            },
            vec![8, 9],
        ),
        (
            AuditFilter {
                from_seq: Some(u64::MAX),
                ..oldest()
            },
            vec![],
        ),
        (
            AuditFilter {
                kind: Some(AuditKind::Pairing),
                ..all()
            },
            vec![10],
        ),
        (
            AuditFilter {
                kind: Some(AuditKind::Patch),
                ..all()
            },
            vec![],
        ),
        (
            AuditFilter {
                agent: Some("a1".to_owned()),
                ..oldest()
            },
            vec![2, 5, 8, 10],
        ),
        (
            AuditFilter {
                agent: Some("%".to_owned()),
                ..oldest()
            },
            vec![],
        ),
        (
            AuditFilter {
                since_ms: Some(NOW + 7),
                ..oldest()
            },
            vec![8, 9],
        ),
        (
            AuditFilter {
                kind: Some(AuditKind::Verdict),
                agent: Some("a1".to_owned()),
                since_ms: Some(NOW + 2),
                limit: Some(1),
                ..all()
            },
            vec![8],
        ),
    ] {
        assert_eq!(chain.numbers(&filter), expected, "{filter:?}");
    }
}

#[test]
fn an_export_holds_every_record_and_the_head_last() {
    let chain = Chain::of(1100);
    let export = chain.store.audit_export().unwrap();
    let head = export.head();
    // What comes while it runs is not in it.
    chain
        .store
        .append(AuditKind::Patch, &json!({}), NOW)
        .unwrap();
    let lines: Vec<Value> = export
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    assert_eq!(lines.len(), 1101);
    let log = chain.store.audit_log(&AuditFilter {
        order: AuditOrder::OldestFirst,
        ..AuditFilter::default()
    });
    for (line, record) in lines.iter().zip(log.unwrap()) {
        let expected = json!({
            "seq": record.seq, "timeMs": record.time_ms, "kind": record.kind.as_str(),
            "body": record.body, "hash": record.hash.to_string(),
        });
        assert_eq!(line, &expected);
    }
    let last = json!({ "head": { "seq": 1100, "hash": head.hash.to_string() } });
    assert_eq!(lines.last(), Some(&last));
}

#[test]
fn every_step_of_an_approval_is_recorded() {
    let chain = Chain::new();
    let store = &chain.store;
    let id = decided(store, "whoami", ApprovalDecision::AllowOnce).id;
    assert_eq!(
        store
            .claim(&id, &digest("whoami"), "gateway", NOW + 2)
            .unwrap(),
        Claiming::Claimed
    );
    store.finish_claim(&id, &exit_outcome(0), NOW + 3).unwrap();
    let log = store
        .audit_log(&AuditFilter {
            agent: Some("main".to_owned()),
            order: AuditOrder::OldestFirst,
            ..AuditFilter::default()
        })
        .unwrap();
    let kinds: Vec<_> = log.iter().map(|record| record.kind).collect();
    assert_eq!(
        kinds,
        [
            AuditKind::Prompt,
            AuditKind::Delivery,
            AuditKind::Decision,
            AuditKind::RunStarted,
            AuditKind::RunEnded
        ]
    );
    assert!(log.iter().all(|record| record.body["approvalId"] == id));
    assert_eq!(log[0].body["preview"], "whoami");
    assert_eq!(log[2].body["decision"], "allow-once");
    assert_eq!(log[2].body["decider"], "alice");
    assert_eq!(log[4].body["outcome"], json!({ "exitCode": 0 }));
    verified(store);
}

#[test]
fn every_write_of_the_policy_is_recorded_with_its_author() {
    let chain = Chain::new();
    let store = &chain.store;
    let first = store.replace_document(None, "{}").unwrap();
    let alice = Author::new("alice").unwrap();
    let second = store
        .replace_document_as(&alice, Some(&first.hash), "{\"n\":1}")
        .unwrap();
    store
        .replace_document_as(&alice, Some(&second.hash), "{\"n\": 1}")
        .unwrap();
    store
        .replace_document_as(&alice, Some("stale"), "{}")
        .unwrap_err();
    let log = store
        .audit_log(&AuditFilter {
            order: AuditOrder::OldestFirst,
            ..AuditFilter::default()
        })
        .unwrap();
    let bodies: Vec<_> = log
        .iter()
        .map(|record| (record.kind, record.body.clone()))
        .collect();
    let write = |old: Option<&str>, new: &str, who: &str| {
        let body = json!({ "document": "approvals", "newHash": new, "oldHash": old, "who": who });
        (AuditKind::PolicyWrite, body)
    };
    assert_eq!(
        bodies,
        [
            write(None, &first.hash, "local"),
            write(Some(&first.hash), &second.hash, "alice")
        ]
    );
    assert_eq!(code(Author::new("")), "INPUT_EMPTY");
}

#[test]
fn a_record_that_is_too_large_is_refused() {
    let chain = Chain::new();
    let body = |bytes: usize| json!("x".repeat(bytes - 2));
    chain
        .store
        .append(AuditKind::Patch, &body(MAX_AUDIT_BODY_BYTES), NOW)
        .unwrap();
    let error = chain
        .store
        .append(AuditKind::Patch, &body(MAX_AUDIT_BODY_BYTES + 1), NOW);
    assert_eq!(code(error), "INPUT_TOO_LARGE");
    for _ in 0..4 {
        chain
            .store
            .append(AuditKind::Patch, &body(MAX_AUDIT_BODY_BYTES), NOW)
            .unwrap();
    }
    assert_eq!(verified(&chain.store).seq, 5);
}

#[test]
fn a_change_that_failed_writes_no_record() {
    let chain = Chain::of(2);
    let result: Result<(), StoreError> = chain.store.change(|change| {
        change.append(AuditKind::Patch, &json!({}), NOW)?;
        change.approval("none").map(drop)
    });
    assert_eq!(code(result), "APPROVAL_NOT_FOUND");
    assert_eq!(verified(&chain.store).seq, 2);
}
