//! What runs on a node cost, next to the system's own way, in one run: a gateway and a node on loopback.
//!
//! `cargo bench -p interlock --bench node [-- exec|fleet|parallel|memory]`
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
use testkit::parts::measure_parts;
use testkit::ws::{EVERYTHING, Gateway, WsClient};
use testkit::{Machine, eventually, memory};

const CALLERS: usize = 8;
const CALLS: usize = 250;

/// Nodes that a gateway knows, and calls that are measured for each way to name one.
const FLEET: usize = 10_000;
const ROUNDS: usize = 300;

/// Longer than a server takes to find that it rests, and a supervisor that fewer shims will do.
const REST: Duration = Duration::from_secs(30);

fn main() {
    measure_parts(
        &Bench::new(0),
        &[
            ("exec", Bench::one_caller),
            ("fleet", Bench::one_of_many),
            ("parallel", Bench::eight_callers),
            ("memory", Bench::idle_memory),
        ],
    );
}

/// Two machines that let everything run.
struct Bench {
    node: Child,
    id: String,
    name: String,
    gateway: Gateway,
    there: Machine,
    _here: Machine,
}

impl Bench {
    /// A node, and so many others that are paired and away.
    fn new(others: usize) -> Self {
        let (here, there) = (Machine::new(), Machine::unguarded());
        here.leave_to_nodes();
        here.pair_fleet(others);
        let gateway = here.gateway();
        let mut admin = gateway.connect(EVERYTHING);
        let port = gateway.port.to_string();
        let node = there
            .command(&["node", "run", "--host", "127.0.0.1", "--port", &port])
            .args(["--display-name", "measured"])
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
            name: asked["displayName"].as_str().unwrap().to_owned(),
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
        let call = |command: &str| json!({ "name": "exec", "args": { "command": command, "host": "node" } });
        // Every call starts the program: it says its version each time.
        for _ in 0..20 {
            let answer = caller.ok("tools.invoke", &call("/usr/bin/true --version"));
            assert!(answer.to_string().contains("coreutils"), "{answer}");
        }
        let call = call("/usr/bin/true");
        let mut exec = || {
            let answer = caller.ok("tools.invoke", &call);
            assert_eq!(answer["output"]["details"]["exitCode"], 0, "{answer}");
        };
        let mut times = (Vec::new(), Vec::new());
        for _ in 0..400 {
            let began = Instant::now();
            exec();
            times.0.push(began.elapsed());
            let began = Instant::now();
            spawn_true();
            times.1.push(began.elapsed());
        }
        let (own, other) = (median(&mut times.0), median(&mut times.1));
        println!(
            "exec host=node of `/usr/bin/true`: {own:?} beside {other:?}: {:.2} times (bar: 4)",
            own.as_secs_f64() / other.as_secs_f64()
        );
    }

    /// The same call of a gateway that knows one node, and of one that knows ten thousand.
    fn one_of_many(&self) {
        let many = Bench::new(FLEET - 1);
        for (way, naming) in [
            ("no name", None as Option<fn(&Bench) -> String>),
            ("an id", Some(|bench| bench.id.clone())),
            ("a prefix", Some(|bench| bench.id[..12].to_owned())),
            ("a name", Some(|bench| bench.name.clone())),
        ] {
            let mut callers = [self, &many].map(|bench| {
                let mut call = json!({
                    "name": "exec", "args": { "command": "/usr/bin/true", "host": "node" },
                });
                if let Some(naming) = naming {
                    call["args"]["node"] = naming(bench).into();
                }
                (bench.caller(), call, Vec::new())
            });
            // The first call reads the nodes, and is not counted.
            for round in 0..=ROUNDS {
                for (caller, call, times) in &mut callers {
                    let began = Instant::now();
                    let answer = caller.ok("tools.invoke", call);
                    let time = began.elapsed();
                    assert_eq!(answer["output"]["details"]["exitCode"], 0, "{answer}");
                    if round > 0 {
                        times.push(time);
                    }
                }
            }
            let [one, all] = callers.map(|(_, _, mut times)| median(&mut times));
            println!(
                "exec host=node by {way}, {FLEET} paired nodes: {all:?} beside {one:?} with one: \
                 {:.2} times (bar: 1.2)",
                all.as_secs_f64() / one.as_secs_f64()
            );
        }
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
        let busy = resident(self.node.id());
        std::thread::sleep(REST);
        let rested = resident(self.node.id());
        // What all of them share counts once.
        let (node, _) = memory(self.node.id());
        let shares: u64 = guards().iter().map(|pid| proportional(*pid)).sum();
        println!(
            "idle: node {:.1} MiB resident, {:.1} MiB with supervisor, guard and waiting shims (bar: 12)",
            node as f64 / 1024.0,
            (node + shares) as f64 / 1024.0
        );
        println!(
            "a rest took the node from {:.1} to {:.1} MiB of heap and stacks, from {:.1} to {:.1} MiB \
             of pages of files",
            busy.0 as f64 / 1024.0,
            rested.0 as f64 / 1024.0,
            busy.1 as f64 / 1024.0,
            rested.1 as f64 / 1024.0
        );
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}

/// Resident memory of a process: its own, and pages of files: KiB. What a rest gives back of the
/// second is what the look at `smaps` buys.
fn resident(pid: u32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let amount = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok())
            .unwrap_or(0)
    };
    (amount("RssAnon:"), amount("RssFile:"))
}

/// Resident, pages that are shared divided among those who share them: KiB.
fn proportional(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("Pss:"));
    line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
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
