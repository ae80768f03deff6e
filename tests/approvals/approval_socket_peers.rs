//! Who may be at the other end of the approval socket: no other user, no run, no process without
//! the token.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;

use serde_json::json;
use testkit::companion::{failed, forget_deliveries, now_ms, states};
use testkit::{Machine, eventually, written};

fn started() -> Machine {
    let machine = Machine::new();
    machine.start();
    machine
}

#[test]
fn a_companion_of_another_user_is_not_asked() {
    if !testkit::is_root() {
        println!("skipped: only root can be another user");
        return;
    }
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    machine.start();
    machine.ok(&["approvals", "socket", "--token"]);
    let path = machine.state().join("exec-approvals.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    std::os::unix::fs::chown(&path, Some(65_534), Some(65_534)).unwrap();
    machine.put_down(&["--", "touch marker"]);
    failed(&machine, "another user");
}

#[test]
fn a_host_of_another_user_is_turned_away() {
    if !testkit::is_root() {
        println!("skipped: only root can be another user");
        return;
    }
    let Some(machine) = Machine::of_ordinary_user() else {
        return;
    };
    machine.start();
    let mut watch = machine.command(&["approvals", "watch", "--plain"]);
    let mut watch = watch.stdin(Stdio::piped()).spawn().unwrap();
    let path = machine.state().join("exec-approvals.sock");
    eventually("it listens", || path.exists());
    let first = first_line(&UnixStream::connect(&path).unwrap());
    assert!(first.contains("another user"), "{first}");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn who_asks_without_the_token_is_not_believed_and_others_are_heard() {
    let machine = started();
    let mut watch = machine.command(&["approvals", "watch", "--json"]);
    watch.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let path = machine.state().join("exec-approvals.sock");
    eventually("it listens", || path.exists());
    // Forged, too long, and silent ones beyond the number that is listened to.
    let mut held = Vec::new();
    for _ in 0..80 {
        let stream = UnixStream::connect(&path).unwrap();
        held.push(stream);
    }
    let forged = UnixStream::connect(&path).unwrap();
    assert!(first_line(&forged).contains("nonce"));
    let hello = json!({ "protocol": 1, "nonce": "00".repeat(32) });
    let request = json!({ "type": "request", "approval": { "id": "x" }, "waits": true });
    let envelope = json!({
        "body": request.to_string(), "timestampMs": now_ms(), "mac": "00".repeat(32),
    });
    writeln!(&forged, "{hello}\n{envelope}").unwrap();
    assert_eq!(first_line(&forged), "");
    let mut flood = UnixStream::connect(&path).unwrap();
    let piece = vec![b'x'; 65536];
    let mut sent = 0;
    while sent < 64 * 1024 * 1024 && flood.write_all(&piece).is_ok() {
        sent += piece.len();
    }
    assert!(sent < 64 * 1024 * 1024, "it read all of it");
    machine.put_down(&["--", "touch marker"]);
    eventually("seen", || {
        states(&machine).contains(&"seen".to_owned())
            || states(&machine).contains(&"sent".to_owned())
    });
    drop(held);
    watch.kill().unwrap();
    watch.wait().unwrap();
}

fn first_line(stream: &UnixStream) -> String {
    let patience = std::time::Duration::from_mins(1);
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut line = String::new();
    let _ = BufReader::new(stream).read_line(&mut line);
    line
}

/// Not a test by itself: what runs of the tests below do. The variable says what.
#[test]
#[ignore = "called by runs of other tests"]
fn inside_of_a_run() {
    let Some(path) = std::env::var_os("SOCKET") else {
        println!("skipped: called by no run");
        return;
    };
    match std::env::var("DO").unwrap().as_str() {
        "listen" => {
            let _ = fs::remove_file(&path);
            let listener = UnixListener::bind(&path).unwrap();
            fs::write("ready", "listening\n").unwrap();
            while !fs::exists("stop").unwrap() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            drop(listener);
        }
        "connect" => {
            let line = first_line(&UnixStream::connect(&path).unwrap());
            fs::write("heard", line).unwrap();
        }
        other => panic!("{other}"),
    }
}

fn script(machine: &Machine, what: &str, way: &str) {
    let program = std::env::current_exe().unwrap();
    let socket = machine.state().join("exec-approvals.sock");
    machine.script(
        "work/do.sh",
        &format!(
            "#!/bin/sh\nexport DO={what} SOCKET={}\n{way} {} --ignored --exact approval_socket_peers::inside_of_a_run\n",
            socket.display(),
            program.display()
        ),
    );
}

#[test]
fn a_run_that_poses_as_a_companion_is_not_asked() {
    let machine = Machine::open();
    // Inside the shield the socket does not exist.
    machine.switch_shield_off();
    machine.ok(&["approvals", "socket", "--token"]);
    for way in ["", "setsid -w"] {
        script(&machine, "listen", way);
        let mut run = machine.command(&["exec", "--", "./do.sh"]).spawn().unwrap();
        written(&machine.work().join("ready"));
        machine.put_down(&["--", "touch marker > x"]);
        failed(&machine, "run");
        fs::write(machine.work().join("stop"), "").unwrap();
        assert!(run.wait().unwrap().success());
        for name in ["ready", "stop"] {
            fs::remove_file(machine.work().join(name)).unwrap();
        }
        let id = machine.pending_ids().pop().unwrap();
        machine.ok(&["approvals", "deny", &id]);
        forget_deliveries(&machine);
    }
}

#[test]
fn a_run_that_asks_a_companion_is_turned_away() {
    let machine = Machine::open();
    // Inside the shield the socket does not exist.
    machine.switch_shield_off();
    let mut watch = machine.command(&["approvals", "watch", "--plain"]);
    let mut watch = watch
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let socket = machine.state().join("exec-approvals.sock");
    eventually("it listens", || socket.exists());
    for way in ["", "setsid -w"] {
        script(&machine, "connect", way);
        let run = machine.exec("./do.sh");
        assert_eq!(run.code, 0, "{run:#?}");
        let heard = fs::read_to_string(machine.work().join("heard")).unwrap();
        assert!(
            heard.contains("refused") && heard.contains("run"),
            "{heard}"
        );
    }
    // What such a run asks is shown all the same: from the store.
    machine.script(
        "work/do.sh",
        &format!(
            "#!/bin/sh\n{} exec --no-wait -- 'touch marker > x'\nexit 0\n",
            crate::BINARY
        ),
    );
    assert_eq!(machine.exec("./do.sh").code, 0);
    failed(&machine, "it refused");
    watch.kill().unwrap();
    watch.wait().unwrap();
}
