//! What the tests of approvals have in common.

#![allow(dead_code)] // each test file uses a part of it

pub mod chain;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use interlock_store::{
    ApprovalAnswer, ApprovalDecision, ApprovalRequest, AuditHead, AuditVerification,
    CreatedApproval, Decided, Delivery, DeliveryState, NullableField, RecordedOutcome, Store,
    StoreError,
};
use serde_json::json;

/// The time at which the tests begin.
pub const NOW: i64 = 1_750_000_000_000;

/// How long their approvals wait.
pub const WAIT: i64 = 1_800_000;

pub const SURFACE: &str = "web:1";

pub fn request(name: &str) -> ApprovalRequest {
    ApprovalRequest {
        plan: format!("{{\"argv\":[\"{name}\"]}}"),
        plan_digest: digest(name),
        content_digest: content(name),
        verdict: json!({ "verdict": "ask", "reasons": ["allowlist miss"] }),
        binding: "native".to_owned(),
        preview: name.to_owned(),
        agent: "main".to_owned(),
        session_key: "agent:main:main".to_owned(),
        host: "gateway".to_owned(),
        node: None,
        requester: "connection:agent".to_owned(),
        created_at_ms: NOW,
        expires_at_ms: NOW + WAIT,
        always: Some(json!([{ "pattern": name }])),
    }
}

pub fn digest(name: &str) -> String {
    format!("plan-{name}")
}

pub fn content(name: &str) -> String {
    format!("content-{name}")
}

pub fn delivery(surface: &str, state: DeliveryState, at_ms: i64) -> Delivery {
    Delivery {
        surface: surface.to_owned(),
        state,
        at_ms,
        detail: None,
    }
}

/// A pending approval that was sent to [`SURFACE`].
pub fn shown(store: &Store, name: &str) -> CreatedApproval {
    let created = store.create_approval(&request(name)).unwrap();
    let sent = delivery(SURFACE, DeliveryState::Sent, NOW);
    assert!(store.record_delivery(&created.id, &sent).unwrap());
    created
}

pub fn answer(id: &str, decision: ApprovalDecision) -> ApprovalAnswer<'_> {
    ApprovalAnswer {
        id,
        decision,
        decider: "alice",
        surface: SURFACE,
        reason: None,
        plan_digest: None,
        now_ms: NOW + 1,
    }
}

/// A pending approval that alice has decided.
pub fn decided(store: &Store, name: &str, decision: ApprovalDecision) -> CreatedApproval {
    let created = shown(store, name);
    let outcome = store.decide(&answer(&created.id, decision)).unwrap();
    assert_eq!(outcome, Decided::Won);
    created
}

/// The outcome of a run that ended with this exit code.
pub fn exit_outcome(code: impl Into<i64>) -> RecordedOutcome {
    RecordedOutcome {
        exit_code: NullableField::Value(code.into()),
        ..RecordedOutcome::default()
    }
}

pub fn code<T: std::fmt::Debug>(result: Result<T, StoreError>) -> &'static str {
    result.unwrap_err().code()
}

/// The chain is whole; its head is returned.
pub fn verified(store: &Store) -> AuditHead {
    match store.verify_audit(None).unwrap() {
        AuditVerification::Intact(head) => head,
        AuditVerification::Broken(broken) => panic!("{broken}"),
    }
}

/// This test program again, as another process that runs only the test of this name.
pub fn worker(test: &str, variable: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(variable, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}
