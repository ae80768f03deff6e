//! How a command reaches a foreign node, and what is told where the node drops a part of it.

use serde_json::{Value, json};

use super::wire::{Gateway, Reply, answering, approve, identity, plan, ran};
use testkit::Machine;

const COMMANDS: &[&str] = &["system.run", "system.run.prepare"];

/// Runs what it is given.
fn runs(invocation: &Value) -> Reply {
    let params = &invocation["params"];
    match invocation["command"].as_str().unwrap() {
        "system.run.prepare" => Reply::Give(json!({ "plan": plan(params) })),
        _ => Reply::Give(ran("done\n")),
    }
}

/// Wants an approval for everything.
fn asks(invocation: &Value) -> Reply {
    let params = &invocation["params"];
    match invocation["command"].as_str().unwrap() {
        "system.run.prepare" => Reply::Give(json!({ "plan": plan(params) })),
        // As nodes of the newest release say it.
        _ => Reply::Fail("SYSTEM_RUN_DENIED", "SYSTEM_RUN_DENIED: approval required"),
    }
}

#[test]
fn a_single_plain_command_goes_as_its_words_and_keeps_its_variables() {
    let machine = Machine::new();
    machine.write_config("{}");
    machine.leave_to_nodes();
    let gateway = Gateway::start(&machine);
    let mut admin = gateway.admin();
    let seen = answering(gateway.node(&identity(60), "lab", COMMANDS), runs);
    approve(&mut admin);
    let env = json!({ "LANG": "C", "RUST_LOG": "info" });
    let result = gateway.exec(&json!({ "command": "/usr/bin/id -un", "host": "node", "env": env }));
    assert_eq!(result["details"]["status"], "completed", "{result}");
    assert!(result["details"].get("droppedEnv").is_none(), "{result}");
    assert_eq!(result["content"][0]["text"], "done\n");
    let (prepare, run) = (seen.recv().unwrap(), seen.recv().unwrap());
    for call in [&prepare, &run] {
        assert_eq!(call["params"]["command"], json!(["/usr/bin/id", "-un"]));
        assert_eq!(call["params"]["rawCommand"], "/usr/bin/id -un");
        assert_eq!(call["params"]["env"], env);
    }
}

#[test]
fn variables_that_a_node_drops_are_told_in_the_result_and_in_the_question() {
    let machine = Machine::new();
    machine.write_config("{ tools: { exec: { approvalWaitMs: 1 } } }");
    machine.leave_to_nodes();
    let gateway = Gateway::start(&machine);
    let mut admin = gateway.admin();
    let call = json!({
        "command": "id -un | cat", "host": "node", "env": { "LANG": "C", "RUST_LOG": "info" },
    });
    {
        let seen = answering(gateway.node(&identity(61), "lab", COMMANDS), runs);
        approve(&mut admin);
        let result = gateway.exec(&call);
        assert_eq!(
            result["details"]["droppedEnv"],
            json!(["RUST_LOG"]),
            "{result}"
        );
        let text = result["content"][0]["text"].as_str().unwrap();
        let told = "does not pass these variables to shell text: RUST_LOG";
        assert!(
            text.starts_with("done\n") && text.contains(told),
            "{result}"
        );
        let prepare = seen.recv().unwrap();
        let words = json!(["/bin/sh", "-lc", "id -un | cat"]);
        assert_eq!(prepare["params"]["command"], words);
    }
    let machine = Machine::new();
    machine.write_config("{ tools: { exec: { approvalWaitMs: 1 } } }");
    machine.leave_to_nodes();
    let gateway = Gateway::start(&machine);
    let mut admin = gateway.admin();
    let _seen = answering(gateway.node(&identity(62), "lab", COMMANDS), asks);
    approve(&mut admin);
    let result = gateway.exec(&call);
    assert_eq!(result["details"]["status"], "approval-pending", "{result}");
    let shown = admin.event("exec.approval.requested");
    let warning = shown["request"]["warningText"].as_str().unwrap();
    assert!(warning.contains("shell text: RUST_LOG"), "{shown:#}");
}

#[test]
fn deny_rules_of_the_gateway_see_a_command_that_goes_as_its_words() {
    let machine = Machine::new();
    machine.write_config("{}");
    machine.leave_to_nodes();
    let document = r#"{ "version": 1, "defaults": { "security": "allowlist", "ask": "on-miss",
        "deny": [{ "pattern": "/usr/bin/id", "args": ["-un"], "reason": "not here" }] } }"#;
    assert_eq!(machine.set_document(document).code, 0);
    let gateway = Gateway::start(&machine);
    let mut admin = gateway.admin();
    let _seen = answering(gateway.node(&identity(63), "lab", COMMANDS), runs);
    approve(&mut admin);
    for command in [
        "/usr/bin/id -un",
        "id -un",
        "id '-un'",
        "env id -un",
        "id -un | cat",
    ] {
        let result = gateway.exec(&json!({ "command": command, "host": "node" }));
        assert_eq!(
            result["details"]["code"], "EXEC_DENIED",
            "{command}: {result}"
        );
    }
}
