//! The parameters of every method: what is accepted, and the words of a refusal.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use interlock_wire::contract::MethodContract;
use interlock_wire::method::{METHODS, contracts};
use interlock_wire::params::{
    self, Connect, NodeEvent, NodeInvokeResult, SessionsPatch, TasksList,
};
use interlock_wire::schema::{ObjectSchema, PropertyKind};
use proptest::prelude::*;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

fn entry(method: &str) -> &'static MethodContract {
    let found = contracts().find(|entry| entry.method == method);
    found.unwrap_or_else(|| panic!("no parameters for {method}"))
}

fn rewrite(method: &str, value: &Value) -> Result<Value, String> {
    let raw = to_raw_value(value).unwrap();
    (entry(method).rewrite)(&raw).map_err(|error| error.message)
}

fn read<P: params::Params>(value: &Value) -> P {
    params::read(Some(&to_raw_value(value).unwrap())).unwrap()
}

#[test]
fn every_method_has_a_name_of_its_own() {
    let names: BTreeSet<&str> = contracts().map(|contract| contract.method).collect();
    assert_eq!(names.len(), METHODS.len() + 1);
    assert!(names.contains("connect"));
    for method in METHODS {
        assert_eq!(method.name, method.contract.method);
    }
}

/// A value of the kind, with everything in it that it may have.
fn example(kind: &PropertyKind) -> Value {
    match kind {
        PropertyKind::Any => json!({"any": [1]}),
        PropertyKind::Null => Value::Null,
        PropertyKind::Boolean => json!(true),
        PropertyKind::Text(least, _) => json!("x".repeat((*least).max(3))),
        PropertyKind::Integer(least, most) => json!((*least).max(2).min(*most)),
        PropertyKind::Number => json!(1.5),
        PropertyKind::OneOf(words) => json!(words[0]),
        PropertyKind::Word(word) => json!(word),
        PropertyKind::Exactly(number) => json!(number),
        PropertyKind::List(kind, _) => json!([example(kind)]),
        PropertyKind::Map(kind) => json!({"key": example(kind)}),
        PropertyKind::Object(shape) => full(shape),
        PropertyKind::AnyOf(kinds) => example(&kinds[0]),
    }
}

fn full(shape: &ObjectSchema) -> Value {
    let fields = shape.fields.iter();
    Value::Object(
        fields
            .map(|field| (field.name.to_owned(), example(&field.kind)))
            .collect(),
    )
}

fn least(shape: &ObjectSchema) -> Value {
    let fields = shape.fields.iter().filter(|field| field.required);
    let value = |kind: &PropertyKind| match kind {
        PropertyKind::Object(shape) => least(shape),
        other => example(other),
    };
    Value::Object(
        fields
            .map(|field| (field.name.to_owned(), value(&field.kind)))
            .collect(),
    )
}

#[test]
fn the_type_of_every_method_holds_all_that_its_table_accepts() {
    for entry in contracts() {
        let value = full(&entry.shape);
        assert_eq!(
            rewrite(entry.method, &value).as_ref(),
            Ok(&value),
            "{}",
            entry.method
        );
        let value = least(&entry.shape);
        assert_eq!(
            rewrite(entry.method, &value).as_ref(),
            Ok(&value),
            "{}",
            entry.method
        );
    }
}

#[test]
fn every_method_refuses_what_it_does_not_know_and_names_all_that_is_missing() {
    for entry in contracts() {
        let mut value = full(&entry.shape);
        value["zzz"] = json!(1);
        let method = entry.method;
        let expected = format!("invalid {method} params: at root: unexpected property 'zzz'");
        assert_eq!(rewrite(method, &value), Err(expected));
        let required = entry.shape.fields.iter().filter(|field| field.required);
        let missing: Vec<String> = required
            .map(|field| format!("must have required property '{}'", field.name))
            .collect();
        if !missing.is_empty() {
            let expected = format!("invalid {method} params: {}", missing.join("; "));
            assert_eq!(rewrite(method, &json!({})), Err(expected));
        }
    }
}

