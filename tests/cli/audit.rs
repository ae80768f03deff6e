//! The audit: everything that happened is in it, and no record can be removed unseen.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use testkit::Machine;

fn records(machine: &Machine) -> Vec<Value> {
    let log = machine.ok(&["audit", "log", "--limit", "1000", "--json"]);
    log.json()["records"].as_array().unwrap().clone()
}

/// A machine on which something of every kind has happened.
fn lived() -> Machine {
    let machine = Machine::new();
    machine.start();
    let id = machine.approved(&["--", "touch marker"]);
    assert_eq!(machine.run_approved(&id, &["--", "touch marker"]).code, 0);
    let id = machine.put_down(&["--", "touch other"]);
    machine.ok(&["approvals", "deny", &id]);
    machine.ok(&["approvals", "allowlist", "add", "touch"]);
    machine.ok(&["exec", "--", "touch allowed"]);
    machine.run(&["exec", "--env", "PATH=/x", "--", "touch denied"]);
    machine.ok(&["config", "set", "tools.exec.timeoutSec", "60"]);
    machine
}

#[test]
fn what_was_judged_asked_decided_and_run_is_there_in_order() {
    let machine = lived();
    let told = |record: &Value| {
        let body = &record["body"];
        let word = ["verdict", "decision", "state", "document"]
            .iter()
            .find_map(|name| body[*name].as_str());
        let kind = record["kind"].as_str().unwrap();
        format!("{kind} {}", word.unwrap_or_default())
            .trim()
            .to_owned()
    };
    let all: Vec<String> = records(&machine).iter().map(told).collect();
    assert_eq!(
        all,
        [
            "policy-write approvals",
            "verdict ask",
            "prompt",
            "delivery seen",
            "decision allow-once",
            "run-started",
            "run-ended finished",
            "verdict ask",
            "prompt",
            "delivery seen",
            "decision deny",
            "policy-write approvals",
            "verdict allow",
            "run-started",
            "run-ended finished",
            "verdict deny",
            "policy-write config",
        ]
    );
    let ended = records(&machine);
    let ended: Vec<&Value> = ended
        .iter()
        .filter(|record| record["kind"] == "run-ended")
        .collect();
    for record in ended {
        assert_eq!(record["body"]["outcome"]["exitCode"], 0, "{record:#}");
    }
    let decisions = machine.ok(&["audit", "log", "--kind", "decision", "--since", "1h"]);
    assert_eq!(decisions.stdout.lines().count(), 2, "{decisions:#?}");
    machine
        .run(&["audit", "log", "--kind", "gossip"])
        .refused(2, "AUDIT_KIND_UNKNOWN");
}

#[test]
fn one_flipped_byte_is_found() {
    let machine = lived();
    let intact = machine.ok(&["audit", "verify"]);
    assert!(intact.stdout.starts_with("intact: "), "{intact:#?}");
    let changed = machine
        .database()
        .execute(
            "UPDATE audit SET body = replace(body, 'allow-once', 'allow-oncf') WHERE body LIKE '%allow-once%'",
            [],
        )
        .unwrap();
    assert_eq!(changed, 1);
    let run = machine.run(&["audit", "verify"]);
    run.refused(1, "AUDIT_BROKEN");
    assert!(run.stderr.contains("record 5 "), "{run:#?}");
}

#[test]
fn a_kept_head_shows_that_the_tail_was_cut() {
    let machine = lived();
    let head = machine.ok(&["audit", "head"]).stdout;
    let head = head.trim();
    machine.ok(&["audit", "verify", "--head", head]);
    machine
        .database()
        .execute("DELETE FROM audit WHERE seq > 12", [])
        .unwrap();
    machine.ok(&["audit", "verify"]);
    machine
        .run(&["audit", "verify", "--head", head])
        .refused(1, "AUDIT_BROKEN");
    // With the record of the policy in force, a cut is missed without a head, too.
    machine
        .database()
        .execute("DELETE FROM audit WHERE seq > 10", [])
        .unwrap();
    machine
        .run(&["audit", "verify"])
        .refused(1, "DOCUMENT_UNRECORDED");
    machine
        .run(&["audit", "verify", "--head", "seven"])
        .refused(2, "AUDIT_HEAD_INVALID");
}

#[test]
fn an_export_ends_with_the_head() {
    let machine = lived();
    let export = machine.ok(&["audit", "export"]).stdout;
    let lines: Vec<Value> = export
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let head = machine.ok(&["audit", "head", "--json"]).json();
    assert_eq!(lines.last().unwrap()["head"], head);
    assert_eq!(lines.len() as u64, head["seq"].as_u64().unwrap() + 1);
}

#[test]
fn a_run_that_went_to_the_background_is_named_and_its_end_is_found_later() {
    let machine = Machine::new();
    machine.start();
    let id = machine.approved(&["--", "sleep 0.2"]);
    let run = machine.run(&[
        "exec",
        "--json",
        "--background",
        "--approval",
        &id,
        "--",
        "sleep 0.2",
    ]);
    assert_eq!(run.code, 0, "{run:#?}");
    let session = run.json()["sessionId"].as_str().unwrap().to_owned();
    let ends = || {
        machine.ok(&["approvals", "pending"]);
        let all = records(&machine).into_iter();
        let mut ends = all.filter(|record| record["kind"] == "run-ended");
        ends.next()
    };
    testkit::eventually("the end is recorded", || ends().is_some());
    let outcome = ends().unwrap()["body"]["outcome"].clone();
    assert_eq!(outcome["session"], session.as_str(), "{outcome:#}");
    assert_eq!(outcome["exitCode"], 0, "{outcome:#}");
}

