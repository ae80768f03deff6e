//! Questions over MCP: who is asked, whose answer counts, and that nothing runs twice.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use serde_json::{Value, json};
use testkit::mcp::{Gateway, HttpClient, StdioClient, again, forms, modern, tool_call};
use testkit::{Machine, eventually};

/// A command that leaves a line each time it runs, and needs a person.
fn asked(machine: &Machine) -> Value {
    let file = machine.root().join("ran");
    json!({ "command": format!("echo ran >> {}", file.display()), "ask": "always" })
}

fn runs(machine: &Machine) -> usize {
    fs::read_to_string(machine.root().join("ran")).map_or(0, |text| text.lines().count())
}

fn status(result: &Value) -> &str {
    result["structuredContent"]["status"].as_str().unwrap()
}

/// The last decision that the record has.
fn decision(machine: &Machine) -> Value {
    let records = machine.ok(&["audit", "log", "--json"]).json();
    let records = records["records"].as_array().unwrap().clone();
    let is_decision = |record: &&Value| record["kind"] == "decision";
    let newest = |record: &&Value| record["seq"].as_u64();
    records
        .iter()
        .filter(is_decision)
        .max_by_key(newest)
        .unwrap()
        .clone()
}

#[test]
fn a_call_waits_says_what_for_and_returns_pending() {
    let machine = Machine::unguarded();
    machine.ok(&["config", "set", "tools.exec.approvalWaitMs", "300"]);
    let mut client = StdioClient::begin(&machine, &[], &forms());
    let mut call = tool_call(0, "exec", &asked(&machine));
    call["params"]["_meta"] = json!({ "progressToken": 1 });
    let id = client.ask(call);
    let told = client.receive();
    assert_eq!(told["method"], "notifications/progress", "{told}");
    let said = told["params"]["message"].as_str().unwrap();
    let short = machine.pending_ids().remove(0);
    assert!(
        said.contains(&format!("interlock approvals approve {short}")),
        "{said}"
    );
    assert!(said.starts_with("`echo ran >> "), "{said}");
    assert!(
        said.contains(&format!("waits for approval {short}")),
        "{said}"
    );
    // It announces forms, but prompts are not switched on: none came.
    let answer = client.receive();
    assert_eq!(answer["id"], id);
    assert_eq!(status(&answer["result"]), "approval-pending");
    assert_eq!(
        answer["result"]["structuredContent"]["shortId"],
        short.as_str()
    );
    assert_eq!(runs(&machine), 0);
}

#[test]
fn a_decision_in_time_becomes_the_result() {
    let machine = Machine::unguarded();
    let mut client = StdioClient::begin(&machine, &[], &json!({}));
    let id = client.ask(tool_call(0, "exec", &asked(&machine)));
    eventually("it is asked", || !machine.pending_ids().is_empty());
    machine.ok(&["approvals", "approve", &machine.pending_ids()[0]]);
    assert_eq!(status(&client.answer(id)["result"]), "completed");
    assert_eq!(runs(&machine), 1);
    let id = client.ask(tool_call(0, "exec", &asked(&machine)));
    eventually("it is asked", || !machine.pending_ids().is_empty());
    machine.ok(&["approvals", "deny", &machine.pending_ids()[0]]);
    let denied = client.answer(id)["result"].clone();
    assert_eq!(status(&denied), "denied");
    assert_eq!(denied["isError"], true);
    assert_eq!(denied["structuredContent"]["code"], "APPROVAL_DENIED");
    assert_eq!(runs(&machine), 1);
}

#[test]
fn cancelling_withdraws_the_question() {
    let machine = Machine::unguarded();
    let mut client = StdioClient::begin(&machine, &[], &json!({}));
    let id = client.ask(tool_call(0, "exec", &asked(&machine)));
    eventually("it is asked", || !machine.pending_ids().is_empty());
    client.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": id } }),
    );
    eventually("it is withdrawn", || machine.pending_ids().is_empty());
    assert_eq!(runs(&machine), 0);
}

