//! The gateway's HTTP transport: who may call, what tools answer, and what a crash leaves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Stdio;

use serde_json::{Value, json};
use testkit::Machine;
use testkit::mcp::{Gateway, Reply, raw};

fn request(gateway: &Gateway<'_>, method: &str, path: &str, headers: &[&str], body: &str) -> Reply {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|header| header.starts_with("Host:")) {
        text.push_str("Host: 127.0.0.1\r\n");
    }
    for header in headers {
        text.push_str(&format!("{header}\r\n"));
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    raw(gateway.port, text.as_bytes())
}

fn invoke(gateway: &Gateway<'_>, token: &str, call: &Value) -> Reply {
    let token = format!("Authorization: Bearer {token}");
    request(
        gateway,
        "POST",
        "/tools/invoke",
        &[&token],
        &call.to_string(),
    )
}

fn body(reply: &Reply) -> Value {
    serde_json::from_str(&reply.body).unwrap_or_else(|_| panic!("{reply:?}"))
}

/// The details of a call that has a result.
fn details(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{reply:?}");
    body(reply)["result"]["details"].clone()
}

fn exec(gateway: &Gateway<'_>, token: &str, command: &str) -> Value {
    details(&invoke(
        gateway,
        token,
        &json!({ "tool": "exec", "args": { "command": command } }),
    ))
}

fn operator(machine: &Machine) -> String {
    machine.operator_token()
}

