//! A question is shown while it is being written, and what is answered waits for that.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::ws::{EVERYTHING, WsClient, operator};
use testkit::{Machine, eventually, is_root};

fn question() -> Value {
    json!({ "command": "make deploy", "cwd": "/tmp", "twoPhase": true })
}

#[test]
fn who_is_shown_a_question_can_read_and_decide_it_at_once() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let (mut asker, mut decider) = (gateway.connect(EVERYTHING), gateway.connect(EVERYTHING));
    let mut reader = gateway.connect(EVERYTHING);
    for decision in ["allow-once", "deny"].into_iter().cycle().take(40) {
        let request = asker.send("exec.approval.request", &question()).unwrap();
        let shown = decider.event("exec.approval.requested", |_| true);
        let by_id = json!({ "id": shown["id"] });
        let answer = json!({ "id": shown["id"], "decision": decision });
        // All three are on their way together.
        let deciding = decider.send("exec.approval.resolve", &answer).unwrap();
        let reading = reader.send("exec.approval.get", &by_id).unwrap();
        let read = reader.answer(&reading).unwrap().unwrap();
        assert_eq!(read["commandText"], "make deploy");
        assert_eq!(decider.answer(&deciding).unwrap().unwrap()["ok"], true);
        let accepted = asker.answer(&request).unwrap().unwrap();
        assert_eq!(accepted["status"], "accepted");
        let told = asker.answer(&request).unwrap().unwrap();
        assert_eq!(told["decision"], decision);
        let resolved = decider.event("exec.approval.resolved", |told| told["id"] == shown["id"]);
        assert_eq!(resolved["decision"], decision);
    }
    machine.ok(&["audit", "verify"]);
    let pending = machine.ok(&["approvals", "pending", "--json"]).json();
    assert_eq!(pending["total"], 0, "{pending:#}");
}

/// A gateway whose state lies on a disk of its own that is soon full.
struct Small {
    child: Child,
    port: u16,
    disk: String,
}

/// Of the gateway's environment: no command reaches the store on its small disk.
const TOKEN: &str = "a token of the environment of this gateway";

impl Small {
    fn start(machine: &Machine) -> Option<Self> {
        let state = machine.state();
        fs::create_dir_all(&state).unwrap();
        let run = machine.command(&["gateway", "run", "--json", "--port", "0"]);
        let mount = "mount -t tmpfs -o size=3m,mode=700 none \"$1\" && shift && exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "/bin/sh", "-c"])
            .args([mount, "sh"])
            .arg(&state)
            .arg(run.get_program())
            .args(run.get_args())
            .env_clear()
            .env("INTERLOCK_GATEWAY_TOKEN", TOKEN)
            .current_dir(machine.work())
            .stdout(Stdio::piped())
            .stderr(File::create(machine.root().join("gateway.log")).unwrap());
        for (name, value) in run.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let Ok(ready) = serde_json::from_str::<Value>(&line) else {
            println!("skipped: no small disk can be mounted");
            let _ = child.wait();
            return None;
        };
        Some(Self {
            port: u16::try_from(ready["port"].as_u64().unwrap()).unwrap(),
            // As the gateway sees it.
            disk: format!("/proc/{}/root{}", child.id(), state.display()),
            child,
        })
    }

    fn connect(&self) -> WsClient {
        let mut client = WsClient::dial(self.port).unwrap();
        let connect = operator(TOKEN, EVERYTHING);
        client.introduce(connect, None).unwrap();
        client
    }

    /// Until nothing fits any more.
    fn fill(&self) {
        let filler = Path::new(&self.disk).join("filler");
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(filler)
            .unwrap();
        for size in [64 * 1024, 4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_question_that_cannot_be_written_is_taken_back_from_those_who_were_shown_it() {
    if !is_root() {
        return println!("skipped: only root can make a small disk");
    }
    let machine = Machine::new();
    let Some(gateway) = Small::start(&machine) else {
        return;
    };
    let (mut asker, mut decider) = (gateway.connect(), gateway.connect());
    gateway.fill();
    // What the disk has room for already can still be written.
    let mut taken_back = None;
    eventually("a full disk", || {
        let request = asker.send("exec.approval.request", &question()).unwrap();
        let shown = decider.event("exec.approval.requested", |_| true);
        match asker.answer(&request).unwrap() {
            Ok(_) => {
                let deny = json!({ "id": shown["id"], "decision": "deny" });
                let _ = decider.call("exec.approval.resolve", &deny);
            }
            Err(error) => taken_back = Some((shown, error)),
        }
        taken_back.is_some()
    });
    let (shown, error) = taken_back.unwrap();
    assert_eq!(error["code"], "UNAVAILABLE", "{error:#}");
    assert_eq!(error["details"]["code"], "STORE_DISK_FULL", "{error:#}");
    let end = decider.event("exec.approval.resolved", |told| told["id"] == shown["id"]);
    assert_eq!(end["decision"], "deny");
    let late = json!({ "id": shown["id"], "decision": "allow-once" });
    let refused = decider.refused("exec.approval.resolve", &late);
    assert_eq!(
        refused["details"]["reason"], "APPROVAL_NOT_FOUND",
        "{refused:#}"
    );
    // With room again, everything goes on, the same question included.
    fs::remove_file(Path::new(&gateway.disk).join("filler")).unwrap();
    let mut again = question();
    again["id"] = shown["id"].clone();
    let request = asker.send("exec.approval.request", &again).unwrap();
    let shown = decider.event("exec.approval.requested", |_| true);
    assert_eq!(shown["id"], again["id"]);
    let allow = json!({ "id": shown["id"], "decision": "allow-once" });
    decider.ok("exec.approval.resolve", &allow);
    assert_eq!(
        asker.answer(&request).unwrap().unwrap()["status"],
        "accepted"
    );
    let told = asker.answer(&request).unwrap().unwrap();
    assert_eq!(told["decision"], "allow-once");
}
