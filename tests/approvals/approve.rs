//! Asking and answering with the real program: who is asked, what an answer allows, and how often.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use testkit::Machine;
use testkit::asking::Waiting;

fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine
}

#[test]
fn a_native_program_is_asked_about_approved_elsewhere_and_runs_once() {
    let machine = started();
    // By its path, by its name, and behind `env`: the same answer.
    for command in ["/usr/bin/whoami", "whoami", "env /usr/bin/whoami"] {
        let waiting = Waiting::new(&machine, &["--", command]);
        let asked = &machine.pending()[0];
        assert_eq!(asked["binding"], "native", "{command}: {asked:#}");
        assert_eq!(asked["command"], command);
        machine.ok(&["approvals", "approve", &waiting.id]);
        let run = waiting.end();
        assert_eq!(run.code, 0, "{run:#?}");
        let own = Command::new("/usr/bin/whoami").output().unwrap();
        assert_eq!(run.stdout.as_bytes(), own.stdout, "{run:#?}");
        assert!(run.stderr.contains("allow-once by"), "{run:#?}");
        // Once: the next time it is asked again.
        let again = machine.exec(command);
        again.refused(3, "APPROVAL_PENDING");
        assert!(again.stderr.contains("approval-pending: "), "{again:#?}");
        let left = machine.pending_ids().pop().unwrap();
        machine.ok(&["approvals", "deny", &left]);
    }
}

#[test]
fn always_stores_what_was_shown_and_saves_the_next_question() {
    let machine = started();
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let shown = machine.pending()[0]["always"].clone();
    let pattern = shown[0]["pattern"].as_str().unwrap().to_owned();
    let run = machine.ok(&["approvals", "approve", &waiting.id, "--always", "--json"]);
    let stored = run.json()["stored"].clone();
    assert_eq!(stored[0]["pattern"], pattern.as_str());
    assert_eq!(stored[0]["argPattern"], shown[0]["argPattern"]);
    assert_eq!(waiting.end().code, 0);
    let (document, _) = machine.document();
    let list = &document["agents"]["main"]["allowlist"];
    assert_eq!(list[0], stored[0], "{document:#}");
    fs::remove_file(machine.work().join("marker")).unwrap();
    let run = machine.exec("touch marker");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:#?}");
    // Bound to its arguments and to its directory.
    machine.exec("touch other").refused(3, "APPROVAL_PENDING");
    let elsewhere = machine.run(&["exec", "--no-wait", "--cwd", "/", "--", "touch marker"]);
    elsewhere.refused(3, "APPROVAL_PENDING");
}

#[test]
fn always_is_not_offered_where_nothing_can_be_stored() {
    let machine = started();
    machine.ok(&["config", "set", "tools.exec.unboundApprovals", "ask"]);
    machine.script("work/x.sh", "echo script\n");
    machine.file("work/Makefile", "all:\n\techo made\n");
    machine.native("make");
    for (command, binding) in [
        ("sh -c 'echo $HOME'", "text"),
        ("echo a > b", "text"),
        ("perl -e 'print 1'", "text"),
        ("cat x.sh | sh", "unbound"),
    ] {
        let id = machine.put_down(&["--", command]);
        let asked = &machine.pending()[0];
        assert_eq!(asked["binding"], binding, "{asked:#}");
        assert_eq!(asked["always"], Value::Array(Vec::new()), "{command}");
        assert!(asked["alwaysNotOffered"].is_string(), "{asked:#}");
        let (before, hash) = machine.document();
        let run = machine.run(&["approvals", "approve", &id, "--always"]);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:#?}");
        assert!(run.stderr.contains("APPROVAL_NOT_OFFERED"), "{run:#?}");
        assert_eq!(machine.document(), (before, hash));
        if binding == "unbound" {
            for choice in [vec!["--session"], vec!["--for", "1h"]] {
                let mut all = vec!["approvals", "approve", &id];
                all.extend(choice);
                let run = machine.run(&all);
                assert!(run.stderr.contains("APPROVAL_NOT_OFFERED"), "{run:#?}");
            }
        }
        // It still waits, and can be denied.
        machine.ok(&["approvals", "deny", &id]);
    }
}

