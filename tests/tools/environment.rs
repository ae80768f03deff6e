//! The environment of a call is judged, held by every decision, and given to the run as it was judged.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use testkit::{Machine, Run};

/// A machine on which `printenv` and `git` may run; as the given user.
fn machine() -> Machine {
    let machine = Machine::new();
    set_up(&machine);
    machine
}

fn set_up(machine: &Machine) {
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "/usr/bin/printenv"]);
}

/// For root and for an ordinary user.
fn machines() -> Vec<Machine> {
    let mut machines = vec![machine()];
    if testkit::is_root()
        && let Some(ordinary) = Machine::of_ordinary_user()
    {
        set_up(&ordinary);
        machines.push(ordinary);
    }
    machines
}

/// Puts a call down, allows it, and runs what was allowed.
#[track_caller]
fn approved(machine: &Machine, arguments: &[&str], how: &[&str]) -> Run {
    let id = machine.put_down(arguments);
    let mut approve = vec!["approvals", "approve", &id];
    approve.extend(how);
    machine.ok(&approve);
    let mut exec = vec!["exec", "--approval", &id];
    exec.extend(arguments);
    machine.run(&exec)
}

#[track_caller]
fn verdict(machine: &Machine, arguments: &[&str]) -> String {
    let explanation = machine.explain(arguments);
    explanation["verdict"].as_str().unwrap().to_owned()
}

#[test]
fn a_variable_that_the_entry_does_not_name_is_asked_about_and_runs_as_approved() {
    for machine in machines() {
        for (arguments, expected) in [
            (&["--", "FOO=1 printenv FOO"][..], "1\n"),
            (&["--", "env FOO=2 printenv FOO"], "2\n"),
            (&["--", "FOO=1 env FOO=3 BAR=4 printenv FOO BAR"], "3\n4\n"),
            (&["--", "timeout 20 env FOO=5 nice printenv FOO"], "5\n"),
            (&["--", "env FOO=6 sh -c 'printenv FOO'"], "6\n"),
            (&["--", "env", "FOO=7", "printenv", "FOO"], "7\n"),
            (&["--env", "FOO=8", "--", "printenv FOO"], "8\n"),
            // Blocked as an override; in front of the command an approver sees it.
            (&["--", "GIT_SSH_COMMAND=x printenv GIT_SSH_COMMAND"], "x\n"),
            (
                &["--", "env GIT_SSH_COMMAND=y printenv GIT_SSH_COMMAND"],
                "y\n",
            ),
        ] {
            let explanation = machine.explain(arguments);
            assert_eq!(explanation["verdict"], "ask", "{arguments:?}");
            assert_eq!(explanation["transport"], "direct", "{arguments:?}");
            let run = approved(&machine, arguments, &[]);
            assert_eq!((run.code, run.stdout.as_str()), (0, expected), "{run:#?}");
        }
    }
}

#[test]
fn what_the_entry_names_and_what_is_harmless_runs_unasked() {
    for machine in machines() {
        machine.ok(&[
            "approvals",
            "allowlist",
            "add",
            "--env",
            "FOO",
            "--env",
            "STAGE=dev*",
            "/usr/bin/printenv",
        ]);
        for (arguments, expected) in [
            (&["--", "FOO='a b' printenv FOO"][..], "a b\n"),
            (&["--", "env STAGE=dev2 printenv STAGE"], "dev2\n"),
            (&["--env", "STAGE=dev", "--", "printenv STAGE"], "dev\n"),
            (
                &["--", "RUST_LOG=debug CI=1 printenv CI RUST_LOG"],
                "1\ndebug\n",
            ),
        ] {
            let mut all = vec!["exec", "--no-wait"];
            all.extend(arguments);
            let run = machine.run(&all);
            assert_eq!((run.code, run.stdout.as_str()), (0, expected), "{run:#?}");
        }
        for refused in [
            &["--", "STAGE=prod printenv STAGE"][..],
            &["--env", "BAR=1", "--", "printenv BAR"],
        ] {
            assert_eq!(verdict(&machine, refused), "ask", "{refused:?}");
        }
    }
}

