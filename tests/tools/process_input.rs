//! `interlock process`: what is written to sessions, and which of them wait for it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use testkit::{Machine, eventually};

#[test]
fn input_that_cannot_be_taken_is_refused_whole() {
    let machine = Machine::unguarded();
    let deaf = machine.background(&[], "sleep 600");
    for (action, rest) in [
        ("write", &["x"][..]),
        ("send-keys", &["Enter"]),
        ("submit", &[]),
        ("paste", &["x"]),
    ] {
        deaf.run(action, rest).refused(1, "STDIN_CLOSED");
    }
    deaf.run("screen", &[]).refused(1, "NO_TERMINAL");
    let slow = machine.background(&["--stdin"], "sleep 600");
    let big = vec![b'x'; 8 * 1024 * 1024 + 1];
    for action in ["write", "paste"] {
        machine
            .run_with_input(&["process", action, &slow.id], &big)
            .refused(1, "INPUT_TOO_LARGE");
    }
    let run = machine.run_with_input(&["process", "write", &slow.id], &big[2..]);
    assert_eq!(run.code, 0, "{run:#?}");
    let run = machine.run_with_input(&["process", "write", &slow.id], &big[..200_000]);
    run.refused(1, "STDIN_FULL");
    machine
        .run_with_input(&["process", "paste", &slow.id], b"\xff\xfe")
        .refused(2, "INPUT_NOT_UTF8");
    let closed = machine.background(&["--stdin"], "sh -c 'cat; sleep 600'");
    closed.ok("write", &["--eof", "x"]);
    closed.run("write", &["x"]).refused(1, "STDIN_CLOSED");
    closed.run("submit", &[]).refused(1, "STDIN_CLOSED");
}

#[test]
fn a_large_paste_arrives_whole_and_can_break_out_of_nothing() {
    let machine = Machine::unguarded();
    let session = machine.background(
        &["--stdin"],
        "/usr/bin/head -c 8000012 | /usr/bin/tail -c 60",
    );
    let mut text = "x".repeat(7_999_970);
    text.push_str("a\u{1b}[201~b\u{3}c");
    let run = machine.run_with_input(&["process", "paste", &session.id], text.as_bytes());
    assert_eq!(run.code, 0, "{run:#?}");
    session.ok(
        "write",
        &["--eof", "more than enough to come to the end of it"],
    );
    assert_eq!(session.ended().1, Some(0));
    let log = session.ok("log", &[]).stdout;
    assert!(log.contains("xa␛[201~b␃c\u{1b}[201~"), "{log:?}");
}

#[test]
fn a_session_that_waits_for_input_is_seen() {
    let machine = Machine::unguarded();
    machine.script("bin/ask", "#!/bin/bash\nread -rp 'sure? ' answer\n");
    machine.script("bin/busy", "#!/bin/bash\nexec sleep 600\n");
    machine.script("bin/nested", "#!/bin/bash\ncd /\nbash -c 'cat; true'\n");
    machine.script("bin/behind", "#!/bin/bash\nx=$(sleep 600)\n");
    let mut cases = vec![
        (true, machine.background(&["--pty"], "ask")),
        (true, machine.background(&["--pty"], "cd / && nested")),
        (true, machine.background(&["--stdin"], "ask")),
        (true, machine.background(&["--stdin"], "cat | tr a b")),
        (true, machine.background(&["--pty"], "/bin/bash --norc -i")),
        (false, machine.background(&["--pty"], "busy")),
        (false, machine.background(&["--stdin"], "behind")),
        (false, machine.background(&["--stdin"], "busy | cat")),
        (false, machine.background(&[], "busy")),
    ];
    for (program, command) in [
        ("/usr/bin/python3", "/usr/bin/python3 -q"),
        ("/usr/bin/vim", "vim -u NONE -N x"),
    ] {
        if std::path::Path::new(program).exists() {
            cases.push((true, machine.background(&["--pty"], command)));
        }
    }
    let waiting = || -> Vec<String> {
        let listed = machine.sessions(&[]);
        let waits = listed.iter().filter(|row| row["waitingForInput"] == true);
        waits
            .map(|row| row["sessionId"].as_str().unwrap().to_owned())
            .collect()
    };
    let mut expected: Vec<&str> = cases
        .iter()
        .filter(|case| case.0)
        .map(|(_, session)| session.id.as_str())
        .collect();
    expected.sort_unstable();
    // None in the beginning: they may only be thinking.
    assert_eq!(waiting(), Vec::<String>::new());
    eventually("all that wait are seen", || {
        let mut waiting = waiting();
        waiting.sort_unstable();
        waiting.len() == expected.len()
    });
    let mut waiting = waiting();
    waiting.sort_unstable();
    assert_eq!(waiting, expected);
    let list = machine.process(&["list"]).stdout;
    assert_eq!(
        list.matches("waits for input").count(),
        expected.len(),
        "{list}"
    );
}
