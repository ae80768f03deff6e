//! Why a run was not started. Each of these errors means that nothing ran.

use std::io;

use interlock_plan::{Drift, RaceRisk};

use crate::authorization::NotAuthorized;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    NotAuthorized(#[from] NotAuthorized),
    /// A file or directory is no longer as it was when the plan was made.
    #[error("changed since the plan was made: {0}")]
    Drift(#[from] Drift),
    #[error("working directory {path}: {}", words(.source))]
    WorkingDirectory { path: String, source: io::Error },
    #[error("cannot execute {path}: {}", words(.source))]
    Execute { path: String, source: io::Error },
    /// The plan contains a value that no system can execute.
    #[error("{0}")]
    Invalid(String),
    #[error("{what}: {}", words(.source))]
    System {
        what: &'static str,
        source: io::Error,
    },
    /// A terminal belongs to one session, and several commands can share it only below a process
    /// that leads this session: see [`crate::tree::dedicate_process`].
    #[error("several commands on one terminal need a process of their own")]
    TerminalNeedsDedicatedProcess,
    #[error("this process is dedicated to another run")]
    Taken,
    /// The run must be race-free, because [`crate::Settings::require_race_free`] is set or because
    /// the approver saw it as race-free, but this file could be exchanged.
    #[error("the run is not race-free: {risk}")]
    RaceNotExcluded { risk: RaceRisk },
    /// The shield could not be set up, although the plan requires it.
    #[error("the shield of the run cannot be set up: {0}")]
    Shield(String),
    /// The sandbox could not be set up. The run does not start on the host instead.
    #[error("the sandbox of the run cannot be set up: {0}")]
    Sandbox(String),
    /// The programs that the run starts could not be limited or logged, although the plan requires
    /// it.
    #[error("which programs the run starts cannot be held (tools.exec.tree): {0}")]
    Tree(String),
}

impl StartError {
    /// A stable error code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotAuthorized(_) => "NOT_AUTHORIZED",
            Self::Drift(Drift::TooLarge(_)) => "BIND_TOO_LARGE",
            Self::Drift(_) => "APPROVAL_DRIFT",
            Self::RaceNotExcluded { .. } => "RACE_NOT_EXCLUDED",
            Self::Shield(_) => "SHIELD_FAILED",
            Self::Sandbox(_) => "SANDBOX_UNAVAILABLE",
            Self::Tree(_) => "TREE_UNAVAILABLE",
            Self::WorkingDirectory { .. }
            | Self::Execute { .. }
            | Self::Invalid(_)
            | Self::System { .. }
            | Self::TerminalNeedsDedicatedProcess
            | Self::Taken => "START_FAILED",
        }
    }

    pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

/// Describes the system's error in plain words.
pub(super) fn words(error: &io::Error) -> String {
    let words = match error.raw_os_error() {
        Some(libc::ENOENT) => "no such file or directory",
        Some(libc::EACCES) => "permission denied",
        Some(libc::ENOTDIR) => "not a directory",
        Some(libc::EISDIR) => "is a directory",
        Some(libc::ENOEXEC) => "not in a format that this system can run",
        Some(libc::E2BIG) => "the arguments and the environment are too long together",
        Some(libc::ESTALE) => "not what was checked any more",
        Some(libc::ETXTBSY) => "it is being written to",
        Some(libc::ELOOP) => "too many symbolic links",
        Some(libc::EPERM) => "not permitted",
        Some(libc::EAGAIN) => "too many processes",
        Some(libc::ENOMEM) => "not enough memory",
        Some(libc::EMFILE | libc::ENFILE) => "too many open files",
        _ => return error.to_string(),
    };
    words.to_owned()
}
