//! Which identity a caller has at the gateway, and that no caller has more rights than that.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use interlock_wire::Secret;
use interlock_wire::identity::DeviceIdentity;
use interlock_wire::params::{Auth, Connect};
use serde_json::{Value, json};
use testkit::Machine;
use testkit::mcp::{Reply, raw};
use testkit::ws::{EVERYTHING, Gateway, WsClient, now_ms, operator};

/// `/tools/invoke` by TCP.
fn invoke(gateway: &Gateway, secret: &str, call: &Value) -> Reply {
    let body = call.to_string();
    let text = format!(
        "POST /tools/invoke HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
         Authorization: Bearer {secret}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    raw(gateway.port, text.as_bytes())
}

/// Says `METHOD PATH` to the Unix socket, with a header and a body, and prints the status and the
/// answer; as a process that has left the one that started it.
const ASK: &str = r"
import os, socket, sys
where, method, path, header, body = sys.argv[1:6]
reader, writer = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        s = socket.socket(socket.AF_UNIX)
        s.connect(where)
        head = f'{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n'
        if header:
            head += header + '\r\n'
        head += f'Content-Type: application/json\r\nContent-Length: {len(body.encode())}\r\n\r\n'
        s.sendall(head.encode() + body.encode())
        answer = b''
        while True:
            more = s.recv(65536)
            if not more:
                break
            answer += more
        os.write(writer, answer)
    os._exit(0)
os.close(writer)
os.wait()
answer = b''
while True:
    more = os.read(reader, 65536)
    if not more:
        break
    answer += more
print(answer.decode().split(' ', 2)[1], answer.decode().split('\r\n\r\n', 1)[1])
";

/// From inside a run of `locked`: the status, and the rest.
fn from_run(machine: &Machine, request: [&str; 3], body: &Value) -> (u16, String) {
    from_run_of(&machine.state(), machine, request, body)
}

/// The same, from a run of a state directory.
fn from_run_of(state: &Path, machine: &Machine, request: [&str; 3], body: &Value) -> (u16, String) {
    let script = machine.file("work/ask.py", ASK);
    let socket = machine.state().join("gateway.sock");
    let [method, path, header] = request;
    let body = body.to_string();
    let words = [
        "/usr/bin/python3",
        script.to_str().unwrap(),
        socket.to_str().unwrap(),
        method,
        path,
        header,
        &body,
    ];
    let quoted = words.map(|word| format!("'{word}'")).join(" ");
    let state = state.to_str().unwrap();
    let agents = r#"[{ "id": "locked" }]"#;
    machine.ok(&["config", "set", "--state-dir", state, "agents.list", agents]);
    let flags = [
        "exec",
        "--state-dir",
        state,
        "--agent",
        "locked",
        "--no-wait",
    ];
    let run = machine.ok(&[&flags[..], &["--", &quoted]].concat());
    let (status, rest) = run.stdout.split_once(' ').unwrap();
    (status.parse().unwrap(), rest.to_owned())
}

#[test]
fn a_run_is_the_agent_and_the_session_that_it_belongs_to() {
    if !Path::new("/usr/bin/python3").exists() {
        println!("skipped: /usr/bin/python3 is not installed");
        return;
    }
    let machine = Machine::unguarded();
    // Inside the shield the socket does not exist.
    machine.write_config(
        "{ tools: { exec: { shield: 'off' } }, agents: { list: [{ id: 'locked' }] } }",
    );
    let gateway = machine.gateway();
    let tools = ["POST", "/tools/invoke", ""];
    let list = |more: Value| {
        let mut call = json!({ "tool": "process", "args": { "action": "list" } });
        call.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        call
    };
    for other in [
        json!({ "agentId": "main" }),
        json!({ "sessionKey": "agent:main:main" }),
        json!({ "sessionKey": "agent:locked:looser" }),
        json!({ "agentId": "main", "sessionKey": "agent:locked:main" }),
    ] {
        let (status, said) = from_run(&machine, tools, &list(other.clone()));
        assert_eq!(status, 403, "{other}: {said}");
    }
    for own in [
        json!({}),
        json!({ "agentId": "locked", "sessionKey": "main" }),
        json!({ "sessionKey": "agent:locked:main" }),
    ] {
        let (status, said) = from_run(&machine, tools, &list(own.clone()));
        assert_eq!(status, 200, "{own}: {said}");
    }
    let sleep = json!({ "tool": "exec", "args": { "command": "sleep 100", "background": true } });
    assert_eq!(from_run(&machine, tools, &sleep).0, 200);
    let listed = gateway.connect(EVERYTHING).ok("process.list", &json!({}));
    let mut sessions = listed["sessions"].as_array().unwrap().iter();
    let started = sessions.find(|one| one["command"] == "sleep 100").unwrap();
    assert_eq!(started["agentId"], "locked", "{started}");
    assert_eq!(started["sessionKey"], "agent:locked:main", "{started}");
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "run", "version": "1" } } });
    let mcp = |header| from_run(&machine, ["POST", "/mcp", header], &initialize);
    let (status, said) = mcp("x-interlock-agent: main");
    assert_eq!(status, 403, "{said}");
    // Agents of another state directory are unknown here.
    let other = machine.root().join("other");
    let preset = ["exec-policy", "preset", "yolo", "--state-dir"];
    machine.ok(&[&preset[..], &[other.to_str().unwrap()]].concat());
    let (status, said) = from_run_of(&other, &machine, tools, &list(json!({})));
    assert_eq!(status, 403, "{said}");
}

