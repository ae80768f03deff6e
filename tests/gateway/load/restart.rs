//! The gateway killed in the middle of its work, again and again: what it answered is so, what it did
//! not answer happened once or not at all, and clients come back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use interlock_wire::identity::DeviceIdentity;
use serde_json::{Value, json};

use super::calls::{exec, size};
use testkit::ws::{EVERYTHING, WsClient, operator};
use testkit::{Machine, eventually};

/// Answered calls of each kind before the gateway is killed.
const ENOUGH: usize = 4;

/// What those who call have been told.
#[derive(Default)]
struct Told {
    port: AtomicU16,
    is_over: AtomicBool,
    /// Numbers for commands and entries.
    next: AtomicUsize,
    ran: Mutex<Vec<String>>,
    pending: Mutex<Vec<String>>,
    entries: Mutex<Vec<String>>,
    /// Welcomes of each operator.
    welcomes: Mutex<HashMap<usize, usize>>,
}

impl Told {
    fn number(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn counts(&self) -> [usize; 3] {
        let count = |list: &Mutex<Vec<String>>| list.lock().unwrap().len();
        [count(&self.ran), count(&self.pending), count(&self.entries)]
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    fn port(&self) -> u16 {
        self.port.load(Ordering::Relaxed)
    }
}

#[test]
fn what_a_killed_gateway_has_answered_is_so_and_nothing_is_done_twice() {
    let rounds = size("INTERLOCK_LOAD_KILLS", 3);
    let machine = Machine::unguarded();
    machine.ok(&["config", "set", "tools.exec.approvalWaitMs", "0"]);
    let ran = machine.work().join("ran");
    let mut gateway = machine.gateway();
    let token = gateway.token.clone();
    let session = json!({ "command": "sleep 600", "background": true });
    let session = exec(gateway.port, &token, &session).unwrap();
    let told = Arc::new(Told::default());
    told.port.store(gateway.port, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| run_commands(&told, &token, &ran));
        }
        scope.spawn(|| ask(&told, &token));
        scope.spawn(|| write_document(&told, &token));
        for number in 0..4 {
            let told = &told;
            let token = &token;
            scope.spawn(move || stay_connected(told, token, number));
        }
        for round in 0..rounds {
            let before = told.counts();
            eventually("much was answered", || {
                let now = told.counts();
                (0..3).all(|kind| now[kind] >= before[kind] + ENOUGH)
                    && is_everybody_back(&told, round + 1)
            });
            gateway.kill();
            gateway = machine.gateway();
            told.port.store(gateway.port, Ordering::Relaxed);
        }
        eventually("everybody is back", || is_everybody_back(&told, rounds + 1));
        told.is_over.store(true, Ordering::Relaxed);
    });
    machine.ok(&["audit", "verify"]);
    // Commands: once if they were answered, once or never if not.
    let text = std::fs::read_to_string(&ran).unwrap();
    let mut times: HashMap<&str, usize> = HashMap::new();
    for line in text.lines() {
        *times.entry(line).or_default() += 1;
    }
    assert!(times.values().all(|&count| count == 1), "{times:?}");
    let answered = told.ran.lock().unwrap();
    assert!(
        answered
            .iter()
            .all(|line| times.contains_key(line.as_str()))
    );
    // Questions. A list has a page of them, so those that it does not show are asked for one by one.
    let pending = machine.pending();
    let is_listed = |id: &str| pending.iter().any(|one| one["id"] == id);
    let asked = told.pending.lock().unwrap();
    for id in asked.iter().filter(|id| !is_listed(id)) {
        let shown = machine.ok(&["approvals", "pending", id, "--json"]);
        assert!(shown.stdout.contains(id.as_str()), "{shown:?}");
    }
    // The document.
    let (document, _) = machine.document();
    let written = document.to_string();
    let entries = told.entries.lock().unwrap();
    assert!(entries.iter().all(|entry| written.contains(entry.as_str())));
    // Sessions.
    let mut operator = gateway.connect(EVERYTHING);
    let id = session["sessionId"].as_str().unwrap();
    let listed = operator.ok("process.list", &json!({}));
    let sessions = listed["sessions"].as_array().unwrap();
    let own = sessions.iter().find(|one| one["sessionId"] == id);
    assert_eq!(own.unwrap()["status"], "running", "{listed}");
    println!(
        "{rounds} kills: {} commands answered ({} ran), {} questions, {} entries",
        answered.len(),
        times.len(),
        asked.len(),
        entries.len()
    );
}

