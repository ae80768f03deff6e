//! `interlock process`: what is listed, read, written and ended.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use testkit::sessions::Session;
use testkit::{Machine, eventually, is_alive, written_pid};

/// Does not listen to SIGTERM, and has a child that does not either, in another session.
const STUBBORN: &str = r#"#!/bin/bash
trap '' TERM
setsid bash -c 'trap "" TERM; echo $$ > grandchild.pid; while :; do sleep 600; done' &
echo ready
echo $$ > child.pid
while :; do sleep 600; done
"#;

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// A session as a supervisor that is gone left it, with a transcript of no bytes.
fn left_on_disk(machine: &Machine, name: &str, seconds_ago: u64, change: &Value) {
    machine.leave_session(name, now_ms() - seconds_ago * 1000 - 500, change);
}

#[test]
fn the_list_is_aligned_and_says_how_each_session_stands() {
    let machine = Machine::unguarded();
    let none = machine.process(&["list"]);
    assert_eq!(
        (none.code, none.stdout.as_str(), none.stderr.as_str()),
        (
            0,
            "",
            "interlock: no sessions; start one: interlock exec --background -- COMMAND\n"
        )
    );
    for (name, seconds, change) in [
        ("calm-river", 3 * 86_400, json!({})),
        (
            "brave-otter",
            7_200,
            json!({ "/outcome": { "state": "exited", "code": 3 }, "/session/title": "make\u{1b}[31m all" }),
        ),
        (
            "quick-fox",
            180,
            json!({ "/outcome": { "state": "signalled", "signal": 11 }, "/session/agentId": "ops" }),
        ),
        (
            "slow-snail",
            120,
            json!({ "/outcome": { "state": "timedOut", "signal": null } }),
        ),
        (
            "lonely-wolf",
            60,
            json!({ "/outcome": { "state": "running" }, "/endedMs": null }),
        ),
    ] {
        left_on_disk(&machine, name, seconds, &change);
    }
    fs::write(machine.state().join("sessions/quick-fox/killed"), "").unwrap();
    insta::assert_snapshot!("process_list", machine.process(&["list"]).stdout);
    insta::assert_snapshot!(
        "process_list_of_an_agent",
        machine.process(&["list", "--agent", "main"]).stdout
    );
    let listed = machine.sessions(&[]);
    let statuses: Vec<&str> = listed
        .iter()
        .map(|row| row["status"].as_str().unwrap())
        .collect();
    assert_eq!(
        statuses,
        ["lost", "failed", "killed", "completed", "completed"]
    );
    let mut first = listed[4].clone();
    for (field, value) in first.as_object_mut().unwrap() {
        if field.ends_with("AtMs") || field == "ageMs" {
            *value = "[TIME]".into();
        }
    }
    insta::assert_snapshot!(
        "process_list_json",
        serde_json::to_string_pretty(&first).unwrap()
    );
}

#[test]
fn help_and_refusals_look_like_this() {
    let machine = Machine::unguarded();
    left_on_disk(&machine, "calm-river", 70, &json!({}));
    left_on_disk(&machine, "calm-rabbit", 60, &json!({}));
    left_on_disk(
        &machine,
        "lonely-wolf",
        60,
        &json!({ "/outcome": { "state": "running" }, "/endedMs": null }),
    );
    let mut said = String::new();
    for arguments in [
        &["log", "no-such"][..],
        &["log", "../../../etc/passwd"],
        &["log", "bad\u{1b}[2J\u{202e}name"],
        &["log", "calm-r"],
        &["log", ""],
        &["kill", "calm-river"],
        &["kill", "lonely-wolf"],
        &["kill", "calm-river", "--signal", "NOTHING"],
        &["write", "calm-river", "x"],
        &["screen", "calm-river"],
        &["attach", "lonely-wolf"],
        &["send-keys", "calm-river"],
        &["poll", "calm-river", "--timeout", "30001"],
    ] {
        let run = machine.process(arguments);
        said += &format!(
            "$ interlock process {}\n[{}]\n{}\n",
            arguments.join(" ").escape_debug(),
            run.code,
            run.stderr
        );
        assert_eq!(run.stdout, "", "{run:#?}");
    }
    insta::assert_snapshot!("process_refusals", said);
    insta::assert_snapshot!("process_help", machine.process(&["--help"]).stdout);
}

