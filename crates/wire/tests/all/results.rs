//! The result of every method: it has a type, and a client reads it from gateways of other versions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_wire::method::contracts;
use interlock_wire::params::{NodeDescribe, Params, Status};
use interlock_wire::results::{ConfigIssue, NodeExplanation, Relayed, SessionEntry};
use schemars::SchemaGenerator;
use serde_json::{Value, json};

fn schema(result: fn(&mut SchemaGenerator) -> schemars::Schema) -> Value {
    result(&mut SchemaGenerator::default()).to_value()
}

#[test]
fn every_method_has_a_result_with_a_name() {
    let mut untyped = Vec::new();
    for contract in contracts() {
        let schema = schema(contract.result_schema);
        let named = schema.get("items").unwrap_or(&schema).get("$ref");
        if named.is_none() {
            untyped.push(contract.method);
        }
    }
    assert_eq!(untyped, Vec::<&str>::new());
}

#[test]
fn a_gateway_may_leave_out_any_field_and_add_others() {
    for contract in contracts() {
        // The first message of a connection is read strictly.
        if contract.method == "connect" {
            continue;
        }
        let is_list = schema(contract.result_schema).get("items").is_some();
        let entry = json!({ "ofAnotherVersion": [1] });
        let of_another_version = if is_list { json!([entry]) } else { entry };
        let read = (contract.rewrite_result)(of_another_version);
        assert!(read.is_ok(), "{}: {read:?}", contract.method);
    }
}

#[test]
fn fields_that_a_foreign_gateway_uses_otherwise_count_as_absent() {
    let told = json!({ "agents": { "agents": [] }, "runs": 3, "uptimeMs": "long", "version": "1" });
    let status: <Status as Params>::Answer = serde_json::from_value(told).unwrap();
    assert_eq!(status.version.as_deref(), Some("1"));
    assert_eq!((status.agents, status.uptime_ms), (0, 0));
}

#[test]
fn what_another_program_wrote_is_handed_on_as_it_came() {
    let told = json!({ "verdict": "ask", "later": { "b": 1, "a": null }, "cwd": "/" });
    let relayed: Relayed<NodeExplanation> = serde_json::from_value(told.clone()).unwrap();
    assert_eq!(relayed.read().unwrap().verdict.as_deref(), Some("ask"));
    assert_eq!(
        serde_json::to_string(&relayed.with("nodeId", "n")).unwrap(),
        told.to_string()
            .replace("\"/\"}", "\"/\",\"nodeId\":\"n\"}")
    );
    let list: Relayed<NodeExplanation> = Relayed::new(json!([1]));
    assert_eq!(list.with("nodeId", "n").into_json(), json!([1]));
}

#[test]
fn the_order_on_the_wire_is_that_of_the_types() {
    let described: <NodeDescribe as Params>::Answer =
        serde_json::from_value(json!({ "nodeId": "n", "version": "1", "ts": 7 })).unwrap();
    assert_eq!(
        serde_json::to_string(&described).unwrap(),
        r#"{"ts":7,"nodeId":"n","version":"1","caps":[],"commands":[],"paired":false,"connected":false}"#
    );
    let entry = SessionEntry {
        key: "agent:main:main".to_owned(),
        ..SessionEntry::default()
    };
    let written = serde_json::to_string(&entry).unwrap();
    let start = r#"{"label":null,"elevatedLevel":null,"execHost":null,"execSecurity":null,"execAsk":null,"execNode":null,"key":"#;
    assert!(written.starts_with(start), "{written}");
    let issue = ConfigIssue {
        code: "C".to_owned(),
        ..ConfigIssue::default()
    };
    assert_eq!(
        serde_json::to_string(&issue).unwrap(),
        r#"{"code":"C","message":""}"#
    );
}
