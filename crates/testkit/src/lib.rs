//! A machine of its own for every test: a home, a state directory, programs in a PATH directory and
//! an empty environment, so that output is the same everywhere.
//!
//! The tests of several crates share this crate: [`Machine`] calls the real program, `ws`, `mcp`,
//! `node_pair` and `browser` are clients of a real gateway, and `supervised` and `plans` start real
//! runs. Only tests and benchmarks use it. Start reading at [`Machine`].

// A test that cannot continue fails at once, and machines are never printed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(missing_debug_implementations, clippy::missing_panics_doc)]
#![allow(clippy::new_without_default, clippy::return_self_not_must_use)]

pub mod asking;
pub mod browser;
pub mod chat;
pub mod companion;
pub mod fleet;
pub mod gateway_stand_in;
pub mod mcp;
pub mod node_pair;
pub mod parts;
pub mod plans;
pub mod sessions;
pub mod supervised;
pub mod terminal;
pub mod tls;
pub mod ws;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Returns the path of the program under test: the program that `INTERLOCK_BINARY` names, such as a
/// release build to be measured, or else Cargo's build beside the directory of the test programs.
pub fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("INTERLOCK_BINARY") {
        return named.into();
    }
    let tests = std::env::current_exe().unwrap();
    let directory = tests.parent().and_then(Path::parent).unwrap();
    directory.join("interlock")
}

/// Names of native programs in the machine's own PATH directory.
pub const PROGRAMS: &[&str] = &["rg", "git", "make", "python3", "xargs", "ls"];

/// A test machine. Its directory is removed when this is dropped.
pub struct Machine {
    _directory: tempfile::TempDir,
    root: PathBuf,
    binary: PathBuf,
    /// The user who runs the program and owns all files of the machine, if it is another user.
    user: Option<u32>,
}

