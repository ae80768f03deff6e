//! What an approver can do in `interlock approvals watch` besides yes and no: wider forms, equal plans at
//! once, a filter; and what it says of callers. And that a caller that is interrupted takes its approval
//! with it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use testkit::asking::Waiting;
use testkit::terminal::Terminal;
use testkit::{Machine, eventually};

fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine
}

fn watch(machine: &Machine, flags: &[&str]) -> Terminal {
    let mut all = vec!["approvals", "watch"];
    all.extend(flags);
    let terminal = Terminal::run(machine, &all, 120, 40);
    terminal.shows("interlock approvals:");
    terminal
}

#[test]
fn a_wider_form_of_always_is_chosen_by_its_number() {
    let machine = started();
    machine.native("tool");
    let waiting = Waiting::new(&machine, &["--", "tool build all"]);
    let terminal = watch(&machine, &[]);
    terminal.shows("tool build all");
    terminal.shows("as leading:1");
    terminal.press("jA");
    terminal.shows("always as: 1 exact  2 leading:1");
    // No form has this number, and no other key chooses one.
    terminal.press("9");
    terminal.shows("not decided");
    terminal.press("Ay");
    terminal.shows("not decided");
    terminal.press("A2");
    terminal.shows("allow-always as leading:1: y confirms");
    terminal.press("x");
    terminal.shows("not decided");
    assert_eq!(machine.pending_ids(), [waiting.id.as_str()]);
    terminal.press("A2y");
    terminal.shows("stored for agent main");
    assert_eq!(waiting.end().code, 0);
    assert_eq!(machine.verdict("tool build none"), "allow");
    assert_eq!(machine.verdict("tool deploy all"), "ask");
}

#[test]
fn a_form_that_is_not_offered_cannot_be_chosen() {
    let machine = started();
    machine.put_down(&["--", "sh -c 'echo $HOME > marker'"]);
    let terminal = watch(&machine, &[]);
    terminal.shows("is not offered");
    terminal.press("jA");
    terminal.shows("allow-always is not offered");
    terminal.press("1y");
    assert_eq!(machine.pending().len(), 1);
}

#[test]
fn a_denial_with_a_reason_tells_it_to_the_caller() {
    let machine = started();
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let terminal = watch(&machine, &[]);
    terminal.shows("touch marker");
    terminal.press("jD");
    terminal.shows("deny, because: _");
    // Keys that decide otherwise are letters here, and Escape decides nothing.
    terminal.press("oy");
    terminal.shows("deny, because: oy_");
    terminal.press("\x1b");
    terminal.shows("not decided");
    assert_eq!(machine.pending_ids(), [waiting.id.as_str()]);
    terminal.press("Duse make clean\r");
    let run = waiting.end();
    assert_eq!(run.code, 3, "{run:#?}");
    assert!(run.stderr.contains("use make clean"), "{run:#?}");
}

#[test]
fn a_reason_that_is_typed_is_for_the_approval_that_was_selected() {
    let machine = started();
    let first = machine.put_down(&["--", "touch one"]);
    let second = machine.put_down(&["--", "touch two"]);
    let terminal = watch(&machine, &[]);
    terminal.shows("2 waiting");
    terminal.press("kDno");
    terminal.shows("deny, because: no_");
    machine.ok(&["approvals", "deny", &first]);
    terminal.shows("has ended");
    terminal.press("\r");
    terminal.shows("touch two");
    assert_eq!(machine.pending()[0]["id"], second.as_str());
}

