//! Runs on a terminal of their own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use interlock_engine::{RunStatus, Settings, Signal, StartError, tree};
use interlock_plan::{PtySize, RunPlan};
use tempfile::TempDir;
use testkit::plans::{Kept, Mark, begin, begin_with, plan, shell_plan};

const SIZE: PtySize = PtySize {
    columns: 120,
    rows: 30,
};

fn on_terminal(mut plan: RunPlan) -> RunPlan {
    plan.pty = Some(SIZE);
    plan.env
        .insert("TERM".to_owned(), "xterm-256color".to_owned());
    plan
}

fn shown(kept: &Kept) -> String {
    let streams = kept.get();
    assert_eq!((streams.stdout.len(), streams.stderr.len()), (0, 0));
    String::from_utf8_lossy(&streams.terminal).replace("\r\n", "\n")
}

#[test]
fn a_program_on_a_terminal_has_all_three_streams_there_and_its_size() {
    let scratch = TempDir::new().unwrap();
    let text = "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && [ -c /dev/tty ] && echo here >/dev/tty; \
                stty size; echo $TERM; ls /proc/self/fd | wc -l";
    let (run, kept) = begin(&on_terminal(shell_plan("sh", &[], text, scratch.path())));
    assert_eq!(run.wait().status, RunStatus::Exited(0));
    assert_eq!(shown(&kept), "here\n30 120\nxterm-256color\n4\n");
}

#[test]
fn a_new_size_is_told_to_the_program() {
    let scratch = TempDir::new().unwrap();
    let text = "trap 'stty size; exit 4' WINCH; echo on; while :; do sleep 0.02; done";
    let (run, kept) = begin(&on_terminal(shell_plan("sh", &[], text, scratch.path())));
    kept.wait_for("on");
    let size = PtySize {
        columns: 77,
        rows: 11,
    };
    run.resize(size).unwrap();
    assert_eq!(run.wait().status, RunStatus::Exited(4));
    assert_eq!(shown(&kept), "on\n11 77\n");
}

#[test]
fn keys_are_read_and_the_key_for_the_end_ends_the_input() {
    let scratch = TempDir::new().unwrap();
    let (run, kept) = begin(&on_terminal(plan("cat", scratch.path())));
    run.write_stdin(b"hello\r").unwrap();
    kept.wait_for("hello\r\nhello\r\n");
    run.close_stdin().unwrap();
    assert_eq!(run.wait().status, RunStatus::Exited(0));
}

#[test]
fn the_key_for_interrupt_interrupts() {
    let scratch = TempDir::new().unwrap();
    let (run, kept) = begin(&on_terminal(shell_plan(
        "sh",
        &[],
        "echo on; exec sleep 600",
        scratch.path(),
    )));
    kept.wait_for("on");
    run.write_stdin(&[3]).unwrap();
    assert_eq!(run.wait().status, RunStatus::Signaled(Signal::INT.as_raw()));
}

#[test]
fn a_signal_goes_to_the_foreground_of_the_terminal() {
    let scratch = TempDir::new().unwrap();
    let text = "trap 'echo got; exit 5' USR2; echo on; while :; do sleep 0.02; done";
    let (run, kept) = begin(&on_terminal(shell_plan("sh", &[], text, scratch.path())));
    kept.wait_for("on");
    run.kill(Signal::USR2).unwrap();
    assert_eq!(run.wait().status, RunStatus::Exited(5));
    kept.wait_for("got");
}

#[test]
fn much_output_right_before_the_end_is_all_there() {
    let scratch = TempDir::new().unwrap();
    for _ in 0..5 {
        let (run, kept) = begin(&on_terminal(plan("seq 1 30000", scratch.path())));
        assert_eq!(run.wait().status, RunStatus::Exited(0));
        let shown = shown(&kept);
        assert_eq!(shown.lines().count(), 30000);
        assert!(shown.ends_with("\n30000\n"));
    }
}

#[test]
fn unread_input_does_not_hang_the_run() {
    let scratch = TempDir::new().unwrap();
    let (run, _) = begin(&on_terminal(plan("sleep 600", scratch.path())));
    let refused = (0..64).find_map(|_| run.write_stdin(&vec![b'x'; 1 << 20]).err());
    assert!(refused.is_some());
    assert_eq!(run.kill(Signal::TERM), Ok(()));
}