/// The output of a command, and how it ended.
#[derive(Debug, Clone)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Machine {
    pub fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("interlock-e2e-")
            // TMPDIR is ignored, because only paths of equal length make columns of equal width.
            .tempdir_in("/tmp")
            .unwrap();
        let root = fs::canonicalize(directory.path()).unwrap();
        for name in ["bin", "home", "work"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        let machine = Self {
            _directory: directory,
            root,
            binary: binary(),
            user: None,
        };
        for program in PROGRAMS {
            machine.native(program);
        }
        machine
    }

    /// Installs the program on this machine, because services refuse a program in a build
    /// directory.
    #[must_use]
    pub fn with_own_binary(mut self) -> Self {
        self.binary = self.root.join("interlock");
        copy(binary(), &self.binary);
        self
    }

    /// Returns a machine whose owner is the user `nobody`. Returns `None`, with the reason printed,
    /// if the tool for it is missing or the tests do not run as root, who alone can make such a
    /// machine.
    pub fn of_ordinary_user() -> Option<Self> {
        const NOBODY: u32 = 65_534;
        if !is_root() {
            println!("skipped: only root can act for another user");
            return None;
        }
        if !Path::new("/usr/bin/setpriv").exists() {
            println!("skipped: /usr/bin/setpriv is not installed");
            return None;
        }
        let mut machine = Self::new();
        // Other users may have no access to the build directory.
        let binary = machine.root.join("interlock");
        copy(crate::binary(), &binary);
        fs::set_permissions(&machine.root, fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["home", "work"] {
            let path = machine.root.join(name);
            std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        machine.binary = binary;
        machine.user = Some(NOBODY);
        Some(machine)
    }

    /// Returns the program under test.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    pub fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }

    /// Returns the state directory that the program uses without a flag.
    pub fn state(&self) -> PathBuf {
        self.root.join("home/.interlock")
    }

    pub fn config(&self) -> PathBuf {
        self.state().join("interlock.json")
    }

    /// Creates a native executable in the PATH directory.
    pub fn native(&self, name: &str) -> PathBuf {
        let path = self.bin().join(name);
        copy(true_program(), &path);
        path
    }

    /// Creates an executable script.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.root.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Writes a file of the machine's owner that no other user can read.
    pub fn write_private(&self, path: &Path, content: &str) {
        fs::write(path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        if let Some(user) = self.user {
            std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
        }
    }

    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Writes the config without using the program.
    pub fn write_config(&self, text: &str) {
        if !self.state().exists() {
            fs::create_dir(self.state()).unwrap();
            fs::set_permissions(self.state(), fs::Permissions::from_mode(0o700)).unwrap();
        }
        fs::write(self.config(), text).unwrap();
    }

    /// Writes the config as a file of the machine's owner.
    pub fn configure(&self, text: &str) {
        self.write_config(text);
        if let Some(user) = self.user {
            std::os::unix::fs::chown(self.config(), Some(user), Some(user)).unwrap();
        }
    }

    /// Returns a command for another program of the machine's owner, with the same clean
    /// environment.
    pub fn other_program(&self, program: &str) -> Command {
        let own = self.command::<&str>(&[]);
        let mut command = Command::new(own.get_program());
        let arguments = own.get_args().map(|argument| {
            let is_own = argument == self.binary;
            if is_own { program.as_ref() } else { argument }
        });
        command.args(arguments);
        if self.user.is_none() {
            command = Command::new(program);
        }
        command
            .env_clear()
            .current_dir(self.work())
            .stdin(Stdio::null());
        for (name, value) in own.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command
    }

    /// Returns a command for the program with a clean environment: HOME, and PATH with the
    /// machine's own programs first.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = match self.user {
            None => Command::new(&self.binary),
            Some(user) => {
                let mut command = Command::new("/usr/bin/setpriv");
                let user = user.to_string();
                command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]);
                command.arg(&self.binary);
                command
            }
        };
        let path = format!("{}:/usr/bin:/bin", self.bin().display());
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.root.join("home"))
            .env("PATH", path)
            // Each test itself decides which commands need an approval.
            .env("INTERLOCK_BASE", "none")
            .current_dir(self.work())
            .stdin(Stdio::null());
        command
    }

    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Run {
        finish(&mut self.command(arguments))
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Run {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // The reader may stop early.
        let writer = std::thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Run::of(&output)
    }

    /// Runs and expects success.
    pub fn ok<S: AsRef<std::ffi::OsStr> + std::fmt::Debug>(&self, arguments: &[S]) -> Run {
        let run = self.run(arguments);
        assert_eq!(run.code, 0, "{arguments:?}: {run:#?}");
        run
    }

    /// Creates the state, so that the notice of the first start appears in no later output.
    pub fn start(&self) {
        self.ok(&["exec-policy", "show"]);
    }

    /// Sets a document that lets every program run and asks no approver, so that this machine as a
    /// gateway leaves the verdict to its nodes.
    pub fn leave_to_nodes(&self) {
        let open = r#"{ version: 1, defaults: { security: "full", ask: "off" } }"#;
        let set = self.set_document(open);
        assert_eq!(set.code, 0, "{set:#?}");
    }

    /// Returns a new operator token, as the owner would create it.
    pub fn operator_token(&self) -> String {
        let minted = self.ok(&["gateway", "token", "--new"]);
        minted.stdout.trim().to_owned()
    }

    /// Returns a new token with which a node joins.
    pub fn node_token(&self) -> String {
        let minted = self.ok(&["nodes", "enroll"]);
        minted.stdout.trim().to_owned()
    }

    /// Returns a machine on which every program may run. Its `ls` is the system's.
    pub fn open() -> Self {
        let machine = Self::new();
        machine.allow_every_program();
        machine
    }

    pub fn allow_every_program(&self) {
        fs::remove_file(self.bin().join("ls")).unwrap();
        self.start();
        self.ok(&["approvals", "allowlist", "add", "--interactive", "*"]);
    }

    /// Adds these agents, and `main`, to the config.
    pub fn know_agents(&self, ids: &[&str]) {
        let list: Vec<Value> = ids
            .iter()
            .map(|id| serde_json::json!({ "id": id }))
            .collect();
        let list = Value::from(list).to_string();
        self.ok(&["config", "set", "agents.list", &list]);
    }

    /// Switches the shield off, for tests of what else separates runs from Interlock.
    pub fn switch_shield_off(&self) {
        self.ok(&["config", "set", "tools.exec.shield", "off"]);
    }

    /// Runs shell text with `interlock exec`. If an approver would have to decide, the command does
    /// not wait.
    pub fn exec(&self, text: &str) -> Run {
        self.run(&["exec", "--no-wait", "--", text])
    }

    /// Returns the verdict with all its details.
    pub fn explain(&self, arguments: &[&str]) -> Value {
        let mut all = vec!["explain", "--json"];
        all.extend(arguments);
        self.ok(&all).json()
    }

    pub fn verdict(&self, command: &str) -> String {
        let explanation = self.explain(&["--", command]);
        explanation["verdict"].as_str().unwrap().to_owned()
    }

    /// Returns the document in force and its hash.
    pub fn document(&self) -> (Value, String) {
        let got = self.ok(&["approvals", "get", "--json"]).json();
        let hash = got["hash"].as_str().unwrap().to_owned();
        (got["document"].clone(), hash)
    }

    pub fn set_document(&self, text: &str) -> Run {
        self.run_with_input(&["approvals", "set", "--stdin"], text.as_bytes())
    }

    /// Runs a command line that the program printed as a hint, as a user who pastes it would.
    pub fn paste(&self, line: &str) -> Run {
        let words = self.binary.display().to_string();
        let line = line.replacen("interlock", &words, 1);
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &line])
            .env_clear()
            .env("HOME", self.root.join("home"))
            .env("PATH", "/usr/bin:/bin")
            .current_dir(self.work());
        finish(&mut command)
    }

    /// Returns the text with a fixed form for everything that differs between two runs.
    pub fn stable(&self, text: &str) -> String {
        let text = text.replace(&self.root.display().to_string(), "[TMP]");
        let mut out = String::new();
        let is_word = |c: char| c.is_ascii_hexdigit() || c == '-';
        for piece in text.split_inclusive(|c: char| !is_word(c)) {
            let word = piece.trim_end_matches(|c: char| !is_word(c));
            let rest = &piece[word.len()..];
            let hex = word.chars().filter(char::is_ascii_hexdigit).count();
            let replaced = match (word.len(), hex) {
                (64, 64) => "[HASH]",
                (36, 32) => "[ID]",
                _ => word,
            };
            out.push_str(replaced);
            out.push_str(rest);
        }
        out
    }
}