#[test]
fn a_call_that_names_two_agents_is_refused_at_every_door() {
    let machine = Machine::unguarded();
    machine.write_config(
        "{ tools: { elevated: { enabled: true, allowFrom: { main: ['*'] } } },
           agents: { list: [{ id: 'shy', tools: { elevated: { enabled: false } } }] } }",
    );
    let gateway = machine.gateway();
    let both = json!({ "tool": "exec", "agentId": "main", "sessionKey": "agent:shy:x",
        "args": { "command": "echo hello" } });
    let reply = invoke(&gateway, &gateway.token, &both);
    assert_eq!(reply.status, 400, "{reply:?}");
    assert!(reply.body.contains("different agents"), "{reply:?}");
    let mut admin = gateway.connect(EVERYTHING);
    let call = json!({ "name": "exec", "agentId": "main", "sessionKey": "agent:shy:x",
        "args": { "command": "echo hello" } });
    let said = admin.refused("tools.invoke", &call)["message"].clone();
    assert!(
        said.as_str().unwrap().contains("different agents"),
        "{said}"
    );
    let patch = json!({ "key": "agent:shy:main", "agentId": "main", "elevatedLevel": "full" });
    let said = admin.refused("sessions.patch", &patch)["message"].clone();
    assert!(
        said.as_str().unwrap().contains("different agents"),
        "{said}"
    );
    // The same one twice is one.
    let same = json!({ "name": "exec", "agentId": "Shy", "sessionKey": "agent:shy:x",
        "args": { "command": "echo hello" } });
    admin.ok("tools.invoke", &same);
}

/// What an operator says of itself that has only the token of its device.
fn with_device_token(token: &str, scopes: &[&str]) -> Connect {
    let mut connect = operator("", scopes);
    connect.auth = Some(Auth {
        device_token: Some(Secret::new(token)),
        ..Auth::default()
    });
    connect
}

#[test]
fn a_token_that_was_exchanged_is_worth_what_it_was_exchanged_for() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let mut admin = gateway.connect(EVERYTHING);
    let device = DeviceIdentity::generate().unwrap();
    let mut first = gateway.open();
    let wanted = gateway.operator(&["operator.admin", "operator.approvals"]);
    first.introduce(wanted.clone(), Some(&device)).unwrap();
    let rotate = json!({ "deviceId": device.device_id(), "role": "operator",
        "scopes": ["operator.read"] });
    let rotated = admin.ok("device.token.rotate", &rotate);
    // What the old one let in is gone.
    let asked = first.send("health", &json!({}));
    assert!(asked.is_err() || first.answer(&asked.unwrap()).is_none());
    let token = rotated["token"].as_str().unwrap();
    let come = |scopes: &[&str]| {
        let mut client = gateway.open();
        let connect = with_device_token(token, scopes);
        client.introduce(connect, Some(&device)).unwrap();
        client
    };
    let mut less = come(&["operator.admin"]);
    assert_eq!(less.hello["auth"]["scopes"], json!(["operator.read"]));
    less.ok("node.list", &json!({}));
    let refused = less.refused("audit.list", &json!({}));
    assert_eq!(refused["details"]["code"], "MISSING_SCOPE", "{refused}");
    // Nor does the token become worth more because another caller showed the secret meanwhile.
    let mut client = gateway.open();
    client.introduce(wanted, Some(&device)).unwrap();
    let less = come(&["operator.admin", "operator.approvals"]);
    assert_eq!(less.hello["auth"]["scopes"], json!(["operator.read"]));
    // Who exchanges its own token is told the new one.
    let mut own = gateway.open();
    let pairer = DeviceIdentity::generate().unwrap();
    let wanted = gateway.operator(&["operator.pairing"]);
    own.introduce(wanted, Some(&pairer)).unwrap();
    let rotate = json!({ "deviceId": pairer.device_id(), "role": "operator" });
    assert!(own.ok("device.token.rotate", &rotate)["token"].is_string());
}

