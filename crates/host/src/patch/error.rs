//! Why a patch was not applied.

use interlock_approvals::{ApprovalRefusal, ProtectedFile};
use interlock_patch::{ApplyError, ParseError};
use interlock_policy::ToolRefusal;

use crate::exec::ExecError;
use crate::local::HostError;

/// The format in one line, for callers that sent something else.
const FORMAT: &str = "a patch is `*** Begin Patch`, then `*** Add File: PATH`, `*** Update File: PATH` or \
    `*** Delete File: PATH` with their lines, then `*** End Patch`";

/// Why a patch was not applied. No file changed, except with [`PatchError::Unrecorded`].
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Tool(#[from] ToolRefusal),
    #[error("apply_patch is switched off by tools.exec.applyPatch.enabled")]
    Disabled,
    #[error("the model `{0}` is not named in tools.exec.applyPatch.allowModels")]
    Model(String),
    #[error("tools.exec.applyPatch.allowModels is set, and the call names no model")]
    ModelUnnamed,
    #[error("apply_patch is closed: security is `deny` ({0})")]
    Denied(String),
    #[error("the Interlock binary cannot be found, so it cannot be kept from patches: {0}")]
    Binary(std::io::Error),
    #[error(transparent)]
    Parse(#[from] ParseError),
    #[error(transparent)]
    Apply(#[from] Box<ApplyError>),
    #[error("{}", protected_text(.0))]
    Protected(Vec<ProtectedFile>),
    #[error(transparent)]
    Approval(#[from] ApprovalRefusal),
    #[error(
        "apply_patch is not available in this version for commands that run as another user (tools.exec.runAs is `{0}`)"
    )]
    RunsAsOther(String),
    #[error("the sandbox shows the workspace read-only (sandbox.workspaceAccess is `ro`)")]
    SandboxReadOnly,
    #[error(transparent)]
    Sandbox(Box<ExecError>),
    #[error("the patch was applied, and this could not be recorded: {0}")]
    Unrecorded(HostError),
}

impl PatchError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Host(error) | Self::Unrecorded(error) => error.code(),
            Self::Tool(_) | Self::Disabled | Self::Model(_) | Self::RunsAsOther(_) => "TOOL_DENIED",
            Self::SandboxReadOnly => "PATCH_READ_ONLY",
            Self::Sandbox(error) => sandbox_code(error),
            Self::ModelUnnamed => "PATCH_MODEL_UNNAMED",
            Self::Denied(_) => "PATCH_DENIED",
            Self::Binary(_) => "PATCH_RESERVED",
            Self::Parse(_) => "PATCH_PARSE",
            Self::Apply(error) => error.code(),
            Self::Protected(_) => "PATCH_PROTECTED",
            Self::Approval(error) => error.code(),
        }
    }

    /// Whether the policy or an approver said no. All other errors mean that the patch does not
    /// fit.
    pub fn is_denial(&self) -> bool {
        matches!(
            self,
            Self::Tool(_)
                | Self::Disabled
                | Self::Model(_)
                | Self::ModelUnnamed
                | Self::Denied(_)
                | Self::RunsAsOther(_)
                | Self::SandboxReadOnly
                | Self::Protected(_)
                | Self::Approval(_)
        )
    }

    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Host(error) | Self::Unrecorded(error) => error.remedy(),
            Self::Tool(_) | Self::Model(_) => {
                Some("look at it: interlock config get".to_owned())
            }
            Self::ModelUnnamed => Some(
                "name the model (`model` in the call, `--model` on the command line), or have the owner run: interlock config unset tools.exec.applyPatch.allowModels"
                    .to_owned(),
            ),
            Self::Denied(_) => Some(
                "have the owner choose another `security` for this agent: interlock exec-policy show"
                    .to_owned(),
            ),
            Self::Disabled => {
                Some("interlock config set tools.exec.applyPatch.enabled true".to_owned())
            }
            Self::RunsAsOther(_) => {
                Some("change files with exec, where the policy allows the program".to_owned())
            }
            Self::SandboxReadOnly => Some(
                "have the owner set sandbox.workspaceAccess to \"cow\" or \"rw\"".to_owned(),
            ),
            Self::Sandbox(error) => error.remedy(),
            Self::Binary(_) => Some("start Interlock again from where it is installed".to_owned()),
            Self::Parse(_) => Some(FORMAT.to_owned()),
            Self::Apply(error) => Some(error.hint().to_owned()),
            Self::Protected(_) => Some(
                "have the owner set `ask` to `on-miss`, so that an approver can be asked, or edit the file: interlock exec-policy show"
                    .to_owned(),
            ),
            Self::Approval(error) => error.remedy(),
        }
    }
}

/// The code of an error that makes the sandbox unavailable.
fn sandbox_code(error: &ExecError) -> &'static str {
    match error {
        ExecError::Route(refused) => refused.code(),
        ExecError::Sandbox(error) => error.code(),
        ExecError::Workspace(error) => error.code(),
        _ => interlock_config::schema::SANDBOX_UNAVAILABLE,
    }
}

fn protected_text(files: &[ProtectedFile]) -> String {
    let text = |file: &ProtectedFile| format!("`{}` is protected: {}", file.path, file.reason);
    let files: Vec<String> = files.iter().map(text).collect();
    format!(
        "ask is `off`, so no approver can be asked; {}",
        files.join("; ")
    )
}