impl Machine {
    /// Returns the supervisors of this machine as `(pid, parent)`: the processes that were started
    /// as guards.
    pub fn guards(&self) -> Vec<(i32, i32)> {
        self.called("\0guard\0")
    }

    /// Returns the gateways that commands of this machine started in the background.
    pub fn spawned_gateways(&self) -> Vec<i32> {
        let gateways = self.called("\0gateway\0run\0--detach\0");
        gateways.into_iter().map(|(pid, _)| pid).collect()
    }

    /// Returns the processes of this machine that were started with these words:
    /// `(pid, parent)`.
    fn called(&self, words: &str) -> Vec<(i32, i32)> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let called = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let called = String::from_utf8_lossy(&called);
            let state = self.root.display().to_string();
            if !called.contains(words) || !called.contains(&state) {
                continue;
            }
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit_once(')').and_then(|(_, rest)| {
                let mut fields = rest.split_ascii_whitespace();
                fields.nth(1)?.parse().ok()
            });
            found.extend(parent.map(|parent| (pid, parent)));
        }
        found
    }

    /// Returns those processes of the machine's supervisors whose parent is a guard.
    pub fn supervisors(&self) -> Vec<i32> {
        let guards = self.guards();
        let is_guard = |pid: i32| {
            guards.iter().any(|(other, parent)| {
                *other == pid && !guards.iter().any(|(above, _)| above == parent)
            })
        };
        guards
            .iter()
            .filter(|(_, parent)| is_guard(*parent))
            .map(|(pid, _)| *pid)
            .collect()
    }
}

/// No process may outlive its test. Without its supervisor, a guard ends all that is left.
impl Drop for Machine {
    fn drop(&mut self) {
        let gateways = self.spawned_gateways();
        for pid in gateways.into_iter().chain(self.supervisors()) {
            let _ = Command::new("/bin/kill")
                .args(["-KILL", &pid.to_string()])
                .stderr(Stdio::null())
                .status();
        }
    }
}

