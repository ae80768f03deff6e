//! The real thing: a host with its supervisor, files that change, and what runs leave behind.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use interlock_approvals::{ApprovalDecision, DecisionBy, OutsideRuns};
use interlock_command::Source;
use interlock_host::{
    EndListener, Exec, ExecError, ExecRequest, LocalHost, OpenOptions, Running, Yield,
};
use interlock_plan::PlanStdin;
use interlock_policy::{AgentId, Ask, Fallback, Security};
use interlock_supervisor::{SessionState, SupervisorClient, SupervisorPaths};
use tempfile::TempDir;

use super::model::{Answering, Command, Policy, Who};

const REQUESTER: &str = "connection 7";
const SESSIONS: [&str; 2] = ["agent:main:talk", "agent:main:other"];

/// The name of a process that is gone.
pub const GONE: &str = "process:another-boot:1:1";

/// How a second request differs from the one that was approved.
#[derive(Debug, Clone, Copy)]
pub enum Mutation {
    Command,
    Directory,
    Environment,
    Agent,
    Session,
    Stdin,
    Timeout,
}

pub struct World {
    /// On a disk where programs may run.
    scratch: TempDir,
    /// In memory where there is such a directory: nothing here loses power.
    state: TempDir,
    host: Option<LocalHost>,
    supervisor: SupervisorClient,
    agent: AgentId,
    other_agent: AgentId,
    base_env: BTreeMap<String, String>,
    /// A native program that copies files.
    native: Vec<u8>,
}

impl World {
    pub fn new() -> Self {
        let scratch = TempDir::new().unwrap();
        let memory = Path::new("/dev/shm");
        let state = if memory.is_dir() {
            TempDir::new_in(memory).unwrap()
        } else {
            TempDir::new().unwrap()
        };
        for name in ["work-0", "evidence", "bin"] {
            fs::create_dir(scratch.path().join(name)).unwrap();
        }
        let place = SupervisorPaths::new(state.path());
        let arguments = ["guard", "--state-dir", state.path().to_str().unwrap()];
        let version = ["--supervisor-version", "model"];
        let supervisor = SupervisorClient::new(place, "model").starting(
            PathBuf::from(env!("CARGO_BIN_EXE_interlock")),
            arguments.into_iter().chain(version),
        );
        let mut world = Self {
            scratch,
            state,
            host: None,
            supervisor,
            agent: AgentId::default(),
            other_agent: AgentId::new("ops").unwrap(),
            base_env: BTreeMap::new(),
            native: fs::read("/bin/cp").unwrap(),
        };
        world.restart();
        world.write_program(0);
        world.enter_new_directory(0);
        world
    }

    /// Forgets everything that is not on the disk.
    pub fn restart(&mut self) {
        self.host = None;
        let options = OpenOptions {
            state_dir: Some(self.state.path().to_owned()),
            path: Some("/usr/bin:/bin".to_owned()),
            ..OpenOptions::default()
        };
        let (host, _) = LocalHost::open(options).unwrap();
        self.host = Some(host);
        self.host().recover(&self.supervisor).unwrap();
    }

    pub fn host(&self) -> &LocalHost {
        self.host.as_ref().unwrap()
    }

    pub fn database(&self) -> rusqlite::Connection {
        let database = rusqlite::Connection::open(self.state.path().join("interlock.db")).unwrap();
        database.busy_timeout(Duration::from_secs(10)).unwrap();
        database
    }

    pub fn alter(&self, statement: &str, id: &str) {
        self.database().execute(statement, [id]).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Another executable under the same name.
    pub fn write_program(&self, version: u32) {
        let content = [&self.native[..], &version.to_be_bytes()].concat();
        let (new, name) = (self.path("bin/new"), self.path("bin/program"));
        fs::write(&new, content).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, name).unwrap();
    }

    /// The script in the present directory, edited where it lies.
    pub fn write_script(&self, version: u32) {
        let lines = self.path("evidence/lines");
        let text = format!("#!/bin/sh\necho Script {version} >> {}\n", lines.display());
        let script = self.path("work/script.sh");
        fs::write(&script, text).unwrap();
        fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// An empty directory takes the name of the present one.
    pub fn enter_new_directory(&self, number: usize) {
        let of_its_own = self.path(&format!("work-{number}"));
        if !of_its_own.exists() {
            fs::create_dir(&of_its_own).unwrap();
        }
        fs::rename(of_its_own, self.path("work")).unwrap();
    }

    pub fn leave_directory(&self, number: usize) {
        fs::rename(self.path("work"), self.path(&format!("work-{number}"))).unwrap();
    }

    pub fn set_policy(&self, policy: Policy, fallback_is_full: bool) {
        let (security, ask) = match policy {
            Policy::Cautious => (Security::Allowlist, Ask::OnMiss),
            Policy::AskAlways => (Security::Allowlist, Ask::Always),
            Policy::Open => (Security::Full, Ask::OnMiss),
            Policy::Silent => (Security::Allowlist, Ask::Off),
            Policy::Closed => (Security::Deny, Ask::OnMiss),
        };
        let fallback = if fallback_is_full {
            Fallback::Full
        } else {
            Fallback::Deny
        };
        let edited = self.host().rules().edit_document(|document| {
            document.defaults.security = Some(security);
            document.defaults.ask = Some(ask);
            document.defaults.ask_fallback = Some(fallback);
            Ok(())
        });
        edited.unwrap();
    }

    pub fn remove_entries(&self) {
        let edited = self.host().rules().edit_document(|document| {
            document.agents.clear();
            Ok(())
        });
        edited.unwrap();
    }

    pub fn entry_count(&self) -> usize {
        let (document, _) = self.host().document().unwrap();
        let scopes = document.agents.values();
        scopes.map(|scope| scope.allowlist.len()).sum()
    }

    fn request(&self, command: Command, session: usize) -> ExecRequest<'_> {
        let evidence = self.path("evidence");
        let text = match command {
            Command::Program => format!(
                "{} --backup=numbered /proc/self/exe {}",
                self.path("bin/program").display(),
                evidence.join("copy").display()
            ),
            Command::Script => "./script.sh".to_owned(),
            Command::Text => format!("echo Text 0 >> {}", evidence.join("lines").display()),
        };
        ExecRequest {
            config: None,
            place: interlock_host::RequestedPlace::default(),
            agent: &self.agent,
            caller: &interlock_host::NO_CALLER_CONTEXT,
            source: Source::Text(text),
            cwd: self.path("work").display().to_string(),
            env: BTreeMap::new(),
            ask: None,
            gateway: None,
            timeout_seconds: Some(60),
            base_env: &self.base_env,
            session_key: Some(SESSIONS[session]),
            pty: None,
            stdin: PlanStdin::Null,
            yields: Yield::Never,
            show_chars: None,
            requester: REQUESTER,
            runs_later: false,
        }
    }