#[test]
fn every_command_has_an_example_and_hints_can_be_pasted() {
    let machine = Machine::unguarded();
    for command in [
        "list",
        "poll",
        "log",
        "write",
        "send-keys",
        "submit",
        "paste",
        "screen",
        "kill",
        "clear",
        "remove",
        "attach",
    ] {
        let help = machine.process(&[command, "--help"]).stdout;
        assert!(
            help.contains(&format!("\n  interlock process {command}")),
            "{help}"
        );
    }
    let session = machine.background(&[], "sleep 600");
    let state = machine.state();
    let run = machine.run(&[
        "--state-dir",
        state.to_str().unwrap(),
        "process",
        "clear",
        &session.id,
    ]);
    run.refused(1, "SESSION_RUNNING");
    let hint = run.stderr.lines().last().unwrap();
    let pasted = machine.paste(&hint[hint.find("interlock ").unwrap()..]);
    assert_eq!(pasted.code, 0, "{hint}: {pasted:#?}");
    assert!(machine.sessions(&[]).is_empty());
}

#[test]
fn a_prefix_names_a_session_as_long_as_it_names_one() {
    let machine = Machine::unguarded();
    left_on_disk(&machine, "calm-river", 60, &json!({}));
    left_on_disk(
        &machine,
        "calm-rabbit",
        60,
        &json!({ "/session/agentId": "ops" }),
    );
    machine
        .process(&["log", "calm-"])
        .refused(1, "SESSION_AMBIGUOUS");
    // Sessions of others do not make it ambiguous.
    machine.know_agents(&["ops"]);
    let run = machine.process(&["clear", "--agent", "ops", "calm-"]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "calm-rabbit removed\n")
    );
    assert_eq!(
        machine.process(&["clear", "c"]).stdout,
        "calm-river removed\n"
    );
}

#[test]
fn a_poll_gives_what_is_new_and_waits_for_it() {
    let machine = Machine::unguarded();
    machine.script(
        "bin/step",
        "#!/bin/bash\nwhile read -r line; do echo \"got $line\"; done\nexit 6\n",
    );
    let session = machine.background(&["--stdin"], "step");
    let poll = |timeout: &str| {
        let polled = session.json("poll", &["--agent", "main", "--timeout", timeout]);
        (
            polled["output"]["text"].as_str().unwrap().to_owned(),
            polled["status"].as_str().unwrap().to_owned(),
            polled["exitCode"].as_i64(),
        )
    };
    let running = |text: &str| (text.to_owned(), "running".to_owned(), None);
    assert_eq!(poll("0"), running(""));
    session.ok("write", &["one\n"]);
    assert_eq!(poll("30000"), running("got one\n"));
    assert_eq!(poll("0"), running(""));
    session.ok("write", &["two\nthree\n"]);
    let mut text = String::new();
    while !text.ends_with("three\n") {
        text += &poll("30000").0;
    }
    assert_eq!(text, "got two\ngot three\n");
    let written = machine.run_with_input(
        &["process", "write", &session.id, "--eof", "--json"],
        b"four\n",
    );
    assert_eq!(
        written.json(),
        json!({ "sessionId": session.id, "bytes": 5, "eof": true })
    );
    let mut last = poll("30000");
    while last.2.is_none() {
        let next = poll("30000");
        last = (last.0 + &next.0, next.1, next.2);
    }
    assert_eq!(
        last,
        ("got four\n".to_owned(), "completed".to_owned(), Some(6))
    );
    // Polling goes on to tell how it ended.
    assert_eq!(
        poll("30000"),
        (String::new(), "completed".to_owned(), Some(6))
    );
}

#[test]
fn half_a_character_is_waited_for() {
    let machine = Machine::unguarded();
    machine.script(
        "bin/halves",
        "#!/bin/bash\nprintf 'a\\xc3'\nread -r\nprintf '\\xa9b'\nread -r\n",
    );
    let session = machine.background(&["--stdin"], "halves");
    let mut text = String::new();
    while text != "a" {
        let polled = session.json("poll", &["--agent", "main", "--timeout", "1000"]);
        text += polled["output"]["text"].as_str().unwrap();
    }
    // Nothing but the first half is there: the poll takes its time.
    let polled = session.json("poll", &["--agent", "main", "--timeout", "50"]);
    assert_eq!(polled["output"]["text"], "");
    session.ok("write", &["\n"]);
    let polled = session.json("poll", &["--agent", "main", "--timeout", "30000"]);
    assert_eq!(polled["output"]["text"], "éb");
}