#[test]
fn a_blocked_override_is_refused_with_its_code_under_every_policy() {
    let machine = machine();
    let arguments = ["exec", "--env", "LESSOPEN=|x", "--", "printenv LESSOPEN"];
    let run = machine.run(&arguments);
    run.refused(3, "ENV_REJECTED");
    assert!(run.stderr.contains("LESSOPEN"), "{run:#?}");
    machine.ok(&["exec-policy", "preset", "yolo"]);
    machine.run(&arguments).refused(3, "ENV_REJECTED");
    let text = "LESSOPEN='|x' printenv LESSOPEN";
    assert_eq!(machine.exec(text).stdout, "|x\n");
}

#[test]
fn no_entry_can_name_a_blocked_variable() {
    let machine = machine();
    for name in [
        "LD_PRELOAD",
        "git_ssh_command",
        "PATH=/x",
        "NPM_CONFIG_X",
        "A-B",
        "",
        "PAGER=*",
    ] {
        let run = machine.run(&["approvals", "allowlist", "add", "--env", name, "rg"]);
        assert_eq!(run.error_code(), "ENTRY_INVALID", "{name}: {run:#?}");
        let document = json!({ "version": 1, "agents": { "main": {
            "allowlist": [{ "pattern": "rg", "env": [name] }],
        } } });
        let run = machine.set_document(&document.to_string());
        assert_eq!(run.code, 1, "{name}: {run:#?}");
        assert!(run.stderr.contains("allowlist[0].env"), "{name}: {run:#?}");
    }
}

#[test]
fn always_holds_the_names_and_values() {
    for machine in machines() {
        let call = &["--env", "FOO=1", "--", "/usr/bin/printenv FOO BAR"];
        let run = approved(&machine, call, &["--always"]);
        assert_eq!(run.stdout, "1\n", "{run:#?}");
        let (document, _) = machine.document();
        let list = document["agents"]["main"]["allowlist"].as_array().unwrap();
        let stored = list.last().unwrap();
        assert_eq!(stored["env"], json!(["FOO=1"]), "{stored:#}");
        assert_eq!(stored.get("interactive"), None, "{stored:#}");
        assert_eq!(verdict(&machine, call), "allow");
        for same in [
            "FOO=1 /usr/bin/printenv FOO BAR",
            "env FOO=1 /usr/bin/printenv FOO BAR",
        ] {
            assert_eq!(machine.verdict(same), "allow", "{same}");
        }
        for other in [
            &["--env", "FOO=2", "--", "/usr/bin/printenv FOO BAR"][..],
            &[
                "--env",
                "FOO=1",
                "--env",
                "BAR=1",
                "--",
                "/usr/bin/printenv FOO BAR",
            ],
            &["--", "FOO=1 BAR=2 /usr/bin/printenv FOO BAR"],
            &["--env", "FOO=1", "--pty", "--", "/usr/bin/printenv FOO BAR"],
        ] {
            assert_eq!(verdict(&machine, other), "ask", "{other:?}");
        }
    }
}

/// The variable that an approver saw decides what happens: without it, it is another call.
#[test]
fn always_does_not_hold_without_the_variable() {
    let machine = Machine::new();
    machine.start();
    machine.script("work/deploy.sh", "#!/bin/sh\necho \"dry ${DRY_RUN:-no}\"\n");
    let run = approved(&machine, &["--", "DRY_RUN=1 ./deploy.sh"], &["--always"]);
    assert_eq!(run.stdout, "dry 1\n", "{run:#?}");
    assert_eq!(machine.exec("DRY_RUN=1 ./deploy.sh").stdout, "dry 1\n");
    for other in [
        "./deploy.sh",
        "DRY_RUN=0 ./deploy.sh",
        "DRY_RUN= ./deploy.sh",
    ] {
        machine.exec(other).refused(3, "APPROVAL_PENDING");
    }
}

