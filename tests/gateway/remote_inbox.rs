//! The inbox of a gateway, read and decided from another machine: the same approvals, the same words, and
//! only for those who may decide.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use crate::remote_machines::{both, client, served};
use serde_json::{Value, json};
use testkit::asking::Waiting;
use testkit::node_pair::start_gateway;
use testkit::terminal::Terminal;
use testkit::{Machine, eventually};

#[test]
fn what_waits_at_the_gateway_is_shown_and_decided_elsewhere() {
    let (here, there, _gateway, port) = both();
    let listed = there.ok(&["approvals", "pending"]);
    let none = format!("nothing waits for a decision at the gateway wss://127.0.0.1:{port}/");
    assert!(listed.stderr.contains(&none), "{listed:#?}");
    // What waits on the machine itself is not what the gateway has.
    let own = there.run(&["--local", "exec", "--no-wait", "--json", "--", "touch own"]);
    assert_eq!(own.code, 3, "{own:#?}");
    assert_eq!(there.pending().len(), 0);
    let waiting = Waiting::new(&here, &["--", "touch marker"]);
    assert_eq!(there.pending(), here.pending());
    let id = waiting.id.clone();
    let whole = |machine: &Machine| machine.ok(&["approvals", "pending", &id, "--json"]).json();
    assert_eq!(whole(&there), whole(&here));
    let shown = there.ok(&["approvals", "pending", &id]).stdout;
    for part in ["touch marker", "a command on the machine of the gateway"] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(!shown.contains("the caller has gone"), "{shown}");
    let decided = there.ok(&["approvals", "approve", &id, "--json"]).json();
    assert_eq!(
        (&decided["decision"], &decided["awaited"]),
        (&json!("allow-once"), &json!(true)),
        "{decided:#}"
    );
    assert_eq!(waiting.end().code, 0);
    assert!(here.work().join("marker").exists());
    // It was decided there, by a client, and nothing was decided here.
    let records = here.ok(&["audit", "log", "--kind", "decision", "--json"]);
    let records = records.json()["records"].clone();
    let surface = records[0]["body"]["surface"].as_str().unwrap();
    assert!(surface.starts_with("ws:"), "{records:#}");
    let own = there.ok(&["--local", "audit", "log", "--kind", "decision", "--json"]);
    assert_eq!(own.json()["records"], json!([]));
}

#[test]
fn a_denial_carries_its_reason_and_an_answer_twice_is_no_harm() {
    let (here, there, _gateway, _) = both();
    let waiting = Waiting::new(&here, &["--", "touch marker"]);
    let id = waiting.id.clone();
    there.ok(&["approvals", "deny", &id, "--reason", "use make clean"]);
    let run = waiting.end();
    assert_eq!(run.code, 3, "{run:#?}");
    assert!(run.stderr.contains("use make clean"), "{run:#?}");
    let again = there.ok(&["approvals", "deny", &id, "--json"]).json();
    assert_eq!(again["again"], true, "{again:#}");
    let other = there.run(&["approvals", "approve", &id]);
    assert_eq!(other.code, 1, "{other:#?}");
    assert!(!here.work().join("marker").exists());
    there
        .run(&["approvals", "approve", "nosuch"])
        .refused(1, "APPROVAL_NOT_FOUND");
}

#[test]
fn every_kind_of_yes_is_stored_at_the_gateway() {
    let (here, there, _gateway, _) = both();
    here.native("tool");
    let waiting = Waiting::new(&here, &["--", "tool build all"]);
    let told = there.ok(&["approvals", "approve", &waiting.id, "--always=leading:1"]);
    assert!(told.stdout.contains("stored for agent main"), "{told:#?}");
    assert_eq!(waiting.end().code, 0);
    assert_eq!(here.verdict("tool build none"), "allow");
    assert_eq!(here.verdict("tool deploy all"), "ask");
    // A form that is not offered stores nothing.
    let id = here.put_down(&["--", "tool deploy all"]);
    let run = there.run(&["approvals", "approve", &id, "--always=leading:7"]);
    assert_eq!(run.code, 1, "{run:#?}");
    assert_eq!(here.verdict("tool deploy all"), "ask");
    // Its caller has gone: that is known at the gateway, not here.
    let told = there.ok(&["approvals", "approve", &id, "--for", "30m", "--uses", "3"]);
    assert!(told.stderr.contains("nothing waits for"), "{told:#?}");
    let grants = here.ok(&["approvals", "grants", "--json"]).json();
    assert_eq!(grants["grants"][0]["maxUses"], 3, "{grants:#}");
    assert_eq!(grants["grants"].as_array().unwrap().len(), 1);
}