#[test]
fn what_cannot_be_bound_is_refused_with_the_ways_out() {
    let machine = started();
    let run = machine.exec("cat x | python3");
    run.refused(3, "APPROVAL_UNBOUND");
    let python = machine.bin().join("python3");
    for part in [
        python.to_str().unwrap(),
        "expected",
        "found",
        "sandbox",
        "tools.exec.unboundApprovals",
    ] {
        assert!(run.stderr.contains(part), "{part}: {run:#?}");
    }
    assert_eq!(machine.pending(), Vec::<Value>::new());
}

#[test]
fn a_denial_runs_nothing_and_says_so_to_the_one_who_waits() {
    let machine = started();
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    machine.ok(&["approvals", "deny", &waiting.id]);
    let id = waiting.id.clone();
    let run = waiting.end();
    assert_eq!(run.code, 3);
    assert!(run.stderr.contains("error[APPROVAL_DENIED]"), "{run:#?}");
    assert!(run.stderr.contains("do not retry"), "{run:#?}");
    assert!(!machine.work().join("marker").exists());
    // The same answer again is fine, another is told who won.
    machine.ok(&["approvals", "deny", &id]);
    let late = machine.run(&["approvals", "approve", &id]);
    assert_eq!(late.code, 1);
    assert!(
        late.stderr.contains("APPROVAL_ALREADY_DECIDED"),
        "{late:#?}"
    );
    assert!(late.stderr.contains("denied by"), "{late:#?}");
}

#[test]
fn an_id_runs_what_was_asked_once_and_nothing_else() {
    let machine = started();
    machine.know_agents(&["ops"]);
    let id = machine.put_down(&["--", "touch marker"]);
    let run = |more: &[&str], command: &str| {
        let mut all = vec!["exec", "--approval", &id];
        all.extend(more);
        all.extend(["--", command]);
        machine.run(&all)
    };
    run(&[], "touch marker").refused(3, "APPROVAL_PENDING");
    machine.ok(&["approvals", "approve", &id]);
    for (more, command, what) in [
        (&["--env", "A=b"][..], "touch marker", "the environment"),
        (&[], "touch marker other", "the command"),
        (&["--cwd", "/"], "touch marker", "the working directory"),
        (&["--agent", "ops"], "touch marker", "the agent"),
        (&["--pty"], "touch marker", "the environment"),
        (&["--stdin"], "touch marker", "the standard input"),
        (&["--timeout", "7"], "touch marker", "the time limit"),
    ] {
        let refused = run(more, command);
        refused.refused(1, "APPROVAL_REQUEST_MISMATCH");
        assert!(refused.stderr.contains(what), "{refused:#?}");
    }
    assert!(!machine.work().join("marker").exists());
    assert_eq!(run(&[], "touch marker").code, 0);
    assert!(machine.work().join("marker").exists());
    fs::remove_file(machine.work().join("marker")).unwrap();
    let replayed = run(&[], "touch marker");
    replayed.refused(1, "APPROVAL_USED");
    assert!(replayed.stderr.contains("exited with 0"), "{replayed:#?}");
    assert!(!machine.work().join("marker").exists());
    let unknown = machine.run(&["exec", "--approval", "zzzzz", "--", "touch marker"]);
    unknown.refused(1, "APPROVAL_NOT_FOUND");
}

#[test]
fn a_lease_allows_as_many_runs_as_it_says() {
    let machine = started();
    let id = machine.put_down(&["--", "touch marker"]);
    machine.ok(&["approvals", "approve", &id, "--for", "1h", "--uses", "2"]);
    // The approved run is the first of them.
    machine.ok(&["exec", "--approval", &id, "--", "touch marker"]);
    let run = machine.exec("touch marker");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:#?}");
    machine.exec("touch marker").refused(3, "APPROVAL_PENDING");
}

