//! Messages: what is read, what is refused and in which words.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_wire::frame::{MAX_FRAME_BYTES, MAX_HANDSHAKE_BYTES};
use interlock_wire::{BadFrame, Event, Frame, Request, Response, StateVersion, WireError};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn a_request_is_read_and_its_parameters_stay_text() {
    let text = r#"{"type":"req","id":"1:a","method":"node.list","params":{ "a" : 1 },"traceparent":"00-x","expectedProfileId":"p"}"#;
    let request = Request::parse(text).unwrap();
    assert_eq!((&*request.id, &*request.method), ("1:a", "node.list"));
    assert_eq!(request.params.unwrap().get(), r#"{ "a" : 1 }"#);
    assert_eq!(request.traceparent.as_deref(), Some("00-x"));
    assert_eq!(request.expected_profile_id.as_deref(), Some("p"));
}

/// The text, the id of the answer, what it says.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        r#"{"type":"req","id":"x1"}"#,
        "x1",
        "must have required property 'method'",
    ),
    (
        r#"{"type":"req","id":"","method":"m"}"#,
        "invalid",
        "at /id: must NOT have fewer than 1 characters",
    ),
    (
        r#"{"type":"req","id":5,"method":"m","x":1}"#,
        "invalid",
        "at root: unexpected property 'x'; at /id: must be string",
    ),
    (
        r#"{"type":"foo","id":"a","method":"m"}"#,
        "a",
        "at /type: must be equal to constant",
    ),
    (
        "{}",
        "invalid",
        "must have required property 'type'; must have required property 'id'; must have required property 'method'",
    ),
    (
        r#"{"type":5,"id":"a","method":""}"#,
        "a",
        "at /type: must be string; at /type: must be equal to constant; at /method: must NOT have fewer than 1 characters",
    ),
    (
        r#"{"type":"req","id":["a"],"method":{}}"#,
        "invalid",
        "at /id: must be string; at /method: must be string",
    ),
    ("[]", "invalid", "must be object"),
    ("null", "invalid", "must be object"),
    ("7", "invalid", "must be object"),
];

#[test]
fn a_bad_request_is_answered_in_known_words() {
    for (text, id, problems) in REFUSED {
        let response = Request::parse(text).unwrap_err().response().unwrap();
        let message = format!("invalid request frame: {problems}");
        let expected = json!({"type":"res","id":id,"ok":false,"error":{"code":"INVALID_REQUEST","message":message}});
        let written: Value = serde_json::from_str(&response.to_text()).unwrap();
        assert_eq!(written, expected, "{text}");
    }
}

#[test]
fn what_is_not_json_is_not_answered() {
    for text in ["", "{", "nope", "{}{}", "[1,]", "{\"a\":}", "\u{feff}{}"] {
        let bad = Request::parse(text).unwrap_err();
        assert_eq!(bad, BadFrame::NotJson, "{text}");
        assert!(bad.response().is_none());
    }
}

#[test]
fn a_frame_with_two_properties_of_one_name_is_refused() {
    let text = r#"{"type":"event","type":"req","id":"a","id":"b","method":"m"}"#;
    let refused = Request::parse(text).unwrap_err();
    let key = "type".to_owned();
    let id = Some("b".to_owned());
    assert_eq!(refused, BadFrame::DuplicateKey { id, key });
}

#[test]
fn messages_of_all_kinds_are_read_by_their_type() {
    let text = r#"{"type":"res","id":"a","ok":false,"error":{"code":"NEW_CODE","message":"m","details":{"code":"X"},"retryable":true,"retryAfterMs":5.0}}"#;
    let Ok(Frame::Response(response)) = Frame::parse(text) else {
        panic!("{text}");
    };
    let error = response.error.unwrap();
    assert_eq!(error.code.as_str(), "NEW_CODE");
    assert_eq!(error.detail_code(), Some("X"));
    assert_eq!(error.retry_after_ms, Some(5));

    let text = r#"{"type":"event","event":"presence","payload":{"presence":[]},"seq":3,"stateVersion":{"presence":2,"health":4}}"#;
    let Ok(Frame::Event(event)) = Frame::parse(text) else {
        panic!("{text}");
    };
    assert_eq!(event.to_text(), text);
    let refused = Frame::parse(r#"{"type":"event","event":"e","seq":-1}"#).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "invalid event frame: at /seq: must be >= 0"
    );
}

