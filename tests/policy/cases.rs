//! `interlock policy test`: a policy under test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;

use serde_json::{Value, json};
use testkit::{Machine, Run};

const POLICY: &str =
    r#""policy":{"security":"allowlist","ask":"on-miss","allowlist":[{"pattern":"rg"}]}"#;

fn case(id: &str, fields: &str, expect: &str) -> String {
    format!("{{\"id\":\"{id}\",{fields},\"expect\":\"{expect}\"}}\n")
}

fn test(machine: &Machine, flags: &[&str], cases: &str) -> Run {
    let file = machine.file("cases.jsonl", cases);
    let mut all = vec!["policy", "test"];
    all.extend(flags);
    all.push(file.to_str().unwrap());
    machine.run(&all)
}

fn mixed() -> String {
    let resolve = r#""resolve":{}"#;
    let mut cases = String::from("// A comment and a blank line are skipped.\n\n");
    cases += &case(
        "passes",
        &format!(r#"{POLICY},{resolve},"command":"rg x""#),
        "allow",
    );
    cases += &case(
        "fails",
        &format!(r#"{POLICY},{resolve},"command":"ls\n-l""#),
        "allow",
    );
    cases += &case(
        "elsewhere",
        &format!(r#"{POLICY},{resolve},"platform":"win32","command":"dir""#),
        "allow",
    );
    cases
}

#[test]
fn failing_cases_are_listed_and_everything_is_counted() {
    let machine = Machine::new();
    let run = test(&machine, &[], &mixed());
    assert_eq!((run.code, run.stderr.as_str()), (1, ""));
    insta::assert_snapshot!("policy_test", run.stdout);
    let run = test(&machine, &["--verbose"], &mixed());
    assert_eq!((run.code, run.stderr.as_str()), (1, ""));
    insta::assert_snapshot!("policy_test_verbose", run.stdout);
    // Nothing of it needed a policy of this host.
    assert!(!machine.state().exists());
}

#[test]
fn the_summary_is_one_line_with_three_numbers() {
    let machine = Machine::new();
    let passing = case(
        "1",
        &format!(r#"{POLICY},"resolve":{{}},"command":"rg""#),
        "allow",
    );
    let run = test(&machine, &[], &passing);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "1 passed, 0 failed, 0 skipped\n")
    );
    let run = test(&machine, &[], "");
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "0 passed, 0 failed, 0 skipped\n")
    );
}

#[test]
fn programs_read_one_object_per_case() {
    let machine = Machine::new();
    let run = test(&machine, &["--json"], &mixed());
    assert_eq!(run.code, 1);
    assert_eq!(run.stderr, "1 passed, 1 failed, 1 skipped\n");
    let lines: Vec<Value> = run
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let brief: Vec<Value> = lines
        .iter()
        .map(|line| json!([line["id"], line["pass"], line["verdict"], line["expected"]]))
        .collect();
    assert_eq!(brief[0], json!(["passes", true, "allow", "allow"]));
    assert_eq!(brief[1], json!(["fails", false, "ask", "allow"]));
    assert_eq!(lines[1]["binding"], "native");
    assert!(
        lines[1]["reason"]
            .as_str()
            .unwrap()
            .starts_with("allowlist-miss: ")
    );
    assert_eq!(lines[2]["skipped"], "for win32");
}

