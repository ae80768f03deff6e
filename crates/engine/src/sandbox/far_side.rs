//! A run on another machine: the connection that the keeper of its scope holds, and the cleanup of
//! what the run left there. The run's process on this machine is the client of that connection.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use interlock_plan::{FarRun, RunPlan, SandboxPlan, SshPlan, WorkspaceAccess};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use serde::{Deserialize, Serialize};

use super::init::{InitFailure, MADE, Step as _};
use super::keeper::open_namespaces;
use super::link;
use crate::error::StartError;
use crate::streams::{Null, Streams, above_standard};
use crate::tree::Leftover;
use crate::unsafe_spawn::CStrings;

/// How long ending a run on the far side may take.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// The far side of a scope, as its keeper is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SshOrder {
    pub plan: SshPlan,
    /// The scope's directory on this host.
    pub scope_directory: String,
    /// The directory that the far workspace is copied from. `None` for an empty workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeded_from: Option<String>,
}

impl SshOrder {
    pub(super) fn of(sandbox: &SandboxPlan) -> Option<Self> {
        Some(Self {
            plan: sandbox.ssh.clone()?,
            scope_directory: sandbox.scope_directory.clone(),
            seeded_from: match sandbox.workspace_access {
                WorkspaceAccess::None => None,
                _ => Some(sandbox.workspace.clone()),
            },
        })
    }
}

/// The connection of a scope. It ends with its process.
#[derive(Debug)]
pub struct OpenedConnection {
    pub master: Child,
}

/// Opens the connection of a scope.
pub type OpenConnection = fn(&SshOrder) -> Result<OpenedConnection, String>;

/// Holds the connection, in the keeper, until the other end of the link or the connection is gone.
pub(super) fn keep_connection(
    link: BorrowedFd<'_>,
    order: &SshOrder,
    open: OpenConnection,
) -> Result<(), InitFailure> {
    let mut connection = open(order).map_err(InitFailure)?;
    let held = hold(link, &connection);
    let _ = connection.master.kill();
    let _ = connection.master.wait();
    held
}

fn hold(link: BorrowedFd<'_>, connection: &OpenedConnection) -> Result<(), InitFailure> {
    let number = i32::try_from(connection.master.id()).unwrap_or_default();
    let pid = Pid::from_raw(number).ok_or(io::ErrorKind::NotFound);
    let pid = pid.step(|| "the connection".to_owned())?;
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty());
    let process = process.step(|| "watching the connection".to_owned())?;
    // These are the keeper's own namespaces. A run on another machine enters none.
    let own = open_namespaces().step(|| "opening the namespaces".to_owned())?;
    let borrowed: Vec<BorrowedFd<'_>> = own.iter().map(|one| one.as_fd()).collect();
    link::send(link, MADE, &borrowed).step(|| "saying that it is there".to_owned())?;
    drop(own);
    loop {
        let mut polled = [
            PollFd::from_borrowed_fd(link, PollFlags::IN),
            PollFd::new(&process, PollFlags::IN),
        ];
        let _ = rustix::event::poll(&mut polled, None);
        if polled.iter().any(|one| !one.revents().is_empty()) {
            return Ok(());
        }
    }
}

/// One run on the far side, for the process here that owns it.
#[derive(Debug)]
pub(crate) struct FarSide {
    ssh: SshPlan,
    cwd: String,
    run_id: String,
    client: OwnedFd,
}

impl FarSide {
    /// Describes the far side. This makes no connection.
    pub fn of(
        ssh: &SshPlan,
        sandbox: &SandboxPlan,
        run_id: Option<&str>,
    ) -> Result<Arc<Self>, StartError> {
        let is_plain = |id: &&str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !id.is_empty() && id.len() <= 64 && !id.starts_with('-') && id.bytes().all(fits)
        };
        let Some(run_id) = run_id.filter(is_plain) else {
            let why = "the run has no name by which it could be ended".to_owned();
            return Err(StartError::Sandbox(why));
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let client = rustix::fs::open(ssh.client.canonical.as_str(), flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(above_standard)
            .map_err(|error| StartError::Sandbox(format!("{}: {error}", ssh.client.canonical)))?;
        Ok(Arc::new(Self {
            ssh: ssh.clone(),
            cwd: sandbox.cwd.clone(),
            run_id: run_id.to_owned(),
            client,
        }))
    }

    /// The arguments that the client is called with.
    pub fn run_arguments(&self, plan: &RunPlan, text: &str) -> Vec<String> {
        self.ssh.run_arguments(&FarRun {
            id: &self.run_id,
            cwd: &self.cwd,
            env: &plan.env,
            text,
            has_terminal: plan.pty.is_some(),
        })
    }

    /// Ends what is left of the run on the far side, and returns once nothing is left. If something
    /// could not be ended, the result says so.
    pub fn end(&self) -> Option<Leftover> {
        let why = match self.try_end() {
            Ok(true) => return None,
            Ok(false) => "not all of it could be ended".to_owned(),
            Err(error) => error.to_string(),
        };
        Some(Leftover {
            pid: 0,
            command: format!("the run on {}: {why}", self.ssh.host),
        })
    }

    fn try_end(&self) -> io::Result<bool> {
        let words = self.ssh.end_arguments(&self.run_id).into_iter();
        let words: Vec<std::ffi::CString> = words
            .map(std::ffi::CString::new)
            .collect::<Result<_, _>>()?;
        let null = Null::open()?;
        let streams = Streams {
            stdin: Null::for_reading()?,
            stdout: Arc::clone(&null.write),
            stderr: null.write,
        };
        let client = above_standard(self.client.try_clone()?)?;
        let pid = super::start_program(client, CStrings::new(words), streams, None)?;
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let patience = Timespec {
            tv_sec: i64::try_from(END_PATIENCE.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: 0,
        };
        let ended = loop {
            let mut polled = [PollFd::new(&process, PollFlags::IN)];
            match rustix::event::poll(&mut polled, Some(&patience)) {
                Err(rustix::io::Errno::INTR) => {}
                polled => break polled? > 0,
            }
        };
        if !ended {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        let status = rustix::process::waitpid(Some(pid), WaitOptions::empty())?;
        if !ended {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match status.and_then(|(_, status)| status.exit_status()) {
            Some(0) => Ok(true),
            Some(255) | None => Err(io::Error::other("the connection is gone")),
            Some(_) => Ok(false),
        }
    }
}