#[test]
fn who_guesses_the_password_is_neither_forgiven_nor_a_burden_to_others() {
    let machine = Machine::unguarded();
    machine.write_config("{ gateway: { auth: { mode: 'password' } } }");
    let gateway = machine.gateway_as(
        &["--port", "0"],
        &[("INTERLOCK_GATEWAY_PASSWORD", "a password")],
    );
    let agent = machine.ok(&["agents", "token", "main"]);
    let agent = agent.stdout.trim();
    let call = json!({ "tool": "process", "args": { "action": "list" } });
    let status = |secret: &str| invoke(&gateway, secret, &call).status;
    let password = |text: &str| {
        let mut connect = operator("", EVERYTHING);
        connect.auth = Some(Auth {
            password: Some(Secret::new(text)),
            ..Auth::default()
        });
        connect
    };
    assert_eq!(status("a password"), 200);
    let device = DeviceIdentity::generate().unwrap();
    let mut client = gateway.open();
    let connect = password("a password");
    client.introduce(connect, Some(&device)).unwrap();
    let own = client.hello["auth"]["deviceToken"].as_str().unwrap();
    // Tokens of devices that are no longer good are no guesses at the password.
    for _ in 0..12 {
        let stale = with_device_token("stale", EVERYTHING);
        gateway.open().introduce(stale, Some(&device)).unwrap_err();
    }
    assert_eq!(status("a password"), 200);
    // A token of an agent or a device forgives no wrong guess of the password. During the pause that
    // follows, no transport even compares a password.
    let mut limited = Value::Null;
    testkit::eventually("the guesses cost a pause", || {
        let guesses = (0..14).map(|number| {
            assert_eq!(status(agent), 200);
            let mut client = gateway.open();
            let connect = with_device_token(own, EVERYTHING);
            client.introduce(connect, Some(&device)).unwrap();
            status(&format!("guess{number}"))
        });
        let is_limited = guesses.collect::<Vec<_>>().last() == Some(&429);
        if !is_limited || status("a password") != 429 {
            return false;
        }
        // On a busy machine the pause may be over by now: then the guesses go on.
        let connect = password("a password");
        match gateway.open().introduce(connect, Some(&device)) {
            Ok(()) => false,
            Err(error) => {
                limited = error;
                true
            }
        }
    });
    assert_eq!(limited["details"]["code"], "AUTH_RATE_LIMITED", "{limited}");
    assert!(limited["retryAfterMs"].as_u64() >= Some(1000), "{limited}");
    assert_eq!(status(agent), 200);
    gateway.connect_locally(EVERYTHING);
}

#[test]
fn without_a_secret_the_websocket_gives_no_more_than_http() {
    let machine = Machine::unguarded();
    machine.write_config("{ gateway: { auth: { mode: 'none' } } }");
    let gateway = machine.gateway();
    let anybody = |scopes: &[&str]| {
        let mut connect = operator("", scopes);
        connect.auth = None;
        connect
    };
    let mut client = gateway.open();
    client.introduce(anybody(EVERYTHING), None).unwrap();
    assert_eq!(client.hello["auth"]["scopes"], json!([]));
    assert_eq!(client.ok("health", &json!({}))["ok"], true);
    for (method, params) in [
        ("process.list", json!({})),
        ("logs.tail", json!({})),
        (
            "tools.invoke",
            json!({ "name": "exec", "args": { "command": "echo" } }),
        ),
    ] {
        let refused = client.refused(method, &params);
        assert_eq!(refused["details"]["code"], "MISSING_SCOPE", "{refused}");
    }
    // A device waits for a person, and then reads and writes.
    let device = DeviceIdentity::generate().unwrap();
    let come = |client: &mut WsClient| client.introduce(anybody(EVERYTHING), Some(&device));
    let waits = come(&mut gateway.open()).unwrap_err();
    assert_eq!(waits["details"]["code"], "PAIRING_REQUIRED", "{waits}");
    let request = json!({ "requestId": waits["details"]["requestId"] });
    let mut owner = gateway.connect_locally(EVERYTHING);
    owner.ok("device.pair.approve", &request);
    let mut client = gateway.open();
    come(&mut client).unwrap();
    let scopes = &client.hello["auth"]["scopes"];
    assert_eq!(*scopes, json!(["operator.read", "operator.write"]));
}

