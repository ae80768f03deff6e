//! What a sandboxed run costs, next to the same program without one and next to `bwrap` with the same view, in
//! one run.
//!
//! `cargo bench -p interlock --bench sandbox [-- warm|first|mounts|tree|end]`
//!
//! What is compared is measured in turns, so that a busy machine slows all of it down. `mounts` needs root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use interlock_config::types::Sandbox;
use interlock_engine::{AuthorizationKey, RunStatus};
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

fn main() {
    measure_parts(
        &Bench::new(),
        &[
            ("warm", Bench::warm),
            ("first", Bench::first),
            ("mounts", Bench::many_mounts),
            ("tree", Bench::tree),
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
        let conversation = self.client.start(authorized, &Manner::default()).unwrap();
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
