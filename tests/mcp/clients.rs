//! Real MCP clients: the Python SDK and both lines of the TypeScript SDK, by both transports, in
//! every protocol version that they speak. Where they are is said by `INTERLOCK_MCP_PYTHON` (a
//! Python with the packages of `tests/mcp/requirements.txt`) and `INTERLOCK_MCP_NODE_MODULES` (the
//! directory of a `node_modules` with those of `tests/mcp/package.json`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use serde_json::json;
use testkit::Machine;
use testkit::mcp::Gateway;

/// Runs a script against a gateway and gives what it printed.
fn drive(program: &str, script: &str, modules: Option<&str>) -> Vec<String> {
    let machine = Machine::unguarded();
    // The clients look after processes by the numbers that runs print; inside the shield those are others.
    machine.switch_shield_off();
    let workspace = json!(machine.work()).to_string();
    machine.ok(&["config", "set", "agents.defaults.workspace", &workspace]);
    let gateway = Gateway::start(&machine);
    let settings = json!({
        "binary": crate::BINARY,
        "state": machine.state(),
        "home": machine.root().join("home"),
        "work": machine.work(),
        "root": machine.root(),
        "url": gateway.url(),
        "token": gateway.token(&["--elicitation"]),
        "modules": modules,
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/mcp")
        .join(script);
    let run = testkit::finish(
        Command::new(program)
            .arg(script)
            .arg(settings.to_string())
            .current_dir(machine.work()),
    );
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
    let lines = run.stdout.lines().filter(|line| line.starts_with("ok "));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_python_sdk_is_served() {
    let Ok(python) = std::env::var("INTERLOCK_MCP_PYTHON") else {
        println!("skipped: INTERLOCK_MCP_PYTHON is not set");
        return;
    };
    let lines = drive(&python, "client.py", None);
    let expected = [
        "ok http legacy 2025-11-25",
        "ok http 2026-07-28 2026-07-28",
        "ok http auto 2026-07-28",
        "ok stdio legacy 2025-11-25",
        "ok stdio 2026-07-28 2026-07-28",
        "ok stdio auto 2026-07-28",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn both_lines_of_the_typescript_sdk_are_served() {
    let Ok(modules) = std::env::var("INTERLOCK_MCP_NODE_MODULES") else {
        println!("skipped: INTERLOCK_MCP_NODE_MODULES is not set");
        return;
    };
    let lines = drive("node", "client.mjs", Some(&modules));
    let expected = [
        "ok 1 http legacy",
        "ok 1 stdio legacy",
        "ok 2 http legacy",
        "ok 2 stdio legacy",
        "ok 2 http 2026-07-28",
        "ok 2 stdio 2026-07-28",
        "ok 2 http auto",
        "ok 2 stdio auto",
    ];
    assert_eq!(lines, expected);
}
