//! What comes in through a pipe reaches the command, and the policy knows of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::{Machine, Run, eventually, finish};

fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine
}

/// Every program may run, and may be written into.
fn open() -> Machine {
    Machine::open()
}

#[test]
fn a_safe_bin_gets_a_pipe_without_a_question() {
    let machine = started();
    let run = machine.run_with_input(&["exec", "--", "wc -l"], b"one\ntwo\n");
    assert_eq!(
        (run.code, run.stdout.trim(), run.stderr.as_str()),
        (0, "2", ""),
        "{run:#?}"
    );
    let run = machine.run_with_input(&["exec", "--json", "--", "wc", "-l"], b"one\n");
    assert_eq!(run.json()["output"]["text"].as_str().unwrap().trim(), "1");
}

#[test]
fn an_entry_admits_input_only_where_it_says_so() {
    let machine = started();
    machine.ok(&["approvals", "allowlist", "add", "cat"]);
    assert_eq!(machine.exec("cat").code, 0);
    let run = machine.run_with_input(&["exec", "--no-wait", "--", "cat"], b"data");
    run.refused(3, "APPROVAL_PENDING");
    let asked = machine.pending()[0].to_string();
    assert!(
        asked.contains("the caller can type into the program"),
        "{asked}"
    );
    // The hint is for the call as it was.
    let hint = run.stderr.lines().last().unwrap();
    assert!(hint.contains("--interactive"), "{hint}");
    machine.ok(&["approvals", "allowlist", "add", "--interactive", "cat"]);
    let run = machine.run_with_input(&["exec", "--", "cat"], b"data");
    assert_eq!((run.code, run.stdout.as_str()), (0, "data"), "{run:#?}");
}

#[test]
fn every_byte_arrives_however_much_it_is_and_however_slowly_it_is_read() {
    let machine = open();
    let bytes: Vec<u8> = (0..=250).cycle().take(20_000_000).collect();
    let command = "sleep 0.3; sha256sum";
    let run = machine.run_with_input(&["exec", "--", command], &bytes);
    let mut own = Command::new("/usr/bin/sha256sum");
    own.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = own.spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let expected = Run::of(&child.wait_with_output().unwrap());
    assert_eq!((run.code, run.stdout), (0, expected.stdout));
}

#[test]
fn a_file_is_passed_from_where_it_stands() {
    let machine = open();
    let path = machine.file("input.txt", "first\nsecond\n");
    let mut command = machine.command(&["exec", "--", "cat"]);
    command.stdin(File::open(&path).unwrap());
    assert_eq!(finish(&mut command).stdout, "first\nsecond\n");
    let line = format!(
        "{{ read first; {} exec -- cat; }} < {}",
        machine.binary().display(),
        path.display()
    );
    let mut shell = machine.other_program("/bin/bash");
    shell.args(["-c", &line]);
    assert_eq!(finish(&mut shell).stdout, "second\n");
}

#[test]
fn nothing_is_passed_where_there_is_nothing() {
    let machine = started();
    machine.ok(&["approvals", "allowlist", "add", "cat"]);
    // A pipe that has ended, an empty file: as if there were none, so no entry has to admit it.
    let run = machine.run_with_input(&["exec", "--no-wait", "--", "cat"], b"");
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.as_str()),
        (0, "", ""),
        "{run:#?}"
    );
    let empty = machine.file("empty", "");
    let mut command = machine.command(&["exec", "--no-wait", "--", "cat"]);
    command.stdin(File::open(empty).unwrap());
    assert_eq!(finish(&mut command).code, 0);
    // And where it is not wanted.
    let run = machine.run_with_input(&["exec", "--input", "none", "--", "cat"], b"data");
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:#?}");
}

#[test]
fn a_pipe_without_a_writer_does_not_turn_an_allowed_command_into_a_question() {
    let machine = started();
    machine.ok(&["approvals", "allowlist", "add", "touch"]);
    let mut command = machine.command(&["exec", "--no-wait", "--", "touch marker"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let held = child.stdin.take();
    let run = Run::of(&child.wait_with_output().unwrap());
    drop(held);
    assert_eq!(run.code, 0, "{run:#?}");
    assert!(
        run.stderr
            .contains("a pipe without data, so it is not passed"),
        "{run:#?}"
    );
    assert!(machine.work().join("marker").exists());
}

#[test]
fn a_slow_writer_is_waited_for_by_those_who_may_read() {
    let machine = started();
    let mut command = machine.command(&["exec", "--", "wc -c"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    eventually("it runs", || {
        let listed = machine.ok(&["audit", "log", "--json", "--kind", "verdict"]);
        listed.stdout.contains("wc -c")
    });
    stdin.write_all(b"late").unwrap();
    drop(stdin);
    let run = Run::of(&child.wait_with_output().unwrap());
    assert_eq!((run.code, run.stdout.trim()), (0, "4"), "{run:#?}");
}

#[test]
fn a_command_that_does_not_read_ends_all_the_same() {
    let machine = open();
    let began = Instant::now();
    let bytes = vec![b'x'; 30_000_000];
    let run = machine.run_with_input(&["exec", "--", "echo done"], &bytes);
    assert_eq!((run.code, run.stdout.as_str()), (0, "done\n"), "{run:#?}");
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn what_was_approved_with_input_runs_with_input_only() {
    let machine = started();
    let run = machine.run_with_input(&["exec", "--no-wait", "--json", "--", "tee copy"], b"data");
    assert_eq!(run.code, 3, "{run:#?}");
    let id = run.json()["approvalId"].as_str().unwrap().to_owned();
    machine.ok(&["approvals", "approve", &id]);
    let again = ["exec", "--approval", &id, "--", "tee copy"];
    // Without it the request is another one.
    machine.run(&again).refused(1, "APPROVAL_REQUEST_MISMATCH");
    let run = machine.run_with_input(&again, b"data");
    assert_eq!((run.code, run.stdout.as_str()), (0, "data"), "{run:#?}");
    let copied = std::fs::read_to_string(machine.work().join("copy")).unwrap();
    assert_eq!(copied, "data");
}

#[test]
fn a_loop_keeps_its_own_input_where_it_says_so() {
    let machine = open();
    let line = format!(
        "printf 'a\\nb\\nc\\n' | while read word; do {} exec --input none -- echo $word; done",
        machine.binary().display()
    );
    let mut shell = machine.other_program("/bin/bash");
    shell.args(["-c", &line]);
    let run = finish(&mut shell);
    assert_eq!(run.stdout, "a\nb\nc\n", "{run:#?}");
}

#[test]
fn input_is_for_one_use() {
    let machine = started();
    for other in [
        &["--pty"][..],
        &["--stdin"],
        &["--background"],
        &["--yield-ms", "10"],
    ] {
        let mut all = vec!["exec", "--input", "pass"];
        all.extend(other);
        all.extend(["--", "cat"]);
        assert_eq!(machine.run(&all).code, 2, "{other:?}");
    }
}
