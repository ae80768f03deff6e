//! What goes wrong: each time an exit code, a stable code, what to do, and nothing lost.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::BINARY;
use testkit::{Machine, finish, is_root};

/// One of each kind that opens the state.
const COMMANDS: &[&[&str]] = &[
    &["explain", "--", "ls"],
    &["approvals", "get"],
    &["approvals", "allowlist", "add", "rg"],
    &["exec-policy", "show"],
    &["exec-policy", "preset", "yolo"],
];

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_state_directory_that_others_can_write_is_refused() {
    let machine = Machine::new();
    machine.start();
    let before = machine.document();
    for (mode, writers) in [(0o770, "its group"), (0o707, "every user")] {
        chmod(&machine.state(), mode);
        for arguments in COMMANDS.iter().chain(&[&["config", "get"][..]]) {
            let run = machine.run(arguments);
            run.refused(1, "STATE_DIR_UNSAFE");
            assert!(run.stderr.contains(writers), "{run:#?}");
        }
        let run = machine.run(&["explain", "--", "ls"]);
        insta::assert_snapshot!(format!("state_dir_{mode:o}"), machine.stable(&run.stderr));
        // What the hint says, helps.
        let hint = run
            .stderr
            .lines()
            .last()
            .unwrap()
            .strip_prefix("hint: ")
            .unwrap();
        let status = Command::new("/bin/sh").args(["-c", hint]).status().unwrap();
        assert!(status.success());
        assert_eq!(machine.document(), before);
    }
}

#[test]
fn a_state_directory_of_another_user_is_refused() {
    if !is_root() {
        println!("skipped: only root can give a directory away");
        return;
    }
    let machine = Machine::new();
    machine.start();
    let before = machine.document();
    std::os::unix::fs::chown(machine.state(), Some(65_534), None).unwrap();
    for arguments in COMMANDS {
        machine.run(arguments).refused(1, "STATE_DIR_UNSAFE");
    }
    let run = machine.run(&["explain", "--", "ls"]);
    insta::assert_snapshot!("state_dir_foreign", machine.stable(&run.stderr));
    std::os::unix::fs::chown(machine.state(), Some(0), None).unwrap();
    assert_eq!(machine.document(), before);
}

#[test]
fn a_state_directory_that_is_none_is_refused() {
    let machine = Machine::new();
    let file = machine.file("file", "");
    let named = |path: &str| machine.run(&["--state-dir", path, "explain", "--", "ls"]);
    let run = named(file.to_str().unwrap());
    run.refused(1, "STATE_DIR_UNSAFE");
    assert!(run.stderr.contains("is not a directory"), "{run:#?}");
    named(file.join("below").to_str().unwrap()).refused(1, "STATE_DIR_UNREADABLE");
    named("/proc/interlock").refused(1, "STATE_DIR_NOT_CREATED");
    let mut command = machine.command(&["explain", "--", "ls"]);
    command.env_remove("HOME");
    let run = finish(&mut command);
    run.refused(1, "STATE_DIR_UNKNOWN");
    assert!(
        run.stderr.contains("hint: name one with --state-dir"),
        "{run:#?}"
    );
}

#[test]
fn a_damaged_database_is_kept_and_the_way_out_is_told() {
    let machine = Machine::new();
    machine.start();
    let database = machine.state().join("interlock.db");
    let garbage = b"this was never a database, or has stopped being one".repeat(100);
    for name in ["interlock.db-wal", "interlock.db-shm"] {
        let _ = fs::remove_file(machine.state().join(name));
    }
    fs::write(&database, &garbage).unwrap();
    for arguments in COMMANDS {
        machine.run(arguments).refused(1, "STORE_CORRUPT");
        assert_eq!(fs::read(&database).unwrap(), garbage);
    }
    let run = machine.run(&["explain", "--", "ls"]);
    insta::assert_snapshot!("database_corrupt", machine.stable(&run.stderr));
    // The first command of the hint keeps the file, the second one brings the policy back: a database
    // that is gone is no first start.
    let hint = run
        .stderr
        .lines()
        .last()
        .unwrap()
        .strip_prefix("hint: ")
        .unwrap();
    let command = hint.split(": ").nth(1).unwrap().split(';').next().unwrap();
    assert!(
        Command::new("/bin/sh")
            .args(["-c", command])
            .status()
            .unwrap()
            .success()
    );
    machine
        .run(&["explain", "--", "ls"])
        .refused(1, "DOCUMENT_UNRECORDED");
    machine.ok(&["doctor", "--restore-document"]);
    assert_eq!(machine.verdict("ls"), "ask");
    assert_eq!(
        fs::read(machine.state().join("interlock.db.damaged")).unwrap(),
        garbage
    );
}