#[test]
fn the_log_is_read_by_lines_while_it_runs_and_afterwards() {
    let machine = Machine::unguarded();
    let session = machine.background(&["--stdin"], "seq 1 1000; cat");
    eventually("all lines", || {
        session.json("log", &[])["totalLines"] == 1000
    });
    let lines = |flags: &[&str]| -> Vec<u32> {
        let text = session.ok("log", flags).stdout;
        text.lines().map(|line| line.parse().unwrap()).collect()
    };
    let check = || {
        assert_eq!(lines(&[]), (801..=1000).collect::<Vec<_>>());
        assert_eq!(lines(&["--limit", "3"]), [998, 999, 1000]);
        assert_eq!(lines(&["--offset", "997"]), [998, 999, 1000]);
        assert_eq!(lines(&["--offset", "10", "--limit", "2"]), [11, 12]);
        assert_eq!(lines(&["--offset", "0"]).len(), 1000);
        assert_eq!(lines(&["--offset", "5000"]), Vec::<u32>::new());
    };
    check();
    let page = session.json("log", &["--offset", "1", "--limit", "2"]);
    assert_eq!(
        (
            &page["text"],
            &page["offset"],
            &page["nextOffset"],
            &page["status"]
        ),
        (&json!("2\n3\n"), &json!(1), &json!(3), &json!("running"))
    );
    session.ok("kill", &[]);
    check();
}

#[test]
fn a_log_longer_than_a_page_is_shown_whole_to_people() {
    let machine = Machine::unguarded();
    let session = machine.background(&[], "seq 1 100000");
    session.ended();
    let text = session.ok("log", &["--offset", "0"]).stdout;
    assert_eq!(text.lines().count(), 100_000);
    let page = session.json("log", &["--offset", "0"]);
    let next = page["nextOffset"].as_u64().unwrap();
    assert!(page["text"].as_str().unwrap().len() <= 200_000);
    assert_eq!(page["text"].as_str().unwrap().lines().count() as u64, next);
    let text = session
        .ok("log", &["--offset", "10", "--limit", "99980"])
        .stdout;
    assert_eq!(text.lines().count(), 99_980);
}

#[test]
fn kill_ends_a_tree_that_does_not_listen_and_says_when_it_is_gone() {
    let machine = Machine::unguarded();
    machine.script("bin/stubborn", STUBBORN);
    for (flags, pty) in [
        (&[][..], false),
        (&["--signal", "KILL"], false),
        (&["--signal", "sigterm"], true),
    ] {
        for name in ["child.pid", "grandchild.pid"] {
            let _ = fs::remove_file(machine.work().join(name));
        }
        let session = machine.background(if pty { &["--pty"] } else { &[] }, "stubborn");
        let pids =
            ["child.pid", "grandchild.pid"].map(|name| written_pid(&machine.work().join(name)));
        let run = session.ok("kill", flags);
        assert_eq!(run.stdout, format!("{} killed by SIGKILL\n", session.id));
        // At once, not some time later.
        assert!(pids.iter().all(|pid| !is_alive(pid)), "{pids:?}");
        let listed = machine.sessions(&[]);
        let row = listed
            .iter()
            .find(|row| row["sessionId"] == session.id.as_str())
            .unwrap();
        assert_eq!(
            (&row["status"], &row["exitCode"], &row["signal"]),
            (&json!("killed"), &json!(137), &json!(9))
        );
        let again = session.run("kill", flags);
        again.refused(1, "SESSION_FINISHED");
        assert!(again.stderr.contains("killed by SIGKILL"), "{again:#?}");
    }
}

#[test]
fn other_signals_go_to_the_foreground() {
    let machine = Machine::unguarded();
    machine.script(
        "bin/listen",
        "#!/bin/bash\ntrap 'echo usr1' USR1\ntrap 'echo int; exit 9' INT\necho on\nwhile :; do sleep 0.02; done\n",
    );
    for flags in [&["--pty"][..], &[]] {
        let session = machine.background(flags, "listen");
        let says = |text: &str| {
            eventually(text, || session.ok("log", &[]).stdout.contains(text));
        };
        says("on");
        let sent = session.json("kill", &["--signal", "USR1"]);
        assert_eq!(
            (&sent["sessionId"], &sent["status"]),
            (&json!(session.id), &json!("running"))
        );
        says("usr1");
        session.ok("kill", &["-s", "2"]);
        assert_eq!(session.ended(), ("completed".to_owned(), Some(9)));
    }
}

