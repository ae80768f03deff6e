//! The harness itself: what it must notice, and what must not upset it.

use serde_json::{Value, json};

use crate::FILES;
use crate::comparison::{Answer, Comparison, Row};
use crate::tally::Tally;

fn looser(_: Row<'_>) -> Answer {
    Comparison::permission(false, true)
}

fn stricter_if_marked(row: Row<'_>) -> Answer {
    let marked = row.get("marked").as_bool() == Some(true);
    Comparison::permission(true, !marked)
}

#[test]
fn looser_without_a_rule_fails() {
    let mut tally = Tally::new("allowlist");
    tally.row(r#"{"kind": "shell", "command": "ls"}"#, looser);
    assert_eq!(tally.failures().len(), 1);
    let mut soft = Tally::new("allowlist");
    soft.row(
        r#"{"kind": "shell", "command": "ls", "soft": true}"#,
        looser,
    );
    assert!(soft.failures().is_empty());
}

#[test]
fn a_rule_goes_by_the_form_of_the_case() {
    let mut tally = Tally::new("allowlist");
    tally.row(r#"{"kind": "shell", "command": "ls 2>/dev/null"}"#, looser);
    tally.row(r#"{"kind": "shell", "command": "bash -lc ls"}"#, looser);
    assert!(tally.failures().is_empty());
    assert!(tally.line().contains("2 looser by the spec"));
}

#[test]
fn a_file_may_be_stricter_only_a_little() {
    let mut tally = Tally::new("safebins");
    for _ in 0..97 {
        tally.row("{}", stricter_if_marked);
    }
    for _ in 0..3 {
        tally.row(r#"{"marked": true}"#, stricter_if_marked);
    }
    assert!(tally.failures().is_empty());
    tally.row(r#"{"marked": true}"#, stricter_if_marked);
    assert_eq!(tally.failures().len(), 1);
}

#[test]
fn odd_rows_are_counted_and_upset_nothing() {
    let values = [
        Value::Null,
        json!(7),
        json!(""),
        json!([]),
        json!([""]),
        json!([null]),
        json!({}),
        json!({ "command": [] }),
    ];
    let kinds = "shell argv resolved parse pattern entries builtin policy run-policy effective \
        approvals-file offered-decisions defaults durable host-run regex grant-reuse \
        policy-of-mode stricter-ask dispatch dispatch-probe dispatch-chain resolution trust-plan \
        name is-shell multiplexer env-split env-unwrap env-assignment-keys env-before-shell \
        is-shell-invocation shell-inline inline-flag shell-text shell-wrapper carrier \
        payload-candidates carried-builtin trusted-dirs runtime-policy semantics override \
        inherited host-exec sandbox operand plan pin drift command-text unheard-of";
    let fields = [
        "argv",
        "command",
        "input",
        "token",
        "pattern",
        "policy",
        "request",
        "entries",
        "segments",
        "file",
        "approvals",
        "config",
        "fs",
        "path",
        "expect",
        "context",
        "bin",
        "key",
        "value",
        "change",
        "text",
    ];
    for (file, adapter) in FILES {
        let mut tally = Tally::new(file);
        tally.row("not json", *adapter);
        tally.row("[]", *adapter);
        for kind in kinds.split_whitespace() {
            for value in &values {
                let mut row: serde_json::Map<String, Value> = fields
                    .iter()
                    .map(|field| ((*field).to_owned(), value.clone()))
                    .collect();
                row.insert("kind".to_owned(), json!(kind));
                tally.row(&Value::Object(row).to_string(), *adapter);
            }
        }
        assert!(tally.line().contains("skipped"));
    }
}
