//! Between an approval and its run: whatever changed ends it, and is named.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use testkit::Machine;

/// Approves a command, changes something, and expects the run to be refused with these words.
#[track_caller]
fn drifts(
    prepare: impl Fn(&Machine),
    command: &str,
    change: impl Fn(&Machine),
    says: impl Fn(&Machine) -> String,
) {
    let machine = Machine::new();
    machine.start();
    prepare(&machine);
    let id = machine.approved(&["--", command]);
    change(&machine);
    let run = machine.run_approved(&id, &["--", command]);
    run.refused(3, "APPROVAL_DRIFT");
    let says = says(&machine);
    assert!(run.stderr.contains(&says), "{says}: {run:#?}");
    assert!(!machine.work().join("marker").exists());
    // It is over: not even what it was before runs under this id.
    let again = machine.run_approved(&id, &["--", command]);
    again.refused(1, "APPROVAL_USED");
    assert!(!machine.work().join("marker").exists());
}

fn script(machine: &Machine) {
    machine.script("work/x.sh", "touch marker\n");
}

fn path(machine: &Machine, name: &str) -> String {
    machine.root().join(name).display().to_string()
}

/// Another file under this name; the old one is gone.
fn replace(machine: &Machine, from: &Path, name: &str) {
    let new = machine.root().join("new-file");
    testkit::copy(from, &new);
    fs::rename(new, machine.root().join(name)).unwrap();
}

#[test]
fn a_script_that_was_edited() {
    drifts(
        script,
        "bash x.sh",
        |machine| fs::write(machine.work().join("x.sh"), "touch marker; id\n").unwrap(),
        |machine| format!("{} was changed", path(machine, "work/x.sh")),
    );
}

#[test]
fn a_script_that_was_replaced() {
    drifts(
        script,
        "./x.sh",
        |machine| replace(machine, &machine.work().join("x.sh"), "work/x.sh"),
        |machine| format!("{} is another file now", path(machine, "work/x.sh")),
    );
}

#[test]
fn a_script_that_is_gone() {
    drifts(
        script,
        "bash x.sh",
        |machine| fs::remove_file(machine.work().join("x.sh")).unwrap(),
        |machine| format!("{} is gone", path(machine, "work/x.sh")),
    );
}

#[test]
fn a_link_that_leads_elsewhere() {
    drifts(
        |machine| {
            script(machine);
            machine.script("work/y.sh", "touch marker\n");
            symlink("x.sh", machine.work().join("link")).unwrap();
        },
        "bash link",
        |machine| {
            symlink("y.sh", machine.work().join("new-link")).unwrap();
            fs::rename(machine.work().join("new-link"), machine.work().join("link")).unwrap();
        },
        |machine| format!("{} leads to ", path(machine, "work/link")),
    );
}

#[test]
fn a_working_directory_that_was_exchanged() {
    drifts(
        |_| {},
        "touch marker",
        |machine| {
            fs::rename(machine.work(), machine.root().join("old-work")).unwrap();
            fs::create_dir(machine.work()).unwrap();
        },
        |machine| format!("{} is another file now", path(machine, "work")),
    );
}

#[test]
fn a_program_that_comes_earlier_in_the_path_now() {
    drifts(
        |_| {},
        "touch marker",
        |machine| drop(machine.native("touch")),
        |machine| format!("{} is there now", path(machine, "bin/touch")),
    );
}

#[test]
fn an_interpreter_that_was_replaced() {
    drifts(
        |machine| drop(machine.file("work/x.py", "open('marker', 'w')\n")),
        "python3 x.py",
        |machine| replace(machine, &machine.bin().join("ls"), "bin/python3"),
        |machine| format!("{} is another file now", path(machine, "bin/python3")),
    );
}

#[test]
fn a_policy_that_became_stricter() {
    let tightenings: [&dyn Fn(&Machine); 3] = [
        &|machine| drop(machine.ok(&["exec-policy", "set", "--security", "deny"])),
        &|machine| {
            let set = machine.set_document(
                r#"{ version: 1, defaults: { security: "allowlist", ask: "on-miss" },
                    agents: { "*": { deny: [{ pattern: "touch" }] } } }"#,
            );
            assert_eq!(set.code, 0);
        },
        &|machine| drop(machine.ok(&["config", "set", "tools.deny", "['exec']"])),
    ];
    for tighten in tightenings {
        drifts(
            |_| {},
            "touch marker",
            tighten,
            |_| "the policy became stricter".to_owned(),
        );
    }
}

