//! What earlier answers still allow, seen and taken back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use testkit::Machine;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

fn grants(machine: &Machine) -> Vec<Value> {
    let listed = machine.ok(&["approvals", "grants", "--json"]).json();
    listed["grants"].as_array().unwrap().clone()
}

/// A machine with a grant for `touch marker`, by this choice.
fn granted(choice: &[&str]) -> Machine {
    let machine = Machine::new();
    machine.start();
    let id = machine.put_down(&["--", "touch marker"]);
    let mut all = vec!["approvals", "approve", &id];
    all.extend(choice);
    machine.ok(&all);
    machine
}

#[test]
fn a_session_grant_is_listed_has_an_end_and_can_be_revoked() {
    let machine = granted(&["--session"]);
    let listed = grants(&machine);
    assert_eq!(listed.len(), 1);
    let grant = &listed[0];
    assert_eq!(grant["command"], "touch marker");
    assert_eq!(grant["agent"], "main");
    assert_eq!(grant["sessionKey"], "agent:main:main");
    assert_eq!(grant["usesLeft"], Value::Null);
    let lives = grant["expiresAtMs"].as_i64().unwrap() - grant["createdAtMs"].as_i64().unwrap();
    assert_eq!(lives, DAY_MS);
    let shown = machine.ok(&["approvals", "grants"]).stdout;
    let id = grant["id"].as_str().unwrap();
    for part in [
        id,
        "touch marker",
        "agent:main:main",
        "any number of runs, for 24h more",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(machine.exec("touch marker").code, 0);
    let revoked = machine.ok(&["approvals", "revoke", &id[..8]]);
    assert!(revoked.stdout.starts_with("revoked "), "{revoked:#?}");
    assert_eq!(grants(&machine), Vec::<Value>::new());
    machine.exec("touch marker").refused(3, "APPROVAL_PENDING");
    let log = machine
        .ok(&["audit", "log", "--kind", "decision", "--json"])
        .json();
    let records = log["records"].as_array().unwrap();
    let ended = records
        .iter()
        .find(|record| record["body"]["decision"] == "revoked");
    assert_eq!(ended.unwrap()["body"]["grantId"], id, "{log:#}");
    machine.ok(&["audit", "verify"]);
    // It is gone; so is what never was.
    for which in [id, "", "nothing"] {
        let run = machine.run(&["approvals", "revoke", which]);
        run.refused(1, "GRANT_NOT_FOUND");
    }
}

#[test]
fn a_lease_tells_its_uses_and_its_time() {
    let machine = granted(&["--for", "2h", "--uses", "3"]);
    assert_eq!(grants(&machine)[0]["usesLeft"], json!(3));
    assert_eq!(machine.exec("touch marker").code, 0);
    assert_eq!(grants(&machine)[0]["usesLeft"], json!(2));
    let shown = machine.ok(&["approvals", "grants"]).stdout;
    assert!(shown.contains("2 runs, for 2h more"), "{shown}");
}

#[test]
fn after_a_day_a_session_grant_allows_nothing() {
    let machine = granted(&["--session"]);
    let database = machine.database();
    let moved = format!(
        "UPDATE run_grant SET created_at_ms = created_at_ms - {DAY_MS}, expires_at_ms = expires_at_ms - {DAY_MS}"
    );
    assert_eq!(database.execute(&moved, []).unwrap(), 1);
    assert_eq!(grants(&machine), Vec::<Value>::new());
    machine.exec("touch marker").refused(3, "APPROVAL_PENDING");
}

#[test]
fn a_grant_is_for_the_content_that_was_approved() {
    let machine = Machine::new();
    machine.start();
    machine.script("work/x.sh", "#!/bin/sh\necho one\n");
    let id = machine.put_down(&["--", "./x.sh"]);
    machine.ok(&["approvals", "approve", &id, "--session"]);
    assert_eq!(machine.exec("./x.sh").stdout, "one\n");
    machine.script("work/x.sh", "#!/bin/sh\ntouch marker\n");
    machine.exec("./x.sh").refused(3, "APPROVAL_PENDING");
    assert!(!machine.work().join("marker").exists());
}
