//! Real programs on a terminal, driven as an agent drives them: keys, pastes and looks at the screen.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use testkit::sessions::Session;
use testkit::{Machine, eventually};

/// Whether the program is there; says so if it is not.
fn has(program: &str) -> bool {
    let found = Path::new(program).exists();
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

fn on_terminal<'a>(machine: &'a Machine, command: &str) -> Session<'a> {
    machine.background(&["--pty", "--env", "LC_ALL=C.UTF-8"], command)
}

/// A shell with a prompt that nothing else looks like.
fn shell(machine: &Machine) -> Session<'_> {
    machine.file(
        "work/rc",
        "PS1='ready> '\nbind 'set enable-bracketed-paste on'\n",
    );
    let session = on_terminal(machine, "/bin/bash --rcfile rc -i");
    session.shows("ready>");
    session
}

#[test]
fn a_file_is_edited_saved_and_left_with_vim() {
    if !has("/usr/bin/vim") {
        return;
    }
    let machine = Machine::unguarded();
    let file = machine.file("work/notes.txt", "first\nsecond\nthird\n");
    let session = on_terminal(&machine, "vim -u NONE -N notes.txt");
    session.until("the file", |rows| {
        rows.starts_with(&["first", "second", "third", "~"].map(str::to_owned))
    });
    let screen = session.json("screen", &[]);
    assert_eq!(screen["isAlternate"], true, "{screen}");
    session.keys(&["Down", "o"]);
    session.shows("-- INSERT --");
    session.keys(&["--literal", "between ü 漢字", "Escape"]);
    session.shows("between ü 漢字");
    session.line(":wq");
    assert_eq!(session.ended(), ("completed".to_owned(), Some(0)));
    assert_eq!(
        fs::read_to_string(file).unwrap(),
        "first\nsecond\nbetween ü 漢字\nthird\n"
    );
    let screen = session.json("screen", &[]);
    assert_eq!(screen["isAlternate"], false, "{screen}");
}

#[test]
fn a_paste_into_vim_is_text_and_no_commands() {
    if !has("/usr/bin/vim") {
        return;
    }
    let machine = Machine::unguarded();
    let session = on_terminal(&machine, "vim -u NONE -N pasted.txt");
    session.shows("~");
    session.keys(&["i"]);
    session.shows("-- INSERT");
    session.ok("paste", &[":q!\nsecond line\n"]);
    session.shows("second line");
    session.keys(&["Escape"]);
    session.line(":wq");
    assert_eq!(session.ended().0, "completed");
    let text = fs::read_to_string(machine.work().join("pasted.txt")).unwrap();
    assert!(text.contains(":q!\nsecond line\n"), "{text:?}");
}

#[test]
fn less_pages_and_searches() {
    if !has("/usr/bin/less") {
        return;
    }
    let machine = Machine::unguarded();
    let lines: Vec<String> = (1..=500).map(|number| format!("line {number}\n")).collect();
    let lines = lines.concat();
    machine.file("work/lines", lines);
    let session = on_terminal(&machine, "less lines");
    session.until("the first page", |rows| {
        rows[0] == "line 1" && rows[28] == "line 29"
    });
    session.keys(&["Space"]);
    session.until("the second page", |rows| rows[0] == "line 30");
    session.line("/line 250$");
    session.until("the line that was searched", |rows| rows[0] == "line 250");
    session.keys(&["PageUp"]);
    session.until("a page up", |rows| rows[0] == "line 221");
    session.keys(&["g"]);
    session.until("the beginning", |rows| rows[0] == "line 1");
    session.keys(&["q"]);
    assert_eq!(session.ended(), ("completed".to_owned(), Some(0)));
}

#[test]
fn top_shows_processes_and_quits() {
    if !has("/usr/bin/top") {
        return;
    }
    let machine = Machine::unguarded();
    let session = on_terminal(&machine, "top");
    session.until("the table", |rows| {
        let text = rows.join("\n");
        text.contains("load average") && text.contains("PID USER")
    });
    session.keys(&["q"]);
    assert_eq!(session.ended(), ("completed".to_owned(), Some(0)));
}

#[test]
fn htop_draws_its_bars_and_quits() {
    if !has("/usr/bin/htop") {
        return;
    }
    let machine = Machine::unguarded();
    let session = on_terminal(&machine, "htop");
    session.shows("F10");
    session.keys(&["F10"]);
    assert_eq!(session.ended(), ("completed".to_owned(), Some(0)));
}

#[test]
fn python_answers_at_its_prompt() {
    if !has("/usr/bin/python3") {
        return;
    }
    let machine = Machine::unguarded();
    let session = on_terminal(&machine, "/usr/bin/python3 -q");
    session.shows(">>>");
    session.line("6 * 7");
    session.until("the result", |rows| rows.iter().any(|row| row == "42"));
    session.line("def double(x):");
    session.shows("...");
    session.line("    return 2 * x");
    session.keys(&["Enter"]);
    session.line("double('ab')");
    session.shows("'abab'");
    session.keys(&["Up", "Enter"]);
    session.until("the same once more", |rows| {
        rows.iter().filter(|row| *row == "'abab'").count() == 2
    });
    session.keys(&["C-c"]);
    session.shows("KeyboardInterrupt");
    session.keys(&["C-d"]);
    assert_eq!(session.ended(), ("completed".to_owned(), Some(0)));
}