#[test]
fn equal_plans_are_decided_together_and_no_other_one_is() {
    let machine = started();
    machine.know_agents(&["ops"]);
    let first = Waiting::new(&machine, &["--", "touch marker"]);
    let other = machine.put_down(&["--", "touch other"]);
    let second = Waiting::new(&machine, &["--", "touch marker"]);
    let of_another = machine.put_down(&["--agent", "ops", "--", "touch marker"]);
    let terminal = watch(&machine, &[]);
    terminal.shows("4 waiting");
    terminal.press("k");
    terminal.shows("1 more ask the same: e");
    terminal.press("e");
    terminal.shows("decided together with 1 equal");
    // What is stored is chosen one by one.
    terminal.press("a");
    terminal.shows("others one by one");
    terminal.press("o");
    terminal.shows("allow-once for all 2 that ask the same: y confirms");
    terminal.press("y");
    terminal.shows("2 of 2 decided");
    assert_eq!((first.end().code, second.end().code), (0, 0));
    let left: Vec<String> = machine
        .pending()
        .iter()
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(left, [other, of_another]);
}

#[test]
fn one_that_comes_after_the_confirmation_was_shown_is_not_decided_with_it() {
    let machine = started();
    machine.put_down(&["--", "touch marker"]);
    machine.put_down(&["--", "touch marker"]);
    let terminal = watch(&machine, &[]);
    terminal.shows("2 waiting");
    terminal.press("ked");
    terminal.shows("deny for all 2 that ask the same: y confirms");
    let late = machine.put_down(&["--", "touch marker"]);
    terminal.shows("3 waiting");
    terminal.press("y");
    terminal.shows("2 of 2 decided");
    assert_eq!(machine.pending().len(), 1);
    assert_eq!(machine.pending()[0]["id"], late.as_str());
}

#[test]
fn a_filter_shows_a_part_and_decides_only_that() {
    let machine = started();
    machine.know_agents(&["ops"]);
    machine.put_down(&["--", "touch one"]);
    let of_ops = machine.put_down(&["--agent", "ops", "--", "touch two"]);
    let terminal = watch(&machine, &[]);
    terminal.shows("2 waiting");
    terminal.press("/agent:ops\r");
    terminal.shows("1 waiting of 2 (filter: agent:ops)");
    terminal.until("the other one is hidden", |picture| {
        !picture.rows.join("\n").contains("touch one")
    });
    terminal.press("jo");
    eventually("decided", || machine.pending().len() == 1);
    assert_eq!(
        machine
            .run_approved(&of_ops, &["--agent", "ops", "--", "touch two"])
            .code,
        0
    );
    terminal.shows("0 waiting of 1");
    terminal.shows("nothing that waits fits the filter");
    // Keys that decide find nothing that they could decide.
    terminal.press("oyd");
    assert_eq!(machine.pending().len(), 1);
    terminal.press("/\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7fONE\r");
    terminal.shows("1 waiting of 1 (filter: ONE)");
    terminal.shows("touch one");
    // Escape leaves the filter as it is.
    terminal.press("/\x7f");
    terminal.shows("filter: ON_");
    terminal.press("\x1b");
    terminal.shows("1 waiting of 1 (filter: ONE)");
}

#[test]
fn the_caller_is_named_and_it_is_seen_when_it_has_gone() {
    let machine = started();
    let mut waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let terminal = watch(&machine, &[]);
    let caller = format!("a command on this machine (process {})", waiting.child.id());
    terminal.shows(&caller);
    terminal.shows("agent:main:main");
    assert!(!terminal.text().contains("gone"), "{}", terminal.text());
    waiting.child.kill().unwrap();
    waiting.child.wait().unwrap();
    terminal.shows("(caller gone) touch marker");
    terminal.shows("the caller has gone: nothing waits for this");
    // The approver who allows it is told that nothing runs by that, and how it would.
    let id = &waiting.id;
    let run = machine.ok(&["approvals", "approve", id]);
    assert!(
        run.stderr
            .contains(&format!("nothing waits for {id} any more")),
        "{run:#?}"
    );
    assert!(!machine.work().join("marker").exists());
    assert_eq!(machine.run_approved(id, &["--", "touch marker"]).code, 0);
    assert!(machine.work().join("marker").exists());
}

