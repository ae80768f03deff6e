//! Why a sandbox is not available. Nothing runs on the host instead.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A bind of the config breaks a rule.
    #[error("agents.*.sandbox.binds: `{bind}` is refused: {rule}")]
    Bind { bind: String, rule: String },
    #[error("agents.*.sandbox.{key}: `{value}` is refused: {rule}")]
    Setting {
        key: &'static str,
        value: String,
        rule: String,
    },
    #[error("{} cannot be the workspace of a sandbox: {rule}", path.display())]
    Workspace { path: PathBuf, rule: String },
    #[error("the working directory `{path}` is not in the sandbox, which shows {shown}")]
    WorkingDirectory { path: String, shown: String },
    #[error("tools.exec.runAs and a sandbox exclude each other in this version")]
    OtherAccount,
    #[error(
        "the file system of {} ({kind}) cannot map ids, and no sandboxed run is root on the host",
        path.display()
    )]
    CannotMapIds { path: PathBuf, kind: String },
    /// A container engine cannot be reached, or does not have what the config names.
    #[error("{message}")]
    Engine { message: String, remedy: String },
    #[error("{what} {}: {source}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl SandboxError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Bind { .. } => "SANDBOX_BIND",
            Self::WorkingDirectory { .. } => "WORKDIR_OUTSIDE_SANDBOX",
            _ => "SANDBOX_UNAVAILABLE",
        }
    }

    pub fn remedy(&self) -> String {
        match self {
            Self::Engine { remedy, .. } => remedy,
            Self::Bind { .. } => {
                "have the owner change agents.defaults.sandbox.binds, or those of the agent"
            }
            Self::Setting { .. } => "have the owner change the key",
            Self::Workspace { .. } => "have the owner set agents.list[].workspace to another directory",
            Self::WorkingDirectory { .. } => {
                "leave out `workdir`, or name a directory of the workspace; the command itself may `cd`"
            }
            Self::OtherAccount => "interlock config unset tools.exec.runAs",
            Self::CannotMapIds { .. } => {
                "use a workspace on ext4, xfs, btrfs or tmpfs, set workspaceAccess to \"none\", run Interlock as an ordinary user, or have the owner set agents.defaults.sandbox.allowHostRoot to true"
            }
            Self::File { .. } => "interlock sandbox explain",
        }
        .to_owned()
    }
}
