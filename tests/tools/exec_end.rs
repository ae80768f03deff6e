//! `interlock exec`: how runs end, what is left of them, and what becomes of their output.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use testkit::{Machine, eventually, finish, host_pid, is_alive, written, written_pid};

/// A child that does not listen to SIGTERM, with a child of its own that does not either.
const STUBBORN: &str = r#"#!/bin/bash
trap '' TERM
bash -c 'trap "" TERM; echo $$ > grandchild.pid; while :; do sleep 600; done' &
echo ready
echo $$ > child.pid
while :; do sleep 600; done
"#;

fn machine() -> Machine {
    let machine = Machine::open();
    machine.script("bin/stubborn", STUBBORN);
    machine
}

#[track_caller]
fn gone(machine: &Machine, names: &[&str]) {
    for name in names {
        let pid = written_pid(&machine.work().join(name));
        eventually(&format!("the end of {name} {pid}"), || !is_alive(&pid));
    }
}

fn piped(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-s", name, &pid])
            .status()
            .unwrap()
            .success()
    );
}

fn finished(child: Child) -> (Option<i32>, String, String) {
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), None, "{output:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn a_time_out_ends_the_whole_tree() {
    let machine = machine();
    let run = machine.run(&["exec", "--timeout", "3", "--", "stubborn"]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (124, "ready\n"),
        "{run:#?}"
    );
    assert!(
        run.stderr.contains("interlock: the time is over"),
        "{run:#?}"
    );
    gone(&machine, &["child.pid", "grandchild.pid"]);
    let run = machine.run(&[
        "exec",
        "--json",
        "--timeout",
        "3",
        "--",
        "echo begun; sleep 600",
    ]);
    let result = run.json();
    assert_eq!((run.code, run.stderr.as_str()), (124, ""));
    assert_eq!(result["status"], "failed");
    assert_eq!(result["timedOut"], true);
    assert_eq!(result["output"]["text"], "begun\n");
}

#[test]
fn the_time_limit_comes_from_the_call_then_the_config() {
    let machine = machine();
    machine.ok(&["config", "set", "tools.exec.timeoutSec", "1"]);
    assert_eq!(machine.exec("sleep 600").code, 124);
    // 0 is none, not one that is over at once.
    let run = machine.run(&["exec", "--timeout", "0", "--", "sleep 1.2 && echo awake"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "awake\n"), "{run:#?}");
    machine.write_config(
        "{ tools: { exec: { timeoutSec: 600 } },
           agents: { list: [{ id: 'ops', tools: { exec: { timeoutSec: 1 } } }] } }",
    );
    assert_eq!(
        machine
            .run(&["exec", "--agent", "ops", "--", "sleep 600"])
            .code,
        124
    );
}

#[test]
fn a_signal_to_interlock_ends_the_run_first() {
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let machine = machine();
        let child = piped(machine.command(&["exec", "--", "echo before; stubborn; echo after"]));
        written(&machine.work().join("child.pid"));
        written(&machine.work().join("grandchild.pid"));
        signal(&child, name);
        let (status, stdout, _) = finished(child);
        assert_eq!(
            (status, stdout.as_str()),
            (Some(code), "before\nready\n"),
            "{name}"
        );
        gone(&machine, &["child.pid", "grandchild.pid"]);
    }
}

/// Whenever the signal comes, even before the run has begun: nothing stays.
#[test]
fn an_early_signal_leaves_nothing_behind() {
    let machine = machine();
    machine.script("bin/note", "#!/bin/sh\necho $$ >> pids\nexec sleep 600\n");
    let key = machine.state().join("run.key");
    for _ in 0..20 {
        let _ = fs::remove_file(&key);
        let child = piped(machine.command(&["exec", "--", "note"]));
        // Made right before the start.
        eventually("the key", || key.exists());
        signal(&child, "INT");
        assert_eq!(finished(child).0, Some(130));
    }
    let pids = fs::read_to_string(machine.work().join("pids")).unwrap_or_default();
    for pid in pids.lines() {
        let pid = host_pid(machine.root(), pid);
        assert!(!is_alive(&pid), "{pid}");
    }
}

