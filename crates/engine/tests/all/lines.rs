//! Plain lines without a shell: operators, pipes, groups, builtins, redirections, `time`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_engine::{Leftovers, RunStatus, Settings};
use testkit::plans::{Mark, begin_with, run_line};

/// Line, standard output, exit status.
const LINES: &[(&str, &str, i32)] = &[
    ("printf a && printf b || printf c; printf d", "abd", 0),
    ("false && printf b || printf c", "c", 0),
    ("false || false; true && false", "", 1),
    ("false | true", "", 0),
    ("true | false", "", 1),
    ("printf 'b\\na\\n' | sort | head -n 1", "a\n", 0),
    ("yes | head -n 3", "y\ny\ny\n", 0),
    ("sh -c 'exit 7'", "", 7),
    ("sh -c 'exit 7' || sh -c 'exit 9'", "", 9),
    ("sh -c 'kill -9 $$'; true", "", 0),
    ("true; sh -c 'kill -TERM $$'", "", 143),
    ("sh -c 'false; printf x' && printf y", "xy", 0),
    ("sh -c 'printf a; printf b' | cat | tr ab AB", "AB", 0),
    ("sh -c 'cd /; pwd' && test -n x", "/\n", 0),
    ("printf abc >/dev/null", "", 0),
    ("sh -c 'echo err >&2' 2>&1 >/dev/null", "err\n", 0),
    ("sh -c 'echo err >&2' >/dev/null 2>&1", "", 0),
    ("sh -c 'printf o; printf e >&2' &>/dev/null", "", 0),
    ("sh -c 'echo err >&2' 2>&1 | tr e E", "Err\n", 0),
    ("cat </dev/null && printf end", "end", 0),
    ("cd / && pwd && cat /proc/self/comm", "/\ncat\n", 0),
    ("cd /; cd usr; pwd", "/usr\n", 0),
    ("A=1 B='x y' sh -c 'printf \"$A-$B\"'", "1-x y", 0),
    ("A=1 printf ''; sh -c 'printf \"[$A]\"'", "[]", 0),
    ("pwd | cat | wc -l", "1\n", 0),
    (": | true; [ a = b ] || [ 3 -gt 2 ]", "", 0),
    ("test 3 -gt x", "", 2),
    ("test -d / && test -x /bin/sh && test ! -e /nope", "", 0),
    ("test / -ef /. && test / -ot /proc/self || test -t 1", "", 0),
    ("test -t 1; test '' ; test -z ''", "", 0),
    ("[ -s /dev/null ]", "", 1),
    (
        "[ -c /dev/null ] && [ -r /dev/null ] && [ -w /dev/null ]",
        "",
        0,
    ),
    (
        "[ -L /proc/self ] && [ -h /proc/self ] && [ ! -L /proc ]",
        "",
        0,
    ),
];

#[test]
fn lines_do_what_shells_do() {
    for (line, stdout, code) in LINES {
        let ran = run_line(line);
        assert_eq!(
            ran.outcome.status,
            RunStatus::Exited(*code),
            "{line} {ran:?}"
        );
        assert_eq!(ran.stdout, *stdout, "{line}");
        assert_eq!(ran.outcome.leftovers, [], "{line}");
    }
}

#[test]
fn a_cd_that_fails_says_why_and_stops_the_chain() {
    let ran = run_line("cd /nope && printf x");
    assert_eq!(ran.outcome.status, RunStatus::Exited(1));
    assert_eq!(ran.stdout, "");
    assert_eq!(ran.stderr, "interlock: cd: /nope: it is not in the plan\n");
}

#[test]
fn time_is_reported_in_both_formats_on_standard_error() {
    let ran = run_line("time printf a");
    assert_eq!(ran.stdout, "a");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let [empty, real, user, sys] = lines.as_slice() else {
        panic!("{lines:?}")
    };
    assert_eq!(*empty, "");
    for (line, name) in [(real, "real\t0m"), (user, "user\t0m"), (sys, "sys\t0m")] {
        assert!(line.starts_with(name) && line.ends_with('s'), "{line}");
    }
    let ran = run_line("time -p sh -c 'exit 3'");
    assert_eq!(ran.outcome.status, RunStatus::Exited(3));
    assert!(ran.stderr.starts_with("real 0."), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 3);
}

