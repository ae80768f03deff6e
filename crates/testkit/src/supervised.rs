//! A state directory of its own with real supervisors, which tests call as any client does, and
//! what can be observed of their processes from outside.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod wire;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::plans::{self, Mark, PATIENCE};
use interlock_engine::{AuthorizationKey, AuthorizedPlan, Signal};
use interlock_plan::RunPlan;
use interlock_supervisor::{
    About, ClientError, EndedRun, ListedSession, Manner, RunConversation, SessionState,
    SupervisorClient, SupervisorPaths, Waited,
};
use interlock_transcript::{Cursor, TranscriptReader};

pub const VERSION: &str = "test";

const BINARY_VARIABLE: &str = "INTERLOCK_TEST_BINARY";

/// Returns the program under test. Another user gets a copy in a directory that is open to them.
pub fn binary() -> PathBuf {
    std::env::var_os(BINARY_VARIABLE).map_or_else(crate::binary, PathBuf::from)
}

/// A run that a test starts as often as it likes. Each start is authorized anew with the key of the
/// state directory.
#[derive(Debug, Clone)]
pub struct Order {
    pub plan: RunPlan,
    pub manner: Manner,
}

impl Order {
    pub fn authorized(&self) -> AuthorizedPlan {
        plans::authorized(&AuthorizationKey::from_bytes([7; 32]), &self.plan)
    }

    pub fn start(&self, client: &SupervisorClient) -> Result<RunConversation, ClientError> {
        client.start(self.authorized(), &self.manner)
    }
}

/// A state directory. When this is dropped, its supervisors end and it is removed.
pub struct State {
    _directory: Option<tempfile::TempDir>,
    path: PathBuf,
    pub client: SupervisorClient,
}

impl State {
    pub fn new() -> Self {
        Self::with(&[])
    }

    /// Creates a state directory with further arguments for the guard.
    pub fn with(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(directory.path()).unwrap();
        Self::at(Some(directory), &path.join("state"), arguments)
    }

