//! A config key or value whose feature is not there is refused by every way in; a sandbox that is asked
//! for and cannot be had is never a run on the host.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use serde_json::{Value, json};
use testkit::ws::{EVERYTHING, WsClient};
use testkit::{Machine, eventually};

/// A command that leaves a trace where it runs.
const TRACE: &str = "/usr/bin/touch trace";

/// Keys of the reference texts that have no effect here, each with a value that they would take.
const NOT_AVAILABLE: &[(&str, &str)] = &[
    ("agents.defaults.sandbox.backend", "kubernetes"),
    ("agents.defaults.sandbox.docker.user", "'0:0'"),
    ("agents.defaults.sandbox.ssh.command", "ssh"),
    ("agents.list[0].sandbox.podman", "{}"),
    ("agents.list[0].tools.exec.mode", "auto"),
    ("tools.exec.mode", "auto"),
    ("tools.exec.reviewer.model", "m"),
    ("approvals.exec.mode", "session"),
    ("approvals.exec.mode", "both"),
    ("commands.useAccessGroups", "true"),
];

/// Configs that ask for a sandbox that this version does not have.
const ASKS_FOR_SANDBOX: &[&str] = &[
    "{ agents: { defaults: { sandbox: { mode: 'all', kubernetes: {} } } } }",
    "{ agents: { defaults: { sandbox: { mode: 'non-main', backend: 'kubernetes' } } } }",
    "{ agents: { list: [{ id: 'main', sandbox: { mode: 'all', kubernetes: {} } }] } }",
    "{ agents: { list: [{ id: 'main', sandbox: { mode: 'off', kubernetes: {} } }] } }",
    "{ gateway: { port: 0 }, agents: { defaults: { sandbox: { backend: 'kubernetes', mode: 'all' } } } }",
];

fn text(machine: &Machine) -> String {
    fs::read_to_string(machine.config()).unwrap()
}

#[test]
fn config_set_and_validate_refuse_what_has_no_effect() {
    const BEFORE: &str = "{\n  agents: { list: [{ id: 'main' }] },\n}\n";
    let machine = Machine::new();
    for (key, value) in NOT_AVAILABLE {
        machine.write_config(BEFORE);
        let run = machine.run(&["config", "set", key, value]);
        assert_eq!(run.code, 1, "{key}: {run:#?}");
        assert!(
            run.stderr.contains("not available in this version"),
            "{run:#?}"
        );
        assert!(run.stderr.contains("hint: "), "{run:#?}");
        assert_eq!(text(&machine), BEFORE, "{key}");
    }
    machine.write_config("{\n  tools: {\n    exec: { reviewer: { model: 'm' } },\n  },\n}\n");
    let run = machine.run(&["config", "validate"]);
    assert_eq!(run.code, 1, "{run:#?}");
    assert!(
        run.stderr
            .contains("interlock.json:3:13: `tools.exec.reviewer` is not available"),
        "{run:#?}"
    );
    // What is true stays accepted, and a file that cannot be used can be mended.
    machine.ok(&["config", "unset", "tools.exec.reviewer"]);
    machine.ok(&["config", "set", "agents.defaults.sandbox.mode", "off"]);
    machine.ok(&["config", "validate"]);
}

fn nothing_runs_where_a_sandbox_is_asked_for(machine: &Machine) {
    machine.allow_every_program();
    let patch = machine.file(
        "add.patch",
        "*** Begin Patch\n*** Add File: patched\n+x\n*** End Patch\n",
    );
    for config in ASKS_FOR_SANDBOX {
        machine.write_config(config);
        machine
            .run(&["exec", "--", TRACE])
            .refused(1, "SANDBOX_UNAVAILABLE");
        machine
            .run(&["exec", "--host", "gateway", "--", TRACE])
            .refused(1, "SANDBOX_UNAVAILABLE");
        machine
            .run(&["apply-patch", patch.to_str().unwrap()])
            .refused(1, "SANDBOX_UNAVAILABLE");
        let started = machine.run(&["gateway", "run", "--port", "0"]);
        started.refused(1, "SANDBOX_UNAVAILABLE");
        assert!(
            started.stderr.contains("not available in this version"),
            "{started:#?}"
        );
        assert!(!machine.work().join("trace").exists(), "{config}");
        assert!(!machine.work().join("patched").exists(), "{config}");
    }
    machine.write_config("{ agents: { defaults: { sandbox: { mode: 'off' } } } }");
    machine.ok(&["exec", "--", TRACE]);
    assert!(machine.work().join("trace").exists());
}