#[test]
fn a_session_grant_is_for_the_same_command_of_the_same_agent() {
    let machine = started();
    machine.know_agents(&["ops"]);
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    machine.ok(&["approvals", "approve", &waiting.id, "--session"]);
    assert_eq!(waiting.end().code, 0);
    for _ in 0..3 {
        assert_eq!(machine.exec("touch marker").code, 0);
    }
    machine.exec("touch other").refused(3, "APPROVAL_PENDING");
    for more in [["--agent", "ops"], ["--cwd", "/"], ["--env", "A=b"]] {
        let mut all = vec!["exec", "--no-wait"];
        all.extend(more);
        all.extend(["--", "touch marker"]);
        machine.run(&all).refused(3, "APPROVAL_PENDING");
    }
    // It does not outweigh the policy.
    machine.ok(&["exec-policy", "set", "--security", "deny"]);
    machine.exec("touch marker").refused(3, "EXEC_DENIED");
}

#[test]
fn no_approver_answers_in_time_and_the_fallback_stands_in() {
    for (fallback, runs) in [("deny", false), ("full", true)] {
        let machine = started();
        machine.ok(&["exec-policy", "set", "--ask-fallback", fallback]);
        let waiting = Waiting::new(&machine, &["--", "touch marker"]);
        machine
            .database()
            .execute("UPDATE approval SET expires_at_ms = created_at_ms + 1", [])
            .unwrap();
        let id = waiting.id.clone();
        let run = waiting.end();
        assert_eq!(machine.work().join("marker").exists(), runs, "{run:#?}");
        if runs {
            assert_eq!(run.code, 0, "{run:#?}");
            assert!(run.stderr.contains("fallback-allow"), "{run:#?}");
        } else {
            assert_eq!(run.code, 3, "{run:#?}");
            assert!(run.stderr.contains("error[APPROVAL_EXPIRED]"), "{run:#?}");
            let late = machine.run(&["approvals", "approve", &id]);
            assert!(late.stderr.contains("APPROVAL_EXPIRED"), "{late:#?}");
        }
    }
}

#[test]
fn secrets_are_masked_until_the_approver_reveals_them() {
    let machine = started();
    let secret = "sk-live-abcdefghijklmnopqrstuvwxyz0123456789";
    let command = format!("touch --token={secret}");
    let id = machine.put_down(&["--", &command]);
    let listed = machine.ok(&["approvals", "pending"]);
    assert!(!listed.stdout.contains(secret), "{listed:#?}");
    let run = machine.ok(&["approvals", "approve", &id, "--reveal"]);
    assert!(run.stderr.contains(secret), "{run:#?}");
    let log = machine.ok(&["audit", "log", "--json"]);
    assert!(!log.stdout.contains(secret), "{log:#?}");
}

#[test]
fn a_waiting_exec_that_is_interrupted_leaves_nothing_running() {
    let machine = started();
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let pid = waiting.child.id().to_string();
    let killed = Command::new("/bin/kill")
        .args(["-TERM", &pid])
        .status()
        .unwrap();
    assert!(killed.success());
    let id = waiting.id.clone();
    let run = waiting.end();
    assert_eq!(run.code, 143);
    assert!(run.stderr.contains("is withdrawn"), "{run:#?}");
    // No caller waits for it any more, so no inbox shows it, and no approver can allow it.
    assert_eq!(machine.pending_ids(), Vec::<String>::new());
    let late = machine.run(&["approvals", "approve", &id]);
    assert_eq!(late.code, 1, "{late:#?}");
    assert!(late.stderr.contains("withdrawn"), "{late:#?}");
    assert!(!machine.work().join("marker").exists());
}

