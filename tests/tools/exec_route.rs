//! `interlock exec` runs where owner and call say, and nowhere else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::process::Stdio;

use serde_json::json;
use testkit::node_pair::Pair;
use testkit::{Machine, Run, eventually, host_pid, is_alive, written};

/// A command that leaves a trace where it runs.
const TRACE: &str = "/usr/bin/touch trace";

#[test]
fn what_is_for_a_sandbox_does_not_run_on_the_host() {
    for (config, flags) in [
        ("{ tools: { exec: { host: 'sandbox' } } }", &[][..]),
        (
            "{ agents: { list: [{ id: 'main', tools: { exec: { host: 'sandbox' } } }] } }",
            &[],
        ),
        ("{}", &["--host", "sandbox"]),
        (
            "{ tools: { exec: { host: 'gateway' } } }",
            &["--host", "sandbox"],
        ),
    ] {
        let machine = Machine::new();
        machine.write_config(config);
        machine.allow_every_program();
        let mut arguments = vec!["exec"];
        arguments.extend(flags);
        arguments.extend(["--", TRACE]);
        let run = machine.run(&arguments);
        run.refused(1, "SANDBOX_UNAVAILABLE");
        if flags.is_empty() {
            // What the policy alone would say is not all.
            let told = machine.explain(&["--", TRACE]);
            let told = told["elsewhere"].as_str().unwrap();
            assert!(told.starts_with("exec refuses it"), "{told}");
        }
        assert!(!machine.work().join("trace").exists(), "{config}");
    }
}

#[test]
fn a_host_that_the_owner_chose_is_not_left_for_another_one() {
    let machine = Machine::new();
    machine.write_config("{ tools: { exec: { host: 'gateway' } } }");
    machine.allow_every_program();
    let run = machine.run(&["exec", "--node", "lab", "--", TRACE]);
    run.refused(1, "HOST_NOT_ALLOWED");
    machine.write_config("{ tools: { exec: { host: 'node' } } }");
    let run = machine.run(&["exec", "--host", "gateway", "--", TRACE]);
    run.refused(1, "HOST_NOT_ALLOWED");
    let run = machine.run(&["exec", "--host", "gateway", "--node", "lab", "--", TRACE]);
    run.refused(2, "HOST_CONFLICT");
    assert_eq!(machine.run(&["exec", "--host", "lab", "--", TRACE]).code, 2);
    assert!(!machine.work().join("trace").exists());
}

#[test]
fn what_is_for_a_node_does_not_run_here_when_no_node_is_there() {
    let machine = Machine::new();
    machine.write_config(
        "{ agents: { list: [
            { id: 'locked', tools: { exec: { host: 'node', node: 'prod' } } } ] } }",
    );
    machine.allow_every_program();
    let run = machine.run(&["exec", "--agent", "locked", "--", TRACE]);
    assert_eq!(
        (run.code, run.error_code()),
        (1, "NODE_UNAVAILABLE"),
        "{run:#?}"
    );
    let run = machine.run(&["exec", "--host", "node", "--", TRACE]);
    assert_eq!((run.code, run.error_code()), (1, "NODE_UNAVAILABLE"));
    assert!(!machine.work().join("trace").exists());
    // Others still run here.
    machine.ok(&["exec", "--", TRACE]);
    assert!(machine.work().join("trace").exists());
}

fn bound_to_node() -> Pair {
    let config = "{ tools: { exec: { host: 'node' } } }";
    Pair::with_config(Machine::new(), config)
}