#[test]
fn a_database_that_is_a_directory_is_refused() {
    let machine = Machine::new();
    machine.start();
    fs::remove_file(machine.state().join("interlock.db")).unwrap();
    fs::create_dir(machine.state().join("interlock.db")).unwrap();
    let run = machine.run(&["explain", "--", "ls"]);
    run.refused(1, "STORE_UNREADABLE");
    assert!(run.stderr.contains("hint: "), "{run:#?}");
}

#[test]
fn a_command_that_cannot_be_one_is_wrong_usage() {
    let machine = Machine::new();
    machine.start();
    let explain = |words: &[&OsStr]| {
        let mut all = vec![OsStr::new("explain"), OsStr::new("--")];
        all.extend(words);
        machine.run(&all)
    };
    let latin1 = OsStr::from_bytes(b"caf\xe9");
    let long = "x".repeat(100_000);
    let long = OsStr::new(&long);
    explain(&[OsStr::new("")]).refused(2, "COMMAND_EMPTY");
    explain(&[latin1]).refused(2, "COMMAND_NOT_UTF8");
    explain(&[OsStr::new("ls"), latin1]).refused(2, "COMMAND_NOT_UTF8");
    assert_eq!(explain(&[]).code, 2);
    // One megabyte in ten words. No single word of a command line can be longer than 128 KiB, and
    // none can hold a NUL: the system refuses both before the program starts.
    let many = explain(&[long; 10]);
    many.refused(2, "COMMAND_TOO_LONG");
    assert!(many.stderr.len() < 1000, "the command is repeated in full");
    assert!(many.stderr.contains("hint: "), "{many:#?}");
}

/// Longer than what is proven plain, and still answered.
#[test]
fn long_text_is_judged_as_not_plain() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "ls"]);
    let command = format!("ls {}", "x".repeat(100_000));
    let explanation = machine.explain(&["--", &command]);
    // No approver could read all of it.
    assert_eq!(explanation["verdict"], "refused");
    assert_eq!(explanation["notPlain"]["reason"], "too-long");
}

#[test]
fn blank_commands_are_never_allowed() {
    let machine = Machine::new();
    machine.start();
    for command in [" ", "\n\n", "# only a comment", "&&", ";", "\u{a0}"] {
        let run = machine.run(&["explain", "--json", "--", command]);
        let allowed = run.code == 0 && run.json()["verdict"] == "allow";
        assert!(!allowed, "{command:?}: {run:#?}");
    }
}

#[test]
fn names_and_places_that_do_not_exist_are_told() {
    let machine = Machine::new();
    machine.start();
    let cases: &[(&[&str], &str)] = &[
        (&["explain", "--agent", "a b", "--", "ls"], "AGENT_INVALID"),
        (&["explain", "--agent", "", "--", "ls"], "AGENT_INVALID"),
        (
            &["explain", "--agent", "../main", "--", "ls"],
            "AGENT_INVALID",
        ),
        (&["approvals", "get", "--agent", "a/b"], "AGENT_INVALID"),
        (
            &["explain", "--cwd", "/no/such/place", "--", "ls"],
            "CWD_UNUSABLE",
        ),
        (
            &["explain", "--cwd", "/etc/passwd", "--", "ls"],
            "CWD_UNUSABLE",
        ),
        (&["explain", "--env", "NAME", "--", "ls"], "ENV_INVALID"),
    ];
    for (arguments, code) in cases {
        let run = machine.run(arguments);
        run.refused(2, code);
        let mut json = vec!["explain", "--json"];
        if arguments[0] == "explain" {
            json.extend(&arguments[1..]);
            let run = machine.run(&json);
            let error: serde_json::Value = serde_json::from_str(&run.stderr).unwrap();
            assert_eq!(error["error"]["code"], *code);
            assert_eq!(run.code, 2);
        }
    }
    // An agent that is not known is a slip, unless the owner lets in all of them: then it is judged
    // by what holds for every agent.
    let stranger = ["explain", "--json", "--agent", "stranger", "--", "ls"];
    assert_eq!(machine.run(&stranger).code, 2);
    machine.ok(&["config", "set", "agents.allowUnknown", "true"]);
    assert_eq!(machine.ok(&stranger).json()["verdict"], "ask");
}

