//! Who may call and hear what, how no is said, what a client is told first.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use interlock_wire::hello::{
    ConnectionLimits, Features, HelloAuth, HelloKind, HelloOk, HelloSnapshot, ServerInfo,
    SessionDefaults, Shutdown,
};
use interlock_wire::method::{METHODS, authorize, is_unauthorized_role, pairing_scopes};
use interlock_wire::refusal::{self, PairingReason, PairingRequired, pairing_required};
use interlock_wire::{Close, OperatorScope, Role, Scopes, Secret, StateVersion, WireError, event};
use proptest::prelude::*;
use serde_json::{Value, json};

fn scopes(names: &[&str]) -> Scopes {
    Scopes::from_names(names.iter().map(|name| format!("operator.{name}")))
}

#[test]
fn scopes_imply_others() {
    for (held, asked, allowed) in [
        ("read", OperatorScope::Read, true),
        ("write", OperatorScope::Read, true),
        ("read", OperatorScope::Write, false),
        ("admin", OperatorScope::Approvals, true),
        ("admin", OperatorScope::TalkSecrets, true),
        ("write", OperatorScope::Approvals, false),
        ("approvals", OperatorScope::Pairing, false),
        ("unknown", OperatorScope::Read, false),
    ] {
        assert_eq!(scopes(&[held]).allow(asked), allowed, "{held} {asked}");
    }
    assert!(scopes(&["admin"]).cover(&Scopes::all()));
    assert!(scopes(&["write"]).cover(&scopes(&["read", "unknown"])));
    assert!(!scopes(&["read"]).cover(&scopes(&["write"])));
    let sorted = scopes(&["write", "admin", "read"]).names();
    assert_eq!(
        sorted,
        ["operator.admin", "operator.read", "operator.write"]
    );
}

/// The method, the role, its scopes, the refusal.
const CALLS: &[(&str, Role, &[&str], Option<&str>)] = &[
    ("health", Role::Operator, &[], None),
    ("health", Role::Node, &[], None),
    ("node.list", Role::Operator, &["read"], None),
    ("node.list", Role::Operator, &["write"], None),
    (
        "node.list",
        Role::Operator,
        &["approvals"],
        Some("missing scope: operator.read"),
    ),
    (
        "node.invoke",
        Role::Operator,
        &["read"],
        Some("missing scope: operator.write"),
    ),
    ("tools.invoke", Role::Operator, &["write"], None),
    ("node.pair.approve", Role::Operator, &["pairing"], None),
    (
        "device.token.rotate",
        Role::Operator,
        &["write"],
        Some("missing scope: operator.pairing"),
    ),
    (
        "exec.approval.resolve",
        Role::Operator,
        &["write"],
        Some("missing scope: operator.approvals"),
    ),
    ("exec.approval.resolve", Role::Operator, &["admin"], None),
    (
        "exec.approvals.set",
        Role::Operator,
        &["approvals"],
        Some("missing scope: operator.admin"),
    ),
    ("exec.approvals.node.get", Role::Operator, &["admin"], None),
    ("node.invoke.result", Role::Node, &[], None),
    ("node.event", Role::Node, &[], None),
    ("skills.bins", Role::Node, &[], None),
    (
        "node.event",
        Role::Operator,
        &["admin"],
        Some("unauthorized role: operator"),
    ),
    (
        "node.list",
        Role::Node,
        &[],
        Some("unauthorized role: node"),
    ),
    (
        "node.list",
        Role::Node,
        &["admin"],
        Some("unauthorized role: node"),
    ),
    (
        "no.such",
        Role::Operator,
        &["write"],
        Some("missing scope: operator.admin"),
    ),
    (
        "no.such",
        Role::Operator,
        &["admin"],
        Some("unknown method: no.such"),
    ),
    ("no.such", Role::Node, &[], Some("unknown method: no.such")),
    (
        "connect",
        Role::Operator,
        &["admin"],
        Some("connect is only valid as the first request"),
    ),
];

#[test]
fn methods_are_for_those_who_may_call_them() {
    for (method, role, held, refused) in CALLS {
        let answer = authorize(method, *role, &scopes(held));
        let message = answer.as_ref().err().map(|error| error.message.as_str());
        assert_eq!(message, *refused, "{method} {role} {held:?}");
        if let Err(error) = answer {
            assert_eq!(error.code.as_str(), "INVALID_REQUEST");
            assert_eq!(
                is_unauthorized_role(&error),
                error.message.starts_with("unauthorized")
            );
        }
    }
    let error = authorize("node.list", Role::Operator, &Scopes::default()).unwrap_err();
    assert_eq!(
        error.details.as_deref(),
        Some(
            &json!({"code":"MISSING_SCOPE","missingScope":"operator.read","requiredScopes":["operator.read"]})
        )
    );
}

