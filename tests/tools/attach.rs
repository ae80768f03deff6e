//! `interlock process attach` and `interlock exec --pty` at a real terminal.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use testkit::sessions::Session;
use testkit::terminal::Terminal;
use testkit::{Machine, eventually, is_alive, written_pid};

/// Ctrl-].
const DETACH: &str = "\u{1d}";

fn shell(machine: &Machine) -> Session<'_> {
    machine.file("work/rc", "PS1='ready> '\n");
    let session = machine.background(&["--pty"], "/bin/bash --rcfile rc -i");
    session.shows("ready>");
    session
}

fn attach(session: &Session<'_>) -> Terminal {
    Terminal::run(session.machine, &["process", "attach", &session.id], 90, 20)
}

fn signal(pid: &str, name: &str) {
    let sent = Command::new("/bin/kill")
        .args([&format!("-{name}"), pid])
        .status();
    assert!(sent.unwrap().success());
}

#[test]
fn a_terminal_shows_the_screen_takes_keys_and_is_left_as_it_was() {
    let machine = Machine::unguarded();
    let session = shell(&machine);
    session.line("echo before");
    session.until("the output", |rows| rows.iter().any(|row| row == "before"));
    let mut terminal = attach(&session);
    terminal.until("the screen that was there", |picture| {
        picture.rows.iter().any(|row| row == "before")
    });
    terminal.shows(&format!("attached to {}; Ctrl-] detaches", session.id));
    assert!(terminal.is_raw());
    terminal.press("echo $((40+2))\r");
    terminal.until("the answer, and no hint any more", |picture| {
        let text = picture.rows.join("\n");
        text.contains("\n42\n") && !text.contains("detaches")
    });
    // Ctrl-C is for the session, not for us.
    terminal.press("sleep 100\r");
    session.shows("ready> sleep 100");
    eventually("sleep is interrupted", || {
        terminal.press("\u{3}");
        terminal.text().contains("^C")
    });
    terminal.press(DETACH);
    assert_eq!(terminal.exit_code(), Some(0));
    terminal.shows(&format!(
        "{} goes on; come back: interlock process attach",
        session.id
    ));
    session.line("echo after");
    session.until("it goes on", |rows| rows.iter().any(|row| row == "after"));
}

#[test]
fn the_end_of_the_session_is_the_end_of_the_attachment_with_its_exit_code() {
    let machine = Machine::unguarded();
    let session = shell(&machine);
    let mut terminal = attach(&session);
    terminal.shows("ready>");
    terminal.press("exit 7\r");
    assert_eq!(terminal.exit_code(), Some(7));
    terminal.shows(&format!(
        "interlock: {} completed with exit code 7",
        session.id
    ));
    let mut terminal = attach(&session);
    assert_eq!(terminal.exit_code(), Some(1));
    terminal.shows("error[SESSION_FINISHED]");
}

#[test]
fn the_last_attached_terminal_sets_the_size_and_changes_of_it_are_told() {
    let machine = Machine::unguarded();
    let session = shell(&machine);
    session.line("stty size");
    session.shows("30 120");
    let first = attach(&session);
    first.shows("ready>");
    session.line("stty size");
    session.shows("20 90");
    let arguments = ["process", "attach", &session.id];
    let second = Terminal::run(&machine, &arguments, 70, 25);
    second.shows("ready>");
    session.line("stty size");
    session.shows("25 70");
    second.resize(66, 11);
    eventually("the new size is told", || {
        let screen = session.json("screen", &[]);
        screen["size"]["columns"] == 66 && screen["size"]["rows"] == 11
    });
    session.line("stty size");
    session.shows("11 66");
    // The first one is attached as before.
    first.press("echo from-$((0+1))\r");
    second.shows("from-1");
    first.shows("from-1");
}

#[test]
fn a_full_screen_program_is_drawn_and_gone_after_detaching() {
    if !std::path::Path::new("/usr/bin/less").exists() {
        println!("skipped: less is not installed");
        return;
    }
    let machine = Machine::unguarded();
    let lines: Vec<String> = (1..=500).map(|number| format!("line {number}\n")).collect();
    let lines = lines.concat();
    machine.file("work/lines", lines);
    let session = machine.background(&["--pty"], "less lines");
    session.shows("line 29");
    let mut terminal = attach(&session);
    terminal.until("the first page of this size", |picture| {
        picture.is_alternate && picture.rows[0] == "line 1"
    });
    terminal.press(" ");
    terminal.until("the next page", |picture| picture.rows[0] == "line 20");
    terminal.press(DETACH);
    assert_eq!(terminal.exit_code(), Some(0));
    terminal.until("the normal screen", |picture| {
        !picture.is_alternate && picture.cursor.is_visible
    });
    let mut terminal = attach(&session);
    terminal.until("the same page again", |picture| {
        picture.is_alternate && picture.rows[0] == "line 20"
    });
    terminal.press("q");
    assert_eq!(terminal.exit_code(), Some(0));
    terminal.until("the normal screen", |picture| !picture.is_alternate);
}