/// What a JSON Schema validator, as common gateways use one, says of the same values.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "node.describe",
        r#"{"x":1}"#,
        "must have required property 'nodeId'; at root: unexpected property 'x'",
    ),
    ("node.describe", "[]", "must be object"),
    (
        "node.describe",
        r#"{"nodeId":""}"#,
        "at /nodeId: must NOT have fewer than 1 characters",
    ),
    (
        "node.invoke",
        r#"{"nodeId":"n","command":5,"timeoutMs":-1}"#,
        "must have required property 'idempotencyKey'; at /command: must be string; at /timeoutMs: must be >= 0",
    ),
    (
        "node.invoke",
        r#"{"nodeId":"n","command":"c","idempotencyKey":"k","timeoutMs":1.5,"turnSourceThreadId":true}"#,
        "at /timeoutMs: must be integer; at /turnSourceThreadId: must be string; at /turnSourceThreadId: must be number; at /turnSourceThreadId: must match a schema in anyOf",
    ),
    (
        "connect",
        r#"{"minProtocol":0,"maxProtocol":4,"client":{"id":"ios-node","version":"1","platform":"linux","mode":"operator"}}"#,
        "at /minProtocol: must be >= 1; at /client/id: must be equal to one of the allowed values; at /client/mode: must be equal to one of the allowed values",
    ),
    (
        "connect",
        r#"{"minProtocol":4,"maxProtocol":4,"client":{"id":"cli","version":"1","platform":"linux","mode":"cli","zz":1},"device":{"id":"d","publicKey":"k","signature":"s","signedAt":1},"auth":{"token":5}}"#,
        "at /client: unexpected property 'zz'; at /device: must have required property 'nonce'; at /auth/token: must be string",
    ),
    (
        "connect",
        r#"{"minProtocol":4,"maxProtocol":4,"client":"x","permissions":{"a":1,"b/c":"x"},"scopes":["",3]}"#,
        "at /client: must be object; at /permissions/a: must be boolean; at /permissions/b~1c: must be boolean; at /scopes/0: must NOT have fewer than 1 characters; at /scopes/1: must be string",
    ),
    (
        "exec.approval.request",
        r#"{"command":"","cwd":5,"timeoutMs":0,"commandSpans":[{"startIndex":0,"endIndex":0}]}"#,
        "at /command: must NOT have fewer than 1 characters; at /cwd: must be string; at /cwd: must be null; at /cwd: must match a schema in anyOf; at /commandSpans/0/endIndex: must be >= 1; at /timeoutMs: must be >= 1",
    ),
    (
        "exec.approval.request",
        r#"{"command":"c","systemRunPlan":{"argv":["a"],"cwd":null,"commandText":"a"}}"#,
        "at /systemRunPlan: must have required property 'agentId'; at /systemRunPlan: must have required property 'sessionKey'",
    ),
    (
        "exec.approvals.set",
        r#"{"file":{"version":2}}"#,
        "at /file/version: must be equal to constant",
    ),
    (
        "tasks.list",
        r#"{"status":"x","limit":501}"#,
        "at /status: must be equal to constant; at /status: must match a schema in anyOf; at /status: must be array; at /limit: must be <= 500",
    ),
    (
        "logs.tail",
        r#"{"limit":0,"maxBytes":1000001}"#,
        "at /limit: must be >= 1; at /maxBytes: must be <= 1000000",
    ),
    (
        "config.set",
        r#"{"raw":"","base":1}"#,
        "at root: unexpected property 'base'; at /raw: must NOT have fewer than 1 characters",
    ),
    (
        "device.pair.rename",
        r#"{"deviceId":"d","label":"ééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé"}"#,
        "at /label: must NOT have more than 64 characters",
    ),
    (
        "device.token.rotate",
        r#"{"deviceId":"d","scopes":"x"}"#,
        "must have required property 'role'; at /scopes: must be array",
    ),
    (
        "tools.invoke",
        r#"{"name":"exec","args":[]}"#,
        "at /args: must be object",
    ),
];

#[test]
fn a_refusal_says_what_clients_know() {
    for (method, text, problems) in REFUSED {
        let value = serde_json::from_str(text).unwrap();
        let expected = format!("invalid {method} params: {problems}");
        assert_eq!(rewrite(method, &value), Err(expected), "{text}");
    }
}

#[test]
fn a_refusal_stays_short_whatever_was_sent() {
    let names: serde_json::Map<_, _> = (0..10_000).map(|n| (format!("n{n}"), json!(n))).collect();
    let message = rewrite("node.list", &Value::Object(names)).unwrap_err();
    assert!(message.len() < 2000, "{}", message.len());
    let scopes = vec![json!(1); 100_000];
    let value = json!({"deviceId":"d","role":"node","scopes":scopes});
    assert!(rewrite("device.token.rotate", &value).unwrap_err().len() < 2000);
}

#[test]
fn no_parameters_and_null_are_an_empty_object() {
    assert!(params::read::<params::NodeList>(None).is_ok());
    assert!(params::read::<params::NodeList>(Some(RawValue::NULL)).is_ok());
    let refused = params::read::<params::NodeDescribe>(None).unwrap_err();
    assert_eq!(
        refused.message,
        "invalid node.describe params: must have required property 'nodeId'"
    );
}