#[test]
fn a_command_that_vanished_meanwhile_is_not_found_and_the_line_goes_on() {
    let scratch = tempfile::tempdir().unwrap();
    let tool = scratch.path().join("tool");
    testkit::plans::executable(&tool, b"#!/bin/sh\nprintf tool\n");
    let plan = testkit::plans::plan("rm tool; ./tool; printf after", scratch.path());
    let ran = testkit::plans::run(&plan);
    assert_eq!(ran.stdout, "after");
    assert!(ran.stderr.contains("tool is gone"), "{}", ran.stderr);
    let path = tool.to_str().unwrap();
    testkit::plans::executable(&tool, b"#!/bin/sh\nprintf tool\n");
    for (line, code) in [("rm tool; ./tool", 127), ("chmod 600 tool; ./tool", 126)] {
        testkit::plans::executable(&tool, b"#!/bin/sh\nprintf tool\n");
        let plan = testkit::plans::plan(line, scratch.path());
        let ran = testkit::plans::run(&plan);
        assert_eq!(
            ran.outcome.status,
            RunStatus::Exited(code),
            "{path} {ran:?}"
        );
    }
}

#[test]
fn what_an_earlier_command_rebuilt_is_not_run() {
    let scratch = tempfile::tempdir().unwrap();
    let [tool, new] = ["tool", "new"].map(|name| scratch.path().join(name));
    testkit::plans::executable(&tool, b"#!/bin/sh\nprintf old\n");
    testkit::plans::executable(&new, b"#!/bin/sh\nprintf new\n");
    let plan = testkit::plans::plan("cp new tool && ./tool", scratch.path());
    let ran = testkit::plans::run(&plan);
    assert_eq!(ran.outcome.status, RunStatus::Exited(126));
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains("was changed"), "{}", ran.stderr);
}

#[test]
fn a_background_list_is_not_waited_for_and_ends_as_a_leftover() {
    let scratch = tempfile::tempdir().unwrap();
    let mut plan = testkit::plans::plan("sleep 600 && touch done & printf fg", scratch.path());
    let mark = Mark::on(&mut plan);
    let (run, kept) = testkit::plans::begin(&plan);
    let outcome = run.wait();
    assert_eq!(outcome.status, RunStatus::Exited(0));
    assert_eq!(kept.get().stdout, b"fg");
    let commands: Vec<&str> = outcome
        .leftovers
        .iter()
        .map(|leftover| leftover.command.as_str())
        .collect();
    assert_eq!(commands, ["sleep 600"]);
    assert_eq!(run.wait_until_gone(), Ok(()));
    mark.wait_until_none();
    assert!(!scratch.path().join("done").exists());
}

#[test]
fn a_background_list_that_is_quick_is_seen_whole() {
    let ran = run_line("sh -c 'printf a; printf b' & true");
    assert_eq!(ran.stdout, "ab");
    assert_eq!(ran.outcome.leftovers, []);
}

#[test]
fn background_commands_read_nothing() {
    let ran = run_line("cat & true");
    assert_eq!(ran.outcome.leftovers, []);
}

#[test]
fn kept_leftovers_can_go_on_writing() {
    let scratch = tempfile::tempdir().unwrap();
    let text = "sh -c 'until [ -e go ]; do sleep 0.01; done; echo late; echo late; touch done' & \
                printf fg";
    let plan = testkit::plans::plan(text, scratch.path());
    let settings = Settings {
        leftovers: Leftovers::Keep,
        ..Settings::default()
    };
    let (run, kept) = begin_with(&plan, &settings).unwrap();
    let outcome = run.wait();
    // The loop, and perhaps the pause in it.
    assert!(!outcome.leftovers.is_empty());
    std::fs::write(scratch.path().join("go"), "").unwrap();
    let _ = run.wait_until_gone();
    assert!(scratch.path().join("done").exists());
    assert_eq!(kept.get().stdout, b"fg");
}