#[test]
fn a_client_without_scopes_may_only_ask_for_health() {
    for method in METHODS {
        let allowed = authorize(method.name, Role::Operator, &Scopes::default()).is_ok();
        assert_eq!(allowed, method.name == "health", "{}", method.name);
    }
}

#[test]
fn approving_a_node_takes_more_the_more_it_may_do() {
    assert_eq!(pairing_scopes::<&str>(&[]), [OperatorScope::Pairing]);
    assert_eq!(
        pairing_scopes(&["system.notify"]),
        [OperatorScope::Pairing, OperatorScope::Write]
    );
    for command in ["system.run", "system.run.prepare", "system.which"] {
        let commands = ["system.notify", command];
        assert_eq!(
            pairing_scopes(&commands),
            [OperatorScope::Pairing, OperatorScope::Admin]
        );
    }
}

#[test]
fn events_go_to_those_who_may_hear_them() {
    for (name, role, held, heard) in [
        ("tick", Role::Operator, &[][..], true),
        ("tick", Role::Node, &[], true),
        ("heartbeat", Role::Operator, &[], true),
        ("heartbeat", Role::Node, &[], false),
        (
            "exec.approval.requested",
            Role::Operator,
            &["approvals"],
            true,
        ),
        ("exec.approval.requested", Role::Operator, &["write"], false),
        ("exec.approval.requested", Role::Node, &["admin"], false),
        ("node.pair.requested", Role::Operator, &["pairing"], true),
        ("device.pair.resolved", Role::Operator, &["read"], false),
        ("session.message", Role::Operator, &["read"], true),
        ("session.message", Role::Operator, &[], false),
        ("node.invoke.request", Role::Operator, &["admin"], false),
        ("no.such", Role::Operator, &["admin"], false),
    ] {
        assert_eq!(
            event::is_heard_by(name, role, &scopes(held)),
            heard,
            "{name} {role} {held:?}"
        );
    }
    assert!(event::names().contains(&"tick".to_owned()));
    assert!(event::names().iter().all(|name| !name.ends_with('.')));
}

#[test]
fn roles_are_two_and_none_means_operator() {
    assert_eq!(Role::parse(None), Some(Role::Operator));
    assert_eq!(Role::parse(Some("node")), Some(Role::Node));
    assert_eq!(Role::parse(Some("admin")), None);
    assert_eq!(Role::parse(Some("Node")), None);
}

#[test]
fn every_refusal_says_its_code_and_closes_with_its_message() {
    let mut names = BTreeSet::new();
    for (name, refusal) in refusal::ALL {
        assert!(names.insert(name), "{name} stands there twice");
        let error = refusal.error();
        assert_eq!(error.message, refusal.message);
        match refusal.detail {
            "" => assert_eq!(error.details, None),
            detail => assert_eq!(error.detail_code(), Some(detail)),
        }
        assert!(
            refusal.message.starts_with(&refusal.close().reason),
            "{name}"
        );
    }
    assert_eq!(refusal::PROTOCOL_MISMATCH.close().code, 1002);
    assert_eq!(refusal::STARTING.close().code, 1013);
    assert_eq!(refusal::AUTH_TOKEN_MISMATCH.close().code, 1008);
    let error = serde_json::to_value(refusal::starting()).unwrap();
    assert_eq!(
        error,
        json!({"code":"UNAVAILABLE","message":"gateway starting; retry shortly","details":{"reason":"startup-sidecars"},"retryable":true,"retryAfterMs":500})
    );
    let error = refusal::protocol_mismatch(1, 2);
    assert_eq!(
        error.details.as_deref(),
        Some(
            &json!({"code":"PROTOCOL_MISMATCH","clientMinProtocol":1,"clientMaxProtocol":2,"expectedProtocol":4,"minimumProbeProtocol":3})
        )
    );
}

#[test]
fn a_device_that_must_be_paired_is_told_how() {
    let (error, close) = pairing_required(&PairingRequired {
        reason: PairingReason::NotPaired,
        request_id: "r-1",
        device_id: "d-1",
        role: "node",
        scopes: &[],
        approved: None,
    });
    assert_eq!(
        serde_json::to_value(&error).unwrap(),
        json!({"code":"NOT_PAIRED","message":"pairing required: device is not approved yet","details":{"code":"PAIRING_REQUIRED",
            "reason":"not-paired","requestId":"r-1","remediationHint":"Approve this device from the pending pairing requests.",
            "deviceId":"d-1","requestedRole":"node","requestedScopes":[],
            "pauseReconnect":false,"recommendedNextStep":"wait_then_retry"}})
    );
    let reason = "pairing required: device is not approved yet (requestId: r-1)";
    assert_eq!(close, Close::policy(reason));
    let (roles, held) = (["operator".to_owned()], ["operator.read".to_owned()]);
    let (error, _) = pairing_required(&PairingRequired {
        reason: PairingReason::ScopeUpgrade,
        request_id: "r",
        device_id: "d",
        role: "operator",
        scopes: &["operator.admin".to_owned()],
        approved: Some((&roles, &held)),
    });
    let details = error.details.unwrap();
    assert_eq!(details["reason"], "scope-upgrade");
    assert_eq!(details["approvedScopes"], json!(["operator.read"]));
    // A user in front of a command wants to know at once.
    assert_eq!(details.get("pauseReconnect"), None);
    assert!(
        error
            .message
            .ends_with("more scopes than currently approved")
    );
}