#[test]
fn whole_numbers_may_be_written_with_a_point() {
    let raw = RawValue::from_string(r#"{"limit":1e2,"cursor":5.0}"#.into()).unwrap();
    let tail: params::LogsTail = params::read(Some(&raw)).unwrap();
    assert_eq!((tail.limit, tail.cursor), (Some(100), Some(5)));
}

#[test]
fn the_connect_of_a_node_is_read() {
    let connect: Connect = read(&json!({"minProtocol":4,"maxProtocol":4,
        "client":{"id":"node-host","displayName":"peer-node","version":"2026.5.19","platform":"linux","deviceFamily":"Linux","mode":"node","instanceId":"i"},
        "caps":["system","browser","file"],
        "commands":["system.run.prepare","system.run","system.which","system.execApprovals.get","system.execApprovals.set","browser.proxy"],
        "pathEnv":"/bin","auth":{"token":"shared"},"role":"node","scopes":[],
        "device":{"id":"d","publicKey":"k","signature":"s","signedAt":1,"nonce":"n"}}));
    assert_eq!(connect.signed_token(), "shared");
    assert_eq!(connect.commands.as_ref().unwrap().len(), 6);
    assert!(!format!("{connect:?}").contains("shared"));
}

#[test]
fn the_signed_token_is_the_first_that_is_there() {
    let token = |auth: Value| {
        let connect: Connect = read(&json!({"minProtocol":3,"maxProtocol":4,"auth":auth,
            "client":{"id":"cli","version":"1","platform":"linux","mode":"cli"}}));
        connect.signed_token().to_owned()
    };
    assert_eq!(
        token(json!({"deviceToken":"d","token":"t","bootstrapToken":"b"})),
        "t"
    );
    assert_eq!(token(json!({"deviceToken":"d","bootstrapToken":"b"})), "d");
    assert_eq!(token(json!({"bootstrapToken":"b"})), "b");
    assert_eq!(token(json!({"password":"p"})), "");
}

#[test]
fn a_protocol_is_chosen_from_the_range_and_old_ones_are_for_nodes_and_probes() {
    for (mode, min, max, spoken) in [
        ("cli", 4, 4, Some(4)),
        ("cli", 3, 4, Some(4)),
        ("cli", 1, 9, Some(4)),
        ("cli", 3, 3, None),
        ("node", 3, 3, Some(3)),
        ("probe", 2, 3, Some(3)),
        ("node", 5, 9, None),
        ("node", 1, 2, None),
        ("node", 4, 3, None),
    ] {
        let connect: Connect = read(&json!({"minProtocol":min,"maxProtocol":max,
            "client":{"id":"test","version":"1","platform":"linux","mode":mode}}));
        assert_eq!(connect.speaks(), spoken, "{mode} {min}..{max}");
    }
}

#[test]
fn a_patch_tells_what_is_taken_away_from_what_is_left_alone() {
    let value = json!({"key":"agent:main:main","execHost":null,"execNode":"n"});
    let patch: SessionsPatch = read(&value);
    assert_eq!(patch.exec_host, Some(None));
    assert_eq!(patch.exec_node, Some(Some("n".to_owned())));
    assert_eq!(patch.exec_ask, None);
    assert_eq!(serde_json::to_value(patch).unwrap(), value);
}

#[test]
fn answers_of_nodes_may_hold_nulls_and_objects() {
    let result = |extra: Value| {
        let mut value = json!({"id":"i","nodeId":"n","ok":true});
        value
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        read::<NodeInvokeResult>(&value).into_payload()
    };
    assert_eq!(
        result(json!({"payloadJSON":"{\"a\":1}"})),
        (json!({"a":1}), Some("{\"a\":1}".into()))
    );
    assert_eq!(
        result(json!({"payloadJSON":"{a"})),
        (json!({"payloadJSON":"{a"}), Some("{a".into()))
    );
    assert_eq!(
        result(json!({"payloadJSON":{"a":1}})),
        (json!({"a":1}), None)
    );
    assert_eq!(
        result(json!({"payloadJSON":null,"error":null,"payload":[2]})),
        (json!([2]), None)
    );
    assert_eq!(result(json!({})), (Value::Null, None));
}

#[test]
fn the_payload_of_a_node_event_must_be_text() {
    let refused = rewrite("node.event", &json!({"event":"e","payloadJSON":null}));
    assert_eq!(
        refused.unwrap_err(),
        "invalid node.event params: at /payloadJSON: must be string"
    );
    let event: NodeEvent = read(&json!({"event":"e","payloadJSON":"{\"runId\":\"r\"}"}));
    assert_eq!(event.into_payload(), json!({"runId":"r"}));
}

#[test]
fn tasks_are_asked_for_by_one_status_or_several() {
    let list = |status: Value| read::<TasksList>(&json!({ "status": status }));
    assert_eq!(list(json!("running")).statuses(), ["running"]);
    assert_eq!(
        list(json!(["queued", "failed"])).statuses(),
        ["queued", "failed"]
    );
    assert!(TasksList::default().statuses().is_empty());
}

proptest! {
    /// No value makes a reader panic, and what it accepts it also writes and accepts again.
    #[test]
    fn any_value_is_read_or_refused(index in 0..=METHODS.len(), key in 0_usize..8, text in ".*", number in any::<i32>().prop_map(|number| f64::from(number) / 4.0)) {
        let entry = contracts().nth(index).unwrap();
        let mut value = full(&entry.shape);
        if let Some(field) = entry.shape.fields.get(key) {
            for other in [json!(text), json!(number), json!([text]), json!({ &text: number }), Value::Null] {
                value[field.name] = other;
                if let Ok(written) = rewrite(entry.method, &value) {
                    prop_assert_eq!(rewrite(entry.method, &written), Ok(written.clone()));
                }
            }
        }
    }
}
