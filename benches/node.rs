//! What runs on a node cost, next to the system's own way, in one run: a gateway and a node on loopback.
//!
//! `cargo bench -p interlock --bench node [-- exec|parallel|memory]`
//!
//! Each pair is measured in turns, so that a busy machine slows both down.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_precision_loss
)]

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::ws::{EVERYTHING, Gateway, WsClient};
use testkit::{Machine, eventually, memory};

const CALLERS: usize = 8;
const CALLS: usize = 250;

/// Longer than a server takes to find that it rests, and a supervisor that fewer shims will do.
const REST: Duration = Duration::from_secs(30);

/// A part of the benchmark, by its name.
type Part = (&'static str, fn(&Bench));

fn main() {
    let only = std::env::args()
        .skip(1)
        .find(|word| !word.starts_with("--"));
    let bench = Bench::new();
    let parts: [Part; 3] = [
        ("exec", Bench::one_caller),
        ("parallel", Bench::eight_callers),
        ("memory", Bench::idle_memory),
    ];
    for (name, measure) in parts {
        if only.as_deref().is_none_or(|only| only == name) {
            measure(&bench);
        }
    }
}

/// Two machines that let everything run.
struct Bench {
    node: Child,
    id: String,
    gateway: Gateway,
    there: Machine,
    _here: Machine,
}

impl Bench {
    fn new() -> Self {
        let (here, there) = (Machine::new(), Machine::unguarded());
        here.leave_to_nodes();
        let gateway = here.gateway();
        let mut admin = gateway.connect(EVERYTHING);
        let port = gateway.port.to_string();
        let node = there
            .command(&["node", "run", "--host", "127.0.0.1", "--port", &port])
            .env("INTERLOCK_GATEWAY_TOKEN", &gateway.token)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let asked = admin.event("node.pair.requested", |_| true);
        let request = json!({ "requestId": asked["requestId"] });
        admin.ok("node.pair.approve", &request);
        Self {
            node,
            id: asked["nodeId"].as_str().unwrap().to_owned(),
            gateway,
            there,
            _here: here,
        }
    }

    fn caller(&self) -> WsClient {
        self.gateway.connect(EVERYTHING)
    }

    fn one_caller(&self) {
        let mut caller = self.caller();
        let call = json!({
            "name": "exec", "args": { "command": "sh -c true", "host": "node" },
        });
        let mut exec = || {
            let answer = caller.ok("tools.invoke", &call);
            assert_eq!(answer["output"]["details"]["exitCode"], 0, "{answer}");
        };
        exec();
        let mut times = (Vec::new(), Vec::new());
        for _ in 0..400 {
            let began = Instant::now();
            exec();
            times.0.push(began.elapsed());
            let began = Instant::now();
            spawn();
            times.1.push(began.elapsed());
        }
        let (own, other) = (median(&mut times.0), median(&mut times.1));
        println!(
            "exec host=node of `sh -c true`: {own:?} beside {other:?}: {:.2} times (bar: 4)",
            own.as_secs_f64() / other.as_secs_f64()
        );
    }

    fn eight_callers(&self) {
        let mut callers: Vec<WsClient> = (0..CALLERS).map(|_| self.caller()).collect();
        let mut rates = (Vec::new(), Vec::new());
        for round in 0..5 {
            let began = Instant::now();
            std::thread::scope(|scope| {
                for (number, caller) in callers.iter_mut().enumerate() {
                    let prefix = format!("{round}-{number}");
                    scope.spawn(move || (0..CALLS).for_each(|one| self.run(caller, &prefix, one)));
                }
            });
            rates
                .0
                .push((CALLERS * CALLS) as f64 / began.elapsed().as_secs_f64());
            let began = Instant::now();
            std::thread::scope(|scope| {
                for _ in 0..CALLERS {
                    scope.spawn(|| (0..CALLS).for_each(|_| spawn_true()));
                }
            });
            rates
                .1
                .push((CALLERS * CALLS) as f64 / began.elapsed().as_secs_f64());
        }
        let middle = |rates: &mut Vec<f64>| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        };
        let (own, other) = (middle(&mut rates.0), middle(&mut rates.1));
        println!(
            "system.run of /bin/true, {CALLERS} callers: {own:.0} a second beside {other:.0} \
             by posix_spawn (bar: 1000)"
        );
    }

    fn run(&self, caller: &mut WsClient, prefix: &str, number: usize) {
        let call = json!({
            "nodeId": self.id, "command": "system.run", "params": { "command": ["/bin/true"] },
            "idempotencyKey": format!("{prefix}-{number}"),
        });
        let answer: Value = caller.ok("node.invoke", &call);
        assert_eq!(answer["payload"]["exitCode"], 0, "{answer}");
    }

    fn idle_memory(&self) {
        self.run(&mut self.caller(), "memory", 0);
        let state = self.there.root().display().to_string();
        let guards = || {
            let all = fs::read_dir("/proc").unwrap().flatten();
            let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
            let own = pids.filter(|pid| {
                let called = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let called = String::from_utf8_lossy(&called);
                called.contains("\0guard\0") && called.contains(&state)
            });
            own.collect::<Vec<u32>>()
        };
        eventually("the run is gone", || !guards().is_empty());
        std::thread::sleep(REST);
        // What all of them share counts once.
        let (node, _) = memory(self.node.id());
        let shares: u64 = guards().iter().map(|pid| proportional(*pid)).sum();
        println!(
            "idle: node {:.1} MiB resident, {:.1} MiB with supervisor, guard and waiting shims (bar: 12)",
            node as f64 / 1024.0,
            (node + shares) as f64 / 1024.0
        );
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}

/// Resident, pages that are shared divided among those who share them: KiB.
fn proportional(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("Pss:"));
    line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

fn spawn() {
    finish(Command::new("/bin/sh").args(["-c", "true"]));
}

fn spawn_true() {
    finish(&mut Command::new("/bin/true"));
}

fn finish(command: &mut Command) {
    let null = Stdio::null;
    command.stdin(null()).stdout(null()).stderr(null());
    assert!(command.status().unwrap().success());
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}
