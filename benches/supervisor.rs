//! What running through the supervisor costs, next to the system's own way, in one run.
//!
//! `cargo bench -p interlock --bench supervisor [-- short|reuse|shielded|limited|output|memory]`
//!
//! Each pair is measured in turns, so that a busy machine slows both down.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_precision_loss
)]

use std::fs;
use std::hint::black_box;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use interlock_engine::shield::ShieldKind;
use interlock_engine::{AuthorizationKey, RunStatus};
use interlock_plan::{PlanShield, PlanStdin, PtySize, RunPlan};
use interlock_supervisor::cgroup::RunLimits;
use interlock_supervisor::{
    ClientError, Manner, RunConversation, SupervisorClient, SupervisorPaths, Waited,
};
use testkit::parts::measure_parts;

const HUNDRED_MEGABYTES: u64 = 100_000_000;

fn main() {
    measure_parts(
        &Bench::new(),
        &[
            ("short", Bench::short_runs),
            ("reuse", Bench::reused_process),
            ("shielded", Bench::shielded_run),
            ("limited", Bench::limited_run),
            ("output", Bench::much_output),
            ("memory", Bench::idle_memory),
        ],
    );
}

/// A run that is started again and again.
struct Order {
    plan: RunPlan,
    manner: Manner,
}

impl Order {
    fn new(plan: &RunPlan, manner: Manner) -> Self {
        Self {
            plan: plan.clone(),
            manner,
        }
    }
}

/// A state directory in memory, with its supervisor.
struct Bench {
    state: tempfile::TempDir,
    key: AuthorizationKey,
    client: SupervisorClient,
}