impl Run {
    pub fn of(output: &std::process::Output) -> Self {
        Self {
            code: output.status.code().expect("ended by a signal"),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// Returns the code in `error[CODE]`. Events of the session may be printed before it.
    pub fn error_code(&self) -> &str {
        let mut lines = self.stderr.lines();
        let line = lines.find(|line| !line.starts_with("interlock: "));
        let rest = line.and_then(|line| line.strip_prefix("error["));
        let code = rest.and_then(|rest| rest.split(']').next());
        code.unwrap_or_else(|| panic!("no error code: {self:#?}"))
    }

    /// Checks a proper refusal: the exit code, the stable code, nothing on stdout, and no panic.
    #[track_caller]
    pub fn refused(&self, exit: i32, code: &str) {
        assert_eq!((self.code, self.error_code()), (exit, code), "{self:#?}");
        assert_eq!(self.stdout, "", "{self:#?}");
    }
}

/// Copies a program in a process of its own. Otherwise, a child that another thread starts
/// meanwhile would briefly hold this process's descriptor, and a file that is open for writing
/// cannot be executed.
pub fn copy(program: impl AsRef<Path>, to: &Path) {
    let copied = Command::new("/bin/cp")
        .arg(program.as_ref())
        .arg(to)
        .status()
        .unwrap();
    assert!(copied.success());
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
}

pub fn finish(command: &mut Command) -> Run {
    Run::of(&command.output().unwrap())
}

/// Polls until the condition holds. Only a failure reaches the deadline.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < end, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs. A process that only waits to be collected does not.
pub fn is_alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("Z").starts_with('Z'))
}

/// Returns the memory that a process uses now, and the most that it ever used, in KiB.
pub fn memory(pid: u32) -> (u64, u64) {
    (memory_field(pid, "VmRSS:"), memory_field(pid, "VmHWM:"))
}

/// Returns a process's own memory in KiB: heap and stacks, without pages of files, which the system
/// caches for all processes.
pub fn own_memory(pid: u32) -> u64 {
    memory_field(pid, "RssAnon:")
}

fn memory_field(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name));
    let number = line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok());
    number.unwrap_or_else(|| panic!("{status}"))
}

/// Returns the content of a file once it has a whole line.
pub fn written(path: &Path) -> String {
    let text = || fs::read_to_string(path).unwrap_or_default();
    eventually(&path.display().to_string(), || text().ends_with('\n'));
    text()
}

/// As [`written`], for a file into which a process of a run wrote its process id. Returns its id
/// outside of the shield. If the process is gone, the returned id belongs to no process.
pub fn written_pid(path: &Path) -> String {
    let is_machine = |path: &&Path| {
        let name = path.file_name().and_then(std::ffi::OsStr::to_str);
        name.is_some_and(|name| name.starts_with("interlock-e2e-"))
    };
    let root = path.ancestors().find(is_machine).unwrap();
    host_pid(root, &written(path))
}

/// Returns the id outside of the shield for a process that its run, on the machine below `root`,
/// knows by another id.
pub fn host_pid(root: &Path, inner: &str) -> String {
    let root = root.to_str().unwrap();
    let inner = inner.trim();
    let is_it = |process: &Path| {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let number = line.and_then(|line| line.split_ascii_whitespace().next_back());
        let environment = || fs::read(process.join("environ")).unwrap_or_default();
        number == Some(inner) && String::from_utf8_lossy(&environment()).contains(root)
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut processes = processes.map(|entry| entry.path());
    let found = processes.find(|process| is_it(process));
    let number = found.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    number.unwrap_or_else(|| "0".to_owned())
}

pub fn is_root() -> bool {
    // The owner of a directory that this process has just created is this process's user.
    use std::os::unix::fs::MetadataExt;
    let own = tempfile::tempdir().unwrap();
    fs::metadata(own.path()).unwrap().uid() == 0
}

/// Returns a small program that every machine has.
fn true_program() -> PathBuf {
    let places = ["/usr/bin/true", "/bin/true"];
    let found = places.iter().find(|path| Path::new(path).exists());
    fs::canonicalize(found.expect("no `true` on this machine")).unwrap()
}
