//! Ways to get more than was given: each of them is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use rusqlite::params;
use serde_json::Value;
use testkit::Machine;

fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine
}

fn ran(machine: &Machine) -> bool {
    machine.work().join("marker").exists()
}

#[test]
fn asking_for_prompts_reaches_no_looser_fallback() {
    for fallback in ["full", "allowlist", "deny"] {
        for ask in ["on-miss", "always"] {
            let machine = started();
            machine.ok(&[
                "exec-policy",
                "set",
                "--ask",
                "off",
                "--ask-fallback",
                fallback,
            ]);
            let command = ["exec", "--no-wait", "--ask", ask, "--", "touch marker"];
            // A person may be asked; whatever stands in for one says no.
            machine.run(&command).refused(3, "APPROVAL_PENDING");
            let waiting = machine.pending();
            assert_eq!(waiting.len(), 1, "{fallback} {ask}");
            let statement = "UPDATE approval SET expires_at_ms = 1";
            machine.database().execute(statement, []).unwrap();
            let id = waiting[0]["id"].as_str().unwrap();
            let run = machine.run_approved(id, &["--ask", ask, "--", "touch marker"]);
            run.refused(3, "APPROVAL_EXPIRED");
            assert!(!ran(&machine));
        }
    }
}

#[test]
fn an_id_that_was_used_is_used_up() {
    let machine = started();
    let command = ["--", "touch marker"];
    for choice in [
        &[][..],
        &["--always"],
        &["--session"],
        &["--for", "1h", "--uses", "2"],
    ] {
        let machine = started();
        let id = machine.put_down(&command);
        let mut approve = vec!["approvals", "approve", &id];
        approve.extend(choice);
        machine.ok(&approve);
        assert_eq!(machine.run_approved(&id, &command).code, 0, "{choice:?}");
        assert!(ran(&machine));
        let again = machine.run_approved(&id, &command);
        again.refused(1, "APPROVAL_USED");
    }
    // Denied, and approved afterwards.
    let id = machine.put_down(&command);
    machine.ok(&["approvals", "deny", &id]);
    let run = machine.run(&["approvals", "approve", &id]);
    assert_eq!(run.code, 1, "{run:#?}");
    assert_eq!(machine.run_approved(&id, &command).code, 3);
    assert!(!ran(&machine));
}

/// Every leaf of a value, as a pointer.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                leaves(value, &format!("{at}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                leaves(value, &format!("{at}/{index}"), found);
            }
        }
        _ => found.push(at.to_owned()),
    }
}

fn other(value: &Value) -> Value {
    match value {
        Value::Null => Value::from(1),
        Value::Bool(yes) => Value::from(!yes),
        Value::Number(number) => Value::from(number.as_i64().unwrap_or_default() ^ 1),
        Value::String(text) => Value::from(format!("{text}x")),
        _ => Value::Null,
    }
}

#[test]
fn a_plan_that_was_altered_in_any_field_runs_nothing() {
    let machine = started();
    machine.script("work/x.sh", "touch marker\n");
    let command = ["--", "bash x.sh"];
    let id = machine.approved(&command);
    let database = machine.database();
    let read = || -> String {
        let statement = "SELECT plan FROM approval_content";
        database.query_row(statement, [], |row| row.get(0)).unwrap()
    };
    let write = |plan: &str| {
        let statement = "UPDATE approval_content SET plan = ?1";
        assert_eq!(database.execute(statement, params![plan]).unwrap(), 1);
    };
    let before = read();
    let plan: Value = serde_json::from_str(&before).unwrap();
    let mut places = Vec::new();
    leaves(&plan, "", &mut places);
    assert!(places.len() > 30, "{places:?}");
    for place in &places {
        let mut altered = plan.clone();
        let field = altered.pointer_mut(place).unwrap();
        *field = other(field);
        write(&altered.to_string());
        let run = machine.run_approved(&id, &command);
        run.refused(1, "APPROVAL_DAMAGED");
        assert!(!ran(&machine), "{place}");
    }
    write(&before);
    assert_eq!(machine.run_approved(&id, &command).code, 0);
    assert!(ran(&machine));
}

#[test]
fn entries_that_were_slipped_in_beside_a_question_are_not_in_its_forms() {
    let machine = started();
    let id = machine.put_down(&["--", "touch marker"]);
    let (before, hash) = machine.document();
    for always in [
        r#"{"exact":[{"pattern":"**","args":["**"]}],"more":1}"#,
        "[]",
        "7",
        "{}",
    ] {
        let database = machine.database();
        let statement = "UPDATE approval_content SET always = ?1";
        let changed = database.execute(statement, params![always]);
        assert_eq!(changed.unwrap(), 1);
        let run = machine.run(&["approvals", "approve", &id, "--always"]);
        assert_ne!(run.code, 0, "{always}: {run:#?}");
        assert_eq!(machine.document(), (before.clone(), hash.clone()));
    }
}