#[test]
fn questions_of_programs_get_one_answer() {
    let machine = Machine::unguarded();
    machine.script(
        "bin/ask",
        "#!/bin/bash\nstty -icanon -echo\necho on\nread -rsN1 go\nprintf '\\e[6n\\e[c\\e[5n'\nread -rst 2 -N 400 answer\nprintf '%q\\n' \"$answer\"\n",
    );
    let session = machine.background(&["--pty"], "ask");
    session.shows("on");
    let mut terminal = attach(&session);
    terminal.shows("attached");
    terminal.press("x");
    assert_eq!(terminal.exit_code(), Some(0));
    let log = session.ok("log", &[]).stdout;
    assert!(log.contains("$'\\E[2;1R\\E[?62;22c\\E[0n'"), "{log:?}");
}

#[test]
fn whatever_ends_the_attachment_gives_the_terminal_back() {
    let machine = Machine::unguarded();
    let session = shell(&machine);
    for (name, code) in [("TERM", 143), ("HUP", 129), ("INT", 130), ("QUIT", 131)] {
        let mut terminal = attach(&session);
        terminal.shows("attached");
        signal(&terminal.pid(), name);
        assert_eq!(terminal.exit_code(), Some(code), "{name}");
    }
    // Its supervisor dies, and the session with it.
    let mut terminal = attach(&session);
    terminal.shows("attached");
    for pid in machine.supervisors() {
        signal(&pid.to_string(), "KILL");
    }
    // Whether a supervisor was left to see how it ended is a matter of luck.
    match terminal.exit_code() {
        Some(1) => terminal.shows("is lost"),
        Some(137) => terminal.shows("by SIGKILL"),
        code => panic!("{code:?}"),
    }
}

#[test]
fn stopping_and_continuing_gives_the_terminal_away_and_takes_it_again() {
    let machine = Machine::unguarded();
    let session = shell(&machine);
    session.line("echo here");
    let mut terminal = attach(&session);
    terminal.shows("attached");
    assert!(terminal.is_raw());
    signal(&terminal.pid(), "TSTP");
    eventually("the terminal is given back", || !terminal.is_raw());
    let stat = format!("/proc/{}/stat", terminal.pid());
    eventually("it is stopped", || {
        fs::read_to_string(&stat).unwrap().contains(") T ")
    });
    signal(&terminal.pid(), "CONT");
    eventually("the terminal is taken again", || terminal.is_raw());
    terminal.press("echo again-$((1+1))\r");
    terminal.shows("again-2");
    terminal.press(DETACH);
    assert_eq!(terminal.exit_code(), Some(0));
}

#[test]
fn another_key_can_be_chosen() {
    let machine = Machine::unguarded();
    let session = shell(&machine);
    let arguments = ["process", "attach", &session.id, "--detach-key", "C-b"];
    let mut terminal = Terminal::run(&machine, &arguments, 80, 24);
    terminal.shows("Ctrl-b detaches");
    terminal.press("echo x\u{2}");
    assert_eq!(terminal.exit_code(), Some(0));
    session.shows("ready> echo x");
    for key in ["b", "", "C-c C-d", "Up", "C-漢"] {
        let run = session.run("attach", &["--detach-key", key]);
        run.refused(2, "DETACH_KEY_INVALID");
    }
}

#[test]
fn a_session_without_a_terminal_gets_lines() {
    let machine = Machine::unguarded();
    let session = machine.background(&["--stdin"], "cat");
    let mut terminal = attach(&session);
    terminal.shows("Ctrl-C detaches");
    assert!(!terminal.is_raw());
    terminal.press("one line\n");
    terminal.until("the line as typed, and as cat wrote it", |picture| {
        picture.rows.iter().filter(|row| *row == "one line").count() == 2
    });
    terminal.press("\u{3}");
    assert_eq!(terminal.exit_code(), Some(0));
    terminal.shows("goes on");
    let mut terminal = attach(&session);
    terminal.shows("attached");
    terminal.press("\u{4}");
    assert_eq!(terminal.exit_code(), Some(0));
    assert_eq!(session.ended(), ("completed".to_owned(), Some(0)));
}