#[test]
fn a_command_for_a_node_runs_there_with_its_output_and_exit_code() {
    let pair = bound_to_node();
    let here = &pair.here;
    let run = here.run(&["exec", "--", "echo out; pwd; exit 3"]);
    let home = fs::canonicalize(pair.work(".")).unwrap();
    let expected = format!("out\n{}\n", home.display());
    assert_eq!((run.code, run.stdout.as_str()), (3, expected.as_str()));
    // Several words are what the program gets there.
    let run = here.ok(&["exec", "--", "printf", "%s|", "a b", "$HOME"]);
    assert_eq!(run.stdout, "a b|$HOME|");
    let id = &pair.node_id[..8];
    let slow = "echo one; sleep 0.3; echo two; exit 4";
    let run = here.run(&["exec", "--node", id, "--json", "--", slow]);
    let told = run.json();
    assert_eq!(
        (
            run.code,
            &told["status"],
            &told["host"],
            &told["nodeId"],
            &told["exitCode"],
            &told["output"]["text"],
        ),
        (
            4,
            &json!("completed"),
            &json!("node"),
            &json!(pair.node_id),
            &json!(4),
            &json!("one\ntwo\n"),
        ),
        "{told}"
    );
    let quick = here.ok(&["exec", "--json", "--", "echo quick"]).json();
    assert_eq!(quick["output"]["text"], "quick\n", "{quick}");
    for (command, code) in [
        ("kill -9 $$", 137),
        ("sleep 0.3; kill -9 $$", 137),
        ("sleep 600", 124),
    ] {
        let run = here.run(&["exec", "--timeout", "1", "--", command]);
        assert_eq!(run.code, code, "{command}: {run:#?}");
    }
    // Much output is whole, whether or not the node was still writing when it was asked for.
    let much = here.ok(&["exec", "--", "seq 1 300000"]).stdout;
    assert_eq!(much.lines().count(), 300_000);
    assert!(much.ends_with("299999\n300000\n"));
    let much = here.ok(&["exec", "--", "head -c 300000 /dev/zero | tr '\\0' x"]);
    assert_eq!(much.stdout.len(), 300_000);
    let cut = here.ok(&["exec", "--json", "--", "seq 1 300000; sleep 0.2"]);
    let cut = cut.json();
    assert!(cut["output"]["omittedBytes"].as_u64().unwrap() > 0, "{cut}");
    pair.of("remove", cut["sessionId"].as_str().unwrap());
    // Nothing that was shown whole stays.
    eventually("nothing is kept", || {
        pair.process(&json!({ "action": "list" }))["sessions"] == json!([])
    });
}

#[test]
fn output_of_a_node_is_shown_as_it_comes_and_a_signal_ends_the_run_there() {
    let pair = bound_to_node();
    let script = "echo $$; sleep 600";
    let mut child = pair
        .here
        .command(&["exec", "--", script])
        .stdout(fs::File::create(pair.here.root().join("out")).unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = written(&pair.here.root().join("out"));
    let pid = host_pid(pair.there.root(), &pid);
    assert!(is_alive(&pid));
    let own = child.id().to_string();
    std::process::Command::new("/bin/kill")
        .args(["-INT", &own])
        .status()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    eventually("its end on the node", || !is_alive(&pid));
}

#[test]
fn a_question_about_a_command_for_a_node_is_told_and_waited_for() {
    let pair = bound_to_node();
    pair.there.ok(&["exec-policy", "preset", "cautious"]);
    let left = pair.here.run(&["exec", "--no-wait", "--", "echo later"]);
    left.refused(3, "APPROVAL_PENDING");
    let mut child = pair
        .here
        .command(&["exec", "--", "echo allowed"])
        .stdout(Stdio::piped())
        .stderr(fs::File::create(pair.here.root().join("err")).unwrap())
        .spawn()
        .unwrap();
    let mut approve = String::new();
    eventually("how to allow it", || {
        let said = fs::read_to_string(pair.here.root().join("err")).unwrap();
        let mut lines = said.lines();
        let line = lines.find_map(|line| line.split_once("allow it elsewhere: "));
        approve = line
            .map(|(_, command)| command.to_owned())
            .unwrap_or_default();
        !approve.is_empty()
    });
    assert!(child.try_wait().unwrap().is_none());
    assert_eq!(pair.here.paste(&approve).code, 0);
    let run = Run::of(&child.wait_with_output().unwrap());
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "allowed\n"),
        "{run:#?}"
    );
}

#[test]
fn an_approval_without_a_waiting_caller_runs_nothing_on_the_node() {
    let pair = bound_to_node();
    pair.there.ok(&["exec-policy", "preset", "cautious"]);
    let mut child = pair
        .here
        .command(&["exec", "--", TRACE])
        .stdout(Stdio::null())
        .stderr(fs::File::create(pair.here.root().join("err")).unwrap())
        .spawn()
        .unwrap();
    eventually("the question", || {
        let said = fs::read_to_string(pair.here.root().join("err")).unwrap();
        said.contains("waits for a decision")
    });
    let waiting = pair.here.ok(&["approvals", "pending", "--json"]).json();
    let id = waiting["approvals"][0]["id"].as_str().unwrap().to_owned();
    let own = child.id().to_string();
    std::process::Command::new("/bin/kill")
        .args(["-TERM", &own])
        .status()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let late = pair.here.run(&["approvals", "approve", &id]);
    assert_eq!(late.code, 1, "{late:#?}");
    assert!(!pair.work("trace").exists());
}

#[test]
fn a_run_starts_no_gateway() {
    let machine = Machine::open();
    machine.switch_shield_off();
    for command in ["nodes list", "exec --host node -- true"] {
        let text = format!("{} {command}", crate::BINARY);
        let run = machine.exec(&text);
        assert_eq!(run.code, 1, "{run:#?}");
        assert!(run.stderr.contains("DECISION_FROM_RUN"), "{run:#?}");
    }
    assert!(machine.spawned_gateways().is_empty());
}
