//! What a sandboxed run costs, next to the same program without one and next to `bwrap` with the same view, in
//! one run.
//!
//! `cargo bench -p interlock --bench sandbox [-- warm|first|mounts|tree|log|cow|commit|network|idle|end]`
//!
//! What is compared is measured in turns, so that a busy machine slows all of it down. `mounts` needs root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::{Read as _, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use interlock_config::types::Sandbox;
use interlock_engine::{AuthorizationKey, RunStatus};
use interlock_patch::{EffectHashes, EffectSource, EffectTarget, ReservedPaths, commit_effect};
use interlock_plan::{
    FsResolver, MountAccess, PlanShield, RunPlan, SandboxBackend, SandboxEffects, SandboxMount,
    SandboxPlan, executable_closure,
};
use interlock_sandbox::{SandboxRequest, prepare_sandbox};
use interlock_supervisor::{Manner, SupervisorClient, SupervisorPaths, Waited};
use testkit::parts::measure_parts;

const TRUE: &str = "/usr/bin/true";

/// As many mounts as a machine with many containers has.
const HOST_MOUNTS: usize = 500;

/// The runs that were started.
static RUNS: AtomicUsize = AtomicUsize::new(0);

fn main() {
    measure_parts(
        &Bench::new(),
        &[
            ("warm", Bench::warm),
            ("first", Bench::first),
            ("mounts", Bench::many_mounts),
            ("tree", Bench::tree),
            ("log", Bench::log),
            ("cow", Bench::cow),
            ("commit", Bench::commit),
            ("network", Bench::network),
            ("idle", Bench::idle),
            ("end", Bench::end),
        ],
    );
}

