//! How long it takes from a person's decision to the start of the process, with many other
//! approvals waiting, beside what two bare durable commits cost on the same file system.
//!
//! `cargo bench -p interlock --bench approval`; the bar is in SPECIFICATION.md. The state lies in
//! the system's temporary directory: set TMPDIR to measure another disk. Both are measured in
//! turns, so that a busy machine slows both down. The started program says itself when it runs: the
//! answer to the client waits a moment for those that end at once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_precision_loss
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use interlock_approvals::{ApprovalDecision, DecisionBy, OutsideRuns, PendingApproval};
use interlock_command::Source;
use interlock_host::{
    EndListener, Exec, ExecRequest, LocalHost, OpenOptions, Running, Yield, now_ms,
};
use interlock_plan::PlanStdin;
use interlock_policy::AgentId;
use interlock_store::{ApprovalRequest, StoreError};
use interlock_supervisor::{SupervisorClient, SupervisorPaths, Waited};
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

const WAITING: usize = 10_000;
const ROUNDS: usize = 200;
const EXECUTABLE_BYTES: usize = 1_000_000;

const SAYS_WHEN_IT_RUNS: &str = r#"
#include <stdio.h>
#include <time.h>
int main(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    printf("%lld%09ld\n", (long long)now.tv_sec, now.tv_nsec);
    return 0;
}
"#;

/// Of each bare commit: about what a decision and a claim write with their records.
const COMMIT_BYTES: usize = 1500;

/// Approved programs are older than that.
const OLD: Duration = Duration::from_secs(5);

/// What may be added to two durable commits.
const BAR: Duration = Duration::from_millis(2);

fn main() {
    let bench = Bench::new();
    let bare = Bare::new(bench.scratch.path());
    let mut times = Times::default();
    while times.whole.len() < ROUNDS {
        let (decided, started) = bench.round();
        let began = Instant::now();
        bare.commit();
        bare.commit();
        let commits = began.elapsed();
        let bare_start = bench.bare_start();
        // The first are not like the others, and nor is a program that was written a moment ago:
        // its times tell nothing yet.
        if bench.made.elapsed() > OLD {
            times.decision.push(decided);
            times.whole.push(started);
            times.commits.push(commits);
            times.bare_start.push(bare_start);
        }
    }
    times.report();
}

#[derive(Default)]
struct Times {
    decision: Vec<Duration>,
    whole: Vec<Duration>,
    commits: Vec<Duration>,
    bare_start: Vec<Duration>,
}

impl Times {
    fn report(mut self) {
        let mut at = |part: usize| {
            let of = |times: &mut Vec<Duration>| {
                times.sort();
                times[times.len() * part / 100]
            };
            [
                of(&mut self.decision),
                of(&mut self.whole),
                of(&mut self.commits),
                of(&mut self.bare_start),
            ]
        };
        for part in [10, 50, 95] {
            let [decision, whole, commits, bare_start] = at(part);
            println!(
                "p{part}: decision to start {whole:.2?} (the decision {decision:.2?} of it), two durable commits {commits:.2?}, a bare start {bare_start:.2?}"
            );
        }
        let [_, whole, commits, _] = at(50);
        let more = whole.as_secs_f64() - commits.as_secs_f64();
        println!(
            "p50 beyond two durable commits: {:.2} ms; bar {BAR:?}; {WAITING} approvals wait",
            more * 1000.0
        );
    }
}

/// A host with its supervisor, and many questions.
struct Bench {
    scratch: TempDir,
    host: LocalHost,
    supervisor: SupervisorClient,
    agent: AgentId,
    base_env: BTreeMap<String, String>,
    program: PathBuf,
    made: Instant,
}

impl Bench {
    fn new() -> Self {
        let scratch = TempDir::new().unwrap();
        let state = scratch.path().join("state");
        let options = OpenOptions {
            state_dir: Some(state.clone()),
            path: Some("/usr/bin:/bin".to_owned()),
            ..OpenOptions::default()
        };
        let (host, _) = LocalHost::open(options).unwrap();
        let arguments = ["guard", "--state-dir", state.to_str().unwrap()];
        let version = ["--supervisor-version", "bench"];
        let supervisor = SupervisorClient::new(SupervisorPaths::new(&state), "bench")
            .starting(testkit::binary(), arguments.into_iter().chain(version));
        supervisor.prepare();
        let program = scratch.path().join("program");
        build(&program);
        let bench = Self {
            scratch,
            host,
            supervisor,
            agent: AgentId::default(),
            base_env: BTreeMap::new(),
            program,
            made: Instant::now(),
        };
        bench.fill();
        bench
    }