#[test]
fn a_patch_is_in_the_audit_with_what_it_did_and_so_is_its_refusal() {
    let machine = Machine::new();
    machine.start();
    let write = |name: &str, text: &str| std::fs::write(machine.work().join(name), text).unwrap();
    write("a.txt", "one\ntwo\n");
    write("b.txt", "gone\n");
    write("c.txt", "moved\n");
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+three\n+four\n*** Delete File: b.txt\n\
        *** Update File: c.txt\n*** Move to: d.txt\n@@\n-moved\n+moved on\n*** Add File: e.txt\n+new\n*** End Patch\n";
    let apply = |arguments: &[&str], patch: &str| {
        let mut all = vec!["apply-patch", "-"];
        all.extend(arguments);
        machine.run_with_input(&all, patch.as_bytes())
    };
    assert_eq!(apply(&["--dry-run"], patch).code, 0);
    assert_eq!(apply(&[], patch).code, 0);
    assert_eq!(apply(&[], patch).code, 1);
    assert_eq!(apply(&[], "no patch").code, 1);
    machine.ok(&["config", "set", "tools.exec.applyPatch.enabled", "false"]);
    assert_eq!(apply(&[], patch).code, 3);
    let log = machine
        .ok(&["audit", "log", "--kind", "patch", "--json"])
        .json();
    let mut records: Vec<Value> = log["records"].as_array().unwrap().clone();
    records.sort_by_key(|record| record["seq"].as_u64());
    let bodies: Vec<&Value> = records.iter().map(|record| &record["body"]).collect();
    let outcomes: Vec<&str> = bodies
        .iter()
        .map(|body| body["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(
        outcomes,
        ["begun", "applied", "begun", "refused", "refused", "refused"]
    );
    let sha = |text: &str| interlock_patch::sha256(text.as_bytes());
    let expected = json!([
        { "change": "added", "path": "e.txt", "linesAdded": 1, "linesRemoved": 0, "before": null,
          "after": sha("new\n") },
        { "change": "updated", "path": "a.txt", "linesAdded": 2, "linesRemoved": 1,
          "before": sha("one\ntwo\n"), "after": sha("one\nthree\nfour\n") },
        { "change": "deleted", "path": "b.txt", "linesAdded": 0, "linesRemoved": 1,
          "before": sha("gone\n"), "after": null },
        { "change": "moved", "from": "c.txt", "path": "d.txt", "linesAdded": 1, "linesRemoved": 1,
          "before": sha("moved\n"), "after": sha("moved on\n") },
    ]);
    assert_eq!(bodies[1]["files"], expected, "{:#}", bodies[1]);
    assert_eq!(bodies[1]["agent"], "main");
    assert_eq!(bodies[0]["paths"].as_array().unwrap().len(), 5);
    let codes: Vec<&Value> = bodies[3..].iter().map(|body| &body["code"]).collect();
    assert_eq!(codes[1..], [&json!("PATCH_PARSE"), &json!("TOOL_DENIED")]);
    assert_eq!(bodies[1]["patchDigest"], sha(patch));
    machine.ok(&["audit", "verify"]);
}

#[test]
fn a_log_that_the_limit_cuts_says_the_total_and_how_to_go_on() {
    let machine = lived();
    let all = records(&machine);
    let whole = machine.ok(&["audit", "log", "--limit", "1000", "--json"]);
    assert_eq!(whole.json()["total"], all.len());
    assert_eq!(whole.json().get("nextCursor"), None);

    let first = machine.ok(&["audit", "log", "--agent", "main", "--limit", "3", "--json"]);
    let of_main: Vec<&Value> = all
        .iter()
        .filter(|record| record["body"]["agent"] == "main")
        .collect();
    assert_eq!(first.json()["total"], of_main.len());
    let cursor = first.json()["nextCursor"].as_str().unwrap().to_owned();
    let next = of_main[of_main.len() - 4];
    assert_eq!(cursor, next["seq"].to_string());

    let text = machine.ok(&["audit", "log", "--agent", "main", "--limit", "3"]);
    assert_eq!(text.stdout.lines().count(), 3);
    let total = of_main.len();
    let go_on = format!("audit log --agent main --limit 3 --cursor {cursor}");
    assert!(
        text.stderr
            .contains(&format!("3 of {total} records; go on: ")),
        "{}",
        text.stderr
    );
    assert!(text.stderr.trim_end().ends_with(&go_on), "{}", text.stderr);

    let second = machine.ok(&[
        "audit", "log", "--agent", "main", "--limit", "1000", "--cursor", &cursor, "--json",
    ]);
    let second = second.json()["records"].as_array().unwrap().clone();
    assert_eq!(second.len(), of_main.len() - 3);
    assert_eq!(second.last(), Some(next));
}