#[test]
fn the_person_at_the_client_decides_where_that_was_switched_on() {
    let machine = Machine::unguarded();
    let mut client = StdioClient::begin(&machine, &["--elicitation"], &forms());
    let rows = [
        (
            json!({ "action": "accept", "content": { "decision": "allow-once" } }),
            "completed",
            1,
        ),
        (
            json!({ "action": "accept", "content": { "decision": "deny" } }),
            "denied",
            1,
        ),
        (json!({ "action": "decline" }), "denied", 1),
    ];
    for (answer, expected, ran) in rows {
        let id = client.ask(tool_call(0, "exec", &asked(&machine)));
        let prompt = client.receive();
        assert_eq!(prompt["method"], "elicitation/create", "{prompt}");
        let shown = prompt["params"]["message"].as_str().unwrap();
        assert!(shown.contains("echo ran >> "), "{shown}");
        assert!(
            shown.contains(&machine.work().display().to_string()),
            "{shown}"
        );
        let choices = &prompt["params"]["requestedSchema"]["properties"]["decision"]["enum"];
        assert_eq!(*choices, json!(["allow-once", "deny", "allow-session"]));
        client.send(&json!({ "jsonrpc": "2.0", "id": prompt["id"], "result": answer }));
        let result = client.answer(id)["result"].clone();
        assert_eq!(status(&result), expected, "{result}");
        assert_eq!(runs(&machine), ran);
    }
    let body = &decision(&machine)["body"];
    assert_eq!(body["decider"], "elicitation by tester 1", "{body}");
    assert!(
        body["surface"]
            .as_str()
            .unwrap()
            .starts_with("elicitation:"),
        "{body}"
    );
}

#[test]
fn closing_the_prompt_leaves_the_question_to_others() {
    let machine = Machine::unguarded();
    let mut client = StdioClient::begin(&machine, &["--elicitation"], &forms());
    for answer in [
        json!({ "action": "cancel" }),
        json!({ "action": "accept" }),
        json!({ "action": "accept", "content": { "decision": "allow-always" } }),
    ] {
        let id = client.ask(tool_call(0, "exec", &asked(&machine)));
        let prompt = client.receive();
        client.send(&json!({ "jsonrpc": "2.0", "id": prompt["id"], "result": answer }));
        eventually("it still waits", || machine.pending_ids().len() == 1);
        machine.ok(&["approvals", "deny", &machine.pending_ids()[0]]);
        assert_eq!(status(&client.answer(id)["result"]), "denied");
    }
    assert_eq!(runs(&machine), 0);
}

/// Clients cut long messages and take an answer all the same.
#[test]
fn what_a_client_would_not_show_whole_is_not_asked_there() {
    let machine = Machine::unguarded();
    machine.ok(&["config", "set", "tools.exec.approvalWaitMs", "300"]);
    let mut long = asked(&machine);
    let end = long["command"].as_str().unwrap();
    long["command"] = json!(format!("echo {} && {end}", "word ".repeat(50)));
    let gateway = Gateway::start(&machine);
    let flags = ["--no-spawn", "--elicitation"];
    let mut client = StdioClient::begin(&machine, &flags, &forms());
    let id = client.ask(tool_call(0, "exec", &long));
    let told = client.receive();
    assert_eq!(told["id"], id, "{told}");
    assert_eq!(status(&told["result"]), "approval-pending");
    let client = gateway.client(&gateway.token(&["--elicitation"])).newest();
    let call = modern(tool_call(8, "exec", &long), &forms());
    assert_eq!(status(&client.send(&call).result()), "approval-pending");
    assert_eq!(runs(&machine), 0);
}

