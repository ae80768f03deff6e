//! apply_patch on this host: tool policy and config first, then the patch as a whole.

use std::path::{Path, PathBuf};

use interlock_config::Config;
use interlock_patch::{ApplyError, ApplyOptions, ParseError, Patch, Summary};
use interlock_policy::{AgentId, ToolLevel, ToolRefusal, check_tool};

use crate::local::{HostError, LocalHost};

/// The whole of it in one line, for whoever wrote something else.
const FORMAT: &str = "a patch is `*** Begin Patch`, then `*** Add File: PATH`, `*** Update File: PATH` or \
    `*** Delete File: PATH` with their lines, then `*** End Patch`";

/// Why a patch was not applied. No file changed.
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
    #[error(transparent)]
    Parse(#[from] ParseError),
    #[error(transparent)]
    Apply(#[from] Box<ApplyError>),
}

impl PatchError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Host(error) => error.code(),
            Self::Tool(_) | Self::Disabled | Self::Model(_) => "TOOL_DENIED",
            Self::Parse(_) => "PATCH_PARSE",
            Self::Apply(error) => error.code(),
        }
    }

    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Host(error) => error.remedy(),
            Self::Tool(_) | Self::Model(_) => {
                Some("look at it: interlock config get tools".to_owned())
            }
            Self::Disabled => {
                Some("interlock config set tools.exec.applyPatch.enabled true".to_owned())
            }
            Self::Parse(_) => Some(FORMAT.to_owned()),
            Self::Apply(error) => Some(error.hint().to_owned()),
        }
    }
}

/// Who asks for a patch, and where.
#[derive(Debug, Clone)]
pub struct PatchRequest<'a> {
    pub agent: &'a AgentId,
    /// The model behind the agent, where it is known.
    pub model: Option<&'a str>,
    /// The workspace.
    pub root: PathBuf,
    pub input: &'a str,
    /// Only check.
    pub dry_run: bool,
}

impl LocalHost {
    /// Applies a patch, or says what it would do.
    pub fn apply_patch(&self, request: &PatchRequest<'_>) -> Result<Summary, PatchError> {
        let file = self.config()?;
        let config = file.config();
        check_tool("apply_patch", &tool_levels(config, request.agent))?;
        let settings = config.exec_for(request.agent.as_str()).apply_patch;
        if settings.enabled == Some(false) {
            return Err(PatchError::Disabled);
        }
        if let (Some(models), Some(model)) = (&settings.allow_models, request.model)
            && !models.iter().any(|allowed| allowed == model)
        {
            return Err(PatchError::Model(model.to_owned()));
        }
        let options = ApplyOptions {
            root: request.root.clone(),
            workspace_only: settings.workspace_only.unwrap_or(true),
            journal_dir: self.patch_journal(),
        };
        let patch = Patch::parse(request.input)?;
        let outcome = if request.dry_run {
            interlock_patch::check(&patch, &options)
        } else {
            interlock_patch::apply(&patch, &options)
        };
        outcome.map_err(|error| PatchError::Apply(Box::new(error)))
    }

    fn patch_journal(&self) -> PathBuf {
        Path::new(self.state_dir()).join("patches")
    }
}

/// The global level and the agent's own; each can only restrict.
pub fn tool_levels<'a>(config: &'a Config, agent: &AgentId) -> Vec<ToolLevel<'a>> {
    let level = |tools: &'a interlock_config::types::Tools, path| ToolLevel {
        allow: tools.allow.as_deref(),
        deny: tools.deny.as_deref().unwrap_or_default(),
        path,
    };
    let mut levels = vec![level(&config.tools, "tools")];
    if let Some(own) = config.agent(agent.as_str()) {
        levels.push(level(&own.tools, "the agent's tools"));
    }
    levels
}
