//! Who sees which session, and who has read how much of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;

use serde_json::json;
use testkit::{Machine, eventually, finish};

const SESSION_KEYS: [&str; 2] = ["agent:main:main", "agent:main:other"];

#[test]
fn the_sessions_of_another_agent_do_not_exist() {
    let machine = Machine::unguarded();
    machine.know_agents(&["a", "b"]);
    let session = machine.background(&["--agent", "a", "--pty"], "cat");
    assert_eq!(machine.sessions(&["--agent", "a"]).len(), 1);
    assert_eq!(machine.sessions(&["--agent", "A"]).len(), 1);
    assert!(machine.sessions(&["--agent", "b"]).is_empty());
    let actions: [(&str, &[&str]); 11] = [
        ("poll", &[]),
        ("log", &[]),
        ("write", &["x"]),
        ("send-keys", &["C-c"]),
        ("submit", &[]),
        ("paste", &["x"]),
        ("screen", &[]),
        ("kill", &[]),
        ("clear", &[]),
        ("remove", &[]),
        ("attach", &[]),
    ];
    for (action, rest) in actions {
        let mut flags = vec!["--agent", "b"];
        flags.extend(rest);
        let theirs = session.run(action, &flags);
        theirs.refused(1, "SESSION_NOT_FOUND");
        // Word for word as for an unknown one.
        let mut unknown = vec![action, "no-session"];
        unknown.extend(&flags);
        let unknown = machine.process(&unknown);
        assert_eq!(
            theirs.stderr.replace(&session.id, "no-session"),
            unknown.stderr,
            "{action}"
        );
        // Nor does a beginning of its name.
        let begins = [action, &session.id[..4], "--agent", "b"];
        let mut begins = begins.to_vec();
        begins.extend(rest);
        machine.process(&begins).refused(1, "SESSION_NOT_FOUND");
    }
    let listed = machine.sessions(&["--agent", "a"]);
    assert_eq!(listed[0]["status"], "running");
    session.ok("write", &["--agent", "a", "mine\n"]);
    session.shows("mine");
}

#[test]
fn a_name_is_never_taken_for_a_path() {
    let machine = Machine::unguarded();
    let session = machine.background(&[], "echo secret");
    session.ended();
    let outside = machine.root().join("elsewhere");
    fs::rename(machine.state().join("sessions").join(&session.id), &outside).unwrap();
    let up = "../../../elsewhere";
    for name in [
        up.to_owned(),
        outside.display().to_string(),
        format!("../sessions/{}", session.id),
        "..".to_owned(),
        ".".to_owned(),
        "a/b".to_owned(),
        "brave-otter\0".replace('\0', "\\0"),
        "-".to_owned(),
    ] {
        for action in ["log", "clear", "remove", "poll"] {
            let run = machine.process(&[action, "--", &name]);
            run.refused(1, "SESSION_NOT_FOUND");
        }
    }
    assert!(outside.join("status.json").exists());
}

#[test]
fn each_session_key_gets_everything_once_across_restarts() {
    let machine = Machine::unguarded();
    let session = machine.background(&["--stdin"], "cat");
    let mut told = [String::new(), String::new()];
    let mut written = String::new();
    for round in 0..5 {
        let line = format!("round {round}\n");
        session.ok("write", &[&line]);
        written += &line;
        // Each call is a process of its own.
        for (key, told) in SESSION_KEYS.iter().zip(&mut told) {
            let flags = [
                "--agent",
                "main",
                "--session-key",
                key,
                "--timeout",
                "30000",
            ];
            while told.len() < written.len() {
                let polled = session.json("poll", &flags);
                told.push_str(polled["output"]["text"].as_str().unwrap());
            }
            assert_eq!(*told, written);
        }
        // The operator reads as often as wanted, and takes nothing away.
        let by_offset = session.json("poll", &[]);
        assert_eq!(by_offset["output"]["text"], written.as_str());
        let next = by_offset["nextOffset"].to_string();
        assert_eq!(next, written.len().to_string());
        let nothing = session.json("poll", &["--offset", &next]);
        assert_eq!(nothing["output"]["text"], "");
        let last = (written.len() - line.len()).to_string();
        let last = session.json("poll", &["--offset", &last]);
        assert_eq!(last["output"]["text"], line.as_str());
        // An agent that reads by offset does not move its own place either.
        let whole = session.json("poll", &["--agent", "main", "--offset", "0"]);
        assert_eq!(whole["output"]["text"], written.as_str());
    }
}

#[test]
fn pollers_of_one_session_key_share_everything_and_lose_nothing() {
    let machine = Machine::unguarded();
    machine.script(
        "bin/chatter",
        "#!/bin/bash\nfor i in {1..400}; do echo \"line $i\"; sleep 0.005; done\n",
    );
    let session = machine.background(&[], "chatter");
    let parts: Vec<String> = std::thread::scope(|scope| {
        let pollers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut mine = String::new();
                    loop {
                        let flags = ["--agent", "main", "--timeout", "2000"];
                        let polled = session.json("poll", &flags);
                        let text = polled["output"]["text"].as_str().unwrap();
                        assert_eq!(polled["output"]["omittedBytes"], 0);
                        mine.push_str(text);
                        if polled["status"] != "running" && text.is_empty() {
                            return mine;
                        }
                    }
                })
            })
            .collect();
        pollers
            .into_iter()
            .map(|poller| poller.join().unwrap())
            .collect()
    });
    let lines: Vec<&str> = parts.iter().flat_map(|part| part.lines()).collect();
    let different: BTreeSet<&str> = lines.iter().copied().collect();
    let expected: BTreeSet<String> = (1..=400).map(|number| format!("line {number}")).collect();
    let expected: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
    assert_eq!((lines.len(), different), (400, expected));
    let directory = machine.state().join("sessions").join(&session.id);
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt;
        let file = fs::metadata(directory.join(name)).unwrap();
        file.permissions().mode() & 0o777
    };
    assert_eq!((mode("polls.json"), mode("polls.lock")), (0o600, 0o600));
}

