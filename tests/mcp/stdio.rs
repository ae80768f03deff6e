//! The tools by MCP: each protocol version, both transports, progress, cancelling, resources, and
//! who starts what.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};
use testkit::mcp::{
    Gateway, HttpClient, NEWEST, StdioClient, initialize, modern, output, tool_call,
};
use testkit::{Machine, eventually, is_alive, written_pid};

fn names(listed: &Value) -> Vec<&str> {
    let tools = listed["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

fn list(method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": 2, "method": method, "params": {} })
}

const ALL: [&str; 3] = ["exec", "process", "apply_patch"];

#[test]
fn eras_that_begin_with_initialize_are_served_by_http_and_stdio() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let token = gateway.token(&[]);
    for version in ["2025-06-18", "2025-11-25"] {
        let mut client = gateway.client(&token);
        let welcome = client.initialize(version, &json!({}));
        assert_eq!(welcome["protocolVersion"], version);
        assert_eq!(welcome["serverInfo"]["name"], "interlock");
        let listed = client.send(&list("tools/list"));
        // No empty event in front: some clients take it for a broken message.
        assert!(!listed.body.contains("retry:"), "{listed:#?}");
        let tools = listed.result();
        assert_eq!(names(&tools), ALL);
        let exec = &tools["tools"][0];
        assert_eq!(exec["annotations"]["destructiveHint"], true);
        assert_eq!(exec["inputSchema"]["required"], json!(["command"]));
        assert_eq!(exec["outputSchema"]["required"], json!(["status"]));
        let result = client.call("exec", &json!({ "command": "echo hello" }));
        assert_eq!(output(&result), "hello");
        assert_eq!(result["structuredContent"]["status"], "completed");
        assert_eq!(result["structuredContent"]["exitCode"], 0);
        assert_eq!(result["isError"], false);

        let mut client = StdioClient::start(&machine, &["--no-spawn"]);
        client.send(&initialize(version, &json!({})));
        assert_eq!(client.receive()["result"]["protocolVersion"], version);
        let id = client.ask(list("tools/list"));
        assert_eq!(names(&client.answer(id)["result"]), ALL);
        // Where the client is.
        let result = client.call("exec", &json!({ "command": "pwd" }));
        assert_eq!(output(&result), machine.work().to_str().unwrap());
    }
}

#[test]
fn the_newest_era_needs_no_initialize() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let client = gateway.client(&gateway.token(&[])).newest();
    let discovered = client
        .send(&modern(list("server/discover"), &json!({})))
        .result();
    let versions = discovered["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&NEWEST.into()), "{discovered}");
    let reply = client.send(&modern(list("tools/list"), &json!({})));
    assert!(!reply.headers.contains_key("mcp-session-id"));
    assert_eq!(names(&reply.result()), ALL);
    let result = client.call("exec", &json!({ "command": "echo hello" }));
    assert_eq!(output(&result), "hello");
    assert_eq!(result["resultType"], "complete");
}

#[test]
fn parameters_that_are_wrong_are_told_to_the_model() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let client = gateway.client(&gateway.token(&[])).newest();
    for (arguments, code, field) in [
        (json!({ "command": 1 }), "PARAMETER_TYPE", "command"),
        (
            json!({ "command": "ls", "cmd": 1 }),
            "PARAMETER_UNKNOWN",
            "cmd",
        ),
        (json!({}), "PARAMETER_MISSING", "command"),
    ] {
        let result = client.call("exec", &arguments);
        let told = &result["structuredContent"];
        assert_eq!(result["isError"], true);
        assert_eq!(
            (&told["code"], &told["field"]),
            (&code.into(), &field.into()),
            "{result}"
        );
    }
    let unknown = client.send(&client.tool_call("rm", &json!({}))).answer();
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[test]
fn an_agent_is_offered_only_what_it_may_call() {
    let machine = Machine::unguarded();
    machine.ok(&["config", "set", "tools.deny", "[\"process\"]"]);
    let gateway = Gateway::start(&machine);
    let client = gateway.client(&gateway.token(&[])).newest();
    let tools = client
        .send(&modern(list("tools/list"), &json!({})))
        .result();
    assert_eq!(names(&tools), ["exec", "apply_patch"]);
    let answer = client.send(&client.tool_call("process", &json!({ "action": "list" })));
    assert_eq!(answer.answer()["error"]["code"], -32602);
    let resources = client
        .send(&modern(list("resources/list"), &json!({})))
        .result();
    assert_eq!(resources["resources"], json!([]));
}

#[test]
fn output_comes_while_the_run_lasts() {
    let machine = Machine::unguarded();
    let mut client = StdioClient::begin(&machine, &[], &json!({}));
    let go = machine.root().join("go");
    let command = format!(
        "echo first; while [ ! -e {} ]; do sleep 0.01; done",
        go.display()
    );
    let mut call = tool_call(0, "exec", &json!({ "command": command }));
    call["params"]["_meta"] = json!({ "progressToken": "p" });
    let id = client.ask(call);
    let told = client.receive();
    assert_eq!(told["method"], "notifications/progress", "{told}");
    assert_eq!(told["params"]["progressToken"], "p");
    assert_eq!(told["params"]["message"], "first\n");
    std::fs::write(go, "").unwrap();
    assert_eq!(
        client.answer(id)["result"]["structuredContent"]["exitCode"],
        0
    );
}

/// A command that says its pid in a file and goes on.
fn long_run(machine: &Machine, name: &str) -> (Value, std::path::PathBuf) {
    let file = machine.root().join(name);
    let command = format!("echo $$ > {}; exec sleep 600", file.display());
    (json!({ "command": command, "yieldMs": 120_000 }), file)
}

#[test]
fn cancelling_ends_a_run_in_the_foreground_and_no_other() {
    let machine = Machine::unguarded();
    let mut client = StdioClient::begin(&machine, &[], &json!({}));
    let behind = client.call(
        "exec",
        &json!({ "command": "exec sleep 600", "background": true }),
    );
    let behind = behind["structuredContent"]["pid"].to_string();
    let (arguments, file) = long_run(&machine, "pid");
    let id = client.ask(tool_call(0, "exec", &arguments));
    let pid = written_pid(&file);
    client.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": id, "reason": "enough" } }),
    );
    eventually("the run is ended", || !is_alive(&pid));
    assert!(is_alive(&behind));
    // The conversation goes on.
    let result = client.call("exec", &json!({ "command": "echo on" }));
    assert_eq!(output(&result), "on");
}