#[test]
fn an_accepted_answer_is_not_the_final_one() {
    let accepted = json!({"status":"accepted","id":"x"});
    assert!(Response::success("1", &accepted).is_accepted());
    assert!(!Response::success("1", &json!({"status":"done"})).is_accepted());
    assert!(!Response::success("1", &json!(["accepted"])).is_accepted());
    let failed = Response::failed("1", WireError::invalid("m"));
    assert!(!failed.is_accepted());
}

#[test]
fn an_event_is_written_once_and_numbered_for_each_connection() {
    let event = Event::new("tick", &json!({"ts": 1})).unwrap();
    assert_eq!(
        event.to_text(),
        r#"{"type":"event","event":"tick","payload":{"ts":1}}"#
    );
    assert_eq!(
        event.text_with(Some(7)),
        r#"{"type":"event","event":"tick","payload":{"ts":1},"seq":7}"#
    );
    let numbered = event.numbered(2).with_state_version(StateVersion {
        presence: 1,
        health: 0,
    });
    assert_eq!(
        numbered.to_text(),
        r#"{"type":"event","event":"tick","payload":{"ts":1},"seq":2,"stateVersion":{"presence":1,"health":0}}"#
    );
    let shared = |event: &Event| std::sync::Arc::as_ptr(event.payload.as_ref().unwrap());
    assert!(std::ptr::eq(shared(&event), shared(&numbered)));
}

#[test]
fn deep_and_wide_messages_neither_overflow_nor_fill_the_memory() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let request = format!(r#"{{"type":"req","id":"a","method":"node.list","params":{deep}}}"#);
    let request = Request::parse(&request).unwrap();
    let refused = request.read::<interlock_wire::params::NodeList>();
    assert!(refused.unwrap_err().message.contains("recursion limit"));
    for field in ["id", "method", "type", "zzz"] {
        let text = format!(r#"{{"{field}":{deep}}}"#);
        assert!(matches!(
            Request::parse(&text),
            Err(BadFrame::NotFrame { .. })
        ));
    }
    let names: Vec<String> = (0..100_000).map(|n| format!(r#""n{n}":0"#)).collect();
    let refused = Request::parse(&format!("{{{}}}", names.join(","))).unwrap_err();
    assert!(refused.to_string().len() < 2000);
    let long = format!(
        r#"{{"type":"req","id":"a","method":"m","{}":0}}"#,
        "x".repeat(100_000)
    );
    assert!(Request::parse(&long).unwrap_err().to_string().len() < 500);
}

#[test]
fn the_limits_are_those_that_clients_know() {
    assert_eq!((MAX_HANDSHAKE_BYTES, MAX_FRAME_BYTES), (65_536, 26_214_400));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((".*", inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".*") {
        let _ = Frame::parse(&text);
        let _ = Request::parse(&text);
    }

    #[test]
    fn any_object_is_read_or_refused(value in any_json()) {
        for kind in ["req", "res", "event"] {
            let mut value = value.clone();
            if let Value::Object(object) = &mut value {
                object.insert("type".into(), kind.into());
                object.insert("id".into(), "a".into());
            }
            let _ = Frame::parse(&value.to_string());
        }
    }

    #[test]
    fn what_is_written_is_read_the_same(id in ".+", name in ".+", payload in any_json(), seq in any::<u64>()) {
        let request = Request::call(&*id, &*name, &payload).unwrap();
        let text = request.to_text();
        prop_assert_eq!(Request::parse(&text).unwrap().to_text(), text);

        let response = Response::success(&*id, &payload);
        let read = Response::parse(&response.to_text()).unwrap();
        prop_assert_eq!(&read.id, &id);
        let read: Value = serde_json::from_str(read.payload.unwrap().get()).unwrap();
        prop_assert_eq!(read, payload.clone());

        let error = WireError::unavailable(&*name).with(&id, payload.clone()).retry_after(seq);
        let response = Response::failed(&*id, error.clone());
        prop_assert_eq!(Response::parse(&response.to_text()).unwrap().error, Some(error));

        let event = Event::new(&*name, &payload).unwrap().numbered(seq);
        let text = event.to_text();
        prop_assert_eq!(Event::parse(&text).unwrap().to_text(), text);
    }
}
