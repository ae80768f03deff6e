//! The service manager of this machine, systemd or launchd, and the directory of its units.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use interlock_console::{Failure, output};
use interlock_policy::quote;
use serde::Serialize;

use super::{ServiceDefinition, ServiceKind, Unwritable, launchd, systemd};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ManagerKind {
    Systemd,
    Launchd,
}

/// Whether a service belongs to a user or to the system. Services of a user end with the user's
/// last session, unless lingering is enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceScope {
    User,
    System,
}

/// An operation of the service manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManagerWork {
    /// Succeed if the manager answers.
    Ask,
    /// Succeed if the service runs.
    IsActive,
    /// Read the new unit, and enable it at boot or login.
    Load,
    Start,
    Stop,
    Restart,
    /// Stop the service and disable it.
    Unload,
    /// Forget the unit whose file was removed.
    Forget,
}

/// One command of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerStep {
    pub words: Vec<String>,
    pub may_fail: bool,
}

impl ManagerStep {
    pub fn new<'a>(words: impl Iterator<Item = &'a str>) -> Self {
        Self {
            words: words.map(str::to_owned).collect(),
            may_fail: false,
        }
    }

    pub fn allowed_to_fail(mut self) -> Self {
        self.may_fail = true;
        self
    }

    /// The command as it is typed in a shell.
    pub fn shown(&self) -> String {
        let words: Vec<String> = self.words.iter().map(|word| quote(word)).collect();
        words.join(" ")
    }

    /// Runs the command. On failure, returns what it wrote to stderr. Only commands from the tables
    /// of [`systemd`] and [`launchd`] may be run, never a program that a caller names.
    fn run(&self) -> Result<(), String> {
        let (program, arguments) = self.words.split_first().ok_or("nothing to run")?;
        let output = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{program}: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<String> = stderr
            .lines()
            .map(|line| output::visible(line.trim()))
            .collect();
        let problem = lines.join("; ");
        Err(if problem.is_empty() {
            format!("{program}: {}", output.status)
        } else {
            problem
        })
    }
}

#[derive(Debug, Clone)]
pub struct Manager {
    pub kind: ManagerKind,
    pub scope: ServiceScope,
    user: u32,
    /// Where the manager looks for units.
    directory: PathBuf,
}

impl Manager {
    /// The manager of this machine: that of the system for root, otherwise that of the user. The
    /// companion always belongs to a user, even to root, because a desktop does.
    pub fn here(service: ServiceKind, directory: Option<&Path>) -> Result<Self, Failure> {
        let user = rustix::process::geteuid().as_raw();
        let scope = if user == 0 && service != ServiceKind::Companion {
            ServiceScope::System
        } else {
            ServiceScope::User
        };
        let kind = if cfg!(target_os = "macos") {
            ManagerKind::Launchd
        } else {
            ManagerKind::Systemd
        };
        let directory = match directory {
            Some(directory) => directory.to_owned(),
            None => usual_directory(kind, scope)?,
        };
        Ok(Self {
            kind,
            scope,
            user,
            directory,
        })
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(match self.kind {
            ManagerKind::Systemd => systemd::file_name(name),
            ManagerKind::Launchd => launchd::file_name(name),
        })
    }

    pub fn text(&self, service: &ServiceDefinition) -> Result<String, Unwritable> {
        match self.kind {
            ManagerKind::Systemd => systemd::unit(service, self.scope),
            ManagerKind::Launchd => launchd::property_list(service),
        }
    }

    fn steps(&self, work: ManagerWork, name: &str) -> Vec<ManagerStep> {
        match self.kind {
            ManagerKind::Systemd => systemd::steps(work, self.scope, name),
            ManagerKind::Launchd => {
                launchd::steps(work, self.scope, self.user, name, &self.file(name))
            }
        }
    }

    /// Runs the commands of an operation and adds each of them to `ran`.
    pub fn work(
        &self,
        work: ManagerWork,
        name: &str,
        ran: &mut Vec<String>,
    ) -> Result<(), Failure> {
        for step in self.steps(work, name) {
            let ended = step.run();
            ran.push(step.shown());
            match ended {
                Err(problem) if !step.may_fail => {
                    let message = format!("`{}` failed: {problem}", step.shown());
                    let failure = Failure::refused("SERVICE_COMMAND_FAILED", message);
                    return Err(failure.with_hint(format!("see why: {}", self.log_command(name))));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub fn is_active(&self, name: &str) -> bool {
        let steps = self.steps(ManagerWork::IsActive, name);
        steps.iter().all(|step| step.run().is_ok())
    }

    /// Fails if no manager answers, as in most containers.
    pub fn answers(&self, name: &str) -> Result<(), String> {
        let steps = self.steps(ManagerWork::Ask, name);
        steps.iter().try_for_each(ManagerStep::run)
    }

    /// The command that shows the log of the service.
    pub fn log_command(&self, name: &str) -> String {
        match (self.kind, self.scope) {
            (ManagerKind::Systemd, ServiceScope::User) => format!("journalctl --user -u {name}"),
            (ManagerKind::Systemd, ServiceScope::System) => format!("journalctl -u {name}"),
            (ManagerKind::Launchd, _) => "its log in the state directory".to_owned(),
        }
    }
}

fn usual_directory(kind: ManagerKind, scope: ServiceScope) -> Result<PathBuf, Failure> {
    let fixed = match (kind, scope) {
        (ManagerKind::Systemd, ServiceScope::System) => Some("/etc/systemd/system"),
        (ManagerKind::Launchd, ServiceScope::System) => Some("/Library/LaunchDaemons"),
        (_, ServiceScope::User) => None,
    };
    if let Some(fixed) = fixed {
        return Ok(PathBuf::from(fixed));
    }
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let home = absolute("HOME");
    let found = match kind {
        ManagerKind::Systemd => absolute("XDG_CONFIG_HOME")
            .or_else(|| home.map(|home| home.join(".config")))
            .map(|config| config.join("systemd/user")),
        ManagerKind::Launchd => home.map(|home| home.join("Library/LaunchAgents")),
    };
    found.ok_or_else(|| Failure::refused("HOME_UNKNOWN", "HOME is not set to an absolute path"))
}
