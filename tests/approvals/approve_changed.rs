//! A script that was edited since it was last allowed: the next question shows what changed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use serde_json::Value;
use testkit::Machine;

fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine
}

/// What the question for `./do.sh` says of changes.
fn diff(machine: &Machine) -> (String, Value) {
    let id = machine.put_down(&["--", "./do.sh"]);
    let shown = machine.ok(&["approvals", "pending", &id, "--json"]).json();
    (id, shown["diff"].clone())
}

#[test]
fn the_next_question_shows_what_changed_since_the_last_yes() {
    let machine = started();
    let path = machine.script("work/do.sh", "#!/bin/sh\necho one\necho two\n");
    let (id, first) = diff(&machine);
    assert_eq!(first, Value::Null);
    machine.ok(&["approvals", "approve", &id]);
    assert_eq!(diff(&machine).1, Value::Null, "nothing changed");
    // What cannot be seen is spelled out.
    fs::write(
        &path,
        "#!/bin/sh\necho one\necho \u{202e}three\necho four\n",
    )
    .unwrap();
    let (id, changed) = diff(&machine);
    assert_eq!(
        (&changed["added"], &changed["removed"]),
        (&2.into(), &1.into())
    );
    let text = changed["text"].as_str().unwrap();
    for line in [
        "-echo two",
        "+echo \\u{202E}three",
        "+echo four",
        " echo one",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    let read = machine.ok(&["approvals", "pending", &id]).stdout;
    assert!(read.contains("2 lines added, 1 removed"), "{read}");
    assert!(read.contains("| -echo two\n"), "{read}");
    // A no changes nothing: what was allowed last is still what it is compared with.
    let denied = machine.ok(&["approvals", "deny", &id]);
    assert!(denied.stderr.contains("+echo four"), "{denied:#?}");
    let (id, again) = diff(&machine);
    assert_eq!(again, changed);
    machine.ok(&["approvals", "approve", &id]);
    assert_eq!(diff(&machine).1, Value::Null);
}

#[test]
fn what_another_agent_was_allowed_is_not_compared_with() {
    let machine = started();
    machine.know_agents(&["other"]);
    let path = machine.script("work/do.sh", "#!/bin/sh\necho one\n");
    machine.approved(&["--agent", "other", "--", "./do.sh"]);
    fs::write(&path, "#!/bin/sh\necho two\n").unwrap();
    assert_eq!(diff(&machine).1, Value::Null);
}

#[test]
fn a_file_that_is_no_longer_what_was_asked_about_is_not_compared() {
    let machine = started();
    let path = machine.script("work/do.sh", "#!/bin/sh\necho one\n");
    machine.approved(&["--", "./do.sh"]);
    fs::write(&path, "#!/bin/sh\necho two\n").unwrap();
    let (id, changed) = diff(&machine);
    assert_ne!(changed, Value::Null);
    fs::write(&path, "#!/bin/sh\necho three\n").unwrap();
    let shown = machine.ok(&["approvals", "pending", &id, "--json"]).json();
    assert_eq!(shown["diff"], Value::Null);
    // And a content that no approver saw is not what was allowed.
    machine.ok(&["approvals", "approve", &id]);
    fs::write(&path, "#!/bin/sh\necho four\n").unwrap();
    let text = diff(&machine).1["text"].as_str().unwrap().to_owned();
    assert!(
        text.contains("-echo one") && text.contains("+echo four"),
        "{text}"
    );
}

#[test]
fn what_is_too_long_or_no_text_is_not_kept() {
    let machine = started();
    let long = format!("#!/bin/sh\n#{}\n", "x".repeat(256 * 1024));
    let bytes = b"#!/bin/sh\n# \xff\n".to_vec();
    for content in [long.into_bytes(), bytes] {
        let path = machine.script("work/do.sh", "");
        fs::write(&path, content).unwrap();
        machine.approved(&["--", "./do.sh"]);
        fs::write(&path, "#!/bin/sh\necho two\n").unwrap();
        assert_eq!(diff(&machine).1, Value::Null);
    }
}

#[test]
fn a_long_difference_is_shown_in_brief_and_whole_on_request() {
    let machine = started();
    let path = machine.script("work/do.sh", "#!/bin/sh\n");
    machine.approved(&["--", "./do.sh"]);
    let lines: Vec<String> = (0..50).map(|line| format!("echo {line}")).collect();
    fs::write(&path, format!("#!/bin/sh\n{}\n", lines.join("\n"))).unwrap();
    let id = machine.put_down(&["--", "./do.sh"]);
    let brief = machine.ok(&["approvals", "pending"]).stdout;
    assert!(
        brief.contains("more lines: interlock approvals pending"),
        "{brief}"
    );
    assert!(!brief.contains("+echo 49"), "{brief}");
    let whole = machine.ok(&["approvals", "pending", &id]).stdout;
    assert!(whole.contains("| +echo 49\n"), "{whole}");
}
