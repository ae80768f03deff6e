//! What happens in an MCP client's session reaches the client when it happens, and the agent with its
//! next result.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::Machine;
use testkit::mcp::{Gateway, StdioClient};

/// A background run that ends when its file is there, and says a word by then.
struct Behind {
    go: PathBuf,
    arguments: Value,
}

impl Behind {
    fn new(machine: &Machine, word: &str) -> Self {
        let go = machine.root().join(word);
        let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", go.display());
        let command = format!("{wait}; echo {word}; exit 3");
        Self {
            go,
            arguments: json!({ "command": command, "background": true }),
        }
    }

    fn end(&self) {
        std::fs::write(&self.go, "").unwrap();
    }
}

fn set_level(level: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": 50, "method": "logging/setLevel", "params": { "level": level } })
}

/// The event that a message tells of.
fn event(message: &Value) -> Value {
    assert_eq!(message["method"], "notifications/message", "{message}");
    let params = &message["params"];
    assert_eq!(params["level"], "info");
    assert_eq!(params["logger"], "interlock");
    params["data"].clone()
}

fn is_end_with(event: &Value, word: &str) {
    assert_eq!(event["kind"], "exec-finished", "{event}");
    let text = event["text"].as_str().unwrap();
    assert!(text.starts_with("Exec finished ("), "{text}");
    assert!(text.ends_with(&format!("code 3)\n{word}")), "{text}");
}

/// The ids of the events that a result brings along.
fn told(result: &Value) -> Vec<&Value> {
    let events = result["structuredContent"]["events"].as_array();
    let events = events.map(Vec::as_slice).unwrap_or_default();
    events.iter().map(|event| &event["id"]).collect()
}

#[test]
fn a_client_with_an_open_stream_is_told_at_once_and_the_agent_with_the_next_result() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    for version in ["2025-06-18", "2025-11-25"] {
        let mut client = gateway.client(&gateway.token(&[]));
        let begun = client.initialize(version, &json!({}));
        assert_eq!(begun["capabilities"]["logging"], json!({}));
        let mut stream = client.listen();
        let behind = Behind::new(&machine, &format!("over-{version}"));
        let started = client.call("exec", &behind.arguments);
        behind.end();
        let event = event(&stream.next_message());
        is_end_with(&event, &format!("over-{version}"));
        let session = &started["structuredContent"]["sessionId"];
        assert_eq!(&event["details"]["session"], session);
        assert_eq!(event["details"]["exitCode"], 3);

        let next = json!({ "command": "echo next" });
        let result = client.call("exec", &next);
        assert_eq!(told(&result), [&event["id"]]);
        assert!(told(&client.call("exec", &next)).is_empty());
    }
}

#[test]
fn a_client_without_a_stream_loses_nothing() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let mut client = gateway.client(&gateway.token(&[]));
    client.initialize("2025-11-25", &json!({}));
    let behind = Behind::new(&machine, "unheard");
    client.call("exec", &behind.arguments);
    behind.end();
    let mut results = Vec::new();
    testkit::eventually("the event comes with a result", || {
        let result = client.call("exec", &json!({ "command": "echo next" }));
        let is_there = !told(&result).is_empty();
        results.push(result);
        is_there
    });
    let result = results.last().unwrap();
    assert_eq!(
        result["structuredContent"]["events"][0]["kind"],
        "exec-finished"
    );
    // The words are in the text alone, behind the status line.
    let text = testkit::mcp::text(result);
    assert!(text.starts_with("exit code 0, "), "{text}");
    assert!(text.contains("\n\nSystem: Exec finished ("), "{text}");
    assert!(text.contains("code 3)\nunheard\n\nnext"), "{text}");
}

#[test]
fn clients_by_stdio_are_told_of_their_own_sessions_and_of_what_they_want_to_read() {
    let machine = Machine::unguarded();
    let _gateway = Gateway::start(&machine);
    let mut quiet = StdioClient::begin(&machine, &["--no-spawn"], &json!({}));
    let id = quiet.ask(set_level("warning"));
    assert_eq!(quiet.answer(id)["result"], json!({}));
    let mut client = StdioClient::begin(&machine, &["--no-spawn"], &json!({}));

    let not_wanted = Behind::new(&machine, "not-wanted");
    quiet.call("exec", &not_wanted.arguments);
    let wanted = Behind::new(&machine, "wanted");
    client.call("exec", &wanted.arguments);
    not_wanted.end();
    testkit::eventually("the first event is put down", || {
        let ends = machine.ok(&["audit", "log", "--kind", "run-ended", "--json"]);
        let records = &ends.json()["records"];
        records.as_array().is_some_and(|ends| !ends.is_empty())
    });
    wanted.end();
    is_end_with(&event(&client.receive()), "wanted");

    let id = quiet.ask(json!({ "jsonrpc": "2.0", "method": "ping" }));
    let next = quiet.receive();
    assert_eq!(next["id"], id, "{next}");
    // Back to what there is without a word.
    let id = quiet.ask(set_level("info"));
    quiet.answer(id);
    let wanted = Behind::new(&machine, "wanted-again");
    quiet.call("exec", &wanted.arguments);
    wanted.end();
    is_end_with(&event(&quiet.receive()), "wanted-again");
}