/// A reader that does not read holds up the run, but not its end.
#[test]
fn a_reader_that_does_not_read_stops_neither_time_out_nor_signal() {
    let machine = machine();
    machine.script(
        "bin/chatter",
        "#!/bin/sh\necho $$ > chatter.pid\nexec yes\n",
    );
    let pid_file = machine.work().join("chatter.pid");
    let child = piped(machine.command(&["exec", "--timeout", "3", "--", "chatter"]));
    let pid = written_pid(&pid_file);
    eventually("the time-out", || !is_alive(&pid));
    let (code, stdout, stderr) = finished(child);
    assert_eq!(code, Some(124));
    assert!(stdout.len() > 1024 * 1024 && stdout.starts_with("y\ny\n"));
    assert!(stderr.contains("interlock: the time is over"), "{stderr}");
    fs::remove_file(&pid_file).unwrap();
    let mut child = piped(machine.command(&["exec", "--", "chatter"]));
    let pid = written_pid(&pid_file);
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!is_alive(&pid));
}

#[test]
fn leftovers_are_named_and_ended() {
    let machine = machine();
    machine.script(
        "bin/leaver",
        "#!/bin/sh\nsleep 54321 >/dev/null 2>&1 &\necho $! > left.pid\nuntil grep -q 54321 /proc/$!/cmdline; do :; done\n",
    );
    for line in ["leaver", "leaver; true"] {
        let run = machine.exec(line);
        assert_eq!(run.code, 0, "{run:#?}");
        let note = run.stderr.trim_end();
        let pid = note.strip_prefix("interlock: left behind: sleep 54321 (pid ");
        let pid = pid.and_then(|rest| rest.strip_suffix(')')).unwrap();
        eventually("its end", || !is_alive(pid));
        gone(&machine, &["left.pid"]);
    }
    let run = machine.exec("sleep 54322 & echo on");
    assert_eq!((run.code, run.stdout.as_str()), (0, "on\n"));
    assert!(run.stderr.contains("left behind: sleep 54322"), "{run:#?}");
    let run = machine.run(&["exec", "--json", "--", "leaver"]);
    let leftovers = run.json()["leftovers"].clone();
    assert_eq!(leftovers[0]["command"], "sleep 54321", "{run:#?}");
    assert_eq!(run.stderr, "");
    gone(&machine, &["left.pid"]);
}

/// The exit status is that of the command, as a shell would report it.
#[test]
fn exit_codes_are_handed_through() {
    let machine = machine();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 1", 1),
        ("exit 42", 42),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        machine.script("bin/ending", &format!("#!/bin/sh\n{script}\n"));
        assert_eq!(machine.exec("ending").code, code, "{script}");
        assert_eq!(machine.exec("true; ending").code, code, "{script}");
        let run = machine.run(&["exec", "--json", "--", "ending"]);
        assert_eq!(
            (run.code, &run.json()["exitCode"]),
            (code, &code.into()),
            "{script}"
        );
    }
    let run = machine.run(&["exec", "--json", "--", "ending"]).json();
    assert_eq!(
        (&run["status"], &run["signal"]),
        (&"failed".into(), &9.into())
    );
}

const LARGE: usize = 20_000_000;

