//! `interlock config`: edits that keep every comment, errors with a place.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use serde_json::{Value, json};
use testkit::Machine;

const WITH_COMMENTS: &str = "\
// The config of the build machine.
{
  tools: {
    exec: {
      security: \"allowlist\", // never full here
      /* asked for by the night shift */
      ask: 'on-miss',
      safeBins: [
        \"head\", // first
        \"tail\",
      ],
    },
  },
}
";

fn with_comments() -> Machine {
    let machine = Machine::new();
    machine.write_config(WITH_COMMENTS);
    machine
}

fn text(machine: &Machine) -> String {
    fs::read_to_string(machine.config()).unwrap()
}

#[test]
fn an_edit_changes_its_value_and_not_a_byte_more() {
    let edits: &[(&[&str], &str, &str)] = &[
        (
            &["set", "tools.exec.security", "deny"],
            "\"allowlist\",",
            "\"deny\",",
        ),
        (
            &["set", "tools.exec.ask", "always"],
            "'on-miss'",
            "'always'",
        ),
        (
            &["set", "tools.exec.safeBins[1]", "wc"],
            "\"tail\"",
            "\"wc\"",
        ),
        (
            &["set", "tools.exec.safeBins[2]", "wc"],
            "\"tail\",\n",
            "\"tail\",\n        \"wc\",\n",
        ),
        (
            &["set", "tools.exec.timeoutSec", "60"],
            "      ],\n",
            "      ],\n      timeoutSec: 60,\n",
        ),
    ];
    for (arguments, old, new) in edits {
        let machine = with_comments();
        let mut all = vec!["config"];
        all.extend(*arguments);
        machine.ok(&all);
        let expected = WITH_COMMENTS.replacen(old, new, 1);
        // Either quote is as good; which one is chosen is not promised.
        let same = text(&machine).replace('\'', "\"") == expected.replace('\'', "\"");
        assert!(same, "{arguments:?}:\n{}", text(&machine));
    }
}

#[test]
fn what_was_set_and_unset_again_leaves_no_trace() {
    let machine = with_comments();
    machine.ok(&["config", "set", "tools.exec.node", "laptop"]);
    machine.ok(&["config", "set", "gateway.port", "7000"]);
    assert_ne!(text(&machine), WITH_COMMENTS);
    machine.ok(&["config", "unset", "tools.exec.node"]);
    machine.ok(&["config", "unset", "gateway"]);
    assert_eq!(text(&machine), WITH_COMMENTS);
}

#[test]
fn values_are_read_as_they_were_set() {
    let machine = Machine::new();
    let values: &[(&str, &str, Value)] = &[
        ("tools.exec.security", "allowlist", json!("allowlist")),
        ("tools.exec.ask", "'always'", json!("always")),
        ("tools.exec.strictInlineEval", "true", json!(true)),
        ("tools.exec.timeoutSec", "90", json!(90)),
        (
            "tools.exec.safeBins",
            "['head', /* two */ 'tail']",
            json!(["head", "tail"]),
        ),
        ("agents.list[0]", "{ id: 'main' }", json!({ "id": "main" })),
        ("agents.list[0].tools.exec.node", "laptop", json!("laptop")),
        (
            "tools.exec.safeBinProfiles[\"my-filter\"].maxPositional",
            "0",
            json!(0),
        ),
    ];
    for (key, value, expected) in values {
        machine.ok(&["config", "set", key, value]);
        assert_eq!(
            machine.ok(&["config", "get", key, "--json"]).json(),
            *expected,
            "{key}"
        );
    }
    assert_eq!(
        machine.ok(&["config", "get", "tools.exec.ask"]).stdout,
        "always\n"
    );
    assert_eq!(
        machine
            .ok(&["config", "get", "tools.exec.timeoutSec"])
            .stdout,
        "90\n"
    );
    let whole = machine.ok(&["config", "get", "--json"]).json();
    assert_eq!(
        whole["agents"]["list"][0]["tools"]["exec"]["node"],
        "laptop"
    );
}

/// What would not be valid is not written, and the message shows where and what instead.
#[test]
fn an_edit_that_would_be_wrong_is_refused() {
    let machine = with_comments();
    let cases: &[(&str, &[&str], i32)] = &[
        ("unknown_key", &["set", "tools.exec.securty", "full"], 1),
        ("unknown_value", &["set", "tools.exec.security", "fulll"], 1),
        (
            "wrong_type",
            &["set", "tools.exec.strictInlineEval", "maybe"],
            1,
        ),
        ("out_of_range", &["set", "gateway.port", "70000"], 1),
        ("past_the_end", &["set", "tools.exec.safeBins[7]", "wc"], 1),
        ("not_a_list", &["set", "tools.exec.security[0]", "x"], 1),
        ("bad_path", &["set", "tools..exec", "x"], 2),
        ("bad_path_bracket", &["get", "agents.list[x]"], 2),
        ("not_set", &["get", "tools.exec.node"], 1),
        ("unset_what_is_not_set", &["unset", "tools.exec.node"], 1),
    ];
    for (name, arguments, exit) in cases {
        let mut all = vec!["config"];
        all.extend(*arguments);
        let run = machine.run(&all);
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (*exit, ""),
            "{name}: {run:#?}"
        );
        insta::assert_snapshot!(format!("config_{name}"), machine.stable(&run.stderr));
        assert_eq!(text(&machine), WITH_COMMENTS, "{name}");
    }
}

