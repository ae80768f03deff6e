//! A terminal and an open standard input are facts that the policy judges and every decision holds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use testkit::Machine;
use testkit::ws::EVERYTHING;

fn machine(entry: &[&str]) -> Machine {
    let machine = Machine::new();
    machine.start();
    let mut add = vec!["approvals", "allowlist", "add"];
    add.extend(entry);
    machine.ok(&add);
    machine
}

#[track_caller]
fn verdict(machine: &Machine, arguments: &[&str]) -> String {
    let explanation = machine.explain(arguments);
    explanation["verdict"].as_str().unwrap().to_owned()
}

#[test]
fn an_entry_does_not_satisfy_a_run_that_the_caller_can_type_into() {
    let machine = machine(&["/usr/bin/cat"]);
    let cat = "/usr/bin/cat";
    assert_eq!(verdict(&machine, &["--", cat]), "allow");
    for input in [&["--pty"][..], &["--stdin", "pipe"]] {
        let mut arguments = input.to_vec();
        arguments.extend(["--", cat]);
        let explanation = machine.explain(&arguments);
        assert_eq!(explanation["verdict"], "ask", "{explanation:#}");
        assert_eq!(explanation["reason"]["code"], "entry-interactive");
    }
    // The run is judged like the explanation.
    for flag in ["--pty", "--stdin"] {
        let run = machine.run(&["exec", "--no-wait", "--background", flag, "--", cat]);
        run.refused(3, "APPROVAL_PENDING");
    }
    machine.ok(&["approvals", "allowlist", "add", "--interactive", cat]);
    assert_eq!(verdict(&machine, &["--pty", "--", cat]), "allow");
    assert_eq!(verdict(&machine, &["--stdin", "pipe", "--", cat]), "allow");
}

#[test]
fn only_a_run_that_was_judged_with_input_can_be_written_to() {
    let machine = machine(&["/usr/bin/sleep"]);
    let session = |flags: &[&str]| {
        let mut all = vec!["exec", "--background", "--json"];
        all.extend(flags);
        all.extend(["--", "/usr/bin/sleep 60"]);
        machine.ok(&all).json()["sessionId"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let closed = session(&[]);
    let write = machine.run(&["process", "write", &closed, "x"]);
    assert_ne!(write.code, 0, "{write:#?}");
    machine.ok(&["process", "kill", &closed]);
    machine.ok(&[
        "approvals",
        "allowlist",
        "add",
        "--interactive",
        "/usr/bin/sleep",
    ]);
    let open = session(&["--stdin"]);
    machine.ok(&["process", "write", &open, "x"]);
    machine.ok(&["process", "kill", &open]);
}

#[test]
fn always_holds_the_terminal_and_the_input() {
    for (flag, judged, others) in [
        (
            "--pty",
            &["--pty"][..],
            &[&[][..], &["--stdin", "pipe"]][..],
        ),
        ("--stdin", &["--stdin", "pipe"], &[&[], &["--pty"]]),
    ] {
        let machine = Machine::new();
        machine.start();
        let command = "/usr/bin/printenv HOME";
        let id = machine.put_down(&[flag, "--", command]);
        let asked = machine.pending().pop().unwrap();
        assert_eq!(asked["alwaysWider"], json!([]), "{asked:#}");
        machine.ok(&["approvals", "approve", &id, "--always"]);
        let (document, _) = machine.document();
        let stored = &document["agents"]["main"]["allowlist"][0];
        assert_eq!(stored["interactive"], true, "{stored:#}");
        assert_eq!(stored["terminal"], flag == "--pty", "{stored:#}");
        let with = |flags: &[&'static str]| {
            let mut arguments = flags.to_vec();
            arguments.extend(["--", command]);
            verdict(&machine, &arguments)
        };
        assert_eq!(with(judged), "allow", "{flag}");
        for other in others {
            assert_eq!(with(other), "ask", "{flag}: {other:?}");
        }
    }
}

#[test]
fn a_session_grant_holds_the_terminal() {
    let machine = Machine::new();
    machine.start();
    let command = "/usr/bin/printenv HOME";
    let id = machine.put_down(&["--", command]);
    machine.ok(&["approvals", "approve", &id, "--session"]);
    machine.ok(&["exec", "--no-wait", "--", command]);
    for flag in ["--pty", "--stdin"] {
        let run = machine.run(&["exec", "--no-wait", flag, "--", command]);
        run.refused(3, "APPROVAL_PENDING");
    }
}

/// On a terminal the pager is the approver's choice; without one it is turned off.
#[test]
fn a_run_on_a_terminal_keeps_the_pagers_of_the_owner() {
    let machine = machine(&["--interactive", "/usr/bin/printenv"]);
    let run = machine.run(&["exec", "--pty", "--", "/usr/bin/printenv PAGER"]);
    assert_eq!(run.stdout, "", "{run:#?}");
    let run = machine.run(&[
        "exec",
        "--env",
        "TERM=dumb",
        "--pty",
        "--",
        "/usr/bin/printenv TERM",
    ]);
    assert_eq!(run.stdout.trim(), "dumb", "{run:#?}");
    let run = machine.run(&["exec", "--pty", "--", "/usr/bin/printenv TERM"]);
    assert_eq!(run.stdout.trim(), "xterm-256color", "{run:#?}");
}

/// Every transport hands the facts of the call to the same judge.
#[test]
fn calls_over_the_gateway_are_judged_with_terminal_input_and_environment() {
    let machine = machine(&["/usr/bin/printenv"]);
    machine.ok(&["config", "set", "tools.exec.approvalWaitMs", "0"]);
    let gateway = machine.gateway();
    let mut link = gateway.connect(EVERYTHING);
    let mut status = |more: Value| {
        let mut arguments = json!({ "command": "/usr/bin/printenv HOME" });
        for (name, value) in more.as_object().unwrap() {
            arguments[name] = value.clone();
        }
        let call = json!({ "name": "exec", "args": arguments });
        let answer = link.ok("tools.invoke", &call);
        answer["output"]["details"]["status"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(status(json!({})), "completed");
    assert_eq!(status(json!({ "env": { "CI": "1" } })), "completed");
    for more in [
        json!({ "pty": true }),
        json!({ "stdin": "pipe" }),
        json!({ "env": { "FOO": "1" } }),
    ] {
        assert_eq!(status(more.clone()), "approval-pending", "{more}");
    }
    assert_eq!(status(json!({ "env": { "LESSOPEN": "x" } })), "denied");
    machine.ok(&[
        "approvals",
        "allowlist",
        "add",
        "--interactive",
        "/usr/bin/printenv",
    ]);
    assert_eq!(status(json!({ "pty": true })), "completed");
    assert_eq!(status(json!({ "stdin": "pipe" })), "completed");
}
