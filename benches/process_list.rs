//! How long a look at many sessions takes. `cargo bench -p interlock --bench process_list`; the bar
//! is in SPECIFICATION.md.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Stdio};

use divan::Bencher;
use interlock_host::{LocalHost, OpenOptions};
use interlock_policy::AgentId;
use interlock_sessions::{Process, ProcessCaller};
use interlock_supervisor::{SupervisorClient, SupervisorPaths, names};
use interlock_transcript::{
    ChunkStream, SessionOutcome, SessionRecord, TranscriptLimits, TranscriptWriter,
};
use tempfile::TempDir;

fn main() {
    divan::main();
}

/// What an agent's `list` costs a process that runs already.
#[divan::bench(args = [10, 1_000])]
fn list(bencher: Bencher, sessions: usize) {
    let state = state_with(sessions);
    let options = OpenOptions {
        state_dir: Some(state.path().to_path_buf()),
        ..OpenOptions::default()
    };
    let (host, _) = LocalHost::open(options).unwrap();
    let caller = ProcessCaller::Agent {
        agent: AgentId::default(),
        session_key: "agent:main:main".to_owned(),
    };
    let client = SupervisorClient::new(SupervisorPaths::new(state.path()), "bench");
    let process = Process::open(&host, caller, client).unwrap();
    assert_eq!(process.list().unwrap().len(), sessions);
    bencher.bench_local(|| process.list().unwrap());
}

/// The whole command.
#[divan::bench(args = [10, 1_000])]
fn list_command(bencher: Bencher, sessions: usize) {
    let state = state_with(sessions);
    bencher.bench_local(|| {
        let status = Command::new(testkit::binary())
            .arg("--state-dir")
            .arg(state.path())
            .args(["process", "list", "--json"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
    });
}

/// A state directory with so many finished sessions.
fn state_with(sessions: usize) -> TempDir {
    let state = tempfile::tempdir().unwrap();
    let place = SupervisorPaths::new(state.path());
    std::fs::create_dir(place.sessions()).unwrap();
    for _ in 0..sessions {
        let name = names::session_name(|name| place.session(name).exists());
        finished_session(&place.session(&name), &name);
    }
    state
}

fn finished_session(directory: &Path, name: &str) {
    let mut spool = TranscriptWriter::prepare(directory, TranscriptLimits::default()).unwrap();
    let command = "cargo test --workspace 2>&1 | tail -20";
    let record = SessionRecord {
        id: "9a3f1c9e-0000-4000-8000-000000000000".to_owned(),
        run_id: Some("9a3f1c9e-0000-4000-8000-000000000001".to_owned()),
        name: name.to_owned(),
        title: names::title(command),
        agent_id: AgentId::MAIN.to_owned(),
        owner: None,
        session_key: Some("agent:main:main".to_owned()),
        command: command.to_owned(),
        cwd: "/home/user/projects/interlock".to_owned(),
        pid: Some(4711),
        shim: None,
        pty: true,
        writable: true,
        input_pipe: None,
        race_free: true,
        shield: None,
        tree: None,
        background: true,
        cleanup_ms: 1_800_000,
        supervisor: "bench".to_owned(),
        out_of_memory: false,
        programs: None,
        protected_created: Vec::new(),
    };
    spool.begin(Some(record)).unwrap();
    spool.append(ChunkStream::Pty, b"test result: ok\n");
    spool.finish(SessionOutcome::Exited { code: 0 }).unwrap();
}
