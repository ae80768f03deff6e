//! The approvals document is under the audit chain: what another program writes into the database lets
//! nothing run, and a database that is gone is no first start.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testkit::Machine;
use testkit::ws::{EVERYTHING, WsClient};

const OPEN: &str = r#"{"defaults":{"ask":"off","security":"full"},"version":1}"#;
const UNRECORDED: &str = "DOCUMENT_UNRECORDED";

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let hex = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
    hex.collect()
}

/// A machine with a policy of its own.
fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "rg"]);
    machine
}

/// Replaces the policy as a program would that can write the database and nothing else.
fn forge(machine: &Machine) {
    let hash = sha256(OPEN.as_bytes());
    let forged = "UPDATE approvals_document SET text = ?1, hash = ?2";
    machine.database().execute(forged, [OPEN, &hash]).unwrap();
}

/// Nothing runs, is judged or is decided by what is there, and the audit says so.
#[track_caller]
fn assert_refused(machine: &Machine) {
    for arguments in [
        &["exec", "--no-wait", "--", "touch made"][..],
        &["explain", "--", "ls"],
        &["approvals", "get"],
        &["approvals", "allowlist", "add", "touch"],
        &["exec-policy", "preset", "yolo"],
        &["audit", "verify"],
    ] {
        let run = machine.run(arguments);
        run.refused(1, UNRECORDED);
        assert!(run.stderr.contains("interlock doctor"), "{run:#?}");
    }
    assert!(!machine.work().join("made").exists());
    let seen = machine.run(&["doctor"]);
    assert_eq!(seen.code, 1, "{seen:#?}");
    assert!(seen.stderr.contains(UNRECORDED), "{seen:#?}");
}

#[test]
fn a_policy_that_no_audit_record_wrote_is_refused_and_the_owner_can_go_back() {
    let machine = started();
    let (before, hash) = machine.document();
    assert_eq!(
        machine.ok(&["doctor", "--json"]).json()["document"]["hash"],
        hash
    );
    forge(&machine);
    assert_refused(&machine);
    let shown = machine.run(&["doctor"]).stdout;
    assert!(shown.contains("+     \"security\": \"full\""), "{shown}");
    assert!(shown.contains("\"rg\""), "{shown}");
    machine.ok(&["doctor", "--restore-document"]);
    assert_eq!(machine.document().0, before);
    assert_eq!(machine.verdict("ls"), "ask");
    machine.ok(&["audit", "verify"]);
    machine.ok(&["doctor"]);
}

#[test]
fn the_owner_can_record_what_is_there() {
    let machine = started();
    forge(&machine);
    machine.ok(&["doctor", "--record-document"]);
    assert_eq!(machine.verdict("ls"), "allow");
    let records = machine.ok(&["audit", "log", "--json", "--kind", "policy-write"]);
    let records = records.json()["records"].as_array().unwrap().clone();
    let last = &records.last().unwrap()["body"];
    assert_eq!(last["repair"], true, "{last}");
    assert_eq!(last["newHash"], sha256(OPEN.as_bytes()));
    machine.ok(&["audit", "verify"]);
}

