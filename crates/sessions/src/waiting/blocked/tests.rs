//! Tests with real children that are blocked in different ways.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::*;

fn me() -> i32 {
    i32::try_from(std::process::id()).unwrap()
}

/// A shell whose standard input is a pipe that this process holds.
fn child(text: &str) -> Child {
    let mut command = Command::new("/bin/bash");
    command.args(["-c", text]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn pid(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

/// Waits until a thread sleeps in one of these kernel functions.
fn sleeps_in(pid: i32, places: &[&str]) {
    let end = Instant::now() + std::time::Duration::from_mins(1);
    let place = || fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    while !places.iter().any(|known| place().contains(known)) {
        assert!(Instant::now() < end, "{}", place());
        std::thread::yield_now();
    }
}

fn task(pid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/task/{pid}"))
}

#[test]
fn a_process_that_reads_its_pipe_is_told_from_one_that_reads_another() {
    let mut reads = child("exec cat");
    let mut substitutes = child("x=$(exec tail --pid=$$ -f /dev/null)");
    let mut reads_elsewhere = child("exec 0< <(exec tail --pid=$$ -f /dev/null); exec cat");
    for one in [&reads, &substitutes, &reads_elsewhere] {
        sleeps_in(pid(one), &["pipe_read"]);
    }
    let input = SessionInput::held_by(me(), false).unwrap();
    assert!(input.is_awaited_by(pid(&reads)));
    assert!(!input.is_awaited_by(pid(&substitutes)));
    assert!(!input.is_awaited_by(pid(&reads_elsewhere)));
    // Where the system shows the place only.
    assert_eq!(
        input.is_sleep_for(pid(&reads), &task(pid(&reads))),
        Some(true)
    );
    let elsewhere = input.is_sleep_for(pid(&substitutes), &task(pid(&substitutes)));
    assert_ne!(elsewhere, Some(true));
    for one in [&mut reads, &mut substitutes, &mut reads_elsewhere] {
        one.kill().unwrap();
        one.wait().unwrap();
    }
}

#[test]
fn sets_and_lists_of_descriptors_are_read_from_memory() {
    if !Path::new("/usr/bin/python3").exists() {
        println!("skipped: python3 is not installed");
        return;
    }
    let program = |text: &str| {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", text]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let listen =
        "import select, socket, sys; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); ";
    let cases = [
        (true, "import select; select.select([0], [], [])".to_owned()),
        (false, format!("{listen} select.select([0, s], [], [])")),
        (
            false,
            "import select; select.select([], [], [], 600)".to_owned(),
        ),
        (
            true,
            "import select; p = select.poll(); p.register(0, select.POLLIN); p.poll()".to_owned(),
        ),
        (
            false,
            format!(
                "{listen} p = select.poll(); p.register(s, select.POLLIN); p.register(0, select.POLLIN); p.poll()"
            ),
        ),
        (
            false,
            "import select; p = select.poll(); p.poll(600000)".to_owned(),
        ),
    ];
    for (awaited, text) in cases {
        let mut child = program(&text);
        let input = SessionInput::held_by(me(), false).unwrap();
        sleeps_in(pid(&child), &["poll", "select"]);
        assert_eq!(input.is_awaited_by(pid(&child)), awaited, "{text}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn what_is_not_there_is_a_no() {
    let input = SessionInput::Terminal((136, 7));
    for call in [
        "",
        "running\n",
        "-1 0x7ff 0x0",
        "0 0x0\n",
        "x",
        "0 zz 0x1 0x2",
    ] {
        assert_ne!(input.is_call_for(me(), call), Some(true), "{call:?}");
    }
    assert!(!input.is_awaited_by(i32::MAX));
    assert!(SessionInput::held_by(i32::MAX, true).is_none());
}