#[test]
fn a_secret_or_a_blocked_variable_is_never_stored() {
    let machine = machine();
    for call in [
        "API_TOKEN=sk-abcdefghijklmnopqrstuvwxyz012345 printenv API_TOKEN",
        "LD_PRELOAD=/x.so printenv LD_PRELOAD",
    ] {
        let explanation = machine.explain(&["--", call]);
        assert_eq!(explanation["verdict"], "ask", "{call}");
        assert_eq!(explanation["remember"]["entries"], json!([]), "{call}");
    }
}

#[test]
fn grants_and_leases_hold_the_environment() {
    for how in [&["--for", "1h"][..], &["--session"]] {
        let machine = machine();
        let run = approved(&machine, &["--", "FOO=1 printenv FOO"], how);
        assert_eq!(run.stdout, "1\n", "{run:#?}");
        assert_eq!(machine.exec("FOO=1 printenv FOO").stdout, "1\n");
        machine
            .exec("FOO=2 printenv FOO")
            .refused(3, "APPROVAL_PENDING");
        let with_override = [
            "exec",
            "--no-wait",
            "--env",
            "BAR=1",
            "--",
            "FOO=1 printenv FOO",
        ];
        machine.run(&with_override).refused(3, "APPROVAL_PENDING");
    }
}

#[test]
fn the_call_that_was_approved_is_not_run_with_another_environment() {
    let machine = machine();
    let call = ["--env", "FOO=1", "--", "printenv FOO"];
    let id = machine.put_down(&call);
    machine.ok(&["approvals", "approve", &id]);
    let other = [
        "exec",
        "--approval",
        &id,
        "--env",
        "FOO=2",
        "--",
        "printenv FOO",
    ];
    machine.run(&other).refused(1, "APPROVAL_REQUEST_MISMATCH");
    let other = [
        "exec",
        "--approval",
        &id,
        "--pty",
        "--env",
        "FOO=1",
        "--",
        "printenv FOO",
    ];
    machine.run(&other).refused(1, "APPROVAL_REQUEST_MISMATCH");
}

#[test]
fn runs_that_the_allowlist_allows_have_their_pagers_turned_off() {
    const PAGERS: &str = "printenv PAGER GIT_PAGER MANPAGER SYSTEMD_PAGERSECURE LESSSECURE";
    for machine in machines() {
        assert_eq!(machine.exec(PAGERS).stdout, "cat\ncat\ncat\n1\n1\n");
        // What is set stays.
        let set = machine.run(&[
            "exec",
            "--env",
            "GIT_PAGER=",
            "--",
            "printenv GIT_PAGER PAGER",
        ]);
        assert_eq!(set.stdout, "\ncat\n", "{set:#?}");
        assert_eq!(machine.exec("LC_ALL=C printenv LC_ALL").stdout, "C\n");
        machine.ok(&["exec-policy", "preset", "yolo"]);
        let run = machine.exec(PAGERS);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:#?}");
    }
}

#[test]
fn the_audit_holds_what_was_judged_and_replay_judges_it_again() {
    let machine = machine();
    machine.run(&["exec", "--no-wait", "--env", "FOO=1", "--", "printenv FOO"]);
    let log = machine
        .ok(&["audit", "log", "--json", "--kind", "verdict"])
        .stdout;
    let log: Value = serde_json::from_str(&log).unwrap();
    let record = &log["records"][0]["body"];
    assert_eq!(record["env"], json!({ "FOO": "1" }), "{record:#}");
    assert_eq!(record["input"], "none", "{record:#}");
    let same = machine
        .ok(&["policy", "replay", "--since", "1h", "--json"])
        .json();
    assert_eq!(
        (&same["judged"], &same["newlyAsked"]),
        (&json!(1), &json!(0)),
        "{same:#}"
    );
    machine.ok(&["approvals", "allowlist", "add", "--env", "FOO", "printenv"]);
    // It says with its exit code that something became looser.
    let saved = machine
        .run(&["policy", "replay", "--since", "1h", "--json"])
        .json();
    assert_eq!(saved["promptsSaved"], 1, "{saved:#}");
}