    pub fn exec(&self, command: Command, session: usize) -> Result<Exec, ExecError> {
        let request = self.request(command, session);
        self.host().exec(&request, &self.supervisor)
    }

    pub fn run_approved(
        &self,
        id: &str,
        (command, session): (Command, usize),
        mutation: Option<Mutation>,
        has_supervisor: bool,
    ) -> Result<Running, ExecError> {
        let mut request = self.request(command, session);
        match mutation {
            None => {}
            Some(Mutation::Command) => request.source = Source::Text("touch marker".to_owned()),
            Some(Mutation::Directory) => "/".clone_into(&mut request.cwd),
            Some(Mutation::Environment) => {
                request.env.insert("A".to_owned(), "b".to_owned());
            }
            Some(Mutation::Agent) => request.agent = &self.other_agent,
            Some(Mutation::Session) => request.session_key = Some(SESSIONS[1 - session]),
            Some(Mutation::Stdin) => request.stdin = PlanStdin::Pipe,
            Some(Mutation::Timeout) => request.timeout_seconds = Some(7),
        }
        let absent = SupervisorClient::new(self.supervisor.place().clone(), "none");
        let supervisor = if has_supervisor {
            &self.supervisor
        } else {
            &absent
        };
        self.host().run_approved(id, &request, supervisor)
    }

    /// Waits for the end. A process that dies before it is recorded leaves that to others.
    pub fn finish(&self, running: Running, dies: bool) {
        let Running {
            conversation,
            ticket,
            ..
        } = running;
        let waited = conversation.wait();
        if dies {
            self.alter(
                &format!("UPDATE open_run SET waiter = '{GONE}' WHERE id = ?1"),
                &ticket.run_id,
            );
            return;
        }
        let session = conversation.started().session.name.clone();
        self.host()
            .record_end(&ticket, &session, waited.as_ref(), EndListener::Caller)
            .unwrap();
        waited.unwrap();
        conversation.taken().unwrap();
    }

    pub fn decide(
        &self,
        id: &str,
        digest: &str,
        decision: ApprovalDecision,
        by: Answering,
    ) -> Result<&'static str, String> {
        let (decider, surface) = match by.who {
            Who::Operator => ("operator", SURFACES[0]),
            Who::OperatorElsewhere => ("operator", SURFACES[1]),
            Who::Requester => (REQUESTER, SURFACES[0]),
            Who::AtRequester => ("operator", REQUESTER),
        };
        let other = "0".repeat(64);
        let digest = if by.names_the_plan { digest } else { &other };
        let by = DecisionBy {
            decider,
            surface,
            reason: None,
            has_shown: by.has_shown,
            outside: OutsideRuns::this_process(&self.supervisor).unwrap(),
        };
        let stored = self.host().approvals().decide(id, digest, decision, by);
        let stored = stored.map_err(|error| error.code().to_owned())?;
        assert_eq!(
            stored.entries.is_empty(),
            decision != ApprovalDecision::AllowAlways,
            "success is told only for what is stored"
        );
        Ok(if stored.again { "same" } else { "decided" })
    }

    /// What all runs left behind: for each the command and the version that really ran.
    pub fn evidence(&self) -> Vec<String> {
        let directory = self.path("evidence");
        let lines = fs::read_to_string(directory.join("lines")).unwrap_or_default();
        let mut all: Vec<String> = lines.lines().map(str::to_owned).collect();
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() == "lines" {
                continue;
            }
            let content = fs::read(entry.path()).unwrap();
            let (native, version) = content.split_at(content.len() - 4);
            assert!(native == self.native, "something else ran");
            let version = u32::from_be_bytes(version.try_into().unwrap());
            all.push(format!("Program {version}"));
        }
        all.sort();
        all
    }

    /// Everything that was left behind is found out about.
    pub fn settle(&mut self) {
        let until = Instant::now() + Duration::from_mins(1);
        loop {
            self.restart();
            let sessions = self.supervisor.list();
            let runs = sessions
                .iter()
                .any(|one| one.state == SessionState::Running);
            if !runs && self.host().store().open_runs().unwrap().is_empty() {
                return;
            }
            assert!(Instant::now() < until, "a run never ended");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

pub const SURFACES: [&str; 2] = ["browser", "phone"];

/// Ends the supervisor with all that it has.
impl Drop for World {
    fn drop(&mut self) {
        for about in self.supervisor.supervisors() {
            let pid = about.pid.to_string();
            let _ = std::process::Command::new("/bin/kill")
                .args(["-KILL", &pid])
                .status();
        }
    }
}