impl Bench {
    fn new() -> Self {
        let shared_memory = Path::new("/dev/shm");
        let state = if shared_memory.is_dir() {
            tempfile::tempdir_in(shared_memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        let place = SupervisorPaths::new(state.path());
        fs::write(place.run_key(), [7; 32]).unwrap();
        let program = testkit::binary();
        let arguments = [
            "guard".into(),
            "--state-dir".into(),
            state.path().as_os_str().to_owned(),
        ];
        let client = SupervisorClient::new(place, "bench").starting(
            program,
            arguments
                .into_iter()
                .chain(["--supervisor-version".into(), "bench".into()]),
        );
        Self {
            state,
            key: AuthorizationKey::from_bytes([7; 32]),
            client,
        }
    }

    /// Each start is authorized anew, as every call is.
    fn start(&self, order: &Order) -> Result<RunConversation, ClientError> {
        let authorized = testkit::plans::authorized(&self.key, &order.plan);
        self.client.start(authorized, &order.manner)
    }

    fn run(&self, order: &Order) -> u64 {
        let conversation = self.start(order).unwrap();
        let Waited::Ended(ended) = conversation.wait().unwrap() else {
            panic!("it went to the background");
        };
        assert_eq!(ended.outcome.status, RunStatus::Exited(0));
        conversation.taken().unwrap();
        ended.totals.bytes
    }

    fn short_runs(&self) {
        let plain = testkit::plans::plan("/bin/true", self.state.path());
        let shell = testkit::plans::shell_plan("/bin/sh", &[], "true", self.state.path());
        self.run(&Order::new(&plain, Manner::default()));
        self.client.prepare();
        for (name, plan, argv) in [
            ("/bin/true, direct", plain, &["/bin/true"][..]),
            (
                "sh -c true, by the shell",
                shell,
                &["/bin/sh", "-c", "true"],
            ),
        ] {
            let order = Order::new(&plan, Manner::default());
            compare(
                name,
                600,
                || {
                    black_box(self.run(&order));
                },
                || {
                    let mut command = Command::new(argv[0]);
                    let null = Stdio::null;
                    command
                        .args(&argv[1..])
                        .stdin(null())
                        .stdout(null())
                        .stderr(null());
                    assert!(command.status().unwrap().success());
                },
            );
        }
    }

    /// What it buys that the process of a run takes the next run of its agent: beside runs that each have a
    /// new agent, and so a new process.
    fn reused_process(&self) {
        let plan = testkit::plans::plan("/usr/bin/true", self.state.path());
        let same = Order::new(&plan, Manner::default());
        self.run(&same);
        self.client.prepare();
        let mut agents = 0;
        compare(
            "/usr/bin/true in the process of the last run (beside a new process for each)",
            400,
            || {
                black_box(self.run(&same));
            },
            || {
                agents += 1;
                let mut order = Order::new(&plan, Manner::default());
                order.plan.agent_id = format!("agent-{agents}");
                black_box(self.run(&order));
            },
        );
    }

    /// In the namespaces of its agent, where this system offers them. A real program by its path: the
    /// shim answers `true` itself.
    fn shielded_run(&self) {
        let shield = match interlock_engine::shield::probe_shield() {
            Ok(ShieldKind::User) => PlanShield::User,
            Ok(ShieldKind::Root) => PlanShield::Root,
            Err(why) => {
                println!("shielded: skipped: {why}");
                return;
            }
        };
        // Not beneath the state directory, which does not exist inside.
        let work = tempfile::tempdir().unwrap();
        let mut plan = testkit::plans::plan("/usr/bin/true", work.path());
        plan.shield = shield;
        let order = Order::new(&plan, Manner::default());
        self.run(&order);
        self.client.prepare();
        compare(
            "/usr/bin/true, shielded",
            600,
            || {
                black_box(self.run(&order));
            },
            || {
                let mut command = Command::new("/usr/bin/true");
                let null = Stdio::null;
                command.stdin(null()).stdout(null()).stderr(null());
                assert!(command.status().unwrap().success());
            },
        );
    }

    /// With limits of memory and processes, where this system can set them.
    fn limited_run(&self) {
        let plan = testkit::plans::plan("/bin/true", self.state.path());
        let manner = Manner {
            limits: RunLimits {
                memory_bytes: Some(1 << 30),
                pids: Some(100),
                cpus: None,
            },
            ..Manner::default()
        };
        let order = Order::new(&plan, manner);
        match self.start(&order) {
            Err(refusal) => println!("/bin/true, limited: {refusal}"),
            Ok(conversation) => {
                conversation.wait().unwrap();
                conversation.taken().unwrap();
                compare(
                    "/bin/true, limited",
                    300,
                    || {
                        black_box(self.run(&order));
                    },
                    || {
                        let null = Stdio::null;
                        let mut command = Command::new("/bin/true");
                        command.stdin(null()).stdout(null()).stderr(null());
                        assert!(command.status().unwrap().success());
                    },
                );
            }
        }
    }

    fn much_output(&self) {
        let text = format!("head -c {HUNDRED_MEGABYTES} /dev/zero");
        let plan = testkit::plans::shell_plan("/bin/sh", &[], &text, self.state.path());
        let manner = Manner {
            show_chars: 0,
            ..Manner::default()
        };
        let order = Order::new(&plan, manner.clone());
        let file = self.state.path().join("file");
        compare(
            "100 MB to the transcript",
            15,
            || assert_eq!(self.run(&order), HUNDRED_MEGABYTES),
            || {
                let line = format!("head -c {HUNDRED_MEGABYTES} /dev/zero");
                let mut command = Command::new("/bin/sh");
                command
                    .args(["-c", &line])
                    .stdout(fs::File::create(&file).unwrap());
                assert!(command.status().unwrap().success());
                fs::remove_file(&file).unwrap();
            },
        );
        let mut plan = testkit::plans::shell_plan("/bin/sh", &[], &text, self.state.path());
        plan.pty = Some(PtySize {
            columns: 120,
            rows: 30,
        });
        let order = Order::new(&plan, manner);
        compare(
            "100 MB through a terminal",
            7,
            || assert_eq!(self.run(&order), HUNDRED_MEGABYTES),
            || assert_eq!(drain_terminal(&text), HUNDRED_MEGABYTES),
        );
    }

    fn idle_memory(&self) {
        const SESSIONS: usize = 100;
        let about = &self.client.supervisors()[0];
        let (supervisor, guard) = (about.pid, about.guard_pid);
        let resident = |pid: i32| memory(pid, "Rss:");
        println!(
            "idle: supervisor {} KiB + guard {} KiB resident (together {} KiB proportional)",
            resident(supervisor),
            resident(guard),
            memory(supervisor, "Pss:") + memory(guard, "Pss:"),
        );
        for (name, pty) in [("pipe", false), ("terminal", true)] {
            let mut plan = testkit::plans::plan("sleep 1000", self.state.path());
            plan.stdin = PlanStdin::Pipe;
            plan.pty = pty.then_some(PtySize {
                columns: 120,
                rows: 30,
            });
            let manner = Manner {
                wait_ms: Some(0),
                ..Manner::default()
            };
            let order = Order::new(&plan, manner);
            let before = resident(supervisor);
            let mut names = Vec::new();
            for _ in 0..SESSIONS {
                let conversation = self.start(&order).unwrap();
                assert_eq!(conversation.wait().unwrap(), Waited::Yielded);
                names.push(conversation.started().session.name.clone());
            }
            let grown = resident(supervisor).saturating_sub(before);
            let shims: Vec<i32> = children(supervisor);
            let private: u64 = shims.iter().map(|pid| memory(*pid, "Private_Dirty:")).sum();
            println!(
                "idle {name} session: {:.1} KiB in the supervisor, {:.1} KiB of its own in its shim ({SESSIONS} sessions)",
                grown as f64 / SESSIONS as f64,
                private as f64 / shims.len() as f64,
            );
            for name in names {
                let session = self.client.session(&name).unwrap();
                session.kill(interlock_engine::Signal::KILL).unwrap();
            }
        }
    }
}

/// Ends the supervisor with all that it has.
impl Drop for Bench {
    fn drop(&mut self) {
        for about in self.client.supervisors() {
            let pid = about.pid.to_string();
            let _ = Command::new("/bin/kill").args(["-KILL", &pid]).status();
        }
    }
}

/// Medians of both, measured in turns, and their ratio.
fn compare(name: &str, rounds: usize, mut ours: impl FnMut(), mut theirs: impl FnMut()) {
    for _ in 0..(rounds / 10).max(1) {
        ours();
        theirs();
    }
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        times.0.push(time(&mut ours));
        times.1.push(time(&mut theirs));
    }
    let median = |mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let (ours, theirs) = (median(times.0), median(times.1));
    println!(
        "{name}: {ours:.1?} by the supervisor, {theirs:.1?} without: {:.2}×",
        ours.as_secs_f64() / theirs.as_secs_f64()
    );
}

fn time(work: &mut impl FnMut()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

/// A bare terminal whose output is read and counted.
fn drain_terminal(text: &str) -> u64 {
    use rustix::pty::{OpenptFlags, grantpt, ptsname, unlockpt};
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let mut child = Command::new("/bin/sh")
        .args(["-c", text])
        .stdin(slave.try_clone().unwrap())
        .stdout(slave.try_clone().unwrap())
        .stderr(slave)
        .spawn()
        .unwrap();
    let mut master = fs::File::from(master);
    let mut buffer = vec![0; 128 * 1024];
    let mut total = 0;
    while let Ok(count) = master.read(&mut buffer) {
        if count == 0 {
            break;
        }
        total += count as u64;
    }
    assert!(child.wait().unwrap().success());
    total
}

fn memory(pid: i32, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(field));
    line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

fn children(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}