#[test]
fn failures_of_nodes_are_told_as_clients_know_them() {
    for (error, expected) in [
        (
            WireError::node_failed(Some("UNAVAILABLE"), Some("no")),
            json!({"code":"UNAVAILABLE","message":"UNAVAILABLE: no","details":{"nodeError":{"code":"UNAVAILABLE","message":"no"}}}),
        ),
        (
            WireError::node_failed(None, Some("no")),
            json!({"code":"UNAVAILABLE","message":"no","details":{"nodeError":{"message":"no"}}}),
        ),
        (
            WireError::node_failed(None, None),
            json!({"code":"UNAVAILABLE","message":"node invoke failed","details":{"nodeError":{}}}),
        ),
        (
            refusal::NOT_CONNECTED.error(),
            json!({"code":"UNAVAILABLE","message":"node not connected","details":{"code":"NOT_CONNECTED"}}),
        ),
        (
            WireError::node_disconnected("system.which"),
            json!({"code":"UNAVAILABLE","message":"Error: node disconnected (system.which)"}),
        ),
        (
            WireError::command_not_allowlisted("foo.bar", "linux"),
            json!({"code":"INVALID_REQUEST","message":"node command not allowed: \"foo.bar\" is not in the allowlist for platform \"linux\"","details":{"reason":"command not allowlisted"}}),
        ),
    ] {
        assert_eq!(serde_json::to_value(&error).unwrap(), expected);
    }
    let timeout = WireError::node_timeout();
    assert_eq!(timeout.message, "TIMEOUT: node invoke timed out");
}

#[test]
fn a_welcome_has_its_properties_in_order_and_that_of_others_is_read() {
    let hello = HelloOk {
        kind: HelloKind::HelloOk,
        protocol: 4,
        server: ServerInfo {
            version: "1".into(),
            conn_id: "c".into(),
            product: None,
        },
        features: Features::default(),
        snapshot: HelloSnapshot {
            state_version: StateVersion {
                presence: 2,
                health: 4,
            },
            health: json!({}),
            session_defaults: Some(SessionDefaults {
                default_agent_id: "main".into(),
                main_key: "main".into(),
                main_session_key: "agent:main:main".into(),
                scope: Some("per-sender".into()),
            }),
            ..HelloSnapshot::default()
        },
        plugin_surface_urls: None,
        auth: HelloAuth {
            role: "operator".into(),
            scopes: Vec::new(),
            device_token: Some(Secret::new("t")),
            issued_at_ms: Some(9),
        },
        policy: ConnectionLimits::default(),
    };
    let text = serde_json::to_string(&hello).unwrap();
    assert_eq!(
        text,
        r#"{"type":"hello-ok","protocol":4,"server":{"version":"1","connId":"c"},"features":{"methods":[],"events":[]},"snapshot":{"presence":[],"health":{},"stateVersion":{"presence":2,"health":4},"uptimeMs":0,"sessionDefaults":{"defaultAgentId":"main","mainKey":"main","mainSessionKey":"agent:main:main","scope":"per-sender"}},"auth":{"role":"operator","scopes":[],"deviceToken":"t","issuedAtMs":9},"policy":{"maxPayload":26214400,"maxBufferedBytes":52428800,"tickIntervalMs":30000}}"#
    );
    let mut newer: Value = serde_json::from_str(&text).unwrap();
    newer["server"]["buildId"] = json!("b");
    newer["policy"]["attachments"] = json!({"maxBytes": 1});
    newer["controlUiTabs"] = json!([]);
    assert_eq!(serde_json::from_value::<HelloOk>(newer).unwrap(), hello);
    assert!(!format!("{hello:?}").contains("\"t\""));
    let shutdown = Shutdown {
        reason: "gateway stopping".into(),
        restart_expected_ms: None,
    };
    assert_eq!(
        serde_json::to_string(&shutdown).unwrap(),
        r#"{"reason":"gateway stopping","restartExpectedMs":null}"#
    );
}

proptest! {
    #[test]
    fn a_reason_fits_into_a_close_frame(reason in ".*") {
        let close = Close::policy(&*reason);
        prop_assert!(close.reason.len() <= 123);
        prop_assert!(reason.starts_with(&close.reason));
        prop_assert!(reason.len() <= 123 || close.reason.len() > 119);
    }
}
