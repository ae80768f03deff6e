//! A busy day: what is mistyped, missing, empty or too long says what it is and what to do next.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::{Machine, is_root};

fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine
}

#[test]
fn reading_an_unknown_key_names_the_nearest_one() {
    let machine = started();
    for action in ["get", "unset"] {
        let run = machine.run(&["config", action, "tools.exec.aks"]);
        run.refused(1, "UNKNOWN_KEY");
        assert!(run.stderr.contains("did you mean `ask`?"), "{run:#?}");
        let known = machine.run(&["config", action, "tools.exec.ask"]);
        known.refused(1, "CONFIG_KEY_NOT_SET");
    }
}

#[test]
fn a_number_beyond_all_ranges_is_called_too_large() {
    let machine = started();
    let number = "99999999999999999999999";
    let run = machine.run(&["config", "set", "tools.exec.timeoutSec", number]);
    run.refused(1, "WRONG_TYPE");
    assert!(run.stderr.contains("too large"), "{run:#?}");
    assert!(!run.stderr.contains("fraction"), "{run:#?}");
}

#[test]
fn a_named_config_that_is_missing_is_an_error_and_can_be_begun() {
    let machine = started();
    let path = machine.root().join("other.json");
    let path = path.to_str().unwrap();
    for command in [
        &["status"][..],
        &["exec", "--", "ls"],
        &["explain", "--", "ls"],
    ] {
        let mut all = vec!["--config", path];
        all.extend(command);
        machine.run(&all).refused(1, "CONFIG_MISSING");
    }
    machine
        .run(&["config", "validate", path])
        .refused(1, "CONFIG_MISSING");
    machine.ok(&[
        "--config",
        path,
        "config",
        "set",
        "tools.exec.ask",
        "on-miss",
    ]);
    machine.ok(&["--config", path, "explain", "--", "ls"]);
}

#[test]
fn empty_lists_say_what_to_do_next_and_print_no_data() {
    let machine = started();
    for (command, next) in [
        (&["approvals", "pending"][..], "interlock approvals watch"),
        (
            &["approvals", "grants"],
            "interlock approvals approve ID --session",
        ),
        (
            &["process", "list"],
            "interlock exec --background -- COMMAND",
        ),
        (&["deny", "list"], "interlock deny add PROGRAM"),
        (&["sandbox", "list"], "a sandboxed run makes them"),
        (
            &["events", "--session", "agent:main:main"],
            "agent:main:main",
        ),
        (&["policy", "suggest"], "approved at least twice"),
    ] {
        let run = machine.ok(command);
        assert!(run.stderr.contains(next), "{command:?}: {run:#?}");
        let has_summary = command == ["policy", "suggest"];
        assert_eq!(run.stdout.is_empty(), !has_summary, "{command:?}: {run:#?}");
    }
    machine
        .run(&["events", "--session", ""])
        .refused(2, "SESSION_KEY_INVALID");
}

#[test]
fn a_list_of_no_rows_is_wrong_usage() {
    let machine = started();
    for command in [
        &["audit", "log"][..],
        &["sandbox", "net"],
        &["policy", "replay"],
        &["policy", "suggest"],
        &["process", "list"],
        &["approvals", "pending"],
    ] {
        let mut all = command.to_vec();
        all.extend(["--limit", "0"]);
        let run = machine.run(&all);
        assert_eq!(run.code, 2, "{command:?}: {run:#?}");
    }
}

#[test]
fn a_replay_that_reads_only_a_part_says_so() {
    let machine = started();
    for _ in 0..3 {
        machine.ok(&["exec", "--", "true"]);
    }
    let part = machine.ok(&["policy", "replay", "--limit", "2"]);
    assert!(
        part.stderr.contains("only the newest 2 verdicts"),
        "{part:#?}"
    );
    let whole = machine.ok(&["policy", "replay"]);
    assert_eq!(whole.stderr, "", "{whole:#?}");
}