    pub fn at(directory: Option<tempfile::TempDir>, path: &Path, arguments: &[&str]) -> Self {
        for name in [path.to_path_buf(), path.with_file_name("work")] {
            fs::create_dir_all(&name).unwrap();
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        let client = client(path, VERSION, arguments);
        fs::write(client.place().run_key(), [7; 32]).unwrap();
        Self {
            _directory: directory,
            path: path.to_path_buf(),
            client,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory in which the runs start.
    pub fn work(&self) -> PathBuf {
        self.path.with_file_name("work")
    }

    /// Returns another client, which shares only the state directory.
    pub fn client_of(&self, version: &str) -> SupervisorClient {
        client(&self.path, version, &[])
    }

    pub fn shell(&self, text: &str) -> RunPlan {
        plans::shell_plan("/bin/sh", &[], text, &self.work())
    }

    pub fn order(plan: &RunPlan, manner: &Manner) -> Order {
        Order {
            plan: plan.clone(),
            manner: manner.clone(),
        }
    }

    pub fn start(&self, plan: &RunPlan, manner: &Manner) -> Result<RunConversation, ClientError> {
        Self::order(plan, manner).start(&self.client)
    }

    /// Runs a plan to its end.
    #[track_caller]
    pub fn run_plan(&self, plan: &RunPlan, manner: &Manner) -> EndedRun {
        let conversation = self.start(plan, manner).unwrap();
        let ended = end_of(&conversation);
        conversation.taken().unwrap();
        ended
    }

    #[track_caller]
    pub fn run(&self, text: &str) -> EndedRun {
        self.run_plan(&self.shell(text), &patient())
    }

    /// Begins a marked run in the background.
    #[track_caller]
    pub fn begin(&self, text: &str) -> Session {
        begin_by(&self.client, self.shell(text))
    }

    /// Returns the only supervisor that accepts runs.
    #[track_caller]
    pub fn supervisor(&self) -> About {
        let mut all = self.client.supervisors();
        all.retain(|about| !about.draining);
        assert_eq!(all.len(), 1, "{all:#?}");
        all.remove(0)
    }

    #[track_caller]
    pub fn listed(&self, name: &str) -> ListedSession {
        let all = self.client.list();
        let found = all.iter().find(|listed| listed.session.name == name);
        found
            .unwrap_or_else(|| panic!("no {name} in {all:#?}"))
            .clone()
    }

    pub fn transcript(&self, name: &str) -> Transcript {
        Transcript::read(&self.client.place().session(name))
    }

    pub fn socket(&self, version: &str) -> PathBuf {
        self.path.join("supervisor").join(format!("{version}.sock"))
    }

    /// Waits until a session has ended, and returns its final state.
    #[track_caller]
    pub fn end_of(&self, name: &str) -> ListedSession {
        let began = Instant::now();
        loop {
            // A session that ended at once appears in the list as soon as no client wants its
            // result.
            let mut all = self.client.list();
            all.retain(|listed| listed.session.name == name);
            match all.pop() {
                Some(listed) if listed.state == SessionState::Ended => return listed,
                other => assert!(began.elapsed() < PATIENCE, "{name}: {other:#?}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until a file that a run writes in its directory has this many lines.
    #[track_caller]
    pub fn lines(&self, name: &str, count: usize) -> Vec<String> {
        let path = self.work().join(name);
        let read = || fs::read_to_string(&path).unwrap_or_default();
        eventually(&format!("{count} lines in {name}"), || {
            read().matches('\n').count() >= count
        });
        read().lines().map(str::to_owned).collect()
    }
}

fn client(path: &Path, version: &str, arguments: &[&str]) -> SupervisorClient {
    let mut all: Vec<std::ffi::OsString> = vec!["guard".into(), "--state-dir".into(), path.into()];
    all.extend(["--supervisor-version".into(), version.into()]);
    all.extend(arguments.iter().map(Into::into));
    SupervisorClient::new(SupervisorPaths::new(path), version).starting(binary(), all)
}

/// Begins a session with this client.
#[track_caller]
pub fn begin_by(client: &SupervisorClient, mut plan: RunPlan) -> Session {
    let mark = Mark::on(&mut plan);
    let manner = Manner {
        wait_ms: Some(0),
        ..Manner::default()
    };
    let conversation = State::order(&plan, &manner).start(client).unwrap();
    // The wait also returns if the session has already ended.
    conversation.wait().unwrap();
    let record = &conversation.started().session;
    Session {
        name: record.name.clone(),
        pid: record.pid.unwrap(),
        mark,
    }
}

/// Returns a manner that waits as long as the run takes.
pub fn patient() -> Manner {
    Manner {
        wait_ms: None,
        ..Manner::default()
    }
}

#[track_caller]
pub fn end_of(conversation: &RunConversation) -> EndedRun {
    match conversation.wait().unwrap() {
        Waited::Ended(ended) => *ended,
        Waited::Yielded => panic!("it went to the background"),
    }
}

/// No process may outlive its test.
impl Drop for State {
    fn drop(&mut self) {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let guards = guards(&self.path);
            if guards.is_empty() {
                break;
            }
            for about in self.client.supervisors() {
                kill(about.pid);
            }
            // A guard without a socket cannot be asked to end.
            if began.elapsed() > PATIENCE / 4 {
                guards.into_iter().for_each(kill);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A session in the background.
pub struct Session {
    pub name: String,
    pub pid: i32,
    pub mark: Mark,
}

/// Everything that can be read of a session.
#[derive(Debug, Default)]
pub struct Transcript {
    pub bytes: Vec<u8>,
    pub gap: u64,
}

impl Transcript {
    pub fn read(directory: &Path) -> Self {
        let spool = TranscriptReader::open(directory).unwrap();
        let mut transcript = Self::default();
        let mut cursor = Cursor::START;
        loop {
            let batch = spool.read_from(cursor, 1 << 20).unwrap();
            if batch.next == cursor {
                return transcript;
            }
            cursor = batch.next;
            transcript.gap += batch.gap.bytes;
            for chunk in batch.chunks {
                transcript.bytes.extend(chunk.bytes);
            }
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Returns the last of the numbered lines `1`, `2`, `3` …, and checks that all of them are
    /// there.
    #[track_caller]
    pub fn counted(&self) -> u64 {
        let text = self.text();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut last = 0;
        for line in whole.lines() {
            assert_eq!(line, (last + 1).to_string());
            last += 1;
        }
        last
    }
}

/// Returns the output of `seq 1 …` up to this many bytes, as this process writes it.
pub fn numbers(bytes: u64) -> Vec<u8> {
    use std::io::Write as _;
    let size = usize::try_from(bytes).unwrap();
    let mut text = Vec::with_capacity(size + 20);
    for number in 1.. {
        if text.len() >= size {
            break;
        }
        writeln!(text, "{number}").unwrap();
    }
    text.truncate(size);
    text
}

/// Polls until the condition holds. Only a failure reaches the deadline.
#[track_caller]
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a number once it stays the same. A supervisor closes a client's connection only a moment
/// after the client has left.
#[track_caller]
pub fn settled(count: impl Fn() -> usize) -> usize {
    let began = Instant::now();
    let (mut last, mut same) = (count(), 0);
    while same < 40 {
        assert!(began.elapsed() < PATIENCE, "a number that does not settle");
        std::thread::sleep(Duration::from_millis(5));
        let now = count();
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    last
}

pub fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let _ = rustix::process::kill_process(pid, Signal::KILL);
}

/// One row of the system's list of processes.
#[derive(Debug, Clone)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub zombie: bool,
    pub name: String,
}

pub fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (front, back) = stat.rsplit_once(')')?;
        let mut fields = back.split_ascii_whitespace();
        let zombie = matches!(fields.next()?, "Z" | "X");
        Some(Process {
            pid,
            parent: fields.next()?.parse().ok()?,
            zombie,
            name: front.split_once('(')?.1.to_owned(),
        })
    });
    stats.collect()
}

/// Whether a process runs. A process that only waits to be collected does not.
pub fn is_alive(pid: i32) -> bool {
    processes()
        .iter()
        .any(|process| process.pid == pid && !process.zombie)
}

pub fn parent(pid: i32) -> i32 {
    let all = processes();
    let found = all.iter().find(|process| process.pid == pid);
    found.unwrap_or_else(|| panic!("no process {pid}")).parent
}

pub fn children(pid: i32) -> Vec<Process> {
    let mut all = processes();
    all.retain(|process| process.parent == pid);
    all
}

/// Returns the guards, supervisors and shims of a state directory.
pub fn guards(state: &Path) -> Vec<i32> {
    let all = processes().into_iter().filter(|process| {
        let called = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        let mut words = called.split(|byte| *byte == 0);
        words.any(|word| word == b"guard") && words.any(|word| word == path_bytes(state))
    });
    all.map(|process| process.pid).collect()
}

fn path_bytes(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}

/// Returns how many descriptors a process has open. An ordinary user cannot inspect Interlock's own
/// processes and counts none. The same tests count them as root.
pub fn descriptors(pid: i32) -> io::Result<usize> {
    match fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(open) => Ok(open.count()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !is_root() => Ok(0),
        Err(error) => Err(error),
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs the tests of this program again as a user without rights, except those whose names contain
/// one of these texts.
pub fn again_as_ordinary_user(module: &str, except: &[&str]) {
    if !is_root() {
        return println!("skipped: this user is an ordinary one");
    }
    if !plans::has("setpriv") {
        return;
    }
    // Other users may have no access to the build directory.
    let scratch = tempfile::tempdir().unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copies = ["tests", "interlock"].map(|name| scratch.path().join(name));
    for (from, to) in [std::env::current_exe().unwrap(), binary()]
        .iter()
        .zip(&copies)
    {
        // Another process must copy. Otherwise, a child that another thread starts meanwhile would
        // briefly hold this process's descriptor, and a file that is open for writing cannot be
        // executed.
        let status = Command::new("/bin/cp").arg(from).arg(to).status();
        assert!(status.unwrap().success());
    }
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&copies[0])
        .arg(plans::tests_of(module))
        .args(except.iter().flat_map(|name| ["--skip", name]))
        .env(BINARY_VARIABLE, &copies[1])
        .env_remove("TMPDIR")
        .current_dir("/")
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && !report.contains(" 0 passed"),
        "{report}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
