//! The first start writes the cautious policy, once, and says so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::json;
use testkit::Machine;

fn cautious() -> serde_json::Value {
    json!({
        "version": 1,
        "defaults": { "security": "allowlist", "ask": "on-miss", "askFallback": "deny" },
    })
}

/// As an owner starts it, who sets no variable.
fn explain(machine: &Machine) -> testkit::Run {
    let mut command = machine.command(&["explain", "--", "ls"]);
    testkit::finish(command.env_remove("INTERLOCK_BASE"))
}

#[test]
fn the_first_start_writes_the_cautious_document_and_says_so_once() {
    let machine = Machine::new();
    let first = explain(&machine);
    assert_eq!(first.stderr.lines().count(), 1, "{first:#?}");
    insta::assert_snapshot!("first_start_notice", machine.stable(&first.stderr));
    let second = explain(&machine);
    assert_eq!(second.stderr, "");
    assert_eq!(second.stdout, first.stdout);
    let (mut document, _) = machine.document();
    let base = document["agents"].take();
    document.as_object_mut().unwrap().remove("agents");
    assert_eq!(document, cautious());
    let entries = base["*"]["allowlist"].as_array().unwrap();
    assert!(entries.len() > 20);
    for entry in entries {
        assert_eq!(entry["source"], "base", "{entry}");
        assert_eq!(entry["paths"], json!(["${workspace}/**"]), "{entry}");
    }
}

#[test]
fn a_first_start_without_the_base_writes_the_levels_alone() {
    let machine = Machine::new();
    let first = machine.ok(&["explain", "--", "ls"]);
    assert!(!first.stderr.contains("base"), "{first:#?}");
    assert_eq!(machine.document().0, cautious());
}

#[test]
fn state_is_for_its_owner_alone() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["config", "set", "tools.exec.ask", "on-miss"]);
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&machine.state()), 0o700);
    for file in std::fs::read_dir(machine.state()).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn of_many_first_starts_at_once_one_writes() {
    let machine = Machine::new();
    let children: Vec<_> = (0..8)
        .map(|_| {
            let mut command = machine.command(&["explain", "--json", "--", "ls"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let mut notices = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        notices += String::from_utf8(output.stderr).unwrap().lines().count();
    }
    assert_eq!(notices, 1);
    assert_eq!(machine.document().0, cautious());
}

/// Asking about the config or the version is no start.
#[test]
fn commands_that_need_no_policy_write_none() {
    let machine = Machine::new();
    for arguments in [&["version"][..], &["config", "path"], &["config", "get"]] {
        let run = machine.ok(arguments);
        assert_eq!(run.stderr, "", "{arguments:?}");
    }
    assert!(!machine.state().join("interlock.db").exists());
}

#[test]
fn an_open_policy_is_never_written_over() {
    let machine = Machine::new();
    machine.start();
    assert_eq!(machine.set_document("{ version: 1 }").code, 0);
    let run = machine.ok(&["explain", "--", "ls"]);
    assert_eq!(run.stderr, "");
    assert_eq!(machine.document().0, json!({ "version": 1 }));
    assert_eq!(machine.verdict("ls"), "allow");
}

#[test]
fn the_state_directory_is_found_by_flag_then_variable_then_convention() {
    let machine = Machine::new();
    let path = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = machine.command(arguments);
        command.envs(variables.iter().copied());
        let run = testkit::finish(&mut command);
        assert_eq!(run.code, 0, "{run:#?}");
        machine.stable(run.stdout.trim_end())
    };
    let root = machine.root().display().to_string();
    let (flag, own, xdg) = (
        format!("{root}/flag"),
        format!("{root}/own"),
        format!("{root}/xdg"),
    );
    let get = ["config", "path"];
    let flagged = ["--state-dir", flag.as_str(), "config", "path"];
    let own = ("INTERLOCK_STATE_DIR", own.as_str());
    let xdg = ("XDG_STATE_HOME", xdg.as_str());
    assert_eq!(path(&flagged, &[own, xdg]), "[TMP]/flag/interlock.json");
    assert_eq!(path(&get, &[own, xdg]), "[TMP]/own/interlock.json");
    assert_eq!(path(&get, &[xdg]), "[TMP]/xdg/interlock/interlock.json");
    assert_eq!(path(&get, &[]), "[TMP]/home/.interlock/interlock.json");
}