/// A state directory and a workspace, with their supervisor.
struct Bench {
    root: tempfile::TempDir,
    work: PathBuf,
    key: AuthorizationKey,
    client: SupervisorClient,
}

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("home/.interlock");
        let work = root.path().join("work");
        fs::create_dir_all(&state).unwrap();
        fs::create_dir_all(&work).unwrap();
        let place = SupervisorPaths::new(&state);
        fs::write(place.run_key(), [7; 32]).unwrap();
        let arguments = [
            "guard".into(),
            "--state-dir".into(),
            state.into_os_string(),
            "--supervisor-version".into(),
            "bench".into(),
        ];
        let program = testkit::binary();
        let client = SupervisorClient::new(place, "bench").starting(program, arguments);
        // As a gateway does: a process waits for its next order.
        client.prepare();
        Self {
            client,
            key: AuthorizationKey::from_bytes([7; 32]),
            work: work.canonicalize().unwrap(),
            root,
        }
    }

    /// The sandbox of a conversation.
    fn sandbox(&self, settings: &str, conversation: &str) -> SandboxPlan {
        let settings: Sandbox = serde_json::from_str(settings).unwrap();
        let home = self.root.path().join("home");
        let prepared = prepare_sandbox(&SandboxRequest {
            effects: SandboxEffects::Direct,
            settings: &settings,
            backend: SandboxBackend::Native,
            agent: "main",
            session_key: conversation,
            workspace: &self.work,
            cwd: self.work.to_str().unwrap(),
            state_dir: &home.join(".interlock"),
            own_paths: &[],
            home: home.to_str(),
        });
        prepared.unwrap().plan
    }

    /// A plan in a sandbox.
    fn inside(plan: &RunPlan, sandbox: SandboxPlan) -> RunPlan {
        RunPlan {
            shield: PlanShield::Sandbox,
            sandbox: Some(sandbox),
            ..plan.clone()
        }
    }

    /// What it wrote.
    fn run(&self, plan: &RunPlan) -> String {
        let authorized = testkit::plans::authorized(&self.key, plan);
        // The layer of a run is called by its id.
        let manner = Manner {
            run_id: Some(format!("bench-{}", RUNS.fetch_add(1, Ordering::Relaxed))),
            ..Manner::default()
        };
        let conversation = self.client.start(authorized, &manner).unwrap();
        let Waited::Ended(ended) = conversation.wait().unwrap() else {
            panic!("it went to the background");
        };
        assert_eq!(ended.outcome.status, RunStatus::Exited(0));
        conversation.taken().unwrap();
        ended.shown.text.clone()
    }

    fn warm(&self) {
        self.compare_with_others("warm run");
    }

    fn compare_with_others(&self, name: &str) {
        let program = testkit::plans::plan(TRUE, &self.work);
        let sandbox = self.sandbox(r#"{ "workspaceAccess": "rw" }"#, "agent:main:main");
        let bwrap = bwrap(&sandbox);
        let plan = Self::inside(&program, sandbox);
        let times = in_turns(
            60,
            &mut [
                &mut || drop(self.run(&plan)),
                &mut || spawn(&[TRUE.to_owned()]),
                &mut || spawn(&bwrap),
            ],
        );
        say(name, &times, &["sandbox", "posix_spawn", "bwrap"]);
    }

    /// Each run is the first of its scope.
    fn first(&self) {
        let plain = testkit::plans::plan(TRUE, &self.work);
        let settings = r#"{ "workspaceAccess": "rw", "scope": "session" }"#;
        let bwrap = bwrap(&self.sandbox(settings, "agent:main:0"));
        let mut number = 0;
        let times = in_turns(
            30,
            &mut [
                &mut || {
                    number += 1;
                    let sandbox = self.sandbox(settings, &format!("agent:main:{number}"));
                    drop(self.run(&Self::inside(&plain, sandbox)));
                },
                &mut || spawn(&bwrap),
            ],
        );
        say("first run of a scope", &times, &["sandbox", "bwrap"]);
    }

    /// The same as `warm`, in a view of the host with many mounts.
    fn many_mounts(&self) {
        if !rustix::process::geteuid().is_root() {
            println!("mounts: skipped, only root mounts");
            return;
        }
        if fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .lines()
            .count()
            > HOST_MOUNTS
        {
            self.compare_with_others(&format!("warm run, {HOST_MOUNTS} host mounts"));
            return;
        }
        let script = format!(
            "d=$(mktemp -d); for i in $(seq {HOST_MOUNTS}); do mkdir $d/$i; mount -t tmpfs -o size=4k m $d/$i; done; \"$0\" mounts; \
             for i in $(seq {HOST_MOUNTS}); do umount $d/$i; done; rm -r $d"
        );
        let own = std::env::current_exe().unwrap();
        let ended = Command::new("/usr/bin/unshare")
            .args(["-m", "--propagation", "private", "sh", "-c", &script])
            .arg(own)
            .status();
        assert!(ended.unwrap().success());
    }

    /// What it costs that the kernel holds which programs are started: 300 of them in one run.
    fn tree(&self) {
        let text = format!("i=0; while [ $i -lt 300 ]; do {TRUE}; i=$((i+1)); done");
        let plain = testkit::plans::shell_plan("/bin/sh", &[], &text, &self.work);
        let open = self.sandbox(r#"{ "workspaceAccess": "rw" }"#, "agent:main:main");
        let mut closed = self.sandbox(
            r#"{ "workspaceAccess": "rw", "tree": "enforce" }"#,
            "agent:main:main",
        );
        let resolver = FsResolver::from_path_value("/usr/bin:/bin", None);
        let programs = executable_closure(["/bin/sh".to_owned(), TRUE.to_owned()], &resolver);
        closed.executables = Some(programs.into_iter().collect());
        let (open, closed) = (Self::inside(&plain, open), Self::inside(&plain, closed));
        let times = in_turns(
            12,
            &mut [&mut || drop(self.run(&closed)), &mut || {
                drop(self.run(&open));
            }],
        );
        say("300 programs of one run", &times, &["enforce", "off"]);
    }

    /// What it costs that each of 300 programs of one run is logged.
    fn log(&self) {
        let text = format!("i=0; while [ $i -lt 300 ]; do {TRUE}; i=$((i+1)); done");
        let plain = testkit::plans::shell_plan("/bin/sh", &[], &text, &self.work);
        let sandbox = |settings| self.sandbox(settings, "agent:main:main");
        let open = Self::inside(&plain, sandbox(r#"{ "workspaceAccess": "rw" }"#));
        let logged = sandbox(r#"{ "workspaceAccess": "rw", "tree": "log" }"#);
        let logged = Self::inside(&plain, logged);
        let mut works: [&mut dyn FnMut(); 2] = [&mut || drop(self.run(&logged)), &mut || {
            drop(self.run(&open));
        }];
        let times = in_turns(12, &mut works);
        say("300 programs of one run", &times, &["log", "off"]);
    }

    /// What it costs that the workspace of a run is under a layer. Beside it a run whose sandbox is made at its
    /// start as well.
    fn cow(&self) {
        let plain = testkit::plans::plan(TRUE, &self.work);
        let sandbox = |settings| self.sandbox(settings, "agent:main:main");
        let layered = Self::inside(&plain, sandbox(r#"{ "workspaceAccess": "cow" }"#));
        let direct = sandbox(r#"{ "workspaceAccess": "rw", "tree": "log" }"#);
        let direct = Self::inside(&plain, direct);
        let mut works: [&mut dyn FnMut(); 2] = [&mut || drop(self.run(&layered)), &mut || {
            drop(self.run(&direct));
        }];
        let times = in_turns(30, &mut works);
        say("run of true", &times, &["with an overlay", "without"]);
    }

    /// 500 changed files and a new tree of 5,000, as an overlay keeps them.
    fn commit(&self) {
        let mut times = Vec::new();
        for round in 0..6 {
            let place = self.root.path().join(format!("commit-{round}"));
            let [work, upper, journal_dir] =
                ["work", "upper", "journal"].map(|name| place.join(name));
            for directory in [&work, &upper, &journal_dir] {
                fs::create_dir_all(directory).unwrap();
                fs::set_permissions(directory, PermissionsExt::from_mode(0o700)).unwrap();
            }
            for number in 0..500 {
                fs::write(work.join(number.to_string()), "before").unwrap();
            }
            let root = fs::canonicalize(&work).unwrap();
            let found = fs::metadata(&root).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            for number in 0..500 {
                fs::write(upper.join(number.to_string()), format!("after {number}")).unwrap();
            }
            for number in 0..5_000 {
                let directory = upper.join(format!("new/{}", number % 50));
                fs::create_dir_all(&directory).unwrap();
                fs::write(directory.join(number.to_string()), "new").unwrap();
            }
            // As the upper half of a mount has it: nothing of the workspace is below the new tree.
            let opaque = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(upper.join("new"), "user.overlay.opaque", b"y", opaque).unwrap();
            let source = EffectSource {
                upper,
                committed: place.join("committed"),
                root,
                device: found.dev(),
                inode: found.ino(),
                started_ns: i64::try_from(started.as_nanos()).unwrap(),
                clock_ahead_ns: i64::MIN / 2,
                owner: None,
            };
            let target = EffectTarget {
                journal_dir,
                reserved: ReservedPaths::default(),
            };
            let began = Instant::now();
            let judged = commit_effect(&source, &target, EffectHashes::None, |_| {
                ControlFlow::<()>::Continue(())
            });
            assert!(judged.unwrap().is_continue());
            times.push(began.elapsed());
            assert!(work.join("new/7/7").exists());
        }
        times.sort();
        println!(
            "commit of 500 files and a tree of 5,000: {:.1?}, at most {:.1?}",
            times[3], times[5]
        );
    }

    /// Bytes and connections through the proxy, beside the host's own loopback.
    fn network(&self) {
        let server = ByteServer::start();
        let port = server.port();
        let text = |host: &str| {
            NETWORK
                .replace("HOST", host)
                .replace("PORT", &port.to_string())
        };
        let allow = format!(
            r#"{{ "workspaceAccess": "rw", "network": {{ "allow": ["host.internal:{port}"], "ask": false }} }}"#
        );
        let sandbox = self.sandbox(&allow, "agent:main:main");
        let plan = |text: &str| testkit::plans::shell_plan("/bin/sh", &[], text, &self.work);
        let inside = Self::inside(&plan(&text("host.internal")), sandbox);
        let outside = plan(&text("127.0.0.1"));
        let mut found: [Vec<(f64, f64)>; 2] = [Vec::new(), Vec::new()];
        for _ in 0..5 {
            for (plan, found) in [&inside, &outside].into_iter().zip(&mut found) {
                let said = self.run(plan);
                let (rate, connect) = said
                    .trim()
                    .split_once(' ')
                    .unwrap_or_else(|| panic!("{said}"));
                found.push((rate.parse().unwrap(), connect.parse().unwrap()));
            }
        }
        let middle = |found: &[(f64, f64)]| {
            let (mut rates, mut connects): (Vec<f64>, Vec<f64>) = found.iter().copied().unzip();
            rates.sort_by(f64::total_cmp);
            connects.sort_by(f64::total_cmp);
            (rates[rates.len() / 2], connects[connects.len() / 2])
        };
        let ((inside, to_inside), (outside, to_outside)) = (middle(&found[0]), middle(&found[1]));
        println!(
            "proxied transfer: {inside:.0} of {outside:.0} MB/s ({:.2}); connect and a byte: {to_inside:.2} ms beside {to_outside:.2} ms",
            inside / outside
        );
    }

    /// What a scope costs in which nothing runs.
    fn idle(&self) {
        let plain = testkit::plans::plan(TRUE, &self.work);
        let sandbox = self.sandbox(r#"{ "workspaceAccess": "rw" }"#, "agent:main:main");
        self.run(&Self::inside(&plain, sandbox));
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let own_keeper = processes.map(|entry| entry.path()).find(|process| {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            let parent = fs::read_to_string(process.join("status")).unwrap_or_default();
            name.trim_end() == "interlock-keep" && is_of(&parent, &self.client)
        });
        let keeper = own_keeper.expect("a scope has a keeper");
        let number = |file: &str, key: &str| -> u64 {
            let text = fs::read_to_string(keeper.join(file)).unwrap();
            let found = text.lines().filter_map(|line| line.strip_prefix(key));
            let words =
                found.filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
            words.sum()
        };
        let switches = || number("status", "voluntary_ctxt_switches:");
        let before = switches();
        std::thread::sleep(Duration::from_secs(5));
        let own =
            number("smaps_rollup", "Private_Clean:") + number("smaps_rollup", "Private_Dirty:");
        println!(
            "idle scope: {own} KiB of its own, {} wake-ups in 5 s",
            switches() - before
        );
    }

    /// From the end of the first process to the result, with 500 more that are left.
    fn end(&self) {
        let text = "i=0; while [ $i -lt 500 ]; do sleep 600 & i=$((i+1)); done; exec date +%s%N";
        let program = testkit::plans::shell_plan("/bin/sh", &[], text, &self.work);
        let sandbox = self.sandbox(r#"{ "workspaceAccess": "rw" }"#, "agent:main:main");
        let plan = Self::inside(&program, sandbox);
        let mut times: Vec<Duration> = (0..10)
            .map(|_| {
                let said = self.run(&plan);
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                let ended = Duration::from_nanos(said.trim().parse().unwrap());
                now.saturating_sub(ended)
            })
            .collect();
        times.sort();
        println!(
            "end of 500 processes: {:.1?}, at most {:.1?}",
            times[5], times[9]
        );
    }
}

/// Takes 256 MiB, and then connects 200 times for a byte: MB/s, and the median of milliseconds.
const NETWORK: &str = r#"python3 -c '
import socket, time
def get(word, size):
    s = socket.create_connection(("HOST", PORT)); s.sendall(word); left = size
    while left > 0:
        left -= len(s.recv(1 << 20))
    s.close()
get(b"b", 1)
began = time.perf_counter(); get(b"m", 256 << 20); took = time.perf_counter() - began
all = []
for _ in range(200):
    began = time.perf_counter(); get(b"b", 1); all.append(time.perf_counter() - began)
print(256 * 1.048576 / took, sorted(all)[100] * 1000)
'"#;

/// Answers `b` with a byte and `m` with 256 MiB, on a loopback port.
struct ByteServer(u16);

impl ByteServer {
    fn start() -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || Self::answer(stream));
            }
        });
        Self(port)
    }

    fn port(&self) -> u16 {
        self.0
    }

    fn answer(mut stream: std::net::TcpStream) -> std::io::Result<()> {
        const CHUNK: usize = 1 << 20;
        let mut word = [0];
        stream.read_exact(&mut word)?;
        if word == *b"b" {
            return stream.write_all(b"x");
        }
        let chunk = vec![b'x'; CHUNK];
        (0..256).try_for_each(|_| stream.write_all(&chunk))
    }
}

/// Whether a process was started by the supervisor of this benchmark.
fn is_of(status: &str, client: &SupervisorClient) -> bool {
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let parent: i64 = parent
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(-1);
    client
        .supervisors()
        .iter()
        .any(|own| i64::from(own.pid) == parent)
}

/// Nothing is left of it.
impl Drop for Bench {
    fn drop(&mut self) {
        for about in self.client.supervisors() {
            let pid = about.pid.to_string();
            let _ = Command::new("/bin/kill").args(["-KILL", &pid]).status();
        }
    }
}

/// The command line by which `bwrap` shows the same.
fn bwrap(plan: &SandboxPlan) -> Vec<String> {
    let mut words: Vec<String> = [
        "/usr/bin/bwrap",
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut add = |all: &[&str]| words.extend(all.iter().map(|&word| word.to_owned()));
    for mount in &plan.mounts {
        match mount {
            SandboxMount::Bind {
                source,
                target,
                access,
                ..
            } => {
                add(&[bind_word(*access), source, target]);
            }
            SandboxMount::Copy {
                from,
                target,
                access,
                ..
            } => add(&[bind_word(*access), from, target]),
            SandboxMount::Hold { target, access, .. } if Path::new(target).exists() => {
                add(&[bind_word(*access), target, target]);
            }
            SandboxMount::Cover { target, .. } if Path::new(target).is_dir() => {
                add(&["--tmpfs", target]);
            }
            SandboxMount::Cover { target, .. } if Path::new(target).exists() => {
                add(&["--ro-bind", "/dev/null", target]);
            }
            SandboxMount::Memory { target, .. } => add(&["--tmpfs", target]),
            SandboxMount::Link { target, to } => add(&["--symlink", to, target]),
            SandboxMount::Processes => add(&["--proc", "/proc"]),
            SandboxMount::Devices => add(&["--dev", "/dev"]),
            _ => {}
        }
    }
    add(&["--chdir", &plan.cwd, TRUE]);
    words
}

fn bind_word(access: MountAccess) -> &'static str {
    match access {
        MountAccess::Ro => "--ro-bind",
        MountAccess::Rw => "--bind",
    }
}

fn spawn(argv: &[String]) {
    let ended = Command::new(&argv[0])
        .args(&argv[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    assert!(ended.unwrap().success(), "{argv:?}");
}

/// The median of each, measured in turns.
fn in_turns(rounds: usize, works: &mut [&mut dyn FnMut()]) -> Vec<Duration> {
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); works.len()];
    for round in 0..rounds + 5 {
        for (work, times) in works.iter_mut().zip(&mut times) {
            let began = Instant::now();
            work();
            if round >= 5 {
                times.push(began.elapsed());
            }
        }
    }
    times
        .into_iter()
        .map(|mut times| {
            times.sort();
            times[times.len() / 2]
        })
        .collect()
}

/// The first, beside each other one.
fn say(name: &str, times: &[Duration], names: &[&str]) {
    let mut line = format!("{name}: {:.2?} {}", times[0], names[0]);
    for (time, other) in times.iter().zip(names).skip(1) {
        let ratio = times[0].as_secs_f64() / time.as_secs_f64();
        line.push_str(&format!(", {time:.2?} {other} ({ratio:.2}×)"));
    }
    println!("{line}");
}