#[test]
fn removing_by_pattern_leaves_the_base_and_templates() {
    let machine = Machine::new();
    machine.ok(&["policy", "base", "restore"]);
    machine.ok(&["approvals", "allowlist", "add", "--arg=fetch", "git"]);
    let run = machine.ok(&["approvals", "allowlist", "remove", "git"]);
    assert_eq!(run.stdout.lines().count(), 1, "{run:#?}");
    assert!(run.stderr.contains("left: 1 of the base"), "{run:#?}");
    let of_base = |machine: &Machine| {
        let (document, _) = machine.document();
        let list = document["agents"]["*"]["allowlist"]
            .as_array()
            .unwrap()
            .clone();
        list.iter().any(|entry| entry["id"] == "base-git")
    };
    assert!(of_base(&machine));
    // Alone it can be named by its pattern.
    machine.ok(&["approvals", "allowlist", "remove", "git"]);
    assert!(!of_base(&machine));
}

#[test]
fn a_template_that_was_not_applied_cannot_be_removed() {
    let machine = started();
    fs::write(machine.work().join("go.mod"), "module x\n").unwrap();
    machine.ok(&["policy", "template", "apply", "go"]);
    let before = machine.document();
    // It shares entries for git and files with the one that is applied.
    let run = machine.run(&["policy", "template", "remove", "rust"]);
    assert_eq!(run.code, 1, "{run:#?}");
    assert_eq!(machine.document(), before);
    machine.ok(&["policy", "template", "remove", "go"]);
}

#[test]
fn entries_of_a_template_are_no_findings_of_the_audit() {
    let machine = started();
    machine.ok(&["policy", "template", "apply", "node"]);
    machine.ok(&["approvals", "allowlist", "add", "/usr/bin/env"]);
    let audit = machine.ok(&["security", "audit", "--json"]).json();
    let findings = audit["findings"].as_array().unwrap();
    let about: Vec<&str> = findings
        .iter()
        .filter(|finding| {
            finding["id"]
                .as_str()
                .unwrap()
                .starts_with("approvals.entry_")
        })
        .map(|finding| finding["what"].as_str().unwrap())
        .collect();
    assert_eq!(about.len(), 1, "{audit:#}");
    assert!(about[0].contains("/usr/bin/env"), "{audit:#}");
    assert!(!about[0].contains("git"), "{audit:#}");
}

#[test]
fn many_unused_entries_say_how_many_the_fix_leaves() {
    let machine = started();
    for number in 0..12 {
        let argument = format!("--arg={number}");
        machine.ok(&["approvals", "allowlist", "add", &argument, "/usr/bin/env"]);
    }
    let audit = machine.ok(&["security", "audit"]);
    assert!(audit.stdout.contains("for 2 more"), "{audit:#?}");
}

#[test]
fn one_long_pattern_does_not_pad_every_row() {
    let machine = started();
    let long = "x".repeat(300);
    machine.ok(&["approvals", "allowlist", "add", "--arg", &long, "cat"]);
    machine.ok(&["approvals", "allowlist", "add", "--arg=a", "tsort"]);
    let listed = machine.ok(&["approvals", "allowlist", "list"]).stdout;
    let row = listed.lines().find(|line| line.contains("tsort")).unwrap();
    assert!(row.len() < 160, "{row}");
}

#[test]
fn an_entry_for_one_command_is_told_in_words() {
    let machine = started();
    let id = machine.run(&["exec", "--no-wait", "--json", "--", "touch marker"]);
    let id = id.json()["shortId"].as_str().unwrap().to_owned();
    let shown = machine.ok(&["approvals", "pending", &id]);
    let words = "exactly the approved arguments, in the directory of the approval";
    assert!(shown.stdout.contains(words), "{shown:#?}");
    assert!(!shown.stdout.contains("sha256:cwd-argv"), "{shown:#?}");
    machine.ok(&["approvals", "approve", &id, "--always"]);
    let listed = machine.ok(&["approvals", "allowlist", "list"]);
    assert!(listed.stdout.contains(words), "{listed:#?}");
}