#[test]
fn secrets_are_masked_until_the_owner_reveals_them() {
    let (here, there, _gateway, _) = both();
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let id = here.put_down(&["--", &format!("GITHUB_TOKEN={secret} touch x")]);
    let masked = there.ok(&["approvals", "pending", &id]).stdout;
    assert!(!masked.contains(secret), "{masked}");
    let run = there.ok(&["approvals", "approve", &id, "--reveal"]);
    assert!(run.stderr.contains(secret), "{run:#?}");
}

#[test]
fn the_screen_of_another_machine_decides_what_is_on_it() {
    let (here, there, _gateway, port) = both();
    let first = Waiting::new(&here, &["--", "touch one"]);
    let terminal = Terminal::run(&there, &["approvals", "watch"], 120, 40);
    terminal.shows(&format!("1 waiting at wss://127.0.0.1:{port}/"));
    terminal.shows("touch one");
    terminal.press("jo");
    terminal.shows("allowed once");
    assert_eq!(first.end().code, 0);
    let second = Waiting::new(&here, &["--", "touch two"]);
    terminal.shows("touch two");
    terminal.press("jDnot today\r");
    let run = second.end();
    assert_eq!(run.code, 3, "{run:#?}");
    assert!(run.stderr.contains("not today"), "{run:#?}");
    terminal.press("q");
}

/// `approvals watch --json`, line by line.
struct Watch {
    child: std::process::Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Watch {
    fn start(machine: &Machine) -> Self {
        let mut child = machine
            .command(&["approvals", "watch", "--json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next object of this type.
    fn next(&mut self, kind: &str) -> Value {
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it ended");
            let value: Value = serde_json::from_str(&line).unwrap();
            if value["type"] == kind {
                return value;
            }
        }
    }

    fn say(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_inbox_outlives_a_restart_of_its_gateway() {
    let (here, there, mut gateway, port) = both();
    let first = here.put_down(&["--", "touch one"]);
    let mut watch = Watch::start(&there);
    assert_eq!(watch.next("pending")["approval"]["id"], first.as_str());
    gateway.signal("-KILL");
    assert_eq!(watch.next("error")["code"], "GATEWAY_UNREACHABLE");
    // Meanwhile nothing is decided.
    watch.say(&format!("approve {first}"));
    assert_eq!(watch.next("error")["code"], "GATEWAY_UNREACHABLE");
    assert_eq!(here.pending()[0]["id"], first.as_str());
    let (_gateway, _) = start_gateway(&here, port);
    watch.next("reached");
    // What was printed before is still what is decided.
    watch.say(&format!("deny {first} no"));
    assert_eq!(watch.next("decided")["id"], first.as_str());
    let second = here.put_down(&["--", "touch two"]);
    assert_eq!(watch.next("pending")["approval"]["id"], second.as_str());
    watch.say("quit");
}

#[test]
fn tokens_of_agents_and_nodes_open_no_inbox() {
    let (here, _gateway, port, fingerprint) = served();
    let id = here.put_down(&["--", "touch marker"]);
    let agent = here.ok(&["agents", "token", "main"]).stdout;
    let url = format!("wss://127.0.0.1:{port}");
    let remote = json!({ "url": url, "tlsFingerprint": fingerprint });
    for token in [agent.trim(), here.node_token().trim(), "wrong"] {
        let there = client(token, &remote);
        for command in [
            vec!["approvals", "pending"],
            vec!["approvals", "approve", &id],
            vec!["approvals", "deny", &id],
            vec!["approvals", "watch", "--plain"],
            vec!["approvals", "get"],
            vec!["audit", "log"],
            vec!["process", "list"],
            vec!["exec", "--", "id"],
        ] {
            let run = there.run(&command);
            run.refused(1, "GATEWAY_REFUSED");
            assert!(!run.stderr.contains(token), "{run:#?}");
        }
    }
    assert_eq!(here.pending()[0]["id"], id.as_str());
}

#[test]
fn a_token_that_is_revoked_ends_the_inbox() {
    let (here, _gateway, port, fingerprint) = served();
    let minted = here.ok(&["gateway", "token", "--new", "--json"]).json();
    let url = format!("wss://127.0.0.1:{port}");
    let remote = json!({ "url": url, "tlsFingerprint": fingerprint });
    let there = client(minted["token"].as_str().unwrap(), &remote);
    let mut watch = Watch::start(&there);
    let id = here.put_down(&["--", "touch one"]);
    assert_eq!(watch.next("pending")["approval"]["id"], id.as_str());
    here.ok(&[
        "gateway",
        "token",
        "--revoke",
        minted["id"].as_str().unwrap(),
    ]);
    eventually("the inbox ends", || {
        matches!(watch.child.try_wait(), Ok(Some(_)))
    });
    assert_eq!(here.pending()[0]["id"], id.as_str());
}