#[test]
fn without_a_terminal_standard_input_is_copied_and_the_end_is_waited_for() {
    let machine = Machine::unguarded();
    machine.script(
        "bin/greet",
        "#!/bin/sh\nread a; read b; echo \"$a and $b\"; echo bad >&2; exit 5\n",
    );
    for flags in [&["--stdin"], &["--pty"]] {
        let session = machine.background(flags, "greet");
        let run = machine.run_with_input(&["process", "attach", &session.id], b"you\nme\n");
        assert_eq!(run.code, 5, "{run:#?}");
        assert!(run.stdout.contains("you and me"), "{run:#?}");
        assert!(
            run.stderr.contains("completed with exit code 5"),
            "{run:#?}"
        );
    }
}

#[test]
fn much_input_waits_for_a_session_that_reads_slowly() {
    let machine = Machine::unguarded();
    let session = machine.background(&["--stdin"], "head -c 20000000 | wc -c");
    let mut command = machine.command(&["process", "attach", &session.id]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&vec![b'x'; 20_000_000]).unwrap();
    let mut counted = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut counted)
        .unwrap();
    assert_eq!(counted.trim(), "20000000");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn exec_on_a_terminal_is_attached_from_the_first_byte() {
    let machine = Machine::unguarded();
    let mut terminal = Terminal::run(
        &machine,
        &["exec", "--pty", "--", "stty size; exit 4"],
        77,
        13,
    );
    assert_eq!(terminal.exit_code(), Some(4));
    terminal.until("the size of the person's terminal", |picture| {
        picture.rows[0] == "13 77" && picture.rows[1].is_empty()
    });
    eventually("nothing is kept of it", || machine.sessions(&[]).is_empty());
    // With keys, and a size that changes.
    machine.script(
        "bin/hello",
        "#!/bin/bash\nread -rp 'name: ' name\nread -rsN1\nstty size\necho \"hello $name\"\n",
    );
    let mut terminal = Terminal::run(&machine, &["exec", "--pty", "--", "hello"], 77, 13);
    terminal.shows("name:");
    assert!(terminal.is_raw());
    terminal.press("you\r");
    terminal.resize(60, 10);
    eventually("the size is told", || {
        let name = machine.sessions(&[])[0]["sessionId"]
            .as_str()
            .unwrap()
            .to_owned();
        let screen = machine.ok(&["process", "screen", "--json", &name]).json();
        screen["size"]["columns"] == 60
    });
    terminal.press("x");
    assert_eq!(terminal.exit_code(), Some(0));
    terminal.shows("10 60\nhello you");
}

#[test]
fn detaching_from_exec_leaves_the_command_in_the_background() {
    let machine = Machine::unguarded();
    machine.script(
        "bin/note",
        "#!/bin/sh\necho $$ > note.pid\nread line\nexit 3\n",
    );
    let mut terminal = Terminal::run(&machine, &["exec", "--pty", "--", "note"], 80, 24);
    let pid = written_pid(&machine.work().join("note.pid"));
    terminal.press(DETACH);
    assert_eq!(terminal.exit_code(), Some(0));
    terminal.shows("goes on; come back: interlock process attach");
    assert!(is_alive(&pid));
    let listed = machine.sessions(&["--agent", "main"]);
    assert_eq!(listed.len(), 1, "{listed:?}");
    let session = Session {
        machine: &machine,
        id: listed[0]["sessionId"].as_str().unwrap().to_owned(),
    };
    session.ok("submit", &[]);
    assert_eq!(session.ended(), ("completed".to_owned(), Some(3)));
}

#[test]
fn a_signal_to_exec_on_a_terminal_ends_the_command_and_gives_the_terminal_back() {
    let machine = Machine::unguarded();
    machine.script(
        "bin/note",
        "#!/bin/sh\necho $$ > note.pid\nexec sleep 600\n",
    );
    for (name, code) in [("TERM", 143), ("HUP", 129)] {
        let _ = fs::remove_file(machine.work().join("note.pid"));
        let mut terminal = Terminal::run(&machine, &["exec", "--pty", "--", "note"], 80, 24);
        let pid = written_pid(&machine.work().join("note.pid"));
        eventually("the terminal is raw", || terminal.is_raw());
        signal(&terminal.pid(), name);
        assert_eq!(terminal.exit_code(), Some(code));
        assert!(!is_alive(&pid));
    }
}

#[test]
fn a_killed_attachment_leaves_the_session_alone() {
    let machine = Machine::unguarded();
    let session = shell(&machine);
    let mut terminal = attach(&session);
    terminal.shows("attached");
    signal(&terminal.pid(), "KILL");
    assert_eq!(terminal.ended().signal(), Some(9));
    session.line("echo still-$((0+1))");
    session.shows("still-1");
}