    /// As many others as wait already, each with a plan of the usual size.
    fn fill(&self) {
        let asked = self.asked();
        let like = self.host.store().approval(&asked.id).unwrap().request;
        let now_ms = i64::try_from(now_ms()).unwrap();
        for _ in 0..10 {
            let filled = self.host.store().change(|change| {
                for _ in 0..WAITING / 10 {
                    change.create_approval(&ApprovalRequest {
                        // Of others: an agent itself may ask only so much.
                        agent: "others".to_owned(),
                        session_key: "agent:others:main".to_owned(),
                        expires_at_ms: now_ms + 24 * 60 * 60 * 1000,
                        verdict: json!(like.verdict),
                        ..like.clone()
                    })?;
                }
                Ok::<_, StoreError>(())
            });
            filled.unwrap();
        }
    }

    fn request(&self) -> ExecRequest<'_> {
        ExecRequest {
            config: None,
            place: interlock_host::RequestedPlace::default(),
            agent: &self.agent,
            caller: &interlock_host::NO_CALLER_CONTEXT,
            source: Source::Text(self.program.display().to_string()),
            cwd: self.scratch.path().display().to_string(),
            env: BTreeMap::new(),
            ask: None,
            gateway: None,
            timeout_seconds: Some(60),
            base_env: &self.base_env,
            session_key: Some("agent:main:talk"),
            pty: None,
            stdin: PlanStdin::Null,
            yields: Yield::Never,
            show_chars: None,
            requester: "connection 7",
            runs_later: false,
        }
    }

    fn asked(&self) -> PendingApproval {
        let outcome = self.host.exec(&self.request(), &self.supervisor);
        let Exec::Pending(pending) = outcome.unwrap() else {
            panic!("not asked");
        };
        pending.approval
    }

    /// One question, its answer and its run: how long the decision took, and how long it took until
    /// the process was started.
    fn round(&self) -> (Duration, Duration) {
        let asked = self.asked();
        let approvals = self.host.approvals();
        let outside = OutsideRuns::this_process(&self.supervisor).unwrap();
        let by = DecisionBy {
            decider: "operator",
            surface: "browser",
            reason: None,
            has_shown: true,
            outside,
        };
        let request = self.request();
        let (began, clock) = (Instant::now(), SystemTime::now());
        approvals
            .decide(
                &asked.id,
                &asked.plan_digest,
                ApprovalDecision::AllowOnce,
                by,
            )
            .unwrap();
        let decided = began.elapsed();
        let running = self
            .host
            .run_approved(&asked.id, &request, &self.supervisor);
        let Running {
            conversation,
            ticket,
            ..
        } = running.unwrap();
        let waited = conversation.wait();
        let session = conversation.started().session.name.clone();
        self.host
            .record_end(&ticket, &session, waited.as_ref(), EndListener::Caller)
            .unwrap();
        conversation.taken().unwrap();
        let Ok(Waited::Ended(ended)) = waited else {
            panic!("{waited:?}");
        };
        (decided, since(clock, &ended.shown.text))
    }

    /// The same program without anything around it, until it says that it runs.
    fn bare_start(&self) -> Duration {
        let clock = SystemTime::now();
        let output = std::process::Command::new(&self.program).output().unwrap();
        since(clock, &String::from_utf8(output.stdout).unwrap())
    }
}

/// How long after this the program printed its time.
fn since(clock: SystemTime, printed: &str) -> Duration {
    let nanoseconds = printed.trim().parse().unwrap();
    let runs_at = UNIX_EPOCH + Duration::from_nanos(nanoseconds);
    runs_at.duration_since(clock).unwrap()
}

/// A native executable of that size that says when it runs, without a dynamic linker's work before
/// it can.
fn build(program: &Path) {
    let source = program.with_extension("c");
    fs::write(&source, SAYS_WHEN_IT_RUNS).unwrap();
    let built = std::process::Command::new("cc")
        .args(["-O1", "-static", "-o"])
        .args([program, &source])
        .status()
        .unwrap();
    assert!(built.success(), "cc: {built}");
    let mut content = fs::read(program).unwrap();
    content.resize(EXECUTABLE_BYTES, 0);
    // Written anew: a file that a compiler still has open is busy.
    fs::remove_file(program).unwrap();
    fs::write(program, content).unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Ends the supervisor with all that it has.
impl Drop for Bench {
    fn drop(&mut self) {
        for about in self.supervisor.supervisors() {
            let pid = about.pid.to_string();
            let _ = std::process::Command::new("/bin/kill")
                .args(["-KILL", &pid])
                .status();
        }
    }
}

/// A database with one table and the same promise of durability.
struct Bare {
    database: Connection,
    content: String,
}

impl Bare {
    fn new(directory: &Path) -> Self {
        let database = Connection::open(directory.join("bare.db")).unwrap();
        database
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                 CREATE TABLE bare (number INTEGER PRIMARY KEY, content TEXT NOT NULL) STRICT;",
            )
            .unwrap();
        Self {
            database,
            content: "x".repeat(COMMIT_BYTES),
        }
    }

    fn commit(&self) {
        let mut insert = self
            .database
            .prepare_cached("INSERT INTO bare (content) VALUES (?1)")
            .unwrap();
        insert.execute([&self.content]).unwrap();
    }
}