#[test]
fn cursors_that_cannot_be_read_make_everybody_start_anew() {
    let machine = Machine::unguarded();
    let session = machine.background(&[], "echo all of it");
    session.ended();
    let flags = ["--agent", "main"];
    let poll = || session.json("poll", &flags)["output"]["text"].clone();
    assert_eq!(poll(), "all of it\n");
    assert_eq!(poll(), "");
    let polls = machine
        .state()
        .join("sessions")
        .join(&session.id)
        .join("polls.json");
    fs::write(polls, "{").unwrap();
    assert_eq!(poll(), "all of it\n");
}

#[test]
fn a_tool_that_is_denied_to_an_agent_is_denied_to_its_name() {
    let machine = Machine::unguarded();
    let session = machine.background(&[], "sleep 600");
    machine.ok(&["config", "set", "tools.deny", r#"["process"]"#]);
    for action in ["poll", "log", "kill", "remove", "attach"] {
        session
            .run(action, &["--agent", "main"])
            .refused(3, "TOOL_DENIED");
    }
    machine
        .process(&["list", "--agent", "main"])
        .refused(3, "TOOL_DENIED");
    // Operators are not agents.
    session.ok("remove", &[]);
}

#[test]
fn a_run_can_neither_see_nor_touch_sessions() {
    let machine = Machine::unguarded();
    machine.switch_shield_off();
    let other = machine.background(&["--pty"], "cat");
    other.ok("write", &["secret\n"]);
    other.shows("secret");
    let binary = crate::BINARY;
    for (action, rest) in [
        ("list", ""),
        ("log", "ID"),
        ("poll", "ID"),
        ("poll", "--agent main ID"),
        ("screen", "ID"),
        ("write", "ID x"),
        ("send-keys", "ID C-c"),
        ("paste", "ID x"),
        ("kill", "ID"),
        ("remove", "ID"),
        ("clear", "ID"),
        ("attach", "ID"),
        ("log", "no-session"),
    ] {
        let rest = rest.replace("ID", &other.id);
        let line = format!("{binary} process {action} {rest}");
        for line in [
            line.clone(),
            // However it hides.
            format!("env -i HOME=$HOME setsid {line}"),
            format!("({line} &) ; sleep 0.5"),
        ] {
            let mut command = machine.command(&["exec", "--", &line]);
            let run = finish(&mut command);
            assert!(
                run.stderr.contains("error[PEER_REFUSED]"),
                "{line}: {run:#?}"
            );
            assert_eq!(run.stdout, "", "{line}");
        }
    }
    assert_eq!(machine.sessions(&[]).len(), 1);
    other.ok("kill", &[]);
}

#[test]
fn sessions_outlive_the_process_that_started_them_and_that_looked_at_them() {
    let machine = Machine::unguarded();
    let session = machine.background(&["--stdin"], "cat");
    let mut poller = machine
        .command(&["process", "poll", "--timeout", "30000", &session.id])
        .spawn()
        .unwrap();
    poller.kill().unwrap();
    poller.wait().unwrap();
    session.ok("write", &["--eof", "still here\n"]);
    assert_eq!(session.ended(), ("completed".to_owned(), Some(0)));
    let answer = session.json("poll", &[]);
    assert_eq!(answer["output"]["text"], "still here\n");
    assert_eq!(
        answer["output"],
        json!({
            "text": "still here\n", "totalBytes": 11, "shownBytes": 11,
            "omittedBytes": 0, "omittedLines": 0, "goneBytes": 0,
        })
    );
    eventually("it is listed as finished", || {
        machine.sessions(&[])[0]["totalBytes"] == 11
    });
}

#[test]
fn all_this_is_so_for_an_ordinary_user() {
    if !testkit::is_root() {
        println!("skipped: this user is an ordinary one");
        return;
    }
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    machine.ok(&["exec-policy", "preset", "yolo"]);
    let session = machine.background(&["--pty"], "cat");
    session.line("hello");
    session.until("cat's answer", |rows| {
        rows.starts_with(&["hello", "hello"].map(str::to_owned))
    });
    eventually("it is seen to wait for input", || {
        machine.sessions(&["--agent", "main"])[0]["waitingForInput"] == true
    });
    let polled = session.json("poll", &["--agent", "main"]);
    assert_eq!(polled["output"]["text"], "hello\r\nhello\r\n");
    let run = session.ok("kill", &["--signal", "KILL"]);
    assert!(run.stdout.ends_with("killed by SIGKILL\n"), "{run:#?}");
    session.ok("clear", &[]);
}
