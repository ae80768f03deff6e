//! The owner of the gateway, a session and a call can only be stricter than a node, and are heard.

use serde_json::{Value, json};

use super::wire::{Gateway, Reply, Wire, answering, approve, identity, plan, ran};
use testkit::{Machine, eventually};

const RUNS: &[&str] = &["system.run", "system.run.prepare"];
const TELLS: &[&str] = &[
    "system.execApprovals.get",
    "system.run",
    "system.run.prepare",
];

fn start(machine: &Machine) -> (Gateway, Wire) {
    machine.write_config("{ tools: { exec: { approvalWaitMs: 1 } } }");
    machine.leave_to_nodes();
    let gateway = Gateway::start(machine);
    let admin = gateway.admin();
    (gateway, admin)
}

fn on_node(gateway: &Gateway, command: &str) -> Value {
    let call = json!({ "command": command, "host": "node" });
    gateway.exec(&call)["details"].clone()
}

#[test]
fn what_config_session_and_call_want_holds_on_a_node_that_allows_everything() {
    let (here, there) = (Machine::new(), Machine::new());
    let (gateway, mut admin) = start(&here);
    there.start();
    there.ok(&["exec-policy", "preset", "yolo"]);
    there.ok(&["approvals", "allowlist", "add", "/usr/bin/uname"]);
    let _node = super::real::connect(&there, &gateway, &mut admin);
    let (free, listed) = ("/usr/bin/id -un", "/usr/bin/uname");
    let status = |command: &str| on_node(&gateway, command)["status"].clone();
    assert_eq!(status(free), "completed");
    let always = json!({ "command": listed, "host": "node", "ask": "always" });
    assert_eq!(
        gateway.exec(&always)["details"]["status"],
        "approval-pending"
    );

    // The config: only what the node's allowlist names; who is asked is another matter.
    here.ok(&["config", "set", "tools.exec.security", "allowlist"]);
    here.ok(&["config", "set", "tools.exec.ask", "off"]);
    eventually("the config is read", || status(free) == "denied");
    assert_eq!(on_node(&gateway, free)["code"], "SYSTEM_RUN_DENIED");
    assert_eq!(status(listed), "completed");
    here.ok(&["config", "set", "tools.exec.ask", "on-miss"]);
    eventually("the config is read", || status(free) == "approval-pending");
    assert_eq!(status(listed), "completed");
    let asked = on_node(&gateway, "/usr/bin/id -gn");
    let id = asked["approvalId"].as_str().unwrap();
    here.ok(&["approvals", "approve", id]);
    eventually("what was approved runs", || {
        let log = here.ok(&["audit", "log", "--json", "--kind", "run-ended"]);
        log.stdout.contains(id) && log.stdout.contains("exited")
    });
    here.ok(&["config", "unset", "tools.exec.security"]);
    here.ok(&["config", "unset", "tools.exec.ask"]);
    eventually("the config is read", || status(free) == "completed");

    // The session.
    let key = "agent:main:main";
    admin.ok(
        "sessions.patch",
        &json!({ "key": key, "execAsk": "always" }),
    );
    assert_eq!(status(listed), "approval-pending");
    let set = json!({ "key": key, "execAsk": "off", "execSecurity": "allowlist" });
    admin.ok("sessions.patch", &set);
    assert_eq!(
        (status(free), status(listed)),
        (json!("denied"), json!("completed"))
    );
    admin.ok(
        "sessions.patch",
        &json!({ "key": key, "execSecurity": "deny" }),
    );
    assert_eq!(on_node(&gateway, listed)["code"], "EXEC_DENIED");
}

/// A foreign node does not read a level: its own document is all that it has.
#[test]
fn a_foreign_node_runs_nothing_under_allowlist_unless_its_document_says_allowlist() {
    let answers = |security: Value| {
        move |invocation: &Value| {
            let params = &invocation["params"];
            match invocation["command"].as_str().unwrap() {
                "system.execApprovals.get" => Reply::Give(json!({
                    "path": "/x", "exists": true, "hash": "h",
                    "file": { "version": 1, "defaults": { "security": security }, "agents": {} },
                })),
                "system.run.prepare" => Reply::Give(json!({ "plan": plan(params) })),
                _ => Reply::Give(ran("ran")),
            }
        }
    };
    // Its commands, what its document says, and what comes of a call with ask=off and ask=on-miss.
    let cases = [
        (TELLS, json!("allowlist"), "completed", "completed"),
        (TELLS, json!("deny"), "completed", "completed"),
        (TELLS, json!("full"), "denied", "approval-pending"),
        (TELLS, Value::Null, "denied", "approval-pending"),
        (RUNS, json!("allowlist"), "denied", "approval-pending"),
    ];
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine);
    for (number, (commands, document, off, on_miss)) in (40..).zip(cases) {
        let (key, name) = (identity(number), format!("n{number}"));
        let node = gateway.node(&key, &name, commands);
        let seen = answering(node, answers(document.clone()));
        approve(&mut admin);
        for (ask, expected) in [("off", off), ("on-miss", on_miss)] {
            let session = "agent:main:main";
            let set = json!({ "key": session, "execSecurity": "allowlist", "execAsk": ask });
            admin.ok("sessions.patch", &set);
            let call = json!({ "command": "id", "node": name });
            let result = gateway.exec(&call)["details"].clone();
            assert_eq!(result["status"], expected, "{document} {ask}: {result}");
            let runs = seen.try_iter().filter(|one| one["command"] == "system.run");
            assert_eq!(
                runs.count() == 1,
                expected == "completed",
                "{document} {ask}"
            );
        }
    }
}

