//! apply_patch on this host: tool policy and config first, then the patch as a whole.

use std::path::{Path, PathBuf};

use interlock_config::Config;
use interlock_patch::{
    ApplyError, ApplyOptions, FileSummary, MoveSummary, ParseError, Patch, Summary, sha256,
};
use interlock_policy::{AgentId, ToolLevel, ToolRefusal, check_tool};
use interlock_store::{AuditKind, MAX_AUDIT_BODY_BYTES};
use serde_json::{Value, json};

use crate::desk::now;
use crate::local::{HostError, LocalHost};

/// The whole of it in one line, for whoever wrote something else.
const FORMAT: &str = "a patch is `*** Begin Patch`, then `*** Add File: PATH`, `*** Update File: PATH` or \
    `*** Delete File: PATH` with their lines, then `*** End Patch`";

/// Why a patch was not applied. No file changed, but for [`PatchError::Unrecorded`].
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
    #[error("the patch was applied, and this could not be recorded: {0}")]
    Unrecorded(HostError),
}

impl PatchError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Host(error) | Self::Unrecorded(error) => error.code(),
            Self::Tool(_) | Self::Disabled | Self::Model(_) => "TOOL_DENIED",
            Self::Parse(_) => "PATCH_PARSE",
            Self::Apply(error) => error.code(),
        }
    }

    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Host(error) | Self::Unrecorded(error) => error.remedy(),
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
    /// Applies a patch, or says what it would do. What was asked for is in the audit before a file
    /// changes, and what came of it, refusals too, behind; a check alone leaves no record.
    pub fn apply_patch(&self, request: &PatchRequest<'_>) -> Result<Summary, PatchError> {
        if request.dry_run {
            let (patch, options) = self.permit_patch(request)?;
            return Ok(interlock_patch::check(&patch, &options).map_err(Box::new)?);
        }
        let permitted = self.permit_patch(request).and_then(|permitted| {
            let paths = permitted.0.target_paths(&request.root);
            let paths: Vec<String> = paths
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            self.record_patch(request, json!({ "outcome": "begun", "paths": paths }))?;
            Ok(permitted)
        });
        let applied = permitted.and_then(|(patch, options)| {
            Ok(interlock_patch::apply(&patch, &options).map_err(Box::new)?)
        });
        let told = match &applied {
            Ok(summary) => json!({ "files": files(summary), "outcome": "applied" }),
            Err(error) => json!({
                "code": error.code(),
                "message": error.to_string(),
                "outcome": "refused",
            }),
        };
        match (self.record_patch(request, told), applied) {
            (Err(error), Ok(_)) => Err(PatchError::Unrecorded(error)),
            // Why it was refused says more.
            (_, applied) => applied,
        }
    }

    /// The patch and where it may go, if the agent may have the tool.
    fn permit_patch(
        &self,
        request: &PatchRequest<'_>,
    ) -> Result<(Patch, ApplyOptions), PatchError> {
        let file = self.run_config()?;
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
        Ok((Patch::parse(request.input)?, options))
    }

    fn record_patch(&self, request: &PatchRequest<'_>, what: Value) -> Result<(), HostError> {
        let mut record = what;
        record["agent"] = request.agent.as_str().into();
        record["model"] = request.model.into();
        record["patchDigest"] = sha256(request.input.as_bytes()).into();
        record["root"] = request.root.display().to_string().into();
        shorten(&mut record);
        self.store().append(AuditKind::Patch, &record, now())?;
        Ok(())
    }

    fn patch_journal(&self) -> PathBuf {
        Path::new(self.state_dir()).join("patches")
    }
}

/// Every file of a patch, what became of it, how much, and what it was before and after.
fn files(summary: &Summary) -> Vec<Value> {
    let file = |change: &str, file: &FileSummary| {
        json!({
            "after": file.hashes.after,
            "before": file.hashes.before,
            "change": change,
            "linesAdded": file.lines_added,
            "linesRemoved": file.lines_removed,
            "path": file.path,
        })
    };
    let moved = |moved: &MoveSummary| {
        json!({
            "after": moved.hashes.after,
            "before": moved.hashes.before,
            "change": "moved",
            "from": moved.from,
            "linesAdded": moved.lines_added,
            "linesRemoved": moved.lines_removed,
            "path": moved.to,
        })
    };
    let added = summary.added.iter().map(|one| file("added", one));
    let updated = summary.modified.iter().map(|one| file("updated", one));
    let deleted = summary.deleted.iter().map(|one| file("deleted", one));
    let moved = summary.moved.iter().map(moved);
    added.chain(updated).chain(deleted).chain(moved).collect()
}

/// A record has a most that it may hold: of a patch of very many files the first ones are in it, and
/// how many are not. The digest names the whole patch.
fn shorten(record: &mut Value) {
    for (name, left_out) in [("files", "filesLeftOut"), ("paths", "pathsLeftOut")] {
        let Some(list) = record.get_mut(name).and_then(Value::as_array_mut) else {
            continue;
        };
        let mut bytes = 0;
        let fitting = list.iter().take_while(|one| {
            bytes += one.to_string().len() + 1;
            bytes <= MAX_AUDIT_BODY_BYTES / 4
        });
        let (kept, total) = (fitting.count(), list.len());
        if kept < total {
            list.truncate(kept);
            record[left_out] = (total - kept).into();
        }
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
