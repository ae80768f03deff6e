//! The definition of a service: its name, what it runs, and the text that a unit may contain.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use interlock_arguments::StateArguments;
use interlock_console::{Failure, output};
use interlock_host::LocalHost;
use sha2::{Digest as _, Sha256};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceKind {
    Gateway,
    Node,
    /// Shows approvals on the desktop of one account.
    Companion,
}

impl fmt::Display for ServiceKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Gateway => "gateway",
            Self::Node => "node",
            Self::Companion => "companion",
        })
    }
}

impl ServiceKind {
    /// The flags that `run` and `install` require, as a hint shows them.
    pub(super) fn required_flags(self) -> &'static str {
        match self {
            Self::Gateway | Self::Companion => "",
            Self::Node => " --host HOST",
        }
    }
}

impl ServiceKind {
    /// The command that runs it in the foreground.
    pub(super) fn foreground(self) -> String {
        match self {
            Self::Gateway | Self::Node => format!("interlock {self} run{}", self.required_flags()),
            Self::Companion => "interlock companion".to_owned(),
        }
    }
}

/// What the service manager keeps running.
#[derive(Debug, Clone)]
pub struct ServiceDefinition {
    pub(super) kind: ServiceKind,
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(&'static str, OsString)>,
    pub(super) state_dir: PathBuf,
}

impl ServiceDefinition {
    /// Runs this program with `command`, after the flags that select the same state.
    pub fn new(
        kind: ServiceKind,
        state: &StateArguments,
        host: &LocalHost,
        command: &[OsString],
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::refused("SERVICE_UNUSABLE", error.to_string());
        let state_dir = host.state_dir().to_owned();
        let mut arguments = vec!["--state-dir".into(), state_dir.clone().into_os_string()];
        if let Some(config) = &state.config {
            let config = std::path::absolute(config).map_err(failed)?;
            arguments.extend(["--config".into(), config.into_os_string()]);
        }
        arguments.extend(command.iter().cloned());
        // A service has almost no environment. It must find its home and programs where this
        // command finds them.
        let mut environment = Vec::new();
        if let Some(home) = std::env::var_os("HOME") {
            environment.push(("HOME", home));
        }
        if let Some(path) = std::env::var_os("PATH") {
            let absolute = std::env::split_paths(&path).filter(|path| path.is_absolute());
            if let Ok(path) = std::env::join_paths(absolute) {
                environment.push(("PATH", path));
            }
        }
        Ok(Self {
            kind,
            name: name(kind, &state_dir),
            program: std::env::current_exe().map_err(failed)?,
            arguments,
            environment,
            state_dir,
        })
    }
}

/// The name of the service. Each state directory has its own service; that of the default directory
/// has the plain name.
pub(super) fn name(kind: ServiceKind, state_dir: &Path) -> String {
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let usual = absolute("XDG_STATE_HOME")
        .map(|path| path.join("interlock"))
        .or_else(|| absolute("HOME").map(|path| path.join(".interlock")));
    let is_usual = usual.is_some_and(|usual| {
        usual == state_dir || fs::canonicalize(usual).is_ok_and(|usual| usual == state_dir)
    });
    if is_usual {
        return format!("interlock-{kind}");
    }
    let hash = Sha256::digest(state_dir.as_os_str().as_encoded_bytes());
    let short = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
    format!("interlock-{kind}-{short:08x}")
}

/// The marker by which Interlock recognizes the files that it wrote.
pub(super) fn marker(kind: ServiceKind) -> String {
    format!(
        "Written by `interlock {kind} install`, which replaces it; `interlock {kind} uninstall` removes it."
    )
}

/// A text that a unit cannot contain.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a service cannot be given {what}: {why}")]
pub struct Unwritable {
    pub(super) what: String,
    pub(super) why: &'static str,
}

impl From<Unwritable> for Failure {
    fn from(error: Unwritable) -> Self {
        Self::refused("SERVICE_TEXT_INVALID", error.to_string())
    }
}

/// Checks that a text can go into a unit: it must be UTF-8 without control characters.
pub(super) fn text<T: AsRef<OsStr> + ?Sized>(value: &T) -> Result<&str, Unwritable> {
    let value = value.as_ref();
    let unwritable = |why| Unwritable {
        what: output::visible(&value.to_string_lossy()),
        why,
    };
    let text = value
        .to_str()
        .ok_or_else(|| unwritable("it is not UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(unwritable("it has control characters"));
    }
    Ok(text)
}
