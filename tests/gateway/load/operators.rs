//! Many operators who watch, callers who run commands, and clients that do not read.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::calls::{at_rate, exec, size};
use testkit::ws::{Came, EVERYTHING, Gateway, WsClient};
use testkit::{Machine, eventually};

/// Clients of each kind that does not behave.
const ODD: usize = 4;

/// Two of these without a sign of life, and a second, and a client is given up. So long that every
/// client on a busy machine can answer.
const TICK_MS: &str = "2000";

/// Only a failure takes so long.
const LONGEST: Duration = Duration::from_mins(5);

/// Between two events, where there are many who hear them.
const PACE: Duration = Duration::from_millis(50);

/// What a gateway may need beyond what it had at the start, for all that happens here: KiB.
const MEMORY: u64 = 512 * 1024;

#[test]
fn a_client_that_reads_gets_every_event_in_order_and_one_that_does_not_is_cut() {
    let operators = size("INTERLOCK_LOAD_OPERATORS", 40);
    let seconds = size("INTERLOCK_LOAD_SECONDS", 0);
    let rate = size("INTERLOCK_LOAD_RATE", 0);
    let is_long = seconds > 0;
    let calls = if is_long { seconds * rate } else { 100 };
    let machine = Machine::unguarded();
    let gateway = machine.gateway_with(&["--port", "0", "--tick-ms", TICK_MS]);
    let mut admin = gateway.connect(EVERYTHING);
    exec(gateway.port, &gateway.token, &json!({ "command": "true" })).unwrap();
    let (before, _) = gateway.memory();
    let began = Instant::now();

    // Connections that never say what they want, or who they are.
    let silent: Vec<TcpStream> = (0..ODD)
        .map(|_| TcpStream::connect(("127.0.0.1", gateway.port)).unwrap())
        .collect();
    let strangers: Vec<WsClient> = (0..ODD).map(|_| gateway.open()).collect();
    // Those who were welcomed, and of whom nothing is heard again.
    let lost: Vec<WsClient> = (0..ODD).map(|_| gateway.connect(EVERYTHING)).collect();
    // Those who ask, and read no answer.
    let greedy: Vec<WsClient> = (0..2).map(|_| gateway.connect(EVERYTHING)).collect();
    let there = AtomicUsize::new(0);
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Each reads from the first moment on: who waits for the others would be given up.
        let readers: Vec<_> = (0..operators)
            .map(|_| scope.spawn(|| watch(&gateway, &there)))
            .collect();
        eventually("all are there", || {
            there.load(Ordering::Relaxed) == operators
        });
        println!("{operators} operators connected in {:?}", began.elapsed());
        let began = Instant::now();
        let greedy: Vec<_> = greedy
            .into_iter()
            .map(|client| scope.spawn(|| ask_until_cut(client)))
            .collect();
        let telling = scope.spawn(move || {
            let mut told = 0;
            while !is_over.load(Ordering::Relaxed) {
                tell(&mut admin, &format!("note {told}"));
                told += 1;
                if is_long {
                    std::thread::sleep(PACE);
                }
            }
            (admin, told)
        });
        let threads = if is_long { 64 } else { 8 };
        let times = at_rate(calls, threads, is_long.then_some(rate), |number| {
            let call = json!({ "command": format!("echo {number}") });
            let done = exec(gateway.port, &gateway.token, &call).unwrap();
            assert_eq!(done["aggregated"], format!("{number}\n"), "{done}");
        });
        println!("{calls} calls in {:?}: {times}", began.elapsed());
        is_over.store(true, Ordering::Relaxed);
        let (mut admin, told) = telling.join().unwrap();
        // Those who do not read are cut, and those who read stay.
        eventually("only those who read are left", || {
            admin.ok("health", &json!({}))["clients"] == operators + 1
        });
        for greedy in greedy {
            greedy.join().unwrap();
        }
        tell(&mut admin, "the end");
        for reader in readers {
            let heard = reader.join().unwrap();
            let notes: Vec<String> = (0..told).map(|number| format!("note {number}")).collect();
            assert!(heard == notes, "{} of {told} notes", heard.len());
        }
        println!("{told} events for {operators} operators: none lost, in order");
        let (after, most) = gateway.memory();
        println!("memory: {before} KiB before, {most} KiB at most, {after} KiB after");
        assert!(after < before + MEMORY, "{after} KiB");
    });
    if is_long {
        for mut stream in silent {
            use std::io::Read as _;
            assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
        }
        for mut stranger in strangers {
            assert_ne!(stranger.end(), Came::Frame(Value::Null));
        }
        println!("connections that said nothing were cut");
    }
    drop(lost);
}

fn tell(admin: &mut WsClient, text: &str) {
    let note = json!({ "text": text, "sessionKey": "agent:main:notes" });
    admin.ok("system-event", &note);
}

/// Reads until the last note; what was heard before it. No number of an event is left out.
fn watch(gateway: &Gateway, there: &AtomicUsize) -> Vec<String> {
    let mut client = gateway.connect(&["operator.read"]);
    there.fetch_add(1, Ordering::Relaxed);
    let (mut heard, mut last) = (Vec::new(), None);
    let end = Instant::now() + LONGEST;
    loop {
        assert!(Instant::now() < end, "no end after {} notes", heard.len());
        let frame = match client.next() {
            Came::Frame(frame) => frame,
            end => panic!("after {} notes: {end:?}", heard.len()),
        };
        if let Some(seq) = frame["seq"].as_u64() {
            assert!(last.is_none_or(|last| seq == last + 1), "{last:?}, {seq}");
            last = Some(seq);
        }
        if frame["event"] == "session.event" {
            match frame["payload"]["text"].as_str().unwrap() {
                "the end" => return heard,
                text => heard.push(text.to_owned()),
            }
        }
    }
}

/// Asks for much, and reads nothing, until the connection is cut.
fn ask_until_cut(mut client: WsClient) {
    let (began, mut sent) = (Instant::now(), 0);
    while client.send("config.schema", &json!({})).is_ok() {
        sent += 1;
    }
    println!("cut after {sent} requests and {:?}", began.elapsed());
}