#[test]
fn a_sandbox_that_cannot_be_had_is_never_a_run_on_the_host() {
    nothing_runs_where_a_sandbox_is_asked_for(&Machine::new());
    if testkit::is_root()
        && let Some(machine) = Machine::of_ordinary_user()
    {
        nothing_runs_where_a_sandbox_is_asked_for(&machine);
    }
}

fn invoke(client: &mut WsClient, tool: &str, args: &Value) -> Result<Value, Value> {
    let call = json!({ "name": tool, "args": args, "sessionKey": "agent:main:main" });
    client.call("tools.invoke", &call)
}

/// The last good config stays in force for everything but this: it would run on the host what the
/// owner wants confined.
#[test]
fn a_running_gateway_runs_nothing_while_its_config_asks_for_a_sandbox() {
    let machine = Machine::unguarded();
    machine.write_config("{}");
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let trace = machine.work().join("trace");
    let command = json!({ "command": format!("touch {}", trace.display()) });
    let patch = json!({ "input": "*** Begin Patch\n*** Add File: patched\n+x\n*** End Patch\n" });
    for config in ASKS_FOR_SANDBOX {
        machine.write_config(config);
        for host in [Value::Null, json!("gateway"), json!("node")] {
            let mut command = command.clone();
            command["host"] = host;
            let answer = invoke(&mut client, "exec", &command);
            assert!(
                format!("{answer:?}").contains("SANDBOX_UNAVAILABLE"),
                "{answer:?}"
            );
        }
        let answer = invoke(&mut client, "apply_patch", &patch);
        assert!(
            format!("{answer:?}").contains("SANDBOX_UNAVAILABLE"),
            "{answer:?}"
        );
        assert!(!trace.exists(), "{config}");
        let got = client.ok("config.get", &json!({}));
        assert_eq!(got["valid"], false, "{got:#}");
        assert!(
            got["issues"]
                .to_string()
                .contains("not available in this version"),
            "{got:#}"
        );
    }
    machine.write_config("{ agents: { defaults: { sandbox: { mode: 'off' } } } }");
    let answer = invoke(&mut client, "exec", &command).unwrap();
    assert_eq!(
        answer["output"]["details"]["status"], "completed",
        "{answer:#}"
    );
    eventually("the trace", || trace.exists());
}

#[test]
fn a_client_cannot_set_what_has_no_effect() {
    let machine = Machine::new();
    machine.write_config("{ agents: { list: [{ id: 'main' }] } }");
    let gateway = machine.gateway();
    let before = text(&machine);
    let raws = [
        "{ agents: { defaults: { sandbox: { backend: 'kubernetes' } } } }",
        "{\n  tools: { exec: { reviewer: { model: 'm' } } } }",
    ];
    for (raw, code) in raws
        .iter()
        .zip(["SANDBOX_UNAVAILABLE", "KEY_NOT_AVAILABLE"])
    {
        for method in ["config.set", "config.patch"] {
            let mut client = gateway.connect(EVERYTHING);
            let hash = client.ok("config.get", &json!({}))["hash"].clone();
            let refused = client.refused(method, &json!({ "raw": raw, "baseHash": hash }));
            let issue = &refused["details"]["issues"][0];
            assert_eq!(issue["code"], code, "{refused:#}");
            assert!(
                issue["line"].is_u64() && issue["column"].is_u64(),
                "{refused:#}"
            );
            let message = issue["message"].as_str().unwrap();
            assert!(
                message.contains("not available in this version"),
                "{message}"
            );
            assert_eq!(text(&machine), before);
        }
    }
    let mut client = gateway.connect(EVERYTHING);
    let schema = client.ok("config.schema", &json!({}))["schema"].to_string();
    for key in ["reviewer", "useAccessGroups", "kubernetes"] {
        assert!(!schema.contains(&format!("\"{key}\"")), "{key}");
    }
}