#[test]
fn validate_tells_every_problem_of_a_file() {
    let machine = with_comments();
    let run = machine.ok(&["config", "validate"]);
    assert_eq!(
        machine.stable(&run.stdout),
        "[TMP]/home/.interlock/interlock.json: valid\n"
    );
    let json = machine.ok(&["config", "validate", "--json"]).json();
    assert_eq!(json["valid"], json!(true));
    let other = machine.file(
        "other.json5",
        "{\n  tools: { exec: { securty: 'full', timeoutSec: -1 } },\n  gatway: { auth: { token: 'hunter2' } },\n}\n",
    );
    let run = machine.run(&["config", "validate", other.to_str().unwrap()]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    insta::assert_snapshot!("config_validate", machine.stable(&run.stderr));
    let run = machine.run(&["config", "validate", "--json", other.to_str().unwrap()]);
    let error: Value = serde_json::from_str(&run.stderr).unwrap();
    assert_eq!(
        (run.code, &error["error"]["code"]),
        (1, &json!("UNKNOWN_KEY"))
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let machine = Machine::new();
    let not_utf8 = machine.file("latin1.json5", b"{ // caf\xe9\n}");
    let empty = machine.file("empty.json5", "");
    let large = machine.file(
        "large.json5",
        format!("// {}\n{{}}", "x".repeat(5 * 1024 * 1024)),
    );
    let directory = machine.root().to_path_buf();
    for path in [not_utf8, empty, large, directory] {
        let run = machine.run(&["config", "validate", path.to_str().unwrap()]);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:#?}");
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(run.stderr.contains(name), "{run:#?}");
        assert!(run.stderr.len() < 1000, "{run:#?}");
    }
}

/// A broken config stops every command that would judge by it, and nothing is changed.
#[test]
fn a_broken_config_stops_everything_that_depends_on_it() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "ls"]);
    let before = machine.document();
    let broken = "{ tools: { exec: { security: allowlist } } }\n";
    machine.write_config(broken);
    let commands: &[&[&str]] = &[
        &["explain", "--", "ls"],
        &["explain", "--json", "--", "ls"],
        &["exec-policy", "show"],
        &["approvals", "get"],
        &["config", "get"],
        &["config", "validate"],
        &["config", "set", "gateway.port", "7000"],
    ];
    for arguments in commands {
        let run = machine.run(arguments);
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (1, ""),
            "{arguments:?}: {run:#?}"
        );
        assert!(
            run.stderr.contains("interlock.json:1:30"),
            "{arguments:?}: {run:#?}"
        );
    }
    let run = machine.run(&["explain", "--", "ls"]);
    insta::assert_snapshot!("config_broken", machine.stable(&run.stderr));
    assert_eq!(text(&machine), broken);
    machine.write_config("{}\n");
    assert_eq!(machine.document(), before);
}

#[test]
fn another_config_file_can_be_named() {
    let machine = Machine::new();
    machine.start();
    let other = machine.file("other.json5", "{ tools: { exec: { security: 'deny' } } }");
    let other = other.to_str().unwrap();
    assert_eq!(
        machine.ok(&["--config", other, "config", "path"]).stdout,
        format!("{other}\n")
    );
    let run = machine.ok(&["explain", "--config", other, "--json", "--", "ls"]);
    assert_eq!(run.json()["verdict"], "deny");
    assert_eq!(machine.verdict("ls"), "ask");
}

#[test]
fn writers_at_once_lose_no_edit() {
    let machine = Machine::new();
    machine.write_config("{\n  // profiles of this owner\n}\n");
    let names: Vec<String> = (0..8).map(|number| format!("filter{number}")).collect();
    let children: Vec<_> = names
        .iter()
        .map(|name| {
            let key = format!("tools.exec.safeBinProfiles.{name}");
            let mut command = machine.command(&["config", "set", &key, "{}"]);
            command.stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let profiles = machine
        .ok(&["config", "get", "tools.exec.safeBinProfiles", "--json"])
        .json();
    let mut stored: Vec<&String> = profiles.as_object().unwrap().keys().collect();
    stored.sort();
    assert_eq!(stored, names.iter().collect::<Vec<_>>());
    assert!(text(&machine).contains("// profiles of this owner"));
}