fn is_everybody_back(told: &Told, times: usize) -> bool {
    let welcomes = told.welcomes.lock().unwrap();
    (0..4).all(|number| welcomes.get(&number).is_some_and(|count| *count >= times))
}

/// Commands that leave a line each.
fn run_commands(told: &Told, token: &str, ran: &std::path::Path) {
    while told.goes_on() {
        let line = format!("<{}>", told.number());
        let command = format!("echo '{line}' >> {}", ran.display());
        let done = exec(told.port(), token, &json!({ "command": command }));
        if done.is_some_and(|done| done["status"] == "completed" && done["exitCode"] == 0) {
            told.ran.lock().unwrap().push(line);
        }
    }
}

/// Approvals that stay undecided.
fn ask(told: &Told, token: &str) {
    while told.goes_on() {
        let command = format!("echo question {}", told.number());
        let call = json!({ "command": command, "ask": "always" });
        let Some(asked) = exec(told.port(), token, &call) else {
            continue;
        };
        if asked["status"] == "approval-pending" {
            let id = asked["approvalId"].as_str().unwrap();
            told.pending.lock().unwrap().push(id.to_owned());
        }
    }
}

/// Entries of the document, one after the other.
fn write_document(told: &Told, token: &str) {
    let identity = DeviceIdentity::generate().unwrap();
    while told.goes_on() {
        let Some(mut client) = welcomed(told.port(), token, &identity) else {
            continue;
        };
        while told.goes_on() && add_entry(told, &mut client).is_some() {}
    }
}

/// None if the connection ended.
fn add_entry(told: &Told, client: &mut WsClient) -> Option<()> {
    let get = client.send("exec.approvals.get", &json!({})).ok()?;
    let mut got = client.answer(&get)?.ok()?;
    let pattern = format!("/usr/bin/program-{}", told.number());
    let mut file = got["file"].take();
    let agents = &mut file["agents"]["main"]["allowlist"];
    if agents.is_null() {
        *agents = json!([]);
    }
    agents
        .as_array_mut()
        .unwrap()
        .push(json!({ "pattern": pattern }));
    let set = json!({ "file": file, "baseHash": got["hash"] });
    let set = client.send("exec.approvals.set", &set).ok()?;
    let is_set = client.answer(&set)?;
    is_set.unwrap_or_else(|error| panic!("{error:#}"));
    told.entries.lock().unwrap().push(pattern);
    Some(())
}

/// An operator who is there whenever the gateway is.
fn stay_connected(told: &Told, token: &str, number: usize) {
    let identity = DeviceIdentity::generate().unwrap();
    while told.goes_on() {
        let Some(mut client) = welcomed(told.port(), token, &identity) else {
            continue;
        };
        *told.welcomes.lock().unwrap().entry(number).or_default() += 1;
        let is_served = |client: &mut WsClient| {
            let id = client.send("health", &json!({})).ok()?;
            client.answer(&id)
        };
        while told.goes_on() && is_served(&mut client).is_some() {}
    }
}

fn welcomed(port: u16, token: &str, identity: &DeviceIdentity) -> Option<WsClient> {
    let mut client = WsClient::dial(port)?;
    let mut connect = operator(token, EVERYTHING);
    identity.prove(&mut connect, &client.nonce, testkit::ws::now_ms());
    let id = client.send("connect", &json!(connect)).ok()?;
    let answer: Result<Value, Value> = client.answer(&id)?;
    answer.ok().map(|_| client)
}