#[test]
fn standard_input_and_several_files_are_read_in_order() {
    let machine = Machine::new();
    let one = |id: &str| {
        case(
            id,
            &format!(r#"{POLICY},"resolve":{{}},"command":"rg""#),
            "allow",
        )
    };
    let first = machine.file("first.jsonl", one("first"));
    let run = machine.run_with_input(
        &["policy", "test", "--verbose", first.to_str().unwrap(), "-"],
        one("second").as_bytes(),
    );
    assert_eq!(run.code, 0, "{run:#?}");
    let ids: Vec<&str> = run
        .stdout
        .lines()
        .map(|line| line.split(':').next().unwrap())
        .collect();
    assert_eq!(
        ids,
        ["ok first", "ok second", "2 passed, 0 failed, 0 skipped"]
    );
}

/// A file that is not understood is not run at all: half a test is no test.
#[test]
fn a_file_that_cannot_be_read_or_parsed_is_named_with_its_line() {
    let machine = Machine::new();
    let good = case(
        "good",
        &format!(r#"{POLICY},"resolve":{{}},"command":"rg""#),
        "allow",
    );
    let bad: &[(&str, &str)] = &[
        (
            "unknown_field",
            r#"{"id":"x","comand":"ls","expect":"allow"}"#,
        ),
        (
            "unknown_policy_field",
            r#"{"id":"x","command":"ls","policy":{"securty":"full"},"expect":"allow"}"#,
        ),
        (
            "unknown_verdict",
            r#"{"id":"x","command":"ls","expect":"maybe"}"#,
        ),
        ("no_expectation", r#"{"id":"x","command":"ls"}"#),
        ("no_command", r#"{"id":"x","expect":"deny"}"#),
        (
            "command_and_argv",
            r#"{"id":"x","command":"ls","argv":["ls"],"expect":"deny"}"#,
        ),
        ("not_json", "rm -rf /"),
        ("not_an_object", "[1]"),
    ];
    for (name, line) in bad {
        let run = test(&machine, &[], &format!("{good}\n// next\n{line}\n{good}"));
        run.refused(2, "CASES_INVALID");
        assert!(run.stderr.contains("cases.jsonl:4: "), "{name}: {run:#?}");
        insta::assert_snapshot!(format!("policy_test_{name}"), machine.stable(&run.stderr));
    }
    let latin1 = machine.file("latin1.jsonl", b"\n// caf\xe9\n");
    let run = machine.run(&["policy", "test", latin1.to_str().unwrap()]);
    run.refused(2, "CASES_INVALID");
    assert!(run.stderr.contains("latin1.jsonl:2: "), "{run:#?}");
    for path in ["/no/such/file", machine.root().to_str().unwrap()] {
        let run = machine.run(&["policy", "test", path]);
        run.refused(2, "CASES_UNREADABLE");
        assert!(run.stderr.contains(path), "{run:#?}");
    }
    assert_eq!(machine.run(&["policy", "test"]).code, 2);
}

#[test]
fn notes_of_the_author_are_left_alone() {
    let machine = Machine::new();
    let notes = r#""x-ticket":7,"note":"n","why":["w"],"source":"s","kind":"k","tier":1"#;
    let cases = case(
        "1",
        &format!(r#"{notes},{POLICY},"resolve":{{}},"command":"rg""#),
        "allow",
    );
    assert_eq!(test(&machine, &[], &cases).code, 0);
}

#[test]
fn expectations_can_be_wide_narrow_or_about_segments() {
    let machine = Machine::new();
    let line = |command: &str, ask: &str, expect: &str| {
        format!(
            "{{\"id\":\"{command} {ask}\",\"command\":\"{command}\",\"resolve\":{{}},\"policy\":{{\"security\":\"allowlist\",\"ask\":\"{ask}\",\"allowlist\":[\"rg\"]}},{expect}}}\n"
        )
    };
    let passing = [
        line("ls", "off", r#""expect":"miss""#),
        line("ls", "on-miss", r#""expect":"miss""#),
        line("ls", "off", r#""expect":"ask","alt_expect":"deny""#),
        line("ls", "off", r#""expect":{"verdict":"deny"}"#),
        line(
            "rg a | ls",
            "off",
            r#""expect":{"verdict":"miss","segments":[["rg","a"],{"argv":["ls"]}]}"#,
        ),
    ];
    let run = test(&machine, &[], &passing.concat());
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "5 passed, 0 failed, 0 skipped\n"),
        "{run:#?}"
    );
    let failing = [
        line("rg", "off", r#""expect":"miss""#),
        line("ls", "on-miss", r#""expect":"allow","alt_expect":"deny""#),
        line(
            "rg a",
            "off",
            r#""expect":{"verdict":"allow","segments":[["rg","b"]]}"#,
        ),
    ];
    let run = test(&machine, &[], &failing.concat());
    assert_eq!(run.code, 1);
    assert!(
        run.stdout.ends_with("0 passed, 3 failed, 0 skipped\n"),
        "{run:#?}"
    );
}

/// No file of this machine is read: the table says what there is.
#[test]
fn resolution_can_be_virtual() {
    let machine = Machine::new();
    let policy = |pattern: &str| {
        format!(
            r#""policy":{{"security":"allowlist","ask":"off","allowlist":[{{"pattern":"{pattern}"}}]}}"#
        )
    };
    let link = r#""resolve":{"py":"/usr/bin/py -> /usr/bin/py3.11"}"#;
    let own = r#""resolve":{"tool":{"found":"/home/u/bin/tool","canonical":"/home/u/opt/tool-2","kind":"script"}}"#;
    let guarded =
        r#""resolve":{"tool":{"found":"/srv/tool","canonical":"/srv/tool-2","protected":true}}"#;
    let cases = [
        case(
            "not listed",
            &format!(
                r#"{},"resolve":{{}},"command":"anything x""#,
                policy("/usr/bin/anything")
            ),
            "allow",
        ),
        case(
            "a path is itself",
            &format!(r#"{},"resolve":{{}},"command":"./x""#, policy("/home/u/x")),
            "allow",
        ),
        case(
            "home",
            &format!(r#"{},"resolve":{{}},"command":"~/x""#, policy("~/x")),
            "allow",
        ),
        case(
            "link, canonical",
            &format!(r#"{},{link},"command":"py""#, policy("/usr/bin/py3.11")),
            "allow",
        ),
        case(
            "link, as found",
            &format!(r#"{},{link},"command":"py""#, policy("/usr/bin/py")),
            "allow",
        ),
        case(
            "own link, canonical",
            &format!(r#"{},{own},"command":"tool""#, policy("/home/u/opt/tool-2")),
            "allow",
        ),
        case(
            "own link, as found",
            &format!(r#"{},{own},"command":"tool""#, policy("/home/u/bin/tool")),
            "deny",
        ),
        case(
            "guarded link, as found",
            &format!(r#"{},{guarded},"command":"tool""#, policy("/srv/tool")),
            "allow",
        ),
    ];
    let run = test(&machine, &[], &cases.concat());
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "8 passed, 0 failed, 0 skipped\n"),
        "{run:#?}"
    );
    let wrong = case(
        "x",
        &format!(r#"{POLICY},"resolve":{{"rg":{{"fund":"/x"}}}},"command":"rg""#),
        "allow",
    );
    let run = test(&machine, &[], &wrong);
    assert_eq!(run.code, 1);
    assert!(
        run.stdout
            .contains("`resolve` of `rg`: unknown field `fund`"),
        "{run:#?}"
    );
}

/// Real files in a directory of their own, gone afterwards.
#[test]
fn fixtures_are_real_files() {
    let machine = Machine::new();
    let files = r#""fs":[
        {"path":"${TMP}/bin","kind":"dir"},
        {"path":"${TMP}/bin/tool","kind":"native"},
        {"path":"${TMP}/bin/linked","kind":"symlink","target":"${TMP}/bin/tool"},
        {"path":"${TMP}/bin/plain","kind":"native","mode":"0644"},
        {"path":"${TMP}/run.sh","kind":"script","content":"echo\n"},
        {"path":"${TMP}/notes","kind":"data","content":"x"}
    ],"path":["${TMP}/bin"]"#;
    let files = files.replace('\n', " ");
    let policy = |pattern: &str| {
        format!(r#""policy":{{"security":"allowlist","ask":"on-miss","allowlist":["{pattern}"]}}"#)
    };
    let cases = [
        case(
            "by name",
            &format!(r#"{files},{},"command":"tool -x""#, policy("tool")),
            "allow",
        ),
        case(
            "by path",
            &format!(r#"{files},{},"command":"tool""#, policy("${TMP}/bin/tool")),
            "allow",
        ),
        case(
            "through a link",
            &format!(
                r#"{files},{},"command":"linked""#,
                policy("${TMP}/bin/tool")
            ),
            "allow",
        ),
        case(
            "the link's own name",
            &format!(
                r#"{files},{},"command":"linked""#,
                policy("${TMP}/bin/linked")
            ),
            "ask",
        ),
        case(
            "not executable",
            &format!(r#"{files},{},"command":"plain""#, policy("plain")),
            "ask",
        ),
        case(
            "not there",
            &format!(r#"{files},{},"command":"other""#, policy("*")),
            "ask",
        ),
        case(
            "a script",
            &format!(
                r#"{files},{},"command":"./run.sh""#,
                policy("${TMP}/run.sh")
            ),
            "allow",
        ),
        case(
            "a vector",
            &format!(
                r#"{files},{},"argv":["${{TMP}}/bin/tool","a b"]"#,
                policy("${TMP}/bin/*")
            ),
            "allow",
        ),
    ];
    let run = test(&machine, &[], &cases.concat());
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "8 passed, 0 failed, 0 skipped\n"),
        "{run:#?}"
    );
    let outside = case(
        "x",
        &format!(r#""fs":[{{"path":"${{TMP}}/../escape","kind":"dir"}}],{POLICY},"command":"rg""#),
        "ask",
    );
    let run = test(&machine, &[], &outside);
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("is not inside ${TMP}"), "{run:#?}");
}

#[test]
fn a_case_without_a_policy_is_judged_by_this_host() {
    let machine = Machine::new();
    machine.start();
    machine.know_agents(&["bot"]);
    machine.ok(&["approvals", "allowlist", "add", "--agent", "bot", "rg"]);
    let cases = [
        case(
            "bot",
            r#""agent":"bot","resolve":{},"command":"rg x""#,
            "allow",
        ),
        case("main", r#""resolve":{},"command":"rg x""#, "ask"),
    ];
    let run = test(&machine, &[], &cases.concat());
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "2 passed, 0 failed, 0 skipped\n"),
        "{run:#?}"
    );
    machine.ok(&["exec-policy", "preset", "deny-all"]);
    assert_eq!(test(&machine, &[], &cases.concat()).code, 1);
}

#[test]
fn a_command_that_nothing_can_judge_counts_as_denied() {
    let machine = Machine::new();
    let cases = [
        case(
            "nul",
            &format!(r#"{POLICY},"resolve":{{}},"command":"rg \u0000""#),
            "deny",
        ),
        case(
            "empty",
            &format!(r#"{POLICY},"resolve":{{}},"argv":[]"#),
            "miss",
        ),
        case(
            "nul in a vector",
            &format!(r#"{POLICY},"resolve":{{}},"argv":["rg","a\u0000b"]"#),
            "deny",
        ),
    ];
    let run = test(&machine, &[], &cases.concat());
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "3 passed, 0 failed, 0 skipped\n"),
        "{run:#?}"
    );
}

#[test]
fn ten_thousand_cases_run() {
    let machine = Machine::new();
    let mut cases = String::new();
    for number in 0..10_000 {
        let (program, expect) = if number % 2 == 0 {
            ("rg", "allow")
        } else {
            ("ls", "ask")
        };
        let _ = writeln!(
            cases,
            r#"{{"id":{number},{POLICY},"resolve":{{}},"command":"{program} -n {number} | head -n 3","expect":"{expect}"}}"#
        );
    }
    let run = test(&machine, &[], &cases);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "10000 passed, 0 failed, 0 skipped\n")
    );
}
