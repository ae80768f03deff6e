//! The history under another policy.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use testkit::{Machine, Run};

/// Allowed: `rg x`, twice. Asked: `ls`. Denied: `git push`.
fn with_history() -> Machine {
    let machine = Machine::new();
    machine.start();
    let set = machine.set_document(
        r#"{ version: 1, defaults: { security: "allowlist", ask: "on-miss", deny: [{ pattern: "git" }] },
            agents: { "*": { allowlist: ["rg"] } } }"#,
    );
    assert_eq!(set.code, 0, "{set:#?}");
    for _ in 0..2 {
        assert_eq!(machine.exec("rg x").code, 0);
    }
    machine.exec("ls").refused(3, "APPROVAL_PENDING");
    machine.exec("git push").refused(3, "EXEC_DENIED");
    machine
}

fn replay(machine: &Machine, arguments: &[&str], exit: i32) -> Value {
    let mut all = vec!["policy", "replay", "--json"];
    all.extend(arguments);
    let run = machine.run(&all);
    assert_eq!(run.code, exit, "{run:#?}");
    run.json()
}

fn with(machine: &Machine, document: &str, arguments: &[&str]) -> Run {
    machine.file("proposed.json5", document);
    let file = machine.root().join("proposed.json5").display().to_string();
    let mut all = vec!["policy", "replay", "--with", &file];
    all.extend(arguments);
    machine.run(&all)
}

#[test]
fn nothing_changes_while_the_policy_stays() {
    let machine = with_history();
    let replayed = replay(&machine, &[], 0);
    assert_eq!(replayed["judged"], 4);
    assert_eq!(replayed["changes"], json!([]));
    let (_, hash) = machine.document();
    let head = machine.ok(&["audit", "head"]).stdout;
    replay(&machine, &["--since", "1h", "--limit", "2"], 0);
    // A question about the past is no part of it.
    assert_eq!(machine.ok(&["audit", "head"]).stdout, head);
    assert_eq!(machine.document().1, hash);
}

#[test]
fn a_proposed_document_shows_what_it_would_change() {
    let machine = with_history();
    let loose = r#"{ version: 1, defaults: { security: "allowlist", ask: "on-miss" },
        agents: { "*": { allowlist: ["rg", "ls", "git"] } } }"#;
    let run = with(&machine, loose, &["--json"]);
    assert_eq!(run.code, 4, "{run:#?}");
    let replayed = run.json();
    assert_eq!(replayed["promptsSaved"], 1);
    assert_eq!(replayed["newlyAllowed"], 1);
    assert_eq!(replayed["newlyRefused"], 0);
    let changes = replayed["changes"].as_array().unwrap();
    let commands: Vec<&Value> = changes.iter().map(|change| &change["command"]).collect();
    assert_eq!(commands, ["ls", "git push"]);
    assert_eq!(changes[1]["before"], "deny");
    assert!(
        changes[1]["beforeReason"]
            .as_str()
            .unwrap()
            .contains("deny rule")
    );
    assert_eq!(changes[1]["after"], "allow");
    assert_eq!(changes[1]["afterReason"], "entry `git`");
    // It was a proposal.
    assert_eq!(machine.verdict("git push"), "deny");
    let strict = r#"{ version: 1, defaults: { security: "allowlist", ask: "on-miss", deny: [{ pattern: "git" }] } }"#;
    let run = with(&machine, strict, &[]);
    assert_eq!(run.code, 3, "{run:#?}");
    for part in [
        "stricter",
        "allow -> ask",
        "rg x",
        "2 times",
        "4 judged: 0 prompts saved, 0 newly allowed, 2 newly asked, 0 newly refused",
    ] {
        assert!(run.stdout.contains(part), "{part}: {run:#?}");
    }
    let both = r#"{ version: 1, defaults: { security: "allowlist", ask: "off", deny: [{ pattern: "rg" }] },
        agents: { "*": { allowlist: ["git"] } } }"#;
    assert_eq!(with(&machine, both, &[]).code, 4);
}

#[test]
fn the_present_policy_is_the_proposal_where_none_is_named() {
    let machine = with_history();
    machine.ok(&["approvals", "allowlist", "add", "ls"]);
    let replayed = replay(&machine, &[], 4);
    assert_eq!(replayed["promptsSaved"], 1);
    machine.ok(&["exec-policy", "set", "--security", "deny"]);
    let replayed = replay(&machine, &["--agent", "main"], 3);
    assert_eq!(replayed["newlyRefused"], 3);
    let unknown = machine.run(&["policy", "replay", "--agent", "mian"]);
    unknown.refused(2, "AGENT_UNKNOWN");
    assert!(
        unknown.stderr.contains("did you mean `main`"),
        "{unknown:#?}"
    );
    machine.know_agents(&["other"]);
    assert_eq!(replay(&machine, &["--agent", "other"], 0)["judged"], 0);
}

#[test]
fn an_argument_vector_and_the_ask_of_the_call_are_judged_as_they_were() {
    let machine = with_history();
    let run = machine.run(&["exec", "--argv", "--", "rg", "$HOME; id"]);
    assert_eq!(run.code, 0, "{run:#?}");
    let asked = machine.run(&["exec", "--no-wait", "--ask", "always", "--", "rg y"]);
    asked.refused(3, "APPROVAL_PENDING");
    assert_eq!(replay(&machine, &[], 0)["judged"], 6);
}

#[test]
fn what_the_audit_does_not_hold_whole_is_left_out_and_counted() {
    let machine = with_history();
    let secret = "rg --token=sk-live-abcdefghijklmnopqrstuvwxyz0123456789";
    assert_eq!(machine.exec(secret).code, 0);
    let replayed = replay(&machine, &[], 0);
    assert_eq!(replayed["judged"], 4);
    let left_out = replayed["leftOut"].as_object().unwrap();
    assert_eq!(left_out.values().collect::<Vec<_>>(), [&json!(1)]);
}

#[test]
fn a_document_that_is_none_is_refused() {
    let machine = with_history();
    with(&machine, "{ version: 2 }", &[]).refused(1, "DOCUMENT_INVALID");
    let run = machine.run(&["policy", "replay", "--with", "/nowhere.json5"]);
    run.refused(1, "DOCUMENT_UNREADABLE");
}
