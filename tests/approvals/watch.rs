//! `interlock approvals watch`: the inbox on a real terminal, and without one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::pty::OpenptFlags;
use serde_json::Value;
use testkit::asking::Waiting;
use testkit::terminal::Terminal;
use testkit::{Machine, eventually};

fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine
}

fn watch(machine: &Machine) -> Terminal {
    let terminal = Terminal::run(machine, &["approvals", "watch"], 100, 30);
    terminal.shows("interlock approvals:");
    terminal
}

/// Whether any surface of `watch` said this of a delivery of the approval.
fn delivered(machine: &Machine, id: &str, surface: &str, state: &str) -> bool {
    let found = machine.database().query_row(
        "SELECT count(*) FROM approval_delivery JOIN approval USING (number)
         WHERE approval.short_id = ?1 AND surface LIKE ?2 || '%' AND state = ?3",
        [id, surface, state],
        |row| row.get::<_, i64>(0),
    );
    found.unwrap() > 0
}

#[test]
fn what_comes_is_shown_whole_and_allowed_by_a_key() {
    let machine = started();
    let mut terminal = watch(&machine);
    terminal.shows("nothing waits");
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    terminal.shows("touch marker");
    let id = waiting.id.clone();
    for part in [
        &*id,
        "1 waiting",
        "agent",
        "main",
        "binding",
        "native",
        "would store",
        "left",
    ] {
        terminal.shows(part);
    }
    // The one who asks knows that it is seen.
    eventually("a receipt", || {
        delivered(&machine, &id, "companion", "seen")
    });
    terminal.press("jo");
    let run = waiting.end();
    assert_eq!(run.code, 0, "{run:#?}");
    assert!(run.stderr.contains("allow-once by"), "{run:#?}");
    assert!(machine.work().join("marker").exists());
    terminal.shows("has ended");
    terminal.press("q");
    assert_eq!(terminal.exit_code(), Some(0));
    assert!(!machine.state().join("exec-approvals.sock").exists());
}

#[test]
fn a_key_denies() {
    let machine = started();
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let terminal = watch(&machine);
    terminal.shows("touch marker");
    terminal.press("jd");
    let run = waiting.end();
    assert_eq!(run.code, 3, "{run:#?}");
    assert!(run.stderr.contains("APPROVAL_DENIED"), "{run:#?}");
    assert!(!machine.work().join("marker").exists());
}