#[test]
fn what_stays_on_the_terminal_is_ended() {
    let scratch = TempDir::new().unwrap();
    let text = "trap '' HUP; sleep 600 & echo out";
    let mut plan = on_terminal(shell_plan("sh", &[], text, scratch.path()));
    let mark = Mark::on(&mut plan);
    let (run, kept) = begin(&plan);
    let outcome = run.wait();
    assert_eq!(outcome.status, RunStatus::Exited(0));
    assert_eq!(shown(&kept), "out\n");
    assert_eq!(outcome.leftovers.len(), 1, "{outcome:?}");
    assert_eq!(run.wait_until_gone(), Ok(()));
    mark.wait_until_none();
}

#[test]
fn several_commands_share_a_terminal_only_below_a_dedicated_process() {
    let scratch = TempDir::new().unwrap();
    let plan = on_terminal(plan("true; cat", scratch.path()));
    let error = begin_with(&plan, &Settings::default()).map(|_| ());
    assert!(matches!(
        error,
        Err(StartError::TerminalNeedsDedicatedProcess)
    ));
}

/// Line, keys, what is shown, how it ends.
const LINES: &[(&str, &str, &str, &str)] = &[
    (
        "stty size; printf a | cat; test -t 1 && printf b >&2",
        "",
        "30 120\nab",
        "Exited(0)",
    ),
    (
        "cat | tr a-z A-Z; printf end",
        "hi\r\x04",
        "hi\nHI\nend",
        "Exited(0)",
    ),
    (
        "printf on; sleep 600 | cat; touch after",
        "\x03",
        "on^C",
        "Signaled(2)",
    ),
    (
        "stty tostop; pwd; cat /proc/self/comm",
        "",
        "/\ncat\n",
        "Exited(0)",
    ),
    (
        "sh -c 'sleep 600 & exit 0'; printf after",
        "",
        "after",
        "Exited(0)",
    ),
];

#[test]
fn several_commands_share_a_terminal() {
    let scratch = TempDir::new().unwrap();
    for (line, keys, expected, status) in LINES {
        let cwd = if line.contains("pwd") {
            Path::new("/")
        } else {
            scratch.path()
        };
        let mut plan = on_terminal(plan(line, cwd));
        let mark = Mark::on(&mut plan);
        let [file, report] = ["plan.json", "report"].map(|name| scratch.path().join(name));
        std::fs::write(&file, serde_json::to_vec(&plan).unwrap()).unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "terminal::dedicated_process",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env("INTERLOCK_TEST_PLAN", &file)
            .env("INTERLOCK_TEST_KEYS", keys)
            .env("INTERLOCK_TEST_REPORT", &report)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let report = std::fs::read_to_string(report).unwrap();
        assert_eq!(report, format!("{status}\n{expected}"), "{line}");
        mark.wait_until_none();
        assert!(!scratch.path().join("after").exists());
    }
}

#[test]
#[ignore = "not a test: the process that the test above starts"]
fn dedicated_process() {
    let Some(file) = std::env::var_os("INTERLOCK_TEST_PLAN") else {
        return;
    };
    let plan: RunPlan = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    tree::dedicate_process().unwrap();
    let (run, kept) = begin(&plan);
    let keys = std::env::var("INTERLOCK_TEST_KEYS").unwrap();
    if keys == "\x03" {
        kept.wait_for("on");
        // The line may be between two commands, where no program reads it: repeat until it has an
        // effect.
        while run.outcome().is_none() {
            let _ = run.write_stdin(keys.as_bytes());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    } else {
        run.write_stdin(keys.as_bytes()).unwrap();
    }
    let status = run.wait().status;
    run.wait_until_gone().unwrap();
    let mut shown = shown(&kept);
    while shown.contains("^C^C") {
        shown = shown.replace("^C^C", "^C");
    }
    let report = format!("{status:?}\n{shown}");
    std::fs::write(std::env::var_os("INTERLOCK_TEST_REPORT").unwrap(), report).unwrap();
}

#[test]
fn all_this_holds_for_an_ordinary_user_too() {
    testkit::plans::run_again_as_ordinary_user(
        module_path!(),
        "all_this_holds_for_an_ordinary_user_too",
    );
}
