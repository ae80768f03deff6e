//! `interlock exec` at a terminal: the question is asked right there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::OpenptFlags;
use testkit::{Machine, eventually};

/// A terminal with an approver in front of it.
struct Terminal {
    master: File,
    path: String,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    fn new() -> Self {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        rustix::pty::grantpt(&master).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let path = rustix::pty::ptsname(&master, Vec::new()).unwrap();
        let master = File::from(master);
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut reader, place) = (master.try_clone().unwrap(), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length) = reader.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                place.lock().unwrap().push_str(&text);
            }
        });
        Self {
            master,
            path: path.into_string().unwrap(),
            shown,
        }
    }

    fn open(&self) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).open(&self.path).unwrap()
    }

    fn start(&self, machine: &Machine, command: &str) -> Child {
        let mut call = machine.command(&["exec", "--", command]);
        self.connect(&mut call).spawn().unwrap()
    }

    fn connect<'a>(&self, call: &'a mut Command) -> &'a mut Command {
        call.env("NO_COLOR", "1")
            .stdin(Stdio::from(self.open()))
            .stderr(Stdio::from(self.open()))
            .stdout(Stdio::piped())
            .process_group(0)
    }

    fn shows(&self, text: &str) {
        eventually(text, || self.shown.lock().unwrap().contains(text));
    }

    fn asks_again(&self) {
        eventually("asked again", || self.text().matches(QUESTION).count() == 2);
    }

    fn type_in(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    fn text(&self) -> String {
        self.shown.lock().unwrap().clone()
    }
}

fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine
}

/// As the machine's PATH finds it.
fn touch() -> String {
    let path = std::fs::canonicalize("/usr/bin/touch").unwrap();
    path.display().to_string()
}

const QUESTION: &str = "then Enter:";

#[test]
fn the_question_shows_what_it_is_about_and_yes_runs_it_once() {
    let machine = started();
    let mut terminal = Terminal::new();
    // Keeps the terminal alive between two programs.
    let _held = terminal.open();
    let child = terminal.start(&machine, "touch marker");
    terminal.shows(QUESTION);
    let text = terminal.text();
    for part in [
        "touch marker",
        "agent",
        "binding",
        "native",
        &format!("would store {}", touch()),
        "[y] allow once",
        "[n] deny",
        "[s] allow for this session",
        "[a] always",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    terminal.type_in("what?\n");
    terminal.asks_again();
    assert!(!machine.work().join("marker").exists());
    terminal.type_in("y\n");
    assert!(child.wait_with_output().unwrap().status.success());
    assert!(machine.work().join("marker").exists());
    terminal.shows("allow-once by");
}

#[test]
fn what_was_typed_before_the_question_is_no_answer() {
    let machine = started();
    let mut terminal = Terminal::new();
    let _held = terminal.open();
    terminal.type_in("y\ny\ny\n");
    let child = terminal.start(&machine, "touch marker");
    terminal.shows(QUESTION);
    terminal.type_in("n not now\n");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    terminal.shows("not now");
    assert!(!machine.work().join("marker").exists());
    terminal.shows("APPROVAL_DENIED");
}

#[test]
fn always_stores_and_says_what() {
    let machine = started();
    let mut terminal = Terminal::new();
    let _held = terminal.open();
    let child = terminal.start(&machine, "touch marker");
    terminal.shows(QUESTION);
    terminal.type_in("a\n");
    assert!(child.wait_with_output().unwrap().status.success());
    terminal.shows(&format!("stored for agent main: {}", touch()));
    assert_eq!(machine.exec("touch marker").code, 0);
}

#[test]
fn a_wider_form_is_chosen_by_its_name() {
    let machine = started();
    let mut terminal = Terminal::new();
    let _held = terminal.open();
    let child = terminal.start(&machine, "touch -a marker");
    terminal.shows(QUESTION);
    for part in [
        "[a leading:1]",
        // As root with the content of the program behind it.
        &format!("as leading:1: {} (args -a '**'", touch()),
    ] {
        assert!(
            terminal.text().contains(part),
            "{part}: {}",
            terminal.text()
        );
    }
    // It writes files, so it is not trusted with any arguments.
    assert!(!terminal.text().contains("[a program]"));
    terminal.type_in("a leading:7\n");
    terminal.shows("does not offer allow-always as `leading:7`");
    terminal.asks_again();
    terminal.type_in("a leading:1\n");
    assert!(child.wait_with_output().unwrap().status.success());
    terminal.shows(&format!("stored for agent main: {} (args -a '**'", touch()));
    assert_eq!(machine.exec("touch -a other").code, 0);
    machine.exec("touch other").refused(3, "APPROVAL_PENDING");
}

#[test]
fn always_is_not_offered_for_inline_code() {
    let machine = started();
    let mut terminal = Terminal::new();
    let _held = terminal.open();
    let child = terminal.start(&machine, "sh -c 'echo $HOME > marker'");
    terminal.shows(QUESTION);
    assert!(!terminal.text().contains("[a]"), "{}", terminal.text());
    terminal.type_in("a\n");
    terminal.shows("does not offer allow-always");
    terminal.asks_again();
    terminal.type_in("n\n");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(3));
    assert!(!machine.work().join("marker").exists());
}

#[test]
fn another_approver_may_answer_first() {
    let machine = started();
    let terminal = Terminal::new();
    let _held = terminal.open();
    let child = terminal.start(&machine, "touch marker");
    terminal.shows(QUESTION);
    let id = machine.pending_ids().pop().unwrap();
    machine.ok(&["approvals", "approve", &id]);
    assert!(child.wait_with_output().unwrap().status.success());
    assert!(machine.work().join("marker").exists());
}