#[test]
fn an_approval_that_is_waited_for_is_approved_without_a_warning() {
    let machine = started();
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let answer = machine.ok(&["approvals", "approve", &waiting.id, "--json"]);
    assert_eq!(answer.json()["awaited"], true);
    assert_eq!(waiting.end().code, 0);
    let id = machine.put_down(&["--", "touch other"]);
    let answer = machine.ok(&["approvals", "approve", &id, "--json"]);
    assert_eq!(answer.json()["awaited"], false);
}

#[test]
fn the_bell_rings_for_what_comes_and_not_for_what_was_there() {
    let machine = started();
    machine.put_down(&["--", "touch before"]);
    let terminal = watch(&machine, &[]);
    terminal.shows("1 waiting");
    assert_eq!(terminal.bells(), 0);
    machine.put_down(&["--", "touch after"]);
    terminal.shows("2 waiting");
    eventually("the bell", || terminal.bells() == 1);
    drop(terminal);
    let quiet = watch(&machine, &["--no-bell", "--filter", "agent:main"]);
    machine.put_down(&["--", "touch later"]);
    quiet.shows("3 waiting");
    assert_eq!(quiet.bells(), 0);
}

#[test]
fn a_program_of_the_owner_is_started_with_the_ids_alone() {
    let machine = started();
    let notify = machine.script(
        "notify.sh",
        "#!/bin/sh\necho \"$# $INTERLOCK_APPROVAL $INTERLOCK_APPROVAL_AGENT $INTERLOCK_APPROVALS_WAITING\" > \"$HOME/told.new\"\nenv > \"$HOME/env\"\nmv \"$HOME/told.new\" \"$HOME/told\"\n",
    );
    let notify = notify.to_str().unwrap();
    machine.put_down(&["--", "touch before"]);
    let terminal = watch(&machine, &["--notify-command", notify]);
    terminal.shows("1 waiting");
    let told = machine.root().join("home/told");
    assert!(!told.exists());
    let id = machine.put_down(&["--", "touch '$(touch injected)'"]);
    let short = machine
        .pending()
        .iter()
        .find(|one| one["id"] == id.as_str())
        .map(|one| one["shortId"].as_str().unwrap().to_owned())
        .unwrap();
    let expected = format!("0 {short} main 2\n");
    assert_eq!(testkit::written(&told), expected);
    // Nothing that an agent writes reaches it.
    let environment = fs::read_to_string(machine.root().join("home/env")).unwrap();
    assert!(!environment.contains("injected"), "{environment}");
    drop(terminal);
    let terminal = watch(&machine, &["--notify-command", "/no/such/program"]);
    machine.put_down(&["--", "touch third"]);
    terminal.shows("--notify-command: ");
}

#[test]
fn ctrl_c_withdraws_what_exec_waits_for() {
    let machine = started();
    let mut terminal = Terminal::run(&machine, &["exec", "--", "touch marker"], 120, 40);
    terminal.shows("then Enter:");
    assert_eq!(machine.pending().len(), 1);
    terminal.press("\x03");
    terminal.shows("is withdrawn");
    assert_eq!(terminal.exit_code(), Some(130));
    assert_eq!(machine.pending(), Vec::<serde_json::Value>::new());
    assert!(!machine.work().join("marker").exists());
}

#[test]
fn ctrl_c_withdraws_what_apply_patch_waits_for() {
    let machine = started();
    let patch = machine.file(
        "work/change.patch",
        "*** Begin Patch\n*** Add File: .git/hooks/pre-commit\n+#!/bin/sh\n*** End Patch\n",
    );
    fs::create_dir_all(machine.work().join(".git/hooks")).unwrap();
    let patch = patch.to_str().unwrap();
    let mut terminal = Terminal::run(&machine, &["apply-patch", patch], 120, 40);
    terminal.shows("then Enter:");
    assert_eq!(machine.pending().len(), 1);
    terminal.press("\x03");
    terminal.shows("is withdrawn");
    assert_eq!(terminal.exit_code(), Some(130));
    assert_eq!(machine.pending(), Vec::<serde_json::Value>::new());
    assert!(!machine.work().join(".git/hooks/pre-commit").exists());
}
