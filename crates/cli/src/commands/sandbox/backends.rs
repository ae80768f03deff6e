//! Which backends can set a sandbox up on this machine: each is tried, in a directory of its own that is
//! removed again, so that looking changes nothing.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use interlock_config::LayeredSettings as _;
use interlock_config::types::Sandbox;
use interlock_console::Failure;
use interlock_engine::sandbox::try_sandbox;
use interlock_host::LocalHost;
use interlock_plan::SandboxBackend;
use interlock_policy::AgentId;
use interlock_sandbox::{SandboxRequest, ScopeSelection, ScopeStore, prepare_sandbox};
use serde::Serialize;

/// The conversation of the probe; no run has it.
const PROBE_SESSION: &str = "agent:main:doctor-probe";

/// What the trial of one backend found.
#[derive(Debug, Clone, Serialize)]
pub(in crate::commands) struct BackendHealth {
    pub backend: SandboxBackend,
    pub works: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl BackendHealth {
    /// Whether it is one of those that are used where the config names none.
    pub(in crate::commands) fn is_usual(&self) -> bool {
        USUAL.contains(&self.backend)
    }
}

/// What is used where the config names none: the first that works.
const USUAL: [SandboxBackend; 2] = [SandboxBackend::Native, SandboxBackend::Bwrap];

/// Sets a sandbox up by every usual backend, as a run would have it, and by those that the config names:
/// the one that is used first comes first.
pub(in crate::commands) fn try_backends(host: &LocalHost) -> Result<Vec<BackendHealth>, Failure> {
    let agent = AgentId::default();
    let scope = host.scope(&agent)?;
    let mut all: Vec<(SandboxBackend, Sandbox)> = USUAL
        .into_iter()
        .map(|backend| (backend, Sandbox::default()))
        .collect();
    let agents = &scope.config().config().agents;
    let own = agents
        .list
        .iter()
        .map(|agent| agent.sandbox.over(&agents.defaults.sandbox));
    for settings in std::iter::once(agents.defaults.sandbox.clone()).chain(own) {
        let Some(backend) = settings.backend else {
            continue;
        };
        if !USUAL.contains(&backend) && !all.iter().any(|(known, _)| *known == backend) {
            let named = Sandbox {
                docker: settings.docker,
                ssh: settings.ssh,
                allow_host_root: settings.allow_host_root,
                ..Sandbox::default()
            };
            all.push((backend, named));
        }
    }
    Ok(all
        .into_iter()
        .map(|(backend, settings)| {
            let tried = match ProbeDirectory::make(host.state_dir(), backend) {
                Ok(directory) => try_in(&directory.0, backend, &settings, scope.home()),
                Err(error) => Err((error.to_string(), None)),
            };
            let (why, remedy) = match tried {
                Ok(()) => (None, None),
                Err((why, remedy)) => (Some(why), remedy),
            };
            let fix = why.as_deref().map(|why| fix_of(why, remedy));
            BackendHealth {
                backend,
                works: why.is_none(),
                why,
                fix,
            }
        })
        .collect())
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
        "sudo interlock sandbox setup",
    ),
];

const USUAL_FIX: &str = "let this account make user namespaces and mount a fresh /proc: a container must be started with both";

fn fix_of(why: &str, remedy: Option<String>) -> String {
    if why.contains("bwrap is not installed") {
        return "install the package `bubblewrap`".to_owned();
    }
    let found = STOPPERS.iter().find(|(path, value, _)| {
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() == *value)
    });
    let stopper = found.map(|(_, _, fix)| (*fix).to_owned());
    stopper.or(remedy).unwrap_or_else(|| USUAL_FIX.to_owned())
}

/// Why the trial failed, and what the error itself says against it.
type TrialFailure = (String, Option<String>);

fn try_in(
    directory: &Path,
    backend: SandboxBackend,
    settings: &Sandbox,
    home: Option<&str>,
) -> Result<(), TrialFailure> {
    let workspace = directory.display().to_string();
    let state_dir = directory.join("state");
    let prepared = prepare_sandbox(&SandboxRequest {
        settings,
        backend,
        agent: AgentId::MAIN,
        session_key: PROBE_SESSION,
        workspace: directory,
        cwd: &workspace,
        state_dir: &state_dir,
        own_paths: &[],
        home,
        effects: interlock_plan::SandboxEffects::Direct,
    });
    let prepared = prepared.map_err(|error| (error.to_string(), Some(error.remedy())))?;
    let tried = try_sandbox(&prepared.plan).map_err(|why| (why, None));
    // A container that was made for this is removed.
    let removed = ScopeStore::new(&state_dir).recreate(ScopeSelection::All, |_| true);
    tried?;
    removed
        .map(|_| ())
        .map_err(|error| (error.to_string(), None))
}

/// A directory in the state directory, and so on its file system, until it is dropped.
struct ProbeDirectory(PathBuf);

impl ProbeDirectory {
    fn make(state_dir: &Path, backend: SandboxBackend) -> io::Result<Self> {
        let name = format!("sandbox-probe-{}-{backend}", std::process::id());
        let made = Self(state_dir.join(name));
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
