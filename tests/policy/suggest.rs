//! Rules from what approvers allowed: narrow ones, checked against the history, and written only when
//! accepted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use testkit::Machine;

/// Without the starter entries, so that every command asks.
fn cautious() -> Machine {
    let machine = Machine::new();
    machine.start();
    let set = machine
        .set_document(r#"{ version: 1, defaults: { security: "allowlist", ask: "on-miss" } }"#);
    assert_eq!(set.code, 0, "{set:#?}");
    machine
}

fn approve(machine: &Machine, command: &str) {
    let id = machine.approved(&["--", command]);
    let run = machine.run_approved(&id, &["--", command]);
    assert_eq!(run.code, 0, "{run:#?}");
}

fn deny(machine: &Machine, command: &str) {
    let id = machine.put_down(&["--", command]);
    machine.ok(&["approvals", "deny", &id]);
}

fn suggest(machine: &Machine, flags: &[&str]) -> Value {
    let all = [&["policy", "suggest", "--json"], flags].concat();
    machine.ok(&all).json()
}

fn rules(found: &Value) -> Vec<String> {
    let rules = found["suggestions"].as_array().unwrap().iter();
    rules
        .map(|one| one["allows"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_habit_becomes_the_narrowest_rule_for_its_directory() {
    let machine = cautious();
    let work = machine.work().display().to_string();
    for command in ["git commit -m one", "git commit -m two", "git push"] {
        approve(&machine, command);
    }
    let found = suggest(&machine, &[]);
    let expected = format!("`git commit -m` with any further arguments in {work}");
    assert_eq!(rules(&found), [expected]);
    assert_eq!(found["approvals"], 3);
    let rule = &found["suggestions"][0];
    assert_eq!(rule["approvals"], 2);
    assert_eq!(rule["promptsSaved"], 2);
    assert_eq!(rule["entry"]["args"], json!(["commit", "-m", "**"]));
    assert_eq!(rule["entry"]["cwd"], work);
    assert_eq!(rule["newlyAllowed"], json!([]));
    // Nothing was written.
    assert_eq!(machine.verdict("git commit -m three"), "ask");

    let id = rule["id"].as_str().unwrap();
    let unknown = machine.run(&["policy", "suggest", "--accept", id, "--accept", "00000000"]);
    unknown.refused(1, "SUGGESTION_UNKNOWN");
    assert_eq!(machine.verdict("git commit -m three"), "ask");
    machine.ok(&["policy", "suggest", "--accept", id]);
    assert_eq!(machine.verdict("git commit -m three"), "allow");
    assert_eq!(machine.verdict("git push"), "ask");
    assert_eq!(machine.verdict("git commit --amend"), "ask");
    let elsewhere = machine.explain(&["--cwd", "/", "--", "git commit -m three"]);
    assert_eq!(elsewhere["verdict"], "ask");
    // What is allowed now is no habit of approvers any more.
    assert_eq!(rules(&suggest(&machine, &[])), Vec::<String>::new());
}

#[test]
fn the_same_command_twice_becomes_a_rule_for_exactly_it() {
    let machine = cautious();
    approve(&machine, "rg -n TODO");
    approve(&machine, "rg -n TODO");
    let found = suggest(&machine, &[]);
    let work = machine.work().display().to_string();
    assert_eq!(rules(&found), [format!("exactly `rg -n TODO` in {work}")]);
    machine.ok(&["policy", "suggest", "--accept-all"]);
    assert_eq!(machine.verdict("rg -n TODO"), "allow");
    assert_eq!(machine.verdict("rg -n FIXME"), "ask");
}

#[test]
fn the_commands_of_a_line_are_habits_of_their_own() {
    let machine = cautious();
    approve(&machine, "git add -A && git commit -m one");
    approve(&machine, "git add -A && git commit -m two");
    let found = suggest(&machine, &[]);
    assert_eq!(rules(&found).len(), 2, "{found:#}");
    assert_eq!(found["promptsSaved"], 2);
    machine.ok(&["policy", "suggest", "--accept-all"]);
    assert_eq!(
        machine.verdict("git add -A && git commit -m three"),
        "allow"
    );
}

#[test]
fn no_rule_allows_what_an_approver_denied() {
    let machine = cautious();
    approve(&machine, "git push origin one");
    approve(&machine, "git push origin two");
    deny(&machine, "git push origin main");
    // The denial counts also where it is not among the verdicts that are judged again.
    machine.put_down(&["--", "rg later"]);
    let few = suggest(&machine, &["--limit", "1"]);
    assert_eq!(rules(&few), Vec::<String>::new(), "{few:#}");
    let found = suggest(&machine, &[]);
    assert_eq!(rules(&found), Vec::<String>::new(), "{found:#}");
    let left_out = found["leftOut"].as_object().unwrap();
    assert!(
        left_out
            .keys()
            .any(|why| why.contains("an approver denied")),
        "{found:#}"
    );
}

#[test]
fn what_else_the_history_holds_is_told() {
    let machine = cautious();
    approve(&machine, "git fetch one");
    approve(&machine, "git fetch two");
    // Asked about, and decided by no approver.
    machine.put_down(&["--", "git fetch three"]);
    let found = suggest(&machine, &[]);
    let rule = &found["suggestions"][0];
    assert_eq!(
        rule["newlyAllowed"],
        json!(["git fetch three"]),
        "{found:#}"
    );
}

#[test]
fn nothing_is_proposed_for_text_and_programs_that_start_others() {
    let machine = cautious();
    for _ in 0..2 {
        approve(&machine, "for a in 1 2; do git log $a; done");
        approve(&machine, "python3 -c 'print(1)'");
    }
    let found = suggest(&machine, &[]);
    assert_eq!(rules(&found), Vec::<String>::new(), "{found:#}");
    assert_eq!(found["approvals"], 4);
}

#[test]
fn the_approvals_of_other_agents_do_not_count() {
    let machine = cautious();
    approve(&machine, "rg one");
    approve(&machine, "rg one");
    assert_eq!(rules(&suggest(&machine, &["--agent", "main"])).len(), 1);
    let listed = machine.ok(&["policy", "suggest"]);
    assert!(listed.stdout.contains("exactly `rg one`"), "{listed:#?}");
    assert!(listed.stderr.contains("--accept-all"), "{listed:#?}");
    let slip = machine.run(&["policy", "suggest", "--agent", "othre"]);
    slip.refused(2, "AGENT_UNKNOWN");
    machine.know_agents(&["other"]);
    machine.approved(&["--agent", "other", "--", "rg one"]);
    let others = suggest(&machine, &["--agent", "other"]);
    assert_eq!(others["approvals"], 1);
    assert_eq!(rules(&others), Vec::<String>::new());
}