#[test]
fn only_those_who_prove_themselves_come_in() {
    let machine = Machine::open();
    let gateway = Gateway::start(&machine);
    assert_eq!(request(&gateway, "GET", "/healthz", &[], "").status, 200);
    assert_eq!(request(&gateway, "GET", "/readyz", &[], "").status, 200);
    let call = json!({ "tool": "exec", "args": { "command": "echo hello" } });
    let refused = request(&gateway, "POST", "/tools/invoke", &[], &call.to_string());
    assert_eq!(refused.status, 401, "{refused:?}");
    assert_eq!(body(&refused)["error"]["type"], "unauthorized");
    assert_eq!(invoke(&gateway, "wrong", &call).status, 401);
    let token = operator(&machine);
    assert_eq!(
        exec(&gateway, &token, "echo hello")["aggregated"],
        "hello\n"
    );
    let bearer = format!("Authorization: Bearer {token}");
    assert_eq!(
        request(&gateway, "GET", "/metrics", &[&bearer], "").status,
        200
    );
    // An agent's token calls tools as that agent, and nothing else.
    let agent = gateway.token(&[]);
    assert_eq!(
        exec(&gateway, &agent, "echo agent")["aggregated"],
        "agent\n"
    );
    let bearer = format!("Authorization: Bearer {agent}");
    assert_eq!(
        request(&gateway, "GET", "/metrics", &[&bearer], "").status,
        403
    );
    for other in [
        json!({ "agentId": "other" }),
        json!({ "sessionKey": "agent:other:main" }),
    ] {
        let mut call = call.clone();
        call.as_object_mut()
            .unwrap()
            .extend(other.as_object().unwrap().clone());
        assert_eq!(invoke(&gateway, &agent, &call).status, 403, "{call}");
    }
    let listed = machine.ok(&["agents", "list", "--json"]).json();
    let id = listed["agents"][0]["tokens"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    machine.ok(&["agents", "revoke", &id]);
    assert_eq!(invoke(&gateway, &agent, &call).status, 401);
}

#[test]
fn those_who_guess_have_to_wait() {
    let machine = Machine::open();
    let gateway = Gateway::start(&machine);
    let token = operator(&machine);
    let call = json!({ "tool": "process", "args": { "action": "list" } });
    let replies: Vec<Reply> = (0..14)
        .map(|n| invoke(&gateway, &format!("guess{n}"), &call))
        .collect();
    assert!(replies[..10].iter().all(|reply| reply.status == 401));
    let limited = replies.last().unwrap();
    assert_eq!(limited.status, 429, "{limited:?}");
    assert!(limited.headers["retry-after"].parse::<u64>().unwrap() >= 1);
    // Other callers of this machine have the same address; an unguessable secret is compared all
    // the same.
    assert_eq!(invoke(&gateway, &gateway.token(&[]), &call).status, 200);
    assert_eq!(invoke(&gateway, "guess", &call).status, 429);
    assert_eq!(invoke(&gateway, &token, &call).status, 200);
}

#[test]
fn other_sites_are_kept_out() {
    let machine = Machine::open();
    let gateway = Gateway::start(&machine);
    let bearer = format!("Authorization: Bearer {}", operator(&machine));
    let call = json!({ "tool": "exec", "args": { "command": "echo x" } }).to_string();
    let status = |headers: &[&str]| {
        let mut all = vec![bearer.as_str()];
        all.extend(headers);
        request(&gateway, "POST", "/tools/invoke", &all, &call).status
    };
    assert_eq!(status(&["Host: rebound.example"]), 403);
    assert_eq!(status(&["Host: 127.0.0.1.rebound.example"]), 403);
    assert_eq!(status(&["Origin: http://evil.example"]), 403);
    assert_eq!(status(&["Origin: null"]), 403);
    assert_eq!(
        status(&["Host: 127.0.0.1:9", "Origin: http://127.0.0.1:9"]),
        200
    );
    assert_eq!(status(&["Host: localhost"]), 200);
}

#[test]
fn wrong_calls_are_told_what_is_wrong() {
    let machine = Machine::open();
    let gateway = Gateway::start(&machine);
    let token = operator(&machine);
    let bearer = format!("Authorization: Bearer {token}");
    let post = |body: &str| request(&gateway, "POST", "/tools/invoke", &[&bearer], body);
    let error = |reply: &Reply| body(reply)["error"].clone();
    let bad = post("{");
    assert_eq!(
        (bad.status, error(&bad)["type"].as_str()),
        (400, Some("invalid_request_error"))
    );
    let nameless = post("{}");
    assert_eq!(error(&nameless)["message"], "tools.invoke requires name");
    let unknown = post(r#"{"tool":"nope"}"#);
    assert_eq!(
        (unknown.status, error(&unknown)["message"].as_str()),
        (404, Some("Tool not available: nope"))
    );
    let field = post(r#"{"tool":"exec","args":{"command":"ls","yieldMs":"soon"}}"#);
    assert_eq!(
        (field.status, error(&field)["field"].as_str()),
        (400, Some("yieldMs"))
    );
    let args = post(r#"{"tool":"exec","args":[1]}"#);
    assert_eq!(args.status, 400);
    let agent = post(r#"{"tool":"exec","agentId":"unknown-agent","args":{"command":"ls"}}"#);
    assert_eq!(
        (agent.status, error(&agent)["message"].as_str()),
        (400, Some("unknown agent `unknown-agent`"))
    );
    let misspelt = post(r#"{"tool":"exec","agent_id":"main","args":{"command":"ls"}}"#);
    assert_eq!(
        (misspelt.status, error(&misspelt)["message"].as_str()),
        (
            400,
            Some("unknown field `agent_id`: did you mean `agentId`?")
        )
    );
    let get = request(&gateway, "GET", "/tools/invoke", &[&bearer], "");
    assert_eq!((get.status, get.headers["allow"].as_str()), (405, "POST"));
    let large = post(&format!(
        r#"{{"tool":"exec","args":{{"command":"{}"}}}}"#,
        "x".repeat(2 * 1024 * 1024)
    ));
    assert_eq!(large.status, 413);
    let deep = post(&format!(
        r#"{{"tool":"exec","args":{}1{}}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    ));
    assert_eq!(deep.status, 400);
    for path in [
        "/..%2f..%2fetc/passwd",
        "/tools/../healthz",
        "//healthz",
        "/tools/invoke/x",
        "/%00",
    ] {
        let reply = request(&gateway, "GET", path, &[&bearer], "");
        assert!([400, 404].contains(&reply.status), "{path}: {reply:?}");
    }
    // A tool that is closed to the agent does not exist for it.
    machine.ok(&["config", "set", "tools.deny", r#"["group:runtime"]"#]);
    assert_eq!(
        post(r#"{"tool":"exec","args":{"command":"ls"}}"#).status,
        404
    );
    assert_eq!(
        post(r#"{"tool":"process","args":{"action":"list"}}"#).status,
        404
    );
}

#[test]
fn tools_do_what_they_do_elsewhere() {
    let machine = Machine::open();
    machine.ok(&[
        "config",
        "set",
        "agents.defaults.workspace",
        &machine.work().display().to_string(),
    ]);
    let gateway = Gateway::start(&machine);
    let token = operator(&machine);
    let failed = exec(&gateway, &token, "ls no-such-file");
    assert_eq!(
        (failed["status"].as_str(), failed["exitCode"].as_i64()),
        (Some("completed"), Some(2))
    );
    let call = json!({ "tool": "exec", "args": { "command": "cat", "background": true, "stdin": "pipe" } });
    let running = details(&invoke(&gateway, &token, &call));
    assert_eq!(running["status"], "running");
    let process = |action: Value| {
        details(&invoke(
            &gateway,
            &token,
            &json!({ "tool": "process", "args": action }),
        ))
    };
    let id = &running["sessionId"];
    process(json!({ "action": "write", "sessionId": id, "data": "hello\n", "eof": true }));
    let mut output = String::new();
    testkit::eventually("its output and its end", || {
        let polled = process(json!({ "action": "poll", "sessionId": id, "timeout": 2000 }));
        output.push_str(polled["output"]["text"].as_str().unwrap());
        polled["status"] == "completed"
    });
    assert_eq!(output, "hello\n");
    // To another agent the session does not exist.
    machine.ok(&["config", "set", "agents.allowUnknown", "true"]);
    let other = json!({ "tool": "process", "agentId": "other", "args": { "action": "log", "sessionId": id } });
    let answer = details(&invoke(&gateway, &token, &other));
    assert_eq!(answer["code"], "SESSION_NOT_FOUND");
    let patch = "*** Begin Patch\n*** Add File: note.txt\n+one\n*** End Patch\n";
    let applied = invoke(
        &gateway,
        &token,
        &json!({ "tool": "apply_patch", "args": { "input": patch } }),
    );
    assert_eq!(details(&applied)["status"], "completed");
    assert_eq!(
        std::fs::read_to_string(machine.work().join("note.txt")).unwrap(),
        "one\n"
    );
    let log = machine
        .ok(&["audit", "log", "--kind", "patch", "--json"])
        .json();
    assert!(log.to_string().contains("note.txt"), "{log}");
}

#[test]
fn a_call_waits_for_the_decision_and_a_denial_says_so() {
    let machine = Machine::new();
    machine.start();
    let gateway = Gateway::start(&machine);
    let token = operator(&machine);
    for (decide, status) in [("approve", "completed"), ("deny", "denied")] {
        let answer = std::thread::scope(|scope| {
            let call = scope.spawn(|| exec(&gateway, &token, "rg pattern"));
            let mut id = String::new();
            testkit::eventually("a question", || {
                let pending = machine.pending();
                pending.first().is_some_and(|first| {
                    first["shortId"].as_str().unwrap().clone_into(&mut id);
                    true
                })
            });
            machine.ok(&["approvals", decide, &id]);
            call.join().unwrap()
        });
        assert_eq!(answer["status"], status, "{answer}");
        assert_eq!(answer["denial"].is_string(), status == "denied", "{answer}");
    }
    machine.ok(&["config", "set", "tools.exec.approvalWaitMs", "50"]);
    let pending = exec(&gateway, &token, "rg other");
    assert_eq!(pending["status"], "approval-pending");
    assert_eq!(pending["approvalId"], machine.pending()[0]["id"]);
}

#[test]
fn what_is_allowed_after_its_caller_was_sent_away_runs_by_itself_and_is_told() {
    let machine = Machine::open();
    machine.ok(&["exec-policy", "set", "--ask", "always"]);
    machine.ok(&["config", "set", "tools.exec.approvalWaitMs", "0"]);
    let gateway = Gateway::start(&machine);
    let token = operator(&machine);
    let late = machine.work().join("late");
    let touch = format!("touch {}", late.display());
    let pending = exec(&gateway, &token, &touch);
    assert_eq!(pending["status"], "approval-pending", "{pending}");
    assert!(!late.exists());
    let id = pending["approvalId"].as_str().unwrap();
    machine.ok(&["approvals", "approve", id]);
    testkit::eventually("the run", || late.exists());
    testkit::eventually("its end", || {
        let of = ["events", "--session", "agent:main:main", "--json"];
        let events = machine.ok(&of).json().to_string();
        events.contains("Exec finished") && events.contains(id)
    });
    // It was allowed once.
    let again = exec(&gateway, &token, &touch);
    assert_eq!(again["status"], "approval-pending", "{again}");
    // Who denies it, has it not run.
    machine.ok(&["approvals", "deny", again["approvalId"].as_str().unwrap()]);
}

#[test]
fn the_same_key_runs_a_command_once() {
    let machine = Machine::open();
    machine.ok(&[
        "config",
        "set",
        "agents.defaults.workspace",
        &machine.work().display().to_string(),
    ]);
    let gateway = Gateway::start(&machine);
    let token = operator(&machine);
    let call = |key: &str| json!({ "tool": "exec", "idempotencyKey": key, "args": { "command": "tee -a marks; echo mark | tee -a marks" } });
    let replies: Vec<Value> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| details(&invoke(&gateway, &token, &call("a")))))
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert!(replies.iter().all(|reply| *reply == replies[0]));
    details(&invoke(&gateway, &token, &call("b")));
    let marks = std::fs::read_to_string(machine.work().join("marks")).unwrap();
    assert_eq!(marks, "mark\nmark\n");
}

#[test]
fn a_key_belongs_to_one_call_and_a_refusal_leaves_it_free() {
    let machine = Machine::open();
    let gateway = Gateway::start(&machine);
    let token = operator(&machine);
    let call = |tool: &str, arguments: Value| {
        let body = json!({ "tool": tool, "idempotencyKey": "one", "args": arguments });
        invoke(&gateway, &token, &body)
    };
    let first = call("exec", json!({ "command": "echo first", "pty": false }));
    assert_eq!(details(&first)["aggregated"], "first\n");
    for (tool, arguments) in [
        ("exec", json!({ "command": "echo second", "pty": false })),
        ("process", json!({ "action": "list" })),
    ] {
        let other = call(tool, arguments);
        assert_eq!(other.status, 400, "{}", other.body);
        let body: Value = serde_json::from_str(&other.body).unwrap();
        assert_eq!(body["error"]["type"], "invalid_request", "{body}");
        assert_eq!(body["error"]["code"], "IDEMPOTENCY_KEY_REUSED", "{body}");
    }
    // In whatever order it is written, it is the same call.
    let again = call("exec", json!({ "pty": false, "command": "echo first" }));
    assert_eq!(details(&again), details(&first));

    let later = json!({ "tool": "exec", "idempotencyKey": "two", "args": { "command": "id -un" } });
    machine.ok(&["exec-policy", "preset", "deny-all"]);
    assert_eq!(
        details(&invoke(&gateway, &token, &later))["status"],
        "denied"
    );
    machine.ok(&["exec-policy", "preset", "yolo"]);
    assert_eq!(
        details(&invoke(&gateway, &token, &later))["status"],
        "completed"
    );
}

/// What a run may do at the Unix socket: call tools, and nothing else.
#[test]
fn a_run_gets_an_agents_rights_at_the_socket() {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        println!("skipped: /usr/bin/python3 is not installed");
        return;
    }
    let machine = Machine::open();
    // Inside the shield the socket does not exist.
    machine.switch_shield_off();
    let gateway = Gateway::start(&machine);
    let token = operator(&machine);
    let script = format!(
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect({:?})\n\
         s.sendall(b'GET /metrics HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')\n\
         print(s.recv(100).decode().split()[1])\n",
        machine.state().join("gateway.sock").display().to_string()
    );
    let file = machine.file("work/ask.py", &script);
    let outside = std::process::Command::new("/usr/bin/python3")
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&outside.stdout).trim(), "200");
    let inside = exec(
        &gateway,
        &token,
        &format!("/usr/bin/python3 {}", file.display()),
    );
    assert_eq!(inside["aggregated"], "403\n", "{inside}");
}

#[test]
fn nothing_is_lost_when_the_gateway_is_killed() {
    let machine = Machine::open();
    let first = Gateway::start(&machine);
    let token = operator(&machine);
    let second = machine.run(&["gateway", "run", "--port", "0"]);
    second.refused(1, "GATEWAY_ALREADY_RUNS");
    let call = json!({ "tool": "exec", "args": { "command": "sleep 600", "background": true } });
    let running = details(&invoke(&first, &token, &call));
    let id = running["sessionId"].as_str().unwrap().to_owned();
    machine.ok(&["exec-policy", "set", "--ask", "always"]);
    machine.ok(&["config", "set", "tools.exec.approvalWaitMs", "0"]);
    let pending = exec(&first, &token, "rg x");
    assert_eq!(pending["status"], "approval-pending");
    first.kill();
    drop(first);
    assert_eq!(machine.run(&["gateway", "status"]).code, 1);
    let next = Gateway::start(&machine);
    // The token that was minted before is still good.
    let list = json!({ "tool": "process", "args": { "action": "list" } });
    let sessions = details(&invoke(&next, &token, &list))["sessions"].clone();
    assert_eq!(sessions[0]["sessionId"], id.as_str(), "{sessions}");
    assert_eq!(sessions[0]["status"], "running");
    assert_eq!(machine.pending()[0]["id"], pending["approvalId"]);
    machine.ok(&["audit", "verify"]);
    let kill = json!({ "tool": "process", "args": { "action": "kill", "sessionId": id } });
    assert_eq!(details(&invoke(&next, &token, &kill))["status"], "killed");
    machine.ok(&["gateway", "stop"]);
    assert!(!machine.state().join("gateway.sock").exists());
    machine
        .run(&["gateway", "stop"])
        .refused(1, "GATEWAY_NOT_RUNNING");
}

#[test]
fn it_is_not_open_to_other_machines_by_mistake() {
    let machine = Machine::open();
    machine.write_config("{ gateway: { bind: 'lan', auth: { mode: 'none' } } }");
    let refused = machine.run(&["gateway", "run", "--port", "0"]);
    refused.refused(1, "BIND_WITHOUT_AUTH");
    // Without a secret every caller on this machine may call tools, and no caller may do more.
    machine.write_config("{ gateway: { auth: { mode: 'none' } } }");
    let gateway = Gateway::start(&machine);
    let call = json!({ "tool": "exec", "args": { "command": "echo hi" } }).to_string();
    let answer = request(&gateway, "POST", "/tools/invoke", &[], &call);
    assert_eq!(details(&answer)["aggregated"], "hi\n");
    assert_eq!(request(&gateway, "GET", "/metrics", &[], "").status, 403);
}

/// Each connection takes a file; a program that is run may count on the usual number.
#[test]
fn a_gateway_may_have_more_files_open_than_its_runs() {
    let machine = Machine::unguarded();
    let mut limited = machine.other_program("/bin/sh");
    limited.args(["-c", "ulimit -Sn 1000; exec \"$@\"", "sh", crate::BINARY]);
    limited.args(Gateway::ARGUMENTS);
    let gateway = Gateway::start_by(&machine, limited);
    let status = machine.ok(&["gateway", "status", "--json"]).json();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", status["pid"])).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<&str> = line.unwrap().split_ascii_whitespace().collect();
    assert_eq!(words[3], words[4], "{limits}");
    let told = exec(&gateway, &operator(&machine), "sh -c 'ulimit -n'");
    assert_eq!(told["aggregated"], "1000\n", "{told}");
}

#[test]
fn a_taken_port_is_told() {
    let machine = Machine::open();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut command = machine.command(&["gateway", "run", "--port", &port]);
    let output = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("LISTEN_FAILED"));
}

/// Where, how to watch, how to connect an agent, tokens, policy.
#[test]
fn the_first_lines_say_what_matters() {
    let machine = Machine::new();
    machine.start();
    let mut child = machine
        .command(&["gateway", "run", "--port", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("\npolicy: ") {
        let read = std::io::BufRead::read_line(&mut lines, &mut said).unwrap();
        assert_ne!(read, 0, "{said}");
    }
    let status = machine.ok(&["gateway", "status", "--json"]).json();
    machine.ok(&["gateway", "stop"]);
    child.wait().unwrap();
    let said = machine
        .stable(&said)
        .replace(&format!("127.0.0.1:{}", status["port"]), "127.0.0.1:[PORT]")
        .replace(&format!("pid {}", status["pid"]), "pid [PID]");
    assert_eq!(
        said,
        "ready: http://127.0.0.1:[PORT] (pid [PID]), socket [TMP]/home/.interlock/gateway.sock\n\
         watch and decide: interlock approvals watch\n\
         connect an agent: interlock setup claude-code, or another MCP client: \
         {\"mcpServers\":{\"interlock\":{\"type\":\"http\",\"url\":\"http://127.0.0.1:[PORT]/mcp\",\
         \"headers\":{\"Authorization\":\"Bearer AGENT_TOKEN\"}}}}\n\
         tokens: interlock agents token main for an agent; interlock gateway token --new for an operator\n\
         policy: security allowlist, ask on-miss, askFallback deny; every layer of it: interlock exec-policy show\n"
    );
}
