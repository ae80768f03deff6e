//! Many nodes on one gateway, each with a key of its own.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use interlock_wire::identity::DeviceIdentity;
use serde_json::json;

use super::calls::{Times, at_rate, size};
use testkit::ws::{Came, EVERYTHING, Gateway, WsClient};
use testkit::{Machine, eventually};

const STACK: usize = 256 * 1024;

#[test]
fn every_one_of_many_nodes_gets_its_own_calls_and_is_listed() {
    let nodes = size("INTERLOCK_SCALE_NODES", 20);
    let seconds = size("INTERLOCK_SCALE_SECONDS", 0);
    let rate = size("INTERLOCK_SCALE_RATE", 100);
    let calls = if seconds > 0 {
        seconds * rate
    } else {
        2 * nodes
    };
    let machine = Machine::unguarded();
    let identities: Vec<DeviceIdentity> = (0..nodes)
        .map(|_| DeviceIdentity::generate().unwrap())
        .collect();
    let (asked, requests) = channel();
    // Every node is known before anything is measured.
    let gateway = machine.gateway();
    let began = Instant::now();
    for identity in &identities {
        join(&gateway, identity, &asked);
    }
    println!("{nodes} nodes paired in {:?}", began.elapsed());
    let mut admin = gateway.connect(EVERYTHING);
    let listed = admin.ok("node.pair.list", &json!({}));
    let pending = listed["pending"].as_array().unwrap();
    assert_eq!(pending.len(), nodes);
    for request in pending {
        let request = json!({ "requestId": request["requestId"] });
        admin.ok("node.pair.approve", &request);
    }
    gateway.stop();
    let gateway = machine.gateway();
    let mut admin = gateway.connect(EVERYTHING);
    let (before, _) = gateway.memory();
    let began = Instant::now();
    for identity in &identities {
        join(&gateway, identity, &asked);
    }
    println!("{nodes} nodes connected in {:?}", began.elapsed());
    eventually("all are there", || connected(&mut admin) == nodes);
    let (after, most) = gateway.memory();
    println!(
        "memory: {before} KiB without nodes, {after} KiB with {nodes} ({most} KiB at most): \
         {:.1} KiB for each idle node",
        (after as f64 - before as f64) / nodes as f64
    );
    let threads = if seconds > 0 { 32 } else { 4 };
    let callers: Vec<std::sync::Mutex<WsClient>> = (0..threads)
        .map(|_| std::sync::Mutex::new(gateway.connect(EVERYTHING)))
        .collect();
    let times = at_rate(calls, threads, (seconds > 0).then_some(rate), |number| {
        // Any that is free: there are as many as threads.
        let mut client = callers.iter().find_map(|one| one.try_lock().ok()).unwrap();
        let id = identities[number % nodes].device_id();
        let call = json!({
            "nodeId": id, "command": "system.which", "params": { "bins": ["sh"] },
            "idempotencyKey": format!("call {number}"),
        });
        let answer = client.ok("node.invoke", &call);
        assert_eq!(answer["payload"]["node"], id.as_str(), "{answer}");
    });
    println!("{calls} invocations: {times}");
    let mut listings = Vec::new();
    for _ in 0..if seconds > 0 { 50 } else { 3 } {
        let began = Instant::now();
        assert_eq!(connected(&mut admin), nodes);
        listings.push(began.elapsed());
    }
    println!("node.list of {nodes} nodes: {}", Times::of(listings));
    drop(asked);
    drop(callers);
    drop(gateway);
    // Each call reached one node, once.
    assert_eq!(requests.into_iter().count(), calls);
}

fn connected(admin: &mut WsClient) -> usize {
    let listed = admin.ok("node.list", &json!({}));
    let nodes = listed["nodes"].as_array().unwrap();
    nodes
        .iter()
        .filter(|node| node["connected"] == true)
        .count()
}

/// A node that answers until the gateway ends.
fn join(gateway: &Gateway, identity: &DeviceIdentity, asked: &Sender<()>) {
    let mut client = gateway.open();
    let connect = gateway.node("many", &["system.run", "system.which"]);
    let welcomed = client.introduce(connect, Some(identity));
    welcomed.unwrap_or_else(|error| panic!("{error:#}"));
    let (asked, id) = (asked.clone(), identity.device_id());
    let serve = move || serve(client, &id, &asked);
    let thread = std::thread::Builder::new().stack_size(STACK);
    thread.spawn(serve).unwrap();
}

/// Answers with its own name until the gateway ends.
fn serve(mut client: WsClient, id: &str, asked: &Sender<()>) {
    while let Came::Frame(frame) = client.next() {
        if frame["event"] != "node.invoke.request" {
            continue;
        }
        asked.send(()).unwrap();
        let result = json!({
            "id": frame["payload"]["id"], "nodeId": id, "ok": true,
            "payloadJSON": json!({ "node": id }).to_string(),
        });
        let sent: tungstenite::Result<String> = client.send("node.invoke.result", &result);
        if sent.is_err() {
            return;
        }
    }
}