#[test]
fn a_way_for_unbound_code_that_was_closed() {
    drifts(
        |machine| drop(machine.ok(&["config", "set", "tools.exec.unboundApprovals", "ask"])),
        "echo touch marker | sh",
        |machine| drop(machine.ok(&["config", "unset", "tools.exec.unboundApprovals"])),
        |_| "the policy became stricter".to_owned(),
    );
}

#[test]
fn what_changes_nothing_for_the_plan_is_no_drift() {
    for change in [
        &["approvals", "allowlist", "add", "rg"][..],
        &["approvals", "allowlist", "add", "touch"],
        &["exec-policy", "set", "--ask", "always"],
        &["exec-policy", "preset", "yolo"],
        &["config", "set", "tools.exec.strictInlineEval", "true"],
    ] {
        let machine = Machine::new();
        machine.start();
        let id = machine.approved(&["--", "touch marker"]);
        machine.ok(change);
        machine.file("work/another-file", "");
        let run = machine.run_approved(&id, &["--", "touch marker"]);
        assert_eq!(run.code, 0, "{change:?}: {run:#?}");
        assert!(machine.work().join("marker").exists());
    }
}

/// Approved in a directory that a `cd` enters.
fn below(machine: &Machine) {
    fs::create_dir(machine.work().join("sub")).unwrap();
    fs::create_dir(machine.work().join("other")).unwrap();
    fs::write(machine.work().join("other/marker-source"), "").unwrap();
}

#[test]
fn a_directory_that_a_cd_enters_and_that_was_exchanged() {
    drifts(
        below,
        "cd sub && touch ../marker",
        |machine| {
            let work = machine.work();
            fs::rename(work.join("sub"), work.join("old-sub")).unwrap();
            fs::rename(work.join("other"), work.join("sub")).unwrap();
        },
        |machine| format!("{} is another file now", path(machine, "work/sub")),
    );
}

#[test]
fn a_directory_that_a_cd_enters_and_that_is_a_link_now() {
    drifts(
        below,
        "cd sub && touch ../marker",
        |machine| {
            let work = machine.work();
            fs::rename(work.join("sub"), work.join("old-sub")).unwrap();
            symlink("other", work.join("sub")).unwrap();
        },
        |machine| format!("{} leads to ", path(machine, "work/sub")),
    );
}

#[test]
fn a_link_to_the_directory_of_a_cd_that_leads_elsewhere() {
    drifts(
        |machine| {
            below(machine);
            symlink("sub", machine.work().join("current")).unwrap();
        },
        "cd current && touch ../marker",
        |machine| {
            let work = machine.work();
            symlink("other", work.join("next")).unwrap();
            fs::rename(work.join("next"), work.join("current")).unwrap();
        },
        |machine| format!("{} leads to ", path(machine, "work/current")),
    );
}

#[test]
fn a_directory_of_a_cd_in_a_nested_text_and_behind_another_cd() {
    drifts(
        |machine| fs::create_dir_all(machine.work().join("a/b")).unwrap(),
        "cd a && sh -c 'cd b && touch ../../marker'",
        |machine| {
            let work = machine.work();
            fs::rename(work.join("a/b"), work.join("a/old")).unwrap();
            fs::create_dir(work.join("a/b")).unwrap();
        },
        |machine| format!("{} is another file now", path(machine, "work/a/b")),
    );
}

/// Text that only a shell can run: the directory is entered by its path, and checked right before.
#[test]
fn a_directory_that_the_text_of_a_shell_enters() {
    drifts(
        below,
        "cd sub; touch ../marker",
        |machine| {
            let work = machine.work();
            fs::rename(work.join("sub"), work.join("old-sub")).unwrap();
            fs::rename(work.join("other"), work.join("sub")).unwrap();
        },
        |machine| format!("{} is another file now", path(machine, "work/sub")),
    );
}
