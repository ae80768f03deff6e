//! The same as an ordinary user, from whom the system itself can keep files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::json;
use testkit::Machine;

/// As root: a machine of the user `nobody`. As an ordinary user: one's own.
fn machine() -> Option<Machine> {
    if testkit::is_root() {
        Machine::of_ordinary_user()
    } else {
        Some(Machine::new())
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_first_start_makes_the_state_of_this_user() {
    let Some(machine) = machine() else { return };
    let first = machine.ok(&["explain", "--", "ls"]);
    assert!(
        first
            .stderr
            .starts_with("interlock: wrote the cautious policy"),
        "{first:#?}"
    );
    assert_eq!(machine.ok(&["explain", "--", "ls"]).stderr, "");
    let home = machine.state().parent().unwrap().metadata().unwrap();
    let state = machine.state().metadata().unwrap();
    assert_eq!((state.uid(), state.mode() & 0o777), (home.uid(), 0o700));
}

#[test]
fn entries_levels_and_config_work_as_for_root() {
    let Some(machine) = machine() else { return };
    machine.start();
    assert_eq!(machine.verdict("ls"), "ask");
    machine.ok(&["approvals", "allowlist", "add", "ls"]);
    assert_eq!(machine.verdict("ls | head -n 3"), "allow");
    machine.ok(&["config", "set", "tools.exec.ask", "always"]);
    assert_eq!(machine.verdict("ls"), "ask");
    machine.ok(&["exec-policy", "preset", "deny-all"]);
    assert_eq!(machine.verdict("ls"), "deny");
    assert_eq!(
        machine
            .set_document("{ version: 1, agents: { main: { aks: 1 } } }")
            .code,
        1
    );
    assert_eq!(
        machine.document().0["agents"]["*"]["allowlist"][0]["pattern"],
        "ls"
    );
    let case = r#"{"id":"1","command":"rg","resolve":{},"policy":{"security":"full","ask":"off"},"expect":"allow"}"#;
    let run = machine.run_with_input(&["policy", "test", "-"], case.as_bytes());
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "1 passed, 0 failed, 0 skipped\n")
    );
}

#[test]
fn an_absolute_path_of_the_system_is_allowed_by_its_entry() {
    if !Path::new("/usr/bin/whoami").exists() {
        println!("skipped: /usr/bin/whoami is not installed");
        return;
    }
    let Some(machine) = machine() else { return };
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "/usr/bin/whoami"]);
    for form in [
        &["--", "/usr/bin/whoami"][..],
        &["--", "env", "/usr/bin/whoami"],
    ] {
        let explanation = machine.explain(form);
        assert_eq!(explanation["verdict"], "allow", "{form:?}");
        assert_eq!(
            explanation["segments"][0]["argv"],
            json!(["/usr/bin/whoami"])
        );
    }
}

#[test]
fn a_state_directory_that_cannot_be_read_is_refused() {
    let Some(machine) = machine() else { return };
    machine.start();
    let before = machine.document();
    chmod(&machine.state(), 0o000);
    for arguments in [
        &["explain", "--", "ls"][..],
        &["config", "get"],
        &["approvals", "get"],
    ] {
        let run = machine.run(arguments);
        run.refused(1, "STATE_DIR_UNREADABLE");
        assert!(run.stderr.contains("hint: chmod 700 "), "{run:#?}");
    }
    chmod(&machine.state(), 0o700);
    assert_eq!(machine.document(), before);
}

/// Nothing can be written: what would write says so; whatever was there is there afterwards.
#[test]
fn a_read_only_state_directory_loses_nothing() {
    let Some(machine) = machine() else { return };
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "ls"]);
    machine.ok(&["config", "set", "tools.exec.ask", "on-miss"]);
    let before = machine.document();
    let config = fs::read(machine.config()).unwrap();
    for name in ["interlock.db", "interlock.json"] {
        chmod(&machine.state().join(name), 0o400);
    }
    chmod(&machine.state(), 0o500);
    let writes: &[&[&str]] = &[
        &["approvals", "allowlist", "add", "rg"],
        &["approvals", "allowlist", "remove", "ls"],
        &["config", "set", "tools.exec.ask", "off"],
        &["exec-policy", "preset", "yolo"],
    ];
    for arguments in writes {
        let run = machine.run(arguments);
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (1, ""),
            "{arguments:?}: {run:#?}"
        );
        let code = run.error_code();
        let known = ["STORE_READ_ONLY", "STORE_UNREADABLE", "CONFIG_UNWRITABLE"];
        assert!(known.contains(&code), "{arguments:?}: {run:#?}");
        assert!(run.stderr.contains("\nhint: "), "{arguments:?}: {run:#?}");
    }
    chmod(&machine.state(), 0o700);
    for name in ["interlock.db", "interlock.json"] {
        chmod(&machine.state().join(name), 0o600);
    }
    assert_eq!(machine.document(), before);
    assert_eq!(fs::read(machine.config()).unwrap(), config);
}

#[test]
fn a_config_that_cannot_be_read_stops_the_judge() {
    let Some(machine) = machine() else { return };
    machine.start();
    machine.ok(&["config", "set", "tools.exec.security", "deny"]);
    chmod(&machine.config(), 0o000);
    let run = machine.run(&["explain", "--", "ls"]);
    run.refused(1, "CONFIG_UNREADABLE");
    chmod(&machine.config(), 0o600);
    assert_eq!(machine.verdict("ls"), "deny");
}

#[test]
fn a_home_that_cannot_be_written_is_told() {
    let Some(machine) = machine() else { return };
    let home = machine.root().join("home");
    chmod(&home, 0o500);
    let run = machine.run(&["explain", "--", "ls"]);
    run.refused(1, "STATE_DIR_NOT_CREATED");
    assert!(run.stderr.contains("--state-dir"), "{run:#?}");
    chmod(&home, 0o700);
}

#[test]
fn a_program_that_this_user_cannot_run_is_not_found() {
    let Some(machine) = machine() else { return };
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "*"]);
    assert_eq!(machine.verdict("git log"), "allow");
    chmod(&machine.bin().join("git"), 0o600);
    let explanation = machine.explain(&["--", "git log"]);
    let resolved = &explanation["segments"][0]["resolved"];
    assert_ne!(
        *resolved,
        json!(machine.bin().join("git").to_str().unwrap())
    );
}
