//! Why a request did not become a run.

use interlock_approvals::{ApprovalRefusal, DENIAL_TEXT, UnboundRefusal};
use interlock_checks::{Mistake, Refusal};
use interlock_command::InputError;
use interlock_local::{RouteRefusal, ShieldMissing, WorkspaceError};
use interlock_policy::{ToolRefusal, Verdict};
use interlock_sandbox::SandboxError;
use interlock_supervisor::ClientError;
use interlock_supervisor::cgroup::BadCpus;

use crate::local::HostError;
use crate::prepare::PrepareError;
use crate::preview::PreviewRefusal;
use crate::retry::RetryRefusal;

/// The judge's code for a call that sets a blocked variable.
const ENV_REJECTED: &str = "env-rejected";

/// What the owner does where the programs of a run cannot be held.
const TREE_REMEDY: &str =
    "have the owner set tools.exec.tree to \"off\" for this agent; nothing was run";

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Tool(#[from] ToolRefusal),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Script(#[from] Mistake),
    #[error("exec denied: {}", .0.reason.message)]
    Denied(Box<Verdict>),
    #[error(transparent)]
    Unbound(#[from] UnboundRefusal),
    #[error(transparent)]
    Approval(#[from] ApprovalRefusal),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error("tools.exec.limits.cpus: {0}")]
    Limits(#[from] BadCpus),
    #[error(transparent)]
    Shield(#[from] ShieldMissing),
    #[error(transparent)]
    Route(#[from] RouteRefusal),
    #[error(transparent)]
    Retry(#[from] RetryRefusal),
    #[error(transparent)]
    Preview(#[from] PreviewRefusal),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error(transparent)]
    Supervisor(#[from] ClientError),
}

impl ExecError {
    pub fn code(&self) -> &str {
        match self {
            Self::Host(error) => error.code(),
            Self::Input(error) => error.code(),
            Self::Tool(_) => "TOOL_DENIED",
            Self::Refused(refusal) => refusal.code(),
            Self::Script(mistake) => mistake.code(),
            Self::Denied(verdict) if verdict.reason.code == ENV_REJECTED => "ENV_REJECTED",
            Self::Denied(verdict) if verdict.reason.code == "shield-setuid" => "SHIELD_SETUID",
            Self::Denied(_) => "EXEC_DENIED",
            Self::Unbound(_) => "APPROVAL_UNBOUND",
            Self::Approval(error) => error.code(),
            Self::Prepare(error) => error.code(),
            Self::Limits(_) => "LIMITS_INVALID",
            Self::Shield(error) => error.code(),
            Self::Route(refused) => refused.code(),
            Self::Retry(refused) => refused.code(),
            Self::Preview(refused) => refused.code(),
            Self::Sandbox(error) => error.code(),
            Self::Workspace(error) => error.code(),
            Self::Supervisor(error) => error.code(),
        }
    }

    /// What to do instead, unless that depends on the caller.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Host(error) => error.remedy(),
            Self::Approval(error) => error.remedy(),
            Self::Unbound(refusal) => refusal.remedy(),
            Self::Refused(refusal) => Some(refusal.remedy().to_owned()),
            Self::Shield(missing) => Some(missing.remedy()),
            Self::Route(refused) => Some(refused.remedy()),
            Self::Retry(refused) => Some(refused.remedy().to_owned()),
            Self::Preview(refused) => Some(refused.remedy().to_owned()),
            Self::Sandbox(error) => Some(error.remedy()),
            Self::Workspace(error) => error.remedy(),
            Self::Supervisor(error) if error.code() == "SANDBOX_UNAVAILABLE" => Some(
                "see what this system lacks: interlock sandbox explain; the command was not run anywhere"
                    .to_owned(),
            ),
            Self::Denied(verdict) if verdict.reason.code == "shield-setuid" => Some(
                "leave out the program that the shield cannot hold, or have the owner set tools.exec.shield to \"auto\""
                    .to_owned(),
            ),
            Self::Supervisor(error) if error.code() == "SHIELD_FAILED" => Some(
                "the owner removes the cause, or sets tools.exec.shield to \"off\" (guard only)"
                    .to_owned(),
            ),
            Self::Prepare(error) if error.code() == "TREE_UNAVAILABLE" => Some(TREE_REMEDY.to_owned()),
            Self::Supervisor(error) if error.code() == "TREE_UNAVAILABLE" => {
                Some(TREE_REMEDY.to_owned())
            }
            Self::Script(mistake) => Some(mistake.remedy()),
            Self::Prepare(error) if error.code() == "BIND_TOO_LARGE" => {
                Some("use a smaller program, or a sandbox".to_owned())
            }
            Self::Denied(verdict) if verdict.reason.code == ENV_REJECTED => Some(
                "leave these keys out of `env`, or write them in front of the command, which an \
                 approver can allow"
                    .to_owned(),
            ),
            Self::Denied(verdict) if verdict.remedies.is_empty() => {
                verdict.suggestion.map(str::to_owned)
            }
            Self::Supervisor(error) if error.code() == "RACE_NOT_EXCLUDED" => Some(
                "run a native program, or have the owner set tools.exec.requireRaceFree to false"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// What the agent must know after a denial by an approver or by its fallback.
    pub fn denial_text(&self) -> Option<&'static str> {
        match self {
            Self::Approval(error) if error.is_denial() => Some(DENIAL_TEXT),
            _ => None,
        }
    }

    /// The judge's verdict, if the judge denied the request.
    pub fn verdict(&self) -> Option<&Verdict> {
        match self {
            Self::Denied(verdict) => Some(verdict),
            _ => None,
        }
    }
}