#[test]
fn a_command_that_the_owner_denies_is_neither_listed_nor_used_on_a_node_that_is_there() {
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine);
    let runs = |invocation: &Value| match invocation["command"].as_str().unwrap() {
        "system.run.prepare" => Reply::Give(json!({ "plan": plan(&invocation["params"]) })),
        _ => Reply::Give(ran("ran")),
    };
    let seen = answering(gateway.node(&identity(50), "lab", RUNS), runs);
    approve(&mut admin);
    assert_eq!(on_node(&gateway, "id")["status"], "completed");
    seen.try_iter().for_each(drop);
    let denied = r#"["system.run"]"#;
    machine.ok(&["config", "set", "gateway.nodes.denyCommands", denied]);
    let commands = |admin: &mut Wire| {
        let listed = admin.ok("node.list", &json!({}));
        listed["nodes"][0]["commands"].clone()
    };
    eventually("the config is read", || {
        commands(&mut admin) == json!(["system.run.prepare"])
    });
    for node in [Value::Null, json!("lab")] {
        let call = json!({ "command": "id", "host": "node", "node": node });
        let refused = gateway.exec(&call)["details"].clone();
        assert_eq!(refused["code"], "NODE_CANNOT_RUN", "{refused}");
    }
    assert_eq!(seen.try_iter().count(), 0);
    machine.ok(&["config", "unset", "gateway.nodes.denyCommands"]);
    eventually("the config is read", || commands(&mut admin) == json!(RUNS));
    assert_eq!(on_node(&gateway, "id")["status"], "completed");
}

#[test]
fn who_names_a_node_does_not_mean_the_gateways_own_machine() {
    let machine = Machine::open();
    machine.leave_to_nodes();
    let gateway = Gateway::start(&machine);
    let mut admin = gateway.admin();
    let runs = |_: &Value| Reply::Give(ran("there"));
    let _seen = answering(gateway.node(&identity(51), "prod", &["system.run"]), runs);
    approve(&mut admin);
    let call = |arguments: Value| super::wire::invoke_exec(&gateway, &arguments);
    for host in [Value::Null, json!("auto"), json!("node")] {
        let done = call(json!({ "command": "hostname", "node": "prod", "host": host }));
        assert_eq!(done["result"]["details"]["host"], "node", "{host}: {done}");
        assert_eq!(done["result"]["details"]["aggregated"], "there");
    }
    for host in ["gateway", "sandbox"] {
        let refused = call(json!({ "command": "hostname", "node": "prod", "host": host }));
        assert_eq!(refused["error"]["field"], "node", "{refused}");
    }
    machine.ok(&["config", "set", "tools.exec.host", "gateway"]);
    eventually("the config is read", || {
        let refused = call(json!({ "command": "hostname", "node": "prod" }));
        refused["result"]["details"]["code"] == "HOST_NOT_ALLOWED"
    });
}

#[test]
fn what_a_foreign_node_answers_is_bounded() {
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine);
    let floods = |invocation: &Value| {
        let params = &invocation["params"];
        match invocation["command"].as_str().unwrap() {
            "system.run.prepare" => Reply::Give(json!({ "plan": plan(params) })),
            _ if params["rawCommand"].as_str().unwrap().contains("fails") => Reply::Fail(
                "UNAVAILABLE",
                Box::leak("e".repeat(3_000_000).into_boxed_str()),
            ),
            _ => {
                let mut result = ran(&format!("first{}", "ü".repeat(2_000_000)));
                result["stderr"] = format!("{}last", "y".repeat(1_000_000)).into();
                Reply::Give(result)
            }
        }
    };
    let _seen = answering(gateway.node(&identity(52), "lab", RUNS), floods);
    approve(&mut admin);
    let whole = gateway.exec(&json!({ "command": "floods", "host": "node" }));
    let text = whole["content"][0]["text"].as_str().unwrap();
    assert!(text.chars().count() < 201_000, "{}", text.len());
    assert!(
        text.starts_with("first") && text.contains("last"),
        "both ends are shown"
    );
    assert!(text.contains(" bytes with 1 line ends left out here]"));
    let left_out = whole["details"]["omittedBytes"].as_u64().unwrap();
    let shown = whole["details"]["aggregated"].as_str().unwrap().len();
    assert!(
        left_out > 4_000_000 && shown < 400_000,
        "{left_out} {shown}"
    );
    let failed = gateway.exec(&json!({ "command": "fails", "host": "node" }));
    assert!(
        failed.to_string().len() < 10_000,
        "{}",
        failed.to_string().len()
    );
}

#[test]
fn a_background_run_on_a_node_says_where_it_is() {
    let (here, there) = (Machine::new(), Machine::new());
    let (gateway, mut admin) = start(&here);
    there.start();
    there.ok(&["exec-policy", "preset", "yolo"]);
    let _node = super::real::connect(&there, &gateway, &mut admin);
    let call = json!({
        "command": "sleep 30", "node": "real", "background": true, "workdir": there.work(),
    });
    let running = gateway.exec(&call);
    let details = &running["details"];
    assert_eq!(details["status"], "running", "{running}");
    let pid = details["pid"].as_u64().unwrap();
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(details["startedAt"].as_u64().is_some(), "{running}");
    assert_eq!(details["cwd"], there.work().display().to_string());
}