#[test]
fn errors_of_the_system_come_without_numbers_and_with_a_hint() {
    let machine = started();
    for command in [
        &["policy", "test", "/nonexistent"][..],
        &["apply-patch", "/nonexistent"],
        &["approvals", "set", "--file", "/nonexistent"],
        &["import", "openclaw", "--from", "/nonexistent"],
    ] {
        let run = machine.run(command);
        assert!(run.stderr.contains("No such file or directory"), "{run:#?}");
        assert!(!run.stderr.contains("os error"), "{run:#?}");
        assert!(run.stderr.contains("\nhint: "), "{run:#?}");
    }
    let run = machine.run(&["approvals", "approve", "zzzzz"]);
    run.refused(1, "APPROVAL_NOT_FOUND");
    assert!(
        run.stderr.contains("interlock approvals pending"),
        "{run:#?}"
    );
}

/// A file system of three megabytes, unmounted at the end.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(path: &'a Path) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs"])
            .arg(path);
        mount
            .status()
            .is_ok_and(|status| status.success())
            .then_some(Self(path))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_is_called_a_full_disk() {
    if !is_root() {
        println!("skipped: only root mounts a small file system");
        return;
    }
    let machine = Machine::new();
    let path = machine.root().join("small");
    let Some(_disk) = SmallDisk::mount(&path) else {
        println!("skipped: mounting is not allowed here");
        return;
    };
    let state = path.join("state");
    let state = state.to_str().unwrap();
    machine.ok(&["--state-dir", state, "explain", "--", "ls"]);
    // The copy ends when nothing fits any more.
    let _ = std::io::copy(
        &mut std::io::repeat(0),
        &mut fs::File::create(path.join("fill")).unwrap(),
    );
    for command in [&["approvals", "pending"][..], &["explain", "--", "ls"]] {
        let mut all = vec!["--state-dir", state];
        all.extend(command);
        let run = machine.run(&all);
        if run.code != 0 {
            run.refused(1, "STORE_DISK_FULL");
        }
    }
    let run = machine.run(&["--state-dir", state, "approvals", "allowlist", "add", "rg"]);
    run.refused(1, "STORE_DISK_FULL");
}

#[test]
fn what_was_given_eight_hours_has_eight_hours() {
    let machine = started();
    let added = machine.ok(&["approvals", "allowlist", "add", "--expires-in", "8h", "rg"]);
    assert!(added.stdout.contains("for 8h more"), "{added:#?}");
}

#[test]
fn a_gateway_in_the_background_is_restarted_without_a_service() {
    let machine = started();
    machine.ok(&["nodes", "list"]);
    let pid =
        |machine: &Machine| machine.ok(&["gateway", "status", "--json"]).json()["pid"].clone();
    let before = pid(&machine);
    machine.ok(&["config", "set", "gateway.tls.enabled", "true"]);
    let restarted = machine.ok(&["gateway", "restart"]);
    assert!(
        restarted.stderr.contains("started a gateway"),
        "{restarted:#?}"
    );
    assert_ne!(pid(&machine), before);
    let status = machine.ok(&["gateway", "status", "--json"]).json();
    assert!(status["tlsFingerprint"].is_string(), "{status:#}");
    machine.ok(&["gateway", "stop"]);
}

/// Commands, groups of commands among them, whose help has no example.
fn without_example(command: &clap::Command, path: &str, found: &mut Vec<String>) {
    let path = format!("{path} {}", command.get_name());
    let after = command.get_after_help().map(ToString::to_string);
    if !after.unwrap_or_default().contains("Example") && !command.is_hide_set() {
        found.push(path.clone());
    }
    for inner in command.get_subcommands() {
        without_example(inner, &path, found);
    }
}

#[test]
fn every_help_has_an_example() {
    let mut found = Vec::new();
    without_example(&interlock::reference::command_line(), "", &mut found);
    assert_eq!(found, Vec::<String>::new());
}