#[test]
fn a_working_directory_that_is_gone_is_told() {
    let machine = Machine::new();
    machine.start();
    let gone = machine.root().join("gone");
    fs::create_dir(&gone).unwrap();
    let line = format!(
        "cd {0} && rmdir {0} && exec {BINARY} explain -- ls",
        gone.display()
    );
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &line]).env_clear();
    shell.env("HOME", machine.root().join("home"));
    shell.env("PATH", "/usr/bin:/bin");
    finish(&mut shell).refused(2, "CWD_UNUSABLE");
}

/// Wherever the reader stops, the program ends quietly.
#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let machine = Machine::new();
    machine.start();
    let case = r#"{"id":"1","command":"x","resolve":{},"policy":{},"expect":"deny"}"#;
    let cases = [case, "\n"].concat().repeat(2_000);
    let file = machine.file("cases.jsonl", cases);
    let file = file.to_str().unwrap();
    let commands: &[(&[&str], i32)] = &[
        (&["explain", "--", "ls"], 0),
        (&["explain", "--json", "--", "ls"], 0),
        (&["approvals", "get"], 0),
        (&["exec-policy", "show"], 0),
        (&["config", "get"], 0),
        (&["policy", "test", file], 1),
        (&["policy", "test", "--json", file], 1),
        (&["--help"], 0),
        (&["version"], 0),
        (&["explain", "--", ""], 2),
    ];
    for (arguments, code) in commands {
        let mut child = machine
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
        // And the same when standard error has no reader.
        let mut child = machine
            .command(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stderr.take());
        assert_eq!(child.wait().unwrap().code(), Some(*code), "{arguments:?}");
    }
}

#[test]
fn output_that_could_not_be_written_is_a_failure() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        println!("skipped: there is no /dev/full");
        return;
    };
    let machine = Machine::new();
    machine.start();
    let mut command = machine.command(&["explain", "--", "ls"]);
    command.stdout(full).stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error[OUTPUT_LOST]: "), "{stderr}");
}

#[test]
fn every_command_has_help_with_an_example() {
    let machine = Machine::new();
    let mut waiting: Vec<Vec<String>> = vec![Vec::new()];
    let mut leaves = 0;
    while let Some(command) = waiting.pop() {
        let mut all = command.clone();
        all.push("--help".to_owned());
        let run = machine.ok(&all);
        assert_eq!(run.stderr, "", "{command:?}");
        let subcommands: Vec<&str> = run
            .stdout
            .lines()
            .skip_while(|line| *line != "Commands:")
            .skip(1)
            .take_while(|line| line.starts_with("  "))
            // Further lines of a description stand farther to the right.
            .filter(|line| !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        if subcommands.is_empty() {
            leaves += 1;
            let line = format!("  interlock {}", command.join(" "));
            let example = run.stdout.lines().any(|shown| shown.starts_with(&line));
            assert!(example, "{command:?} has no example:\n{}", run.stdout);
        }
        for name in subcommands {
            let mut inner = command.clone();
            inner.push(name.to_owned());
            waiting.push(inner);
        }
    }
    assert!(leaves >= 13, "only {leaves} commands were found");
    assert!(!machine.state().exists());
}

/// A flood on standard input is cut, not stored.
#[test]
fn endless_input_is_refused() {
    let machine = Machine::new();
    machine.start();
    let mut child = machine
        .command(&["approvals", "set", "--stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let block = vec![b' '; 1 << 20];
    // Until the program has had enough and closes its end.
    while stdin.write_all(&block).is_ok() {}
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.starts_with(b"error[DOCUMENT_INVALID]"));
}