#[test]
fn who_asked_to_be_let_in_long_ago_is_not_let_in() {
    let machine = Machine::unguarded();
    machine.write_config("{ gateway: { auth: { mode: 'none' } } }");
    let gateway = machine.gateway();
    let ask = |identity: &DeviceIdentity| {
        let mut connect = operator("", &["operator.read"]);
        connect.auth = None;
        let waits = gateway.open().introduce(connect, Some(identity));
        waits.unwrap_err()["details"]["requestId"].clone()
    };
    let [old, new] = [(); 2].map(|()| DeviceIdentity::generate().unwrap());
    let (first, second) = (ask(&old), ask(&new));
    let long_ago = i64::try_from(now_ms() - 5 * 60_000 - 1000).unwrap();
    let changed = machine.database().execute(
        "UPDATE pairing_request SET at_ms = ?1 WHERE id = ?2",
        rusqlite::params![long_ago, first.as_str().unwrap()],
    );
    assert_eq!(changed.unwrap(), 1);
    let mut owner = gateway.connect_locally(EVERYTHING);
    for method in ["device.pair.approve", "device.pair.reject"] {
        let refused = owner.refused(method, &json!({ "requestId": first }));
        assert_eq!(refused["message"], "unknown requestId", "{method}");
    }
    let listed = owner.ok("device.pair.list", &json!({}));
    let pending = listed["pending"].as_array().unwrap();
    assert_eq!(pending.len(), 1, "{listed}");
    assert_eq!(pending[0]["requestId"], second);
    // It may ask again, and that is another question.
    assert_ne!(ask(&old), first);
    owner.ok("device.pair.approve", &json!({ "requestId": second }));
}

#[test]
fn a_device_has_one_name_in_one_line_and_keeps_the_one_that_it_was_given() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let device = DeviceIdentity::generate().unwrap();
    let come = |name: &str| {
        let mut connect = gateway.operator(&["operator.read"]);
        connect.client.display_name = Some(name.to_owned());
        gateway.open().introduce(connect, Some(&device))
    };
    let refused = come("evil\nn1 linux connected").unwrap_err();
    let said = refused["message"].as_str().unwrap();
    assert!(said.contains("/client/displayName"), "{said}");
    come("its own").unwrap();
    let mut admin = gateway.connect(EVERYTHING);
    let name = |label: &str| json!({ "deviceId": device.device_id(), "label": label });
    admin.refused("device.pair.rename", &name("two\nlines"));
    admin.ok("device.pair.rename", &name("workshop"));
    come("its own").unwrap();
    let listed = admin.ok("device.pair.list", &json!({}));
    let mut paired = listed["paired"].as_array().unwrap().iter();
    let own = paired.find(|one| one["deviceId"] == device.device_id().as_str());
    assert_eq!(own.unwrap()["displayName"], "workshop");
    let audit = machine.ok(&["audit", "log", "--json", "--kind", "pairing"]);
    assert!(audit.stdout.contains("device-renamed"), "{audit:?}");
    // What older records hold is one line all the same.
    let body = "UPDATE device SET body = json_set(body, '$.displayName', ?1) WHERE id = ?2";
    let two_lines = rusqlite::params!["evil\nn1  linux", device.device_id()];
    machine.database().execute(body, two_lines).unwrap();
    let shown = machine.ok(&["devices", "list"]).stdout;
    assert!(shown.contains(r"evil\u{A}n1"), "{shown}");
}

#[test]
fn the_gateway_says_what_it_asks_operators_for() {
    let machine = Machine::unguarded();
    machine.write_config("{ gateway: { auth: { mode: 'password' } } }");
    let refused = machine.run(&["gateway", "run", "--port", "0"]);
    refused.refused(1, "TOKEN_UNUSABLE");
    assert!(refused.stderr.contains("passwordFile"), "{refused:?}");
    let password = ("INTERLOCK_GATEWAY_PASSWORD", "a password");
    let gateway = machine.gateway_as(&["--port", "0"], &[password]);
    let status = machine.ok(&["gateway", "status", "--json"]).json();
    assert_eq!(
        status["operatorAccess"],
        json!({ "passwordVariable": password.0 })
    );
    gateway.stop();
    machine.write_config("{}");
    let variable = ("INTERLOCK_GATEWAY_TOKEN", "a token of its own");
    let gateway = machine.gateway_as(&["--port", "0"], &[variable]);
    let status = machine.ok(&["gateway", "status", "--json"]).json();
    assert_eq!(
        status["operatorAccess"],
        json!({ "tokenVariable": variable.0 })
    );
    let call = json!({ "tool": "exec", "args": { "command": "true" } });
    for token in [variable.1, gateway.token.as_str()] {
        assert_eq!(invoke(&gateway, token, &call).status, 200);
    }
    gateway.stop();
    let gateway = machine.gateway();
    let status = machine.ok(&["gateway", "status", "--json"]).json();
    assert_eq!(status["operatorAccess"], json!("mintedToken"));
    assert_eq!(invoke(&gateway, variable.1, &call).status, 401);
}