#[test]
fn the_first_answer_wins_and_the_prompt_is_taken_back() {
    let machine = Machine::unguarded();
    let mut client = StdioClient::begin(&machine, &["--elicitation"], &forms());
    let id = client.ask(tool_call(0, "exec", &asked(&machine)));
    let prompt = client.receive();
    machine.ok(&["approvals", "approve", &machine.pending_ids()[0]]);
    let (mut taken_back, mut result) = (None, None);
    while taken_back.is_none() || result.is_none() {
        let message = client.receive();
        if message["method"] == "notifications/cancelled" {
            taken_back = Some(message["params"]["requestId"].clone());
        } else if message["id"] == id {
            result = Some(message["result"].clone());
        }
    }
    assert_eq!(taken_back.unwrap(), prompt["id"]);
    assert_eq!(status(&result.unwrap()), "completed");
    // Too late.
    client.send(&json!({ "jsonrpc": "2.0", "id": prompt["id"],
        "result": { "action": "decline" } }));
    assert_eq!(
        status(&client.call("process", &json!({ "action": "list" }))),
        "completed"
    );
    assert_eq!(runs(&machine), 1);
}

#[test]
fn a_run_is_asked_nothing_whatever_it_claims() {
    let machine = Machine::unguarded();
    // Inside the shield the socket does not exist.
    machine.switch_shield_off();
    machine.ok(&["config", "set", "tools.exec.approvalWaitMs", "300"]);
    let gateway = Gateway::start(&machine);
    let messages = [
        testkit::mcp::initialize("2025-11-25", &forms()),
        tool_call(2, "exec", &asked(&machine)),
    ];
    let messages: Vec<String> = messages.iter().map(Value::to_string).collect();
    let input = machine.file("input", messages.join("\n") + "\n");
    let output = machine.root().join("output");
    // Its input stays open until it has been answered or asked.
    let command = format!(
        "(cat {input}; until grep -qE 'approval-pending|elicitation/create' {output}; do sleep 0.01; done) \
         | {binary} mcp --no-spawn --elicitation > {output}; cat {output}",
        input = input.display(),
        output = output.display(),
        binary = crate::BINARY,
    );
    let run = machine.exec(&command);
    assert!(run.stdout.contains("approval-pending"), "{run:#?}");
    assert!(!run.stdout.contains("elicitation/create"), "{run:#?}");
    assert_eq!(runs(&machine), 0);
    drop(gateway);
}

fn retry(client: &HttpClient, arguments: &Value, given: &Value, answer: &Value) -> Value {
    client.send(&again(arguments, given, answer)).result()
}

fn allow() -> Value {
    json!({ "action": "accept", "content": { "decision": "allow-once" } })
}

#[test]
fn in_the_newest_era_the_answer_comes_with_a_second_request_that_runs_once() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let client = gateway.client(&gateway.token(&["--elicitation"])).newest();
    let call = modern(tool_call(8, "exec", &asked(&machine)), &forms());
    let given = client.send(&call).result();
    assert_eq!(given["resultType"], "input_required", "{given}");
    let prompt = &given["inputRequests"]["approval"];
    assert_eq!(prompt["method"], "elicitation/create");
    assert!(
        prompt["params"]["message"]
            .as_str()
            .unwrap()
            .contains("echo ran")
    );
    // This protocol version has no sessions: none is offered.
    let choices = &prompt["params"]["requestedSchema"]["properties"]["decision"]["enum"];
    assert_eq!(*choices, json!(["allow-once", "deny"]));
    assert_eq!(runs(&machine), 0);
    let result = retry(&client, &asked(&machine), &given, &allow());
    assert_eq!(status(&result), "completed", "{result}");
    for _ in 0..2 {
        let again = retry(&client, &asked(&machine), &given, &allow());
        assert_eq!(
            again["structuredContent"]["code"], "APPROVAL_USED",
            "{again}"
        );
    }
    assert_eq!(runs(&machine), 1);
    assert_eq!(
        decision(&machine)["body"]["decider"],
        "elicitation by tester 1"
    );
    let denied = client.send(&call).result();
    let result = retry(
        &client,
        &asked(&machine),
        &denied,
        &json!({ "action": "decline" }),
    );
    assert_eq!(
        result["structuredContent"]["code"], "APPROVAL_DENIED",
        "{result}"
    );
    assert_eq!(runs(&machine), 1);
}