#[test]
fn killed_between_decision_and_start_it_runs_at_most_once() {
    let machine = started();
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..12_u64 {
        let mark = format!("mark-{round}");
        let command = format!("mkdir {mark}");
        let mut waiting = Waiting::new(&machine, &["--", &command]);
        machine.ok(&["approvals", "approve", &waiting.id]);
        // From at once to well after the usual start.
        std::thread::sleep(std::time::Duration::from_millis(round * 9));
        waiting.child.kill().unwrap();
        let _ = waiting.child.wait();
        let id = waiting.id.clone();
        let state = machine.run(&["exec", "--approval", &id, "--", &command]);
        seen.insert(state.code);
        if state.code == 0 {
            // It was decided and not claimed: this was the one run.
            assert!(machine.work().join(&mark).exists(), "{state:#?}");
        } else {
            state.refused(1, "APPROVAL_USED");
            let is_told = ["exited with 0", "is unknown", "it runs"]
                .iter()
                .any(|became| state.stderr.contains(became));
            assert!(is_told, "{state:#?}");
        }
        let replayed = machine.run(&["exec", "--approval", &id, "--", &command]);
        replayed.refused(1, "APPROVAL_USED");
    }
    machine.ok(&["audit", "verify"]);
    // However each of them ended, that was recorded and told once.
    let count = |statement: &str| -> i64 {
        let database = machine.database();
        database.query_row(statement, [], |row| row.get(0)).unwrap()
    };
    testkit::eventually("all have ended", || {
        machine.pending();
        count("SELECT count(*) FROM open_run") == 0
    });
    assert_eq!(
        count("SELECT count(*) FROM audit WHERE kind = 'run-ended'"),
        12
    );
    assert_eq!(count("SELECT count(*) FROM session_events"), 12);
    println!("exit codes of the second try: {seen:?}");
}

#[test]
fn a_claim_that_a_crash_left_behind_is_reported_as_unknown_once_and_never_run_again() {
    let machine = started();
    let id = machine.approved(&["--", "touch marker"]);
    let call = ["--", "touch marker"];
    assert_eq!(machine.run_approved(&id, &call).code, 0);
    fs::remove_file(machine.work().join("marker")).unwrap();
    // As if the one who claimed it had died right then.
    let changed = machine.database().execute(
        "UPDATE run_claim SET state = 'unfinished', outcome = NULL, ended_at_ms = NULL,
            claimer = 'process:another-boot:1:1'",
        [],
    );
    assert_eq!(changed.unwrap(), 1);
    let opened = machine.database().execute(
        "INSERT INTO open_run
            (id, approval_id, agent, session_key, host, command, waiter, started_at_ms)
         SELECT id, approval_id, agent, session_key, host, 'touch marker', claimer, claimed_at_ms
         FROM run_claim",
        [],
    );
    assert_eq!(opened.unwrap(), 1);
    machine
        .database()
        .execute("DELETE FROM session_events", [])
        .unwrap();
    let told = machine.ok(&["approvals", "pending"]).stderr;
    let expected = format!("the outcome of approved run {id} is unknown; it is not run again");
    assert!(told.contains(&expected), "{told}");
    let again = machine.ok(&["approvals", "pending"]).stderr;
    assert!(!again.contains("is unknown"), "{again}");
    let run = machine.run_approved(&id, &call);
    run.refused(1, "APPROVAL_USED");
    assert!(run.stderr.contains("is unknown"), "{run:#?}");
    assert!(!machine.work().join("marker").exists());
    machine.ok(&["audit", "verify"]);
}

#[test]
fn a_second_process_of_the_same_request_cannot_run_it_too() {
    let machine = started();
    let id = machine.put_down(&["--", "mkdir once"]);
    machine.ok(&["approvals", "approve", &id]);
    let all: Vec<Child> = (0..6)
        .map(|_| {
            machine
                .command(&["exec", "--approval", &id, "--", "mkdir once"])
                .process_group(0)
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let ended = all
        .into_iter()
        .map(|child| child.wait_with_output().unwrap());
    let codes: Vec<i32> = ended.map(|output| output.status.code().unwrap()).collect();
    let ran = codes.iter().filter(|code| **code == 0).count();
    assert_eq!(ran, 1, "{codes:?}");
}

#[test]
fn an_ordinary_user_asks_and_approves_as_root_does() {
    if !testkit::is_root() {
        println!("skipped: this user is an ordinary one");
        return;
    }
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    machine.start();
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    machine.ok(&["approvals", "approve", &waiting.id]);
    assert_eq!(waiting.end().code, 0);
    assert!(machine.work().join("marker").exists());
    machine.exec("touch marker").refused(3, "APPROVAL_PENDING");
}