#[test]
fn clear_forgets_what_has_ended_and_remove_ends_what_has_not() {
    let machine = Machine::unguarded();
    let done = machine.background(&[], "echo done");
    done.ended();
    let running = machine.background(&[], "sleep 600");
    running.run("clear", &[]).refused(1, "SESSION_RUNNING");
    assert_eq!(
        done.json("clear", &[]),
        json!({ "sessionId": done.id, "removed": true })
    );
    done.run("clear", &[]).refused(1, "SESSION_NOT_FOUND");
    let pid = machine.sessions(&[])[0]["pid"].to_string();
    assert_eq!(
        running.ok("remove", &[]).stdout,
        format!("{} removed\n", running.id)
    );
    assert!(!is_alive(&pid));
    assert!(machine.sessions(&[]).is_empty());
    assert!(!machine.state().join("sessions").join(&running.id).exists());
    running.run("remove", &[]).refused(1, "SESSION_NOT_FOUND");
}

/// Stopped first, so that none of them sees another one die.
fn kill_at_once(pids: &[i32]) {
    for signal in ["-STOP", "-KILL"] {
        let mut command = std::process::Command::new("/bin/kill");
        command.arg(signal).args(pids.iter().map(i32::to_string));
        assert!(command.status().unwrap().success());
    }
}

#[test]
fn a_lost_session_says_so_and_keeps_its_transcript() {
    let machine = Machine::unguarded();
    for everything in [false, true] {
        let text = "sh -c 'echo before the end; exec sleep 600'";
        let session = machine.background(&["--pty"], text);
        session.shows("before the end");
        let pid = machine.sessions(&[])[0]["pid"].as_i64().unwrap();
        let all: Vec<i32> = machine.guards().iter().map(|(pid, _)| *pid).collect();
        if everything {
            // No supervisor is left to record that it is lost.
            kill_at_once(&all);
        } else {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let parent = stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap();
            let parent: i32 = parent.parse().unwrap();
            assert!(all.contains(&parent));
            kill_at_once(&[parent]);
        }
        eventually("it is seen as lost", || {
            machine.sessions(&[])[0]["status"] == "lost"
        });
        assert!(session.ok("log", &[]).stdout.contains("before the end"));
        session.shows("before the end");
        let polled = session.json("poll", &["--agent", "main", "--timeout", "30000"]);
        assert_eq!(
            (&polled["status"], &polled["exitCode"]),
            (&json!("lost"), &Value::Null)
        );
        let output = polled["output"]["text"].as_str().unwrap();
        assert!(output.contains("before the end"), "{output:?}");
        session.run("write", &["x"]).refused(1, "SESSION_LOST");
        session.run("kill", &[]).refused(1, "SESSION_LOST");
        session.run("attach", &[]).refused(1, "SESSION_LOST");
        session.ok("clear", &[]);
        assert!(machine.sessions(&[]).is_empty());
        eventually("its processes are gone", || !is_alive(&pid.to_string()));
    }
}

#[test]
fn the_screen_of_a_finished_session_is_as_it_was_left() {
    let machine = Machine::unguarded();
    machine.script(
        "bin/draw",
        "#!/bin/bash\nfor i in {1..40000}; do echo \"filler $i ...............\"; done\nprintf '\\e[2J\\e[3;5Hhere\\e]0;the title\\a'\n",
    );
    let session = machine.background(&["--pty"], "draw");
    session.ended();
    let screen = session.json("screen", &[]);
    assert_eq!(screen["rows"][2], "    here", "{screen}");
    assert_eq!(
        (
            &screen["title"],
            &screen["cursor"]["row"],
            &screen["status"]
        ),
        (&json!("the title"), &json!(2), &json!("completed"))
    );
    assert_eq!(session.ok("screen", &[]).stdout, "\n\n    here\n");
}

#[test]
fn an_attended_run_is_an_operators_business_only() {
    let machine = Machine::unguarded();
    let mut child = machine
        .command(&["exec", "--", "sleep 600"])
        .spawn()
        .unwrap();
    eventually("it runs", || !machine.sessions(&[]).is_empty());
    let listed = machine.sessions(&[]);
    let session = Session {
        machine: &machine,
        id: listed[0]["sessionId"].as_str().unwrap().to_owned(),
    };
    assert_eq!(listed[0]["background"], false);
    assert!(machine.sessions(&["--agent", "main"]).is_empty());
    session
        .run("kill", &["--agent", "main"])
        .refused(1, "SESSION_NOT_FOUND");
    session.ok("kill", &[]);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}