/// An approval that went back to its client can be decided at any other surface.
#[test]
fn in_the_newest_era_a_run_that_is_allowed_elsewhere_starts_once_without_its_client() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let client = gateway.client(&gateway.token(&["--elicitation"])).newest();
    let call = modern(tool_call(8, "exec", &asked(&machine)), &forms());
    let given = client.send(&call).result();
    assert_eq!(given["resultType"], "input_required", "{given}");
    let id = machine.pending_ids().remove(0);
    machine.ok(&["approvals", "approve", &id]);
    eventually("the run", || runs(&machine) == 1);
    let late = retry(&client, &asked(&machine), &given, &allow());
    assert_eq!(late["structuredContent"]["code"], "APPROVAL_USED", "{late}");
    assert_eq!(runs(&machine), 1);
}

#[test]
fn a_state_is_refused_when_altered_stolen_or_brought_with_another_command() {
    let machine = Machine::unguarded();
    machine.ok(&["config", "set", "tools.exec.approvalWaitMs", "300"]);
    let gateway = Gateway::start(&machine);
    let client = gateway.client(&gateway.token(&["--elicitation"])).newest();
    let call = modern(tool_call(8, "exec", &asked(&machine)), &forms());
    let given = client.send(&call).result();
    let refused = |client: &HttpClient, given: &Value| {
        let call = again(&asked(&machine), given, &allow());
        let answer = client.send(&call).answer();
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_eq!(answer["error"]["data"]["code"], "REQUEST_STATE_INVALID");
    };
    let state = given["requestState"].as_str().unwrap();
    let middle = state.len() / 2;
    let other = if &state[middle..=middle] == "A" {
        "B"
    } else {
        "A"
    };
    for changed in [
        format!("{}{other}{}", &state[..middle], &state[middle + 1..]),
        state[..state.len() - 1].to_owned(),
        String::new(),
        "\u{0}".to_owned(),
        "x".repeat(100_000),
    ] {
        refused(&client, &json!({ "requestState": changed }));
    }
    refused(
        &gateway.client(&gateway.token(&["--elicitation"])).newest(),
        &given,
    );
    refused(&gateway.client(&gateway.token(&[])).newest(), &given);
    assert_eq!(machine.pending_ids().len(), 1, "nothing of this decided");
    let mut changed = asked(&machine);
    changed["command"] = json!(format!(
        "{}; echo more",
        changed["command"].as_str().unwrap()
    ));
    let result = retry(&client, &changed, &given, &allow());
    assert_eq!(
        result["structuredContent"]["code"], "APPROVAL_REQUEST_MISMATCH",
        "{result}"
    );
    assert_eq!(runs(&machine), 0);
}

#[test]
fn only_a_token_that_was_made_for_it_shows_prompts() {
    let machine = Machine::unguarded();
    machine.ok(&["config", "set", "tools.exec.approvalWaitMs", "300"]);
    let gateway = Gateway::start(&machine);
    let operator = machine.operator_token();
    for token in [gateway.token(&[]), operator] {
        let client = gateway.client(&token).newest();
        let call = modern(tool_call(8, "exec", &asked(&machine)), &forms());
        let result = client.send(&call).result();
        assert_eq!(status(&result), "approval-pending", "{result}");
    }
    // And only to a client that can.
    let client = gateway.client(&gateway.token(&["--elicitation"])).newest();
    let call = modern(tool_call(8, "exec", &asked(&machine)), &json!({}));
    assert_eq!(status(&client.send(&call).result()), "approval-pending");
}

#[test]
fn a_prompt_by_http_comes_with_the_answer_to_the_call() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let mut client = gateway.client(&gateway.token(&["--elicitation"]));
    client.initialize("2025-06-18", &json!({ "elicitation": {} }));
    let mut stream = client.open(&client.tool_call("exec", &asked(&machine)));
    let prompt = stream.next_message();
    assert_eq!(prompt["method"], "elicitation/create", "{prompt}");
    client.send(&json!({ "jsonrpc": "2.0", "id": prompt["id"], "result": allow() }));
    let answer = stream.next_message();
    assert_eq!(status(&answer["result"]), "completed", "{answer}");
    assert_eq!(runs(&machine), 1);
}
