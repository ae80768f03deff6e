//! Whether the native sandbox works on this machine, and what fixes it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use interlock_config::types::Sandbox;
use interlock_console::Failure;
use interlock_console::output::line;
use interlock_engine::sandbox::try_sandbox;
use interlock_host::LocalHost;
use interlock_policy::AgentId;
use interlock_sandbox::{SandboxRequest, prepare_sandbox};
use serde::Serialize;

/// The conversation of the probe; no run has it.
const PROBE_SESSION: &str = "agent:main:doctor-probe";

/// What a trial found.
#[derive(Debug, Serialize)]
pub(super) struct SandboxHealth {
    works: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl SandboxHealth {
    /// Sets a sandbox up as a run would have it, in a directory of its own that it removes again: looking
    /// changes nothing.
    pub(super) fn look(host: &LocalHost) -> Result<Self, Failure> {
        let agent = AgentId::default();
        let scope = host.scope(&agent)?;
        let directory = ProbeDirectory::make(host.state_dir());
        let tried = match &directory {
            Ok(directory) => try_in(&directory.0, scope.home()),
            Err(error) => Err((error.to_string(), None)),
        };
        Ok(match tried {
            Ok(()) => Self {
                works: true,
                why: None,
                fix: None,
            },
            Err((why, remedy)) => Self {
                works: false,
                why: Some(why),
                fix: Some(stopper().or(remedy).unwrap_or_else(|| USUAL_FIX.to_owned())),
            },
        })
    }

    pub(super) fn text(&self) -> String {
        let mut text = match &self.why {
            None => "sandbox: the native sandbox works here\n".to_owned(),
            Some(why) => format!(
                "sandbox: the native sandbox does not work here: {}\n",
                line(why)
            ),
        };
        if let Some(fix) = &self.fix {
            text += &format!("  to fix it: {}\n", line(fix));
        }
        text
    }
}

/// A setting of the system that stops user namespaces: where it is read, its value, and what to do.
const STOPPERS: [(&str, &str, &str); 3] = [
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "sudo sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "sudo sysctl -w user.max_user_namespaces=15000",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "have root load an AppArmor profile for the program of Interlock that has the rule `userns,`",
    ),
];

const USUAL_FIX: &str = "let this account make user namespaces and mount a fresh /proc: a container must be started with both";

fn stopper() -> Option<String> {
    let found = STOPPERS.iter().find(|(path, value, _)| {
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() == *value)
    });
    found.map(|(_, _, fix)| (*fix).to_owned())
}

/// Why the trial failed, and what the error itself says against it.
type TrialFailure = (String, Option<String>);

fn try_in(directory: &Path, home: Option<&str>) -> Result<(), TrialFailure> {
    let workspace = directory.display().to_string();
    let prepared = prepare_sandbox(&SandboxRequest {
        settings: &Sandbox::default(),
        agent: AgentId::MAIN,
        session_key: PROBE_SESSION,
        workspace: directory,
        cwd: &workspace,
        state_dir: &directory.join("state"),
        own_paths: &[],
        home,
    });
    let prepared = prepared.map_err(|error| (error.to_string(), Some(error.remedy())))?;
    try_sandbox(&prepared.plan).map_err(|why| (why, None))
}

/// A directory in the state directory, and so on its file system, until it is dropped.
struct ProbeDirectory(PathBuf);

impl ProbeDirectory {
    fn make(state_dir: &Path) -> io::Result<Self> {
        let made = Self(state_dir.join(format!("sandbox-probe-{}", std::process::id())));
        DirBuilder::new().mode(0o700).create(&made.0)?;
        DirBuilder::new().mode(0o700).create(made.0.join("state"))?;
        Ok(made)
    }
}

impl Drop for ProbeDirectory {
    fn drop(&mut self) {
        // What stays is empty but for directories, and named as a probe.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