/// The chain itself has no key: a program that can write the database can write a record for it, too.
#[test]
fn a_forged_record_for_the_forged_policy_is_no_record() {
    let machine = started();
    forge(&machine);
    let database = machine.database();
    let hash = sha256(OPEN.as_bytes());
    let body = json!({
        "document": "approvals", "newHash": hash, "oldHash": null, "who": "local",
    })
    .to_string();
    let (seq, last): (i64, Vec<u8>) = database
        .query_row(
            "SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    let mut chained = Sha256::new();
    chained.update(b"interlock audit record v1\0");
    chained.update(&last);
    chained.update((seq + 1).to_be_bytes());
    chained.update(7_i64.to_be_bytes());
    for text in ["policy-write", body.as_str()] {
        chained.update((text.len() as u64).to_be_bytes());
        chained.update(text.as_bytes());
    }
    let chained = chained.finalize().to_vec();
    database
        .execute(
            "INSERT INTO audit (seq, time_ms, kind, body, hash) VALUES (?1, 7, 'policy-write', ?2, ?3)",
            rusqlite::params![seq + 1, body, chained],
        )
        .unwrap();
    database
        .execute("UPDATE approvals_document SET audit_seq = ?1", [seq + 1])
        .unwrap();
    drop(database);
    assert_refused(&machine);
}

/// What was done to a store, and how.
type Tampering<'a> = (&'a str, &'a dyn Fn(&Machine));

#[test]
fn a_store_that_was_emptied_deleted_or_replaced_is_no_first_start() {
    let other = started();
    other.ok(&["exec-policy", "preset", "yolo"]);
    // So that all of it is in the one file.
    other
        .database()
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    let remove = |machine: &Machine| {
        for name in ["interlock.db", "interlock.db-wal", "interlock.db-shm"] {
            let _ = fs::remove_file(machine.state().join(name));
        }
    };
    let tamperings: [Tampering<'_>; 5] = [
        ("emptied", &|machine| {
            let sql = "DELETE FROM approvals_document; DELETE FROM audit;";
            machine.database().execute_batch(sql).unwrap();
        }),
        ("the row deleted", &|machine| {
            let sql = "DELETE FROM approvals_document";
            machine.database().execute_batch(sql).unwrap();
        }),
        ("deleted", &remove),
        ("an empty file", &|machine| {
            remove(machine);
            fs::write(machine.state().join("interlock.db"), "").unwrap();
        }),
        ("another one", &|machine| {
            remove(machine);
            let from = other.state().join("interlock.db");
            fs::copy(from, machine.state().join("interlock.db")).unwrap();
        }),
    ];
    for (what, tamper) in tamperings {
        println!("{what}");
        let machine = started();
        let (before, _) = machine.document();
        tamper(&machine);
        assert_refused(&machine);
        machine.ok(&["doctor", "--restore-document"]);
        assert_eq!(machine.document().0, before, "{what}");
        assert_eq!(machine.verdict("ls"), "ask", "{what}");
    }
}

#[test]
fn an_older_copy_of_the_same_store_is_refused() {
    let machine = Machine::new();
    machine.ok(&["exec-policy", "preset", "yolo"]);
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    machine.database().execute_batch(checkpoint).unwrap();
    let path = machine.state().join("interlock.db");
    let old = fs::read(&path).unwrap();
    machine.ok(&["exec-policy", "preset", "cautious"]);
    for name in ["interlock.db-wal", "interlock.db-shm"] {
        let _ = fs::remove_file(machine.state().join(name));
    }
    fs::write(&path, old).unwrap();
    assert_refused(&machine);
}

#[test]
fn a_first_start_that_was_cut_short_is_one() {
    let machine = Machine::new();
    // The config is recorded before there is a policy.
    machine.ok(&["config", "set", "tools.exec.timeoutSec", "60"]);
    assert!(!machine.state().join("approvals.recorded").exists());
    machine.start();
    assert!(machine.state().join("approvals.recorded").exists());
    // A process that ended right after its commit: the next one puts it down.
    fs::remove_file(machine.state().join("approvals.recorded")).unwrap();
    assert_eq!(machine.verdict("ls"), "ask");
    assert!(machine.state().join("approvals.recorded").exists());
}

#[test]
fn a_gateway_that_runs_refuses_the_forged_policy_too() {
    let machine = started();
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let exec = |client: &mut WsClient, command: &str| -> Value {
        let call = json!({ "name": "exec", "args": { "command": command } });
        client.ok("tools.invoke", &call)["output"]["details"].take()
    };
    assert_eq!(exec(&mut client, "rg x")["status"], "completed");
    forge(&machine);
    let refused = exec(&mut client, "touch made");
    assert_eq!(refused["code"], UNRECORDED, "{refused}");
    assert!(refused["remedy"].as_str().unwrap().contains("doctor"));
    assert!(!machine.work().join("made").exists());
    machine.ok(&["doctor", "--restore-document"]);
    assert_eq!(exec(&mut client, "rg x")["status"], "completed");
}

#[test]
fn a_decision_or_a_grant_that_no_approver_gave_lets_nothing_run() {
    let machine = Machine::new();
    machine.start();
    // A decision.
    let id = machine.put_down(&["--", "touch forged"]);
    let forged = "UPDATE approval SET ending = 'allow-once', decider = 'bob', ended_at_ms = created_at_ms + 1";
    machine.database().execute(forged, []).unwrap();
    let run = machine.run_approved(&id, &["--", "touch forged"]);
    run.refused(1, "APPROVAL_UNRECORDED");
    // A lease whose uses are over, and which is given some more; and one that is made to last.
    for alter in [
        "UPDATE run_grant SET uses = 0",
        "UPDATE run_grant SET max_uses = NULL",
        "UPDATE run_grant SET expires_at_ms = expires_at_ms + 1000000",
    ] {
        let machine = Machine::new();
        machine.start();
        let id = machine.put_down(&["--", "touch leased"]);
        machine.ok(&["approvals", "approve", "--for", "1h", "--uses", "2", &id]);
        assert_eq!(machine.run_approved(&id, &["--", "touch leased"]).code, 0);
        machine.database().execute(alter, []).unwrap();
        let run = machine.run(&["exec", "--no-wait", "--", "touch leased"]);
        run.refused(1, "GRANT_UNRECORDED");
    }
    assert!(!machine.work().join("forged").exists());
}

#[test]
fn a_run_does_not_repair_the_policy() {
    let machine = started();
    forge(&machine);
    for repair in ["--record-document", "--restore-document"] {
        let mut command = machine.command(&["doctor", repair]);
        command.env("INTERLOCK_SHELL", "exec");
        testkit::finish(&mut command).refused(1, "DECISION_FROM_RUN");
    }
    assert_refused(&machine);
}
