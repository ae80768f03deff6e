//! How people are asked, and what they may say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_wire::approval::{
    ApprovalAccepted, ApprovalDecided, ApprovalDetails, ApprovalListed, ApprovalRequested,
    ApprovalResolved, DecisionWord, allowed_decisions,
};

#[test]
fn a_question_has_its_properties_in_order() {
    let details = ApprovalDetails {
        command: "ls".into(),
        host: Some("node".into()),
        node_id: Some("n".into()),
        ask: Some("always".into()),
        allowed_decisions: allowed_decisions(Some("always")),
        ..ApprovalDetails::default()
    };
    let requested = ApprovalRequested {
        id: "a".into(),
        created_at_ms: 1,
        expires_at_ms: 2,
        request: details.clone(),
    };
    let request = r#"{"command":"ls","systemRunBinding":null,"systemRunPlan":null,"cwd":null,"nodeId":"n","host":"node","security":null,"ask":"always","warningText":null,"allowedDecisions":["allow-once","deny"],"agentId":null,"resolvedPath":null,"sessionKey":null,"turnSourceChannel":null,"turnSourceTo":null,"turnSourceAccountId":null,"turnSourceThreadId":null}"#;
    let text = serde_json::to_string(&requested).unwrap();
    assert_eq!(
        text,
        format!(r#"{{"id":"a","createdAtMs":1,"expiresAtMs":2,"request":{request}}}"#)
    );
    assert_eq!(
        serde_json::from_str::<ApprovalRequested>(&text).unwrap(),
        requested
    );
    let listed = serde_json::to_string(&ApprovalListed::from(requested)).unwrap();
    assert_eq!(
        listed,
        format!(r#"{{"id":"a","request":{request},"createdAtMs":1,"expiresAtMs":2}}"#)
    );
    let resolved = ApprovalResolved {
        id: "a".into(),
        decision: DecisionWord::ALLOW_ONCE,
        resolved_by: Some("cli".into()),
        ts: 3,
        request: details,
    };
    let text = serde_json::to_string(&resolved).unwrap();
    assert!(
        text.starts_with(
            r#"{"id":"a","decision":"allow-once","resolvedBy":"cli","ts":3,"request":{"#
        )
    );
}

#[test]
fn a_question_is_answered_in_two_phases() {
    let accepted = serde_json::to_string(&ApprovalAccepted::new("a", 1, 2)).unwrap();
    assert_eq!(
        accepted,
        r#"{"status":"accepted","id":"a","createdAtMs":1,"expiresAtMs":2}"#
    );
    let decided = ApprovalDecided {
        id: "a".into(),
        decision: None,
        created_at_ms: 1,
        expires_at_ms: 2,
    };
    let text = serde_json::to_string(&decided).unwrap();
    assert_eq!(
        text,
        r#"{"id":"a","decision":null,"createdAtMs":1,"expiresAtMs":2}"#
    );
}

#[test]
fn decisions_are_words_and_only_these() {
    for decision in [
        DecisionWord::ALLOW_ONCE,
        DecisionWord::ALLOW_ALWAYS,
        DecisionWord::ALLOW_SESSION,
        DecisionWord::DENY,
    ] {
        assert_eq!(DecisionWord::parse(decision.as_str()), Some(decision));
        assert_eq!(serde_json::to_value(decision).unwrap(), decision.as_str());
        assert_eq!(decision.allows(), decision != DecisionWord::DENY);
    }
    assert_eq!(DecisionWord::parse("ALLOW-ONCE"), None);
    assert_eq!(DecisionWord::parse(""), None);
}
