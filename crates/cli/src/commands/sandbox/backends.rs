//! Finds the backends that can set up a sandbox on this machine. Each backend is tried in a
//! separate directory that is removed afterwards, so that the check changes nothing.

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

/// The conversation of the probe, which no run has.
const PROBE_SESSION: &str = "agent:main:doctor-probe";

/// The result of the trial of one backend.
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
    /// Whether the backend can be used without being named in the config.
    pub(in crate::commands) fn is_usual(&self) -> bool {
        USUAL.contains(&self.backend)
    }
}

/// The backends for a config that names none. The first one that works is used.
const USUAL: [SandboxBackend; 2] = [SandboxBackend::Native, SandboxBackend::Bwrap];

/// Tries every usual backend and those that the config names, with a sandbox as a run would have
/// it. The backend that is used first comes first.
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

/// Settings of the system that block user namespaces: the file, the blocking value, and the remedy.
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

/// Why a trial failed, and the remedy that the error names.
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
    // Remove a container that the trial made.
    let removed = ScopeStore::new(&state_dir).recreate(ScopeSelection::All, |_| true);
    tried?;
    removed
        .map(|_| ())
        .map_err(|error| (error.to_string(), None))
}

/// A directory in the state directory, and so on the same file system. It is removed on drop.
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
        // If the removal fails, only empty directories with the name of a probe stay.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