#[test]
fn an_interactive_shell_controls_its_jobs() {
    let machine = Machine::unguarded();
    let session = shell(&machine);
    session.line("sleep 100");
    // A key for a signal drops what was typed before it and not read yet.
    eventually("the line was read", || {
        session.json("screen", &[])["cursor"]["row"] == 1
    });
    // Pressed again until it has an effect: the shell may not have handed over the terminal yet.
    eventually("it is stopped", || {
        session.keys(&["C-z"]);
        session.rows().iter().any(|row| row.contains("Stopped"))
    });
    session.line("jobs; echo jobs=$?");
    session.shows("jobs=0");
    session.line("fg");
    session.until("the job's command", |rows| {
        rows.iter().any(|row| row == "sleep 100")
    });
    eventually("it is interrupted", || {
        session.keys(&["C-c"]);
        session.rows().iter().any(|row| row.ends_with("^C"))
    });
    session.line("echo status=$?");
    session.shows("status=130");
    session.line("exit 7");
    assert_eq!(session.ended(), ("completed".to_owned(), Some(7)));
}

#[test]
fn what_is_typed_at_a_password_prompt_is_not_shown() {
    let machine = Machine::unguarded();
    let text = "#!/bin/bash\nread -rsp 'Password: ' word\necho\n[ \"$word\" = 'open sesame' ] && echo welcome\n";
    machine.script("bin/login", text);
    let session = on_terminal(&machine, "login");
    session.shows("Password:");
    session.line("open sesame");
    assert_eq!(session.ended().1, Some(0));
    let log = session.ok("log", &[]).stdout;
    assert!(log.contains("welcome"), "{log}");
    assert!(!log.contains("sesame"), "{log}");
}

#[test]
fn getpass_of_python_is_not_shown_either() {
    if !has("/usr/bin/python3") {
        return;
    }
    let machine = Machine::unguarded();
    machine.file(
        "work/ask.py",
        "import getpass\nprint(len(getpass.getpass('Secret: ')))\n",
    );
    let session = on_terminal(&machine, "/usr/bin/python3 ask.py");
    session.shows("Secret:");
    session.line("hunter22");
    assert_eq!(session.ended().1, Some(0));
    let log = session.ok("log", &[]).stdout;
    assert!(log.contains("\n8"), "{log:?}");
    assert!(!log.contains("hunter"), "{log}");
}

#[test]
fn the_interrupt_key_ends_a_program_and_submit_is_enter() {
    let machine = Machine::unguarded();
    let session = on_terminal(&machine, "cat");
    session.keys(&["--literal", "typed"]);
    session.ok("submit", &[]);
    session.until("what cat wrote", |rows| {
        rows.starts_with(&["typed", "typed"].map(str::to_owned))
    });
    session.keys(&["C-c"]);
    assert_eq!(session.ended(), ("failed".to_owned(), Some(130)));
}

#[test]
fn wide_and_combined_characters_stand_where_they_should() {
    let machine = Machine::unguarded();
    let session = shell(&machine);
    session.line("printf '漢字|é|e\\u0301|🙂|\\n'");
    session.until("the characters", |rows| {
        rows.iter().any(|row| row == "漢字|é|e\u{301}|🙂|")
    });
    session.keys(&["--literal", "漢"]);
    session.shows("ready> 漢");
    let screen = session.json("screen", &[]);
    assert_eq!(screen["cursor"]["column"], "ready> ".len() + 2, "{screen}");
}

#[test]
fn several_lines_pasted_into_a_shell_wait_for_enter() {
    let machine = Machine::unguarded();
    let session = shell(&machine);
    session.ok("paste", &["touch pasted-1\ntouch pasted-2\u{3}"]);
    session.shows("touch pasted-2");
    assert!(!machine.work().join("pasted-1").exists());
    // What would have acted on the line is to be seen there.
    session.shows("touch pasted-2␃");
    session.keys(&["C-u", "Enter"]);
    session.ok("paste", &["--no-bracket", "touch typed\n"]);
    eventually("the typed line ran", || {
        machine.work().join("typed").exists()
    });
    assert!(!machine.work().join("pasted-1").exists());
}

#[test]
fn keys_follow_the_mode_that_the_program_asked_for() {
    let machine = Machine::unguarded();
    machine.script(
        "bin/keys",
        "#!/bin/bash\nstty -icanon -echo\nprintf '\\e[?1h'\necho on\nread -rN3 keys\nprintf '%q\\n' \"$keys\"\nread -rN2 keys\nprintf '%q\\n' \"$keys\"\n",
    );
    let session = on_terminal(&machine, "keys");
    session.shows("on");
    session.keys(&["Up"]);
    session.shows("$'\\EOA'");
    let sent = session.json("send-keys", &["--hex", "01", "--hex", "0xzz", "M-x"]);
    assert_eq!(sent["warnings"].as_array().unwrap().len(), 1, "{sent}");
    session.shows("$'\\001\\E'");
}
