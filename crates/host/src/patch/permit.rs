//! Whether an agent may apply a patch, and where.

use std::path::PathBuf;
use std::sync::Arc;

use interlock_local::{AgentScope, Route, RouteFacts, route, tool_levels};
use interlock_patch::{ApplyOptions, Patch, ReservedPaths};
use interlock_plan::{SandboxBackend, WorkspaceAccess};
use interlock_policy::{Levels, Security, check_tool};
use interlock_sandbox::SandboxStanding;

use super::PatchRequest;
use super::error::PatchError;
use crate::exec::ExecError;
use crate::local::{HostError, LocalHost};
use crate::sandbox::{SandboxCaller, check_sandbox_tool};

/// A patch that the agent may apply, and the files that it may change.
pub(crate) struct Permitted {
    pub(crate) patch: Patch,
    pub(crate) options: ApplyOptions,
    pub(crate) levels: Levels,
}

impl LocalHost {
    /// Parses the patch and determines where it may write, if the agent may use the tool.
    pub(crate) fn permit_patch(&self, request: &PatchRequest<'_>) -> Result<Permitted, PatchError> {
        let file = self.run_config()?;
        let config = file.config();
        let scope = self.scope_under(request.agent, Arc::clone(&file))?;
        check_tool("apply_patch", &tool_levels(config, request.agent))?;
        let conversation = (request.agent, &*request.session_key());
        check_sandbox_tool(config, conversation, "apply_patch")?;
        let settings = &scope.exec().apply_patch;
        if settings.enabled == Some(false) {
            return Err(PatchError::Disabled);
        }
        if let Some(models) = &settings.allow_models {
            let model = request.model.ok_or(PatchError::ModelUnnamed)?;
            if !models.iter().any(|allowed| is_same_model(allowed, model)) {
                return Err(PatchError::Model(model.to_owned()));
            }
        }
        // The patch would be applied with the rights of this process, which the caller must not
        // have.
        if let Some(account) = scope.account() {
            return Err(PatchError::RunsAsOther(account.identity.user.clone()));
        }
        let levels = self.patch_levels(&scope, request)?;
        if levels.security.value() == Security::Deny {
            return Err(PatchError::Denied(levels.security.effective.path.clone()));
        }
        let confined = self.patch_root(&scope, request)?;
        let options = ApplyOptions {
            workspace_only: confined.is_some() || settings.workspace_only.unwrap_or(true),
            root: confined.unwrap_or_else(|| request.root.clone()),
            journal_dir: self.patch_journal(),
            reserved: self.own_files()?,
        };
        Ok(Permitted {
            patch: Patch::parse(request.input)?,
            options,
            levels,
        })
    }

    /// The only directory that a patch of a sandboxed conversation may change: the workspace as the
    /// sandbox shows it. `None` for a conversation without a sandbox.
    fn patch_root(
        &self,
        scope: &AgentScope<'_>,
        request: &PatchRequest<'_>,
    ) -> Result<Option<PathBuf>, PatchError> {
        let session_key = request.session_key();
        let standing = self.sandbox_standing(scope, request.agent, &session_key);
        let session = self.session(&session_key)?;
        let routed = route(RouteFacts {
            asked: None,
            session: session.host,
            exec: scope.exec(),
            sandbox: &standing,
        });
        let sandboxed = |error: ExecError| PatchError::Sandbox(Box::new(error));
        // A patch changes files of this host, regardless of where commands run.
        let SandboxStanding::Active(settings) = &standing else {
            return Ok(None);
        };
        match routed {
            Ok(Route::Sandbox) => {}
            Ok(Route::Gateway | Route::Node) => return Ok(None),
            Err(refused) => return Err(sandboxed(refused.into())),
        }
        if settings.backend == Some(SandboxBackend::Ssh) {
            let why = "apply_patch cannot change the workspace of another machine in this version; write files with exec";
            return Err(HostError::SandboxUnavailable(why.to_owned()).into());
        }
        let root = request.root.display().to_string();
        let caller = SandboxCaller {
            agent: request.agent,
            session_key: &session_key,
            caller: request.caller,
            cwd: Some(&root),
            effects: interlock_plan::SandboxEffects::Direct,
        };
        let prepared = self
            .prepare_sandbox_of(scope, settings, caller)
            .map_err(sandboxed)?;
        match prepared.plan.workspace_access {
            WorkspaceAccess::Ro => Err(PatchError::SandboxReadOnly),
            // The files would belong to root instead of the user of the runs.
            WorkspaceAccess::None if rustix::process::geteuid().is_root() => {
                let why = "apply_patch cannot write to the scratch workspace of root's sandbox in this version; use workspaceAccess \"rw\", or write files with exec";
                Err(HostError::SandboxUnavailable(why.to_owned()).into())
            }
            WorkspaceAccess::Rw | WorkspaceAccess::Cow | WorkspaceAccess::None => {
                Ok(Some(PathBuf::from(prepared.host_cwd)))
            }
        }
    }

    /// The policy in force for this call: config, document and conversation, joined as for `exec`.
    fn patch_levels(
        &self,
        scope: &AgentScope<'_>,
        request: &PatchRequest<'_>,
    ) -> Result<Levels, HostError> {
        let session = self.session(&request.session_key())?.levels();
        let policy = scope.policy(session, None, None)?;
        Ok(policy.levels.clone())
    }

    /// The paths that no patch may touch. By changing them, an agent could set its own policy.
    fn own_files(&self) -> Result<ReservedPaths, PatchError> {
        let binary = std::env::current_exe().map_err(PatchError::Binary)?;
        // The kernel appends this suffix to the path of a program that was replaced while it runs.
        let binary = match binary
            .to_str()
            .and_then(|path| path.strip_suffix(" (deleted)"))
        {
            Some(path) => PathBuf::from(path),
            None => binary,
        };
        Ok(ReservedPaths {
            directories: vec![self.state_dir().to_owned()],
            files: vec![self.config_path().to_owned(), binary],
        })
    }
}

fn is_same_model(allowed: &str, named: &str) -> bool {
    let allowed = allowed.trim();
    !allowed.is_empty() && allowed.to_lowercase() == named.trim().to_lowercase()
}