fn lose_connection(client: &HttpClient, call: &Value, file: &std::path::Path) -> String {
    let method = call["method"].as_str().unwrap();
    let name = call["params"]["name"].as_str().unwrap();
    let extra = [("Mcp-Method", method), ("Mcp-Name", name)];
    let request = client.request("POST", &extra, call.to_string().as_bytes());
    let mut stream = TcpStream::connect(("127.0.0.1", client.port)).unwrap();
    stream.write_all(&request).unwrap();
    written_pid(file)
}

#[test]
fn a_lost_connection_cancels_in_the_newest_era_only() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let token = gateway.token(&[]);
    let mut older = gateway.client(&token);
    older.initialize("2025-11-25", &json!({}));
    let (arguments, file) = long_run(&machine, "older");
    let goes_on = lose_connection(&older, &older.tool_call("exec", &arguments), &file);
    let newest = gateway.client(&token).newest();
    let (arguments, file) = long_run(&machine, "newest");
    let ends = lose_connection(&newest, &newest.tool_call("exec", &arguments), &file);
    eventually("the run of the newest version is ended", || {
        !is_alive(&ends)
    });
    assert!(is_alive(&goes_on));
}

#[test]
fn sessions_are_resources_of_their_agent() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let mut client = gateway.client(&gateway.token(&[]));
    client.initialize("2025-11-25", &json!({}));
    let started = client.call(
        "exec",
        &json!({ "command": "echo seen; exec sleep 600", "background": true, "pty": true }),
    );
    let id = started["structuredContent"]["sessionId"].as_str().unwrap();
    let listed = client.send(&list("resources/list")).result();
    let uri = |end: &str| format!("interlock://sessions/{id}/{end}");
    let uris: Vec<&Value> = listed["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| &resource["uri"])
        .collect();
    assert_eq!(uris, [uri("log").as_str(), uri("screen").as_str()]);
    let read = |uri: &str| {
        client.send(
            &json!({ "jsonrpc": "2.0", "id": 3, "method": "resources/read",
            "params": { "uri": uri } }),
        )
    };
    for end in ["log", "screen"] {
        eventually(end, || {
            let text = &read(&uri(end)).result()["contents"][0]["text"];
            text.as_str().unwrap().contains("seen")
        });
    }
    let templates = client.send(&list("resources/templates/list")).result();
    assert_eq!(templates["resourceTemplates"].as_array().unwrap().len(), 2);
    for wrong in [
        "interlock://sessions/../../etc/passwd/log".to_owned(),
        "interlock://sessions/no-such/log".to_owned(),
        uri("status"),
        "file:///etc/passwd".to_owned(),
    ] {
        assert_eq!(read(&wrong).answer()["error"]["code"], -32002, "{wrong}");
    }
    // For another agent it does not exist.
    machine.ok(&["config", "set", "agents.list", "[{id:'other'}]"]);
    let other = machine.ok(&["agents", "token", "other"]).stdout;
    let other = gateway.client(other.trim()).newest();
    let listed = other
        .send(&modern(list("resources/list"), &json!({})))
        .result();
    assert_eq!(listed["resources"], json!([]));
}