#[test]
fn large_output_passes_unharmed() {
    let machine = machine();
    let line = format!("seq 1 100000000 | head -c {LARGE}");
    let output = machine.command(&["exec", "--", &line]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let expected = Command::new("bash")
        .args(["-c", &line])
        .output()
        .unwrap()
        .stdout;
    assert_eq!(expected.len(), LARGE);
    assert!(output.stdout == expected, "{} bytes", output.stdout.len());
}

#[test]
fn a_json_result_shows_head_and_tail_and_counts_exactly() {
    let machine = machine();
    let line = format!("seq 1 100000000 | head -c {LARGE}");
    let output = machine.run(&["exec", "--json", "--", &line]).json()["output"].clone();
    assert_eq!(output["totalBytes"], LARGE);
    assert_eq!(output["shownBytes"], 200_000);
    assert_eq!(output["omittedBytes"], LARGE - 200_000);
    let text = output["text"].as_str().unwrap();
    let (head, rest) = text.split_once("[19800000 bytes with ").unwrap();
    let tail = rest.split_once(" left out here]\n").unwrap().1;
    let head = head.strip_suffix('\n').unwrap_or(head);
    assert!(head.starts_with("1\n2\n3\n"));
    assert_eq!((head.len(), tail.len()), (100_000, 100_000));
    machine.ok(&["config", "set", "tools.exec.maxOutputChars", "1000"]);
    let output = machine.run(&["exec", "--json", "--", "seq 1 10000"]).json()["output"].clone();
    assert_eq!(output["shownBytes"], 1000);
    assert!(output["text"].as_str().unwrap().ends_with("9999\n10000\n"));
}

#[test]
fn output_is_shown_before_the_run_ends() {
    let machine = machine();
    let mut child = piped(machine.command(&["exec", "--", "echo early; sleep 600"]));
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "early\n");
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn bytes_that_are_no_text_pass_as_they_are() {
    let machine = machine();
    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    machine.file("work/bytes", &bytes);
    let output = machine
        .command(&["exec", "--", "cat bytes"])
        .output()
        .unwrap();
    assert!(output.status.success() && output.stdout == bytes);
    machine.file("work/bytes", b"a\xffb\0c");
    let run = machine.run(&["exec", "--json", "--", "cat bytes"]).json();
    assert_eq!(run["output"]["text"], "a\u{fffd}b\0c");
    assert_eq!(run["output"]["totalBytes"], 5);
}

/// The reader is gone: the run goes on, and its exit code is reported.
#[test]
fn a_reader_that_went_away_does_not_end_the_run() {
    let machine = machine();
    let mut child =
        piped(machine.command(&["exec", "--", "seq 1 300000 && touch marker && false"]));
    let mut some = [0; 10];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut some).unwrap();
    drop(stdout);
    let (code, _, stderr) = finished(child);
    assert_eq!((code, stderr.as_str()), (Some(1), ""));
    assert!(machine.work().join("marker").exists());
    let closed = |script: &str| {
        let mut command = Command::new("/bin/sh");
        let line = format!("exec {} exec -- 'echo hello' {script}", crate::BINARY);
        command.args(["-c", &line]).current_dir(machine.work());
        command.env("HOME", machine.root().join("home"));
        finish(&mut command)
    };
    for streams in [">&-", "2>&-", "<&- >&- 2>&-"] {
        let run = closed(streams);
        assert_eq!(
            (run.code, run.stderr.as_str()),
            (0, ""),
            "{streams}: {run:#?}"
        );
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    if !Path::new("/dev/full").exists() {
        println!("skipped: there is no /dev/full");
        return;
    }
    let machine = machine();
    for flags in [
        &["exec", "--", "echo hello"][..],
        &["exec", "--json", "--", "true"],
    ] {
        let mut command = machine.command(flags);
        command.stdout(
            fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap(),
        );
        let output = command.stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("OUTPUT_LOST"), "{stderr}");
    }
}

#[test]
fn an_ordinary_users_runs_end_as_well() {
    if !testkit::is_root() {
        println!("skipped: this user is an ordinary one");
        return;
    }
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    machine.allow_every_program();
    machine.script("bin/stubborn", STUBBORN);
    let run = machine.run(&["exec", "--timeout", "3", "--", "stubborn"]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (124, "ready\n"),
        "{run:#?}"
    );
    gone(&machine, &["child.pid", "grandchild.pid"]);
    machine.script(
        "bin/note",
        "#!/bin/sh\necho $$ > note.pid\nexec sleep 600\n",
    );
    let child = piped(machine.command(&["exec", "--", "note"]));
    let run = written_pid(&machine.work().join("note.pid"));
    signal(&child, "INT");
    assert_eq!(finished(child).0, Some(130));
    assert!(!is_alive(&run));
}