#[test]
fn secrets_are_masked_until_they_are_asked_for() {
    let machine = started();
    machine.put_down(&[
        "--",
        "touch --token=ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    ]);
    let terminal = watch(&machine);
    terminal.shows("secrets are masked");
    assert!(
        !terminal.text().contains("klmnopqrst"),
        "{}",
        terminal.text()
    );
    terminal.press("r");
    terminal.shows("ghp_abcdefghijklmnopqrstuvwxyz0123456789");
    terminal.press("r");
    terminal.until("masked again", |picture| {
        !picture.rows.join("\n").contains("klmnopqrst")
    });
}

#[test]
fn what_is_broad_is_confirmed_first() {
    let machine = started();
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let terminal = watch(&machine);
    terminal.shows("touch marker");
    terminal.press("ja");
    terminal.shows("allow-always: y confirms");
    terminal.press("x");
    terminal.shows("not decided");
    assert_eq!(machine.pending_ids(), [waiting.id.as_str()]);
    terminal.press("a");
    terminal.shows("allow-always: y confirms");
    terminal.press("y");
    terminal.shows("stored for agent main");
    assert_eq!(waiting.end().code, 0);
    assert_eq!(machine.exec("touch marker").code, 0);
}

#[test]
fn a_lease_takes_the_time_that_is_typed() {
    let machine = started();
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let terminal = watch(&machine);
    terminal.shows("touch marker");
    terminal.press("jl");
    terminal.shows("how long? 1h_");
    terminal.press("\x7f\x7f90x\r");
    terminal.shows("not a duration");
    terminal.press("\x7fm\r");
    let run = waiting.end();
    assert_eq!(run.code, 0, "{run:#?}");
    let lease: i64 = machine
        .database()
        .query_row("SELECT lease_for_ms FROM approval", [], |row| row.get(0))
        .unwrap();
    assert_eq!(lease, 90 * 60 * 1000);
}

#[test]
fn when_the_one_looked_at_ends_no_key_decides_the_next() {
    let machine = started();
    let first = machine.put_down(&["--", "touch one"]);
    let second = machine.put_down(&["--", "touch two"]);
    let terminal = watch(&machine);
    terminal.shows("2 waiting");
    terminal.press("k");
    machine.ok(&["approvals", "deny", &first]);
    terminal.shows("has ended");
    terminal.shows("1 waiting");
    // Every key that decides, and a confirmation.
    terminal.press("yosald");
    terminal.shows("choose the next one first");
    assert_eq!(machine.pending()[0]["id"], second.as_str());
    terminal.press("jo");
    eventually("decided", || machine.pending().is_empty());
    assert_eq!(machine.run_approved(&second, &["--", "touch two"]).code, 0);
    assert!(!machine.work().join("one").exists());
}

#[test]
fn others_that_come_and_go_do_not_move_the_selection() {
    let machine = started();
    let before = machine.put_down(&["--", "touch before"]);
    let waiting = Waiting::new(&machine, &["--", "touch mine"]);
    let terminal = watch(&machine);
    terminal.shows("2 waiting");
    terminal.press("j");
    terminal.until("the second is selected", |picture| {
        let selected = format!("> {}", waiting.id);
        picture.rows.iter().any(|row| row.starts_with(&selected))
    });
    machine.put_down(&["--", "touch after"]);
    terminal.shows("3 waiting");
    machine.ok(&["approvals", "deny", &before]);
    terminal.shows("2 waiting");
    terminal.press("o");
    assert_eq!(waiting.end().code, 0);
    assert!(machine.work().join("mine").exists());
    assert_eq!(machine.pending().len(), 1);
}

#[test]
fn a_command_that_does_not_fit_is_read_to_its_end_before_it_is_allowed() {
    let machine = started();
    let long = format!(
        "touch {} marker",
        "x".repeat(200).repeat(12).replace("xxxxx", "xxxx ")
    );
    let waiting = Waiting::new(&machine, &["--", &long]);
    let terminal = Terminal::run(&machine, &["approvals", "watch"], 60, 14);
    terminal.shows("more lines: PgDn");
    terminal.press("jo");
    terminal.shows("the command goes on below");
    assert_eq!(machine.pending_ids(), [waiting.id.as_str()]);
    // A terminal on which it fits shows all of it at once.
    terminal.resize(100, 60);
    terminal.shows("marker");
    terminal.press("o");
    assert_eq!(waiting.end().code, 0);
}

#[test]
fn it_is_drawn_anew_for_every_size() {
    let machine = started();
    machine.put_down(&["--", "touch marker"]);
    let mut terminal = watch(&machine);
    for (columns, rows) in [(40, 10), (1, 1), (3, 2), (200, 60), (80, 24)] {
        terminal.resize(columns, rows);
        if columns >= 40 {
            terminal.shows("touch marker");
            terminal.until("keys at the bottom", |picture| {
                let last = picture.rows.iter().rfind(|row| !row.trim().is_empty());
                picture.rows.len() == usize::from(rows)
                    && last.is_some_and(|row| row.contains("o once"))
            });
        }
    }
    terminal.press("\x03");
    assert_eq!(terminal.exit_code(), Some(0));
}

#[test]
fn what_is_pasted_decides_nothing() {
    let machine = started();
    machine.put_down(&["--", "touch marker"]);
    let terminal = watch(&machine);
    terminal.shows("touch marker");
    terminal.press("j\x1b[200~oooddd\x1b[201~l");
    terminal.shows("how long?");
    assert_eq!(machine.pending().len(), 1);
}

#[test]
fn the_diff_of_an_edited_script_is_shown() {
    let machine = started();
    let path = machine.script("work/do.sh", "#!/bin/sh\necho one\n");
    machine.approved(&["--", "./do.sh"]);
    fs::write(path, "#!/bin/sh\necho two\n").unwrap();
    machine.put_down(&["--", "./do.sh"]);
    let terminal = watch(&machine);
    terminal.shows("1 lines added, 1 removed");
    terminal.shows("-echo one");
    terminal.shows("+echo two");
}

#[test]
fn only_one_companion_listens() {
    let machine = started();
    let mut terminal = watch(&machine);
    let socket = machine.state().join("exec-approvals.sock");
    let mode = fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let second = machine.run(&["approvals", "watch", "--plain"]);
    second.refused(1, "COMPANION_BUSY");
    assert!(second.stderr.contains(&terminal.pid()), "{second:#?}");
    assert!(second.stderr.contains("--no-listen"), "{second:#?}");
    // A killed watch leaves a socket and a lock behind that hinder no other one.
    terminal.kill();
    assert!(socket.exists());
    let mut third = watch(&machine);
    third.press("q");
    assert_eq!(third.exit_code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let machine = started();
    let mut terminal = watch(&machine);
    let kill = std::process::Command::new("/bin/kill")
        .arg(terminal.pid())
        .status();
    assert!(kill.unwrap().success());
    assert_eq!(terminal.exit_code(), Some(128 + 15));
    assert!(!machine.state().join("exec-approvals.sock").exists());
}

#[test]
fn it_ends_with_its_terminal() {
    let machine = started();
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let window = rustix::pty::openpt(flags).unwrap();
    rustix::pty::grantpt(&window).unwrap();
    rustix::pty::unlockpt(&window).unwrap();
    let terminal = rustix::pty::ioctl_tiocgptpeer(&window, flags).unwrap();
    let mut command = machine.command(&["approvals", "watch"]);
    command
        .stdin(Stdio::from(terminal.try_clone().unwrap()))
        .stdout(Stdio::from(terminal.try_clone().unwrap()))
        .stderr(Stdio::from(terminal));
    let mut child = command.spawn().unwrap();
    drop(command);
    let socket = machine.state().join("exec-approvals.sock");
    eventually("it listens", || socket.exists());
    // Nothing holds it open any more, and no signal tells of that.
    drop(window);
    assert!(child.wait().unwrap().code().is_some(), "ended by a signal");
    assert!(!socket.exists());
}

/// `approvals watch` without a terminal.
struct Plain {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Plain {
    fn new(machine: &Machine, arguments: &[&str]) -> Self {
        let mut all = vec!["approvals", "watch"];
        all.extend(arguments);
        let mut command = machine.command(&all);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self {
            child,
            stdin,
            lines,
        }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(Duration::from_mins(1)).unwrap()
    }

    fn until(&self, text: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(text) {
                return line;
            }
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    fn quit(mut self) -> Option<i32> {
        self.say("quit");
        self.child.wait().unwrap().code()
    }
}

#[test]
fn without_a_terminal_blocks_are_printed_and_lines_decide() {
    let machine = started();
    let mut plain = Plain::new(&machine, &[]);
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    let first = plain.until("touch marker");
    assert!(first.starts_with(&waiting.id), "{first}");
    plain.until("would store");
    plain.say(&format!("approve {}", waiting.id));
    plain.until(&format!("{}: allowed once", waiting.id));
    assert_eq!(waiting.end().code, 0);
    let denied = Waiting::new(&machine, &["--", "touch other"]);
    plain.until("touch other");
    plain.say("what is this");
    plain.say("approve");
    plain.say("deny kkkkk");
    plain.say(&format!("deny {} not on  this machine", denied.id));
    plain.until(&format!("{}: denied", denied.id));
    let run = denied.end();
    assert_eq!(run.code, 3);
    assert!(run.stderr.contains("not on this machine"), "{run:#?}");
    assert_eq!(plain.quit(), Some(0));
    assert!(!machine.work().join("other").exists());
}

#[test]
fn lines_choose_a_form_and_decide_equal_ones_together() {
    let machine = started();
    machine.native("tool");
    let mut plain = Plain::new(&machine, &["--filter", "tool"]);
    machine.put_down(&["--", "touch hidden"]);
    let wide = Waiting::new(&machine, &["--", "tool build all"]);
    plain.until("tool build all");
    plain.say(&format!("approve {} always sideways", wide.id));
    plain.say(&format!("approve {} always leading:1", wide.id));
    plain.until(&format!("{}: allowed once", wide.id));
    plain.until("stored for agent main");
    assert_eq!(wide.end().code, 0);
    let first = Waiting::new(&machine, &["--", "tool run"]);
    let second = Waiting::new(&machine, &["--", "tool run"]);
    plain.until(&second.id);
    plain.say(&format!("deny-equal {}", first.id));
    plain.until("denied");
    plain.until("denied");
    assert_eq!((first.end().code, second.end().code), (3, 3));
    assert_eq!(plain.quit(), Some(0));
    assert_eq!(machine.pending().len(), 1);
}

#[test]
fn json_lines_tell_everything_that_happens() {
    let machine = started();
    // Before it is watched for: whether its caller has ended would be a race otherwise.
    let id = machine.put_down(&["--", "touch marker"]);
    let mut plain = Plain::new(&machine, &["--json", "--no-listen"]);
    let shown = plain.json();
    assert_eq!(
        (&shown["type"], &shown["approval"]["id"]),
        (&"pending".into(), &id.as_str().into())
    );
    assert_eq!(shown["callerHasEnded"], true);
    plain.say("approve zzzzz");
    assert_eq!(plain.json()["code"], "APPROVAL_UNKNOWN");
    plain.say(&format!("approve {id} for 30m uses 2"));
    let decided = plain.json();
    assert_eq!(
        (&decided["type"], &decided["decision"]),
        (&"decided".into(), &"lease".into())
    );
    let other = machine.put_down(&["--", "touch other"]);
    assert_eq!(plain.json()["approval"]["id"], other.as_str());
    machine.ok(&["approvals", "deny", &other]);
    let ended = plain.json();
    assert_eq!(
        (&ended["type"], &ended["id"]),
        (&"ended".into(), &other.as_str().into())
    );
    assert!(
        ended["how"].as_str().unwrap().starts_with("denied by"),
        "{ended}"
    );
    assert_eq!(plain.quit(), Some(0));
}

#[test]
fn an_ordinary_user_watches_and_decides() {
    if !testkit::is_root() {
        println!("skipped: the tests themselves run as an ordinary user");
        return;
    }
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    machine.start();
    let terminal = watch(&machine);
    let waiting = Waiting::new(&machine, &["--", "touch marker"]);
    terminal.shows("touch marker");
    let id = waiting.id.clone();
    eventually("a receipt", || {
        delivered(&machine, &id, "companion", "seen")
    });
    terminal.press("jo");
    assert_eq!(waiting.end().code, 0);
    assert!(machine.work().join("marker").exists());
}