#[test]
fn a_patch_is_applied_where_the_client_is() {
    let machine = Machine::unguarded();
    let mut client = StdioClient::begin(&machine, &[], &json!({}));
    let input = "*** Begin Patch\n*** Add File: new.txt\n+text\n*** End Patch\n";
    let result = client.call("apply_patch", &json!({ "input": input }));
    assert_eq!(
        result["structuredContent"]["status"], "completed",
        "{result}"
    );
    let text = std::fs::read_to_string(machine.work().join("new.txt")).unwrap();
    assert_eq!(text, "text\n");
}

#[test]
fn clients_that_start_at_once_join_one_gateway() {
    let machine = Machine::unguarded();
    let mut clients: Vec<StdioClient<'_>> =
        (0..4).map(|_| StdioClient::start(&machine, &[])).collect();
    for client in &mut clients {
        client.send(&initialize("2025-11-25", &json!({})));
    }
    for client in &mut clients {
        assert_eq!(
            client.receive()["result"]["serverInfo"]["name"],
            "interlock"
        );
    }
    let status = machine.ok(&["gateway", "status", "--json"]).json();
    let ready = std::fs::read_to_string(machine.state().join("gateway.log")).unwrap();
    assert_eq!(ready.matches("ready: ").count(), 1, "{ready}");
    assert!(
        ready.contains(&format!("(pid {})", status["pid"])),
        "{ready}"
    );
    // It is no part of what the client's terminal ends.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", status["pid"])).unwrap();
    let session = stat.rsplit(") ").next().unwrap().split(' ').nth(3).unwrap();
    assert_eq!(session, status["pid"].to_string());
}

#[test]
fn no_gateway_is_started_where_none_is_wanted_or_from_inside_a_run() {
    let machine = Machine::unguarded();
    machine
        .run(&["mcp", "--no-spawn"])
        .refused(1, "GATEWAY_NOT_RUNNING");
    let inside = format!("{} mcp < /dev/null", crate::BINARY);
    let run = machine.exec(&inside);
    assert!(run.stderr.contains("DECISION_FROM_RUN"), "{run:#?}");
    assert_eq!(machine.run(&["gateway", "status"]).code, 1);
}

#[test]
fn a_client_that_ends_its_input_still_gets_its_answer() {
    let machine = Machine::unguarded();
    let mut client = StdioClient::begin(&machine, &[], &json!({}));
    let id = client.ask(tool_call(
        0,
        "exec",
        &json!({ "command": "sleep 0.2; echo late" }),
    ));
    client.close_input();
    assert_eq!(output(&client.answer(id)["result"]), "late");
}

#[test]
fn a_gateway_that_ends_lets_its_clients_go() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let mut client = gateway.client(&gateway.token(&[]));
    client.initialize("2025-11-25", &json!({}));
    // One that listens for whatever the server may say, and one by the socket.
    let mut listening = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
    listening
        .write_all(&client.request("GET", &[], b""))
        .unwrap();
    let listening = std::thread::spawn(move || testkit::mcp::read_reply(&mut listening));
    let mut local = StdioClient::begin(&machine, &["--no-spawn"], &json!({}));
    machine.ok(&["gateway", "stop"]);
    assert_eq!(listening.join().unwrap().status, 200);
    assert!(local.is_over());
}

#[test]
fn an_operator_chooses_the_agent_and_an_agent_does_not() {
    let machine = Machine::unguarded();
    machine.ok(&[
        "config",
        "set",
        "agents.list",
        "[{id:'other',tools:{deny:['process']}}]",
    ]);
    let gateway = Gateway::start(&machine);
    let operator = machine.operator_token();
    let ask = |token: &str, agent: &str| {
        let client = gateway.client(token).newest();
        let body = modern(list("tools/list"), &json!({})).to_string();
        let extra = [("Mcp-Method", "tools/list"), ("X-Interlock-Agent", agent)];
        testkit::mcp::raw(
            gateway.port,
            &client.request("POST", &extra, body.as_bytes()),
        )
    };
    assert_eq!(names(&ask(&operator, "main").result()), ALL);
    assert_eq!(
        names(&ask(&operator, "other").result()),
        ["exec", "apply_patch"]
    );
    assert_eq!(ask(&operator, "missing").status, 400);
    let own = gateway.token(&[]);
    assert_eq!(ask(&own, "main").status, 200);
    assert_eq!(ask(&own, "other").status, 403);
    let mut client = StdioClient::start(&machine, &["--agent", "other", "--no-spawn"]);
    client.send(&initialize("2025-11-25", &json!({})));
    client.receive();
    let id = client.ask(list("tools/list"));
    assert_eq!(names(&client.answer(id)["result"]), ["exec", "apply_patch"]);
}
