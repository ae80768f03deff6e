//! apply_patch on this host: tool policy and config first, then the files, then the patch as a whole.
//!
//! Which files are executed or obeyed later says `interlock_effects`.

use std::ops::ControlFlow::{self, Break, Continue};
use std::path::PathBuf;
use std::sync::Arc;

use interlock_approvals::clock::now;
use interlock_approvals::{
    ApprovalRefusal, PatchPlan, PatchSource, PendingApproval, ProtectedFile, usual_session_key,
};
use interlock_command::display::Secrets;
use interlock_effects::{GuardedPlace, PatchGuard, shorten_list};
use interlock_local::{AgentScope, CallerContext, Route, RouteFacts, route, tool_levels};
use interlock_patch::{
    ApplyError, ApplyOptions, FileSummary, MoveSummary, ParseError, Patch, PatchSummary, Preview,
    ReservedPaths, sha256,
};
use interlock_plan::{SandboxBackend, WorkspaceAccess};
use interlock_policy::{AgentId, Ask, Levels, Security, ToolRefusal, check_tool};
use interlock_sandbox::SandboxStanding;
use interlock_store::{
    AuditKind, NullableField, RecordedFile, RecordedFileChange, RecordedOutcome, RecordedStatus,
};
use serde::Serialize;
use serde_json::json;

use crate::exec::ExecError;
use crate::local::{HostError, LocalHost};
use crate::pipeline::{EndListener, PatchApproval};
use crate::sandbox::{SandboxCaller, check_sandbox_tool};

/// The whole of it in one line, for a caller who wrote something else.
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

    /// Whether policy or an approver said no; anything else is a patch that does not fit.
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

/// Who asks for a patch, and where.
#[derive(Debug, Clone)]
pub struct PatchRequest<'a> {
    pub agent: &'a AgentId,
    pub session_key: Option<&'a str>,
    /// The model behind the agent, as the call names it.
    pub model: Option<&'a str>,
    /// What the calling program brings of its own.
    pub caller: &'a CallerContext,
    /// The workspace.
    pub root: PathBuf,
    pub input: &'a str,
    /// Only check.
    pub dry_run: bool,
    /// The connection or process of the caller. It never decides.
    pub requester: &'a str,
    /// Whether this host applies it by itself once it is allowed, also when its caller
    /// is gone: [`LocalHost::resume_patch`].
    pub runs_later: bool,
}

impl PatchRequest<'_> {
    pub(crate) fn session_key(&self) -> String {
        let key = self.session_key.map(str::to_owned);
        key.unwrap_or_else(|| usual_session_key(self.agent.as_str()))
    }
}

/// What became of a patch that was not refused.
#[derive(Debug)]
pub enum PatchOutcome {
    Applied(PatchSummary),
    /// An approver has to decide first. No file changed.
    Pending(Box<PendingApproval>),
}

/// A patch that the agent may apply, and where.
pub(crate) struct Permitted {
    pub(crate) patch: Patch,
    pub(crate) options: ApplyOptions,
    pub(crate) levels: Levels,
}

/// Why files were left as they are, once it was known what would become of them.
enum Stopped {
    Protected(Vec<ProtectedFile>),
    Ask(Box<PatchPlan>),
    Unshowable(ApplyError),
}

impl LocalHost {
    /// Applies a patch, stores an approval where it changes protected files, or says what it would do.
    /// The request is in the audit before a file changes, and what came of it, refusals too, behind; a
    /// check alone leaves no record.
    pub fn apply_patch(&self, request: &PatchRequest<'_>) -> Result<PatchOutcome, PatchError> {
        self.apply_patch_with(request, None)
    }

    /// As [`Self::apply_patch`], for callers who cannot name an approval: one that allows the same
    /// patch in the same conversation, and that nothing was made of, counts if it is free.
    pub fn apply_patch_again(
        &self,
        request: &PatchRequest<'_>,
        is_free: &dyn Fn(&str) -> bool,
    ) -> Result<PatchOutcome, PatchError> {
        self.apply_patch_with(request, Some(is_free))
    }

    fn apply_patch_with(
        &self,
        request: &PatchRequest<'_>,
        is_free: Option<&dyn Fn(&str) -> bool>,
    ) -> Result<PatchOutcome, PatchError> {
        if request.dry_run {
            let permitted = self.permit_patch(request)?;
            let judge = self.judge_patch(request, &permitted.levels)?;
            let checked =
                interlock_patch::check_judged(&permitted.patch, &permitted.options, judge);
            return match checked.map_err(Box::new)? {
                // A check says what would be asked about by saying what would change.
                Continue(summary) => Ok(PatchOutcome::Applied(summary)),
                Break(Stopped::Protected(files)) => Err(PatchError::Protected(files)),
                Break(Stopped::Unshowable(error)) => Err(Box::new(error).into()),
                Break(Stopped::Ask(_)) => {
                    let summary = interlock_patch::check(&permitted.patch, &permitted.options);
                    Ok(PatchOutcome::Applied(summary.map_err(Box::new)?))
                }
            };
        }
        let begun = self.permit_patch(request).and_then(|permitted| {
            self.record_begun(request, &permitted.patch, None)?;
            let judge = self.judge_patch(request, &permitted.levels)?;
            let applied =
                interlock_patch::apply_judged(&permitted.patch, &permitted.options, judge);
            match applied.map_err(Box::new)? {
                Continue(summary) => Ok(Continue(summary)),
                Break(Stopped::Protected(files)) => Err(PatchError::Protected(files)),
                Break(Stopped::Unshowable(error)) => Err(Box::new(error).into()),
                Break(Stopped::Ask(plan)) => Ok(Break(plan)),
            }
        });
        let applied = match begun {
            Ok(Break(plan)) => return self.ask_for_patch(&plan, request, is_free),
            Ok(Continue(summary)) => Ok(summary),
            Err(error) => Err(error),
        };
        let applied = self.record_applied(request, applied, None)?;
        Ok(PatchOutcome::Applied(applied))
    }

    /// An approval that allows the same patch applies it at once; otherwise an approval is stored.
    fn ask_for_patch(
        &self,
        plan: &PatchPlan,
        request: &PatchRequest<'_>,
        is_free: Option<&dyn Fn(&str) -> bool>,
    ) -> Result<PatchOutcome, PatchError> {
        let mut approval = self.request_patch_approval(plan, request, is_free)?;
        if let PatchApproval::Allowed(id) = &approval {
            match self.apply_approved(id, request, EndListener::Caller) {
                Ok(summary) => return Ok(PatchOutcome::Applied(summary)),
                // It was for something else after all, or another call was quicker.
                Err(PatchError::Approval(error)) if error.wants_new_approval() => {
                    approval = self.request_patch_approval(plan, request, None)?;
                }
                Err(error) => return Err(error),
            }
        }
        let id = match approval {
            PatchApproval::Pending(created) => created.id,
            PatchApproval::Allowed(id) => id,
        };
        let approval = self.approvals().approval(&id, Secrets::Masked)?;
        Ok(PatchOutcome::Pending(Box::new(approval)))
    }

    /// Looks at what a patch is about to do. Files that are executed or obeyed later need an
    /// approver; the rest of the policy does not prompt for patches.
    fn judge_patch<'a>(
        &self,
        request: &'a PatchRequest<'_>,
        levels: &Levels,
    ) -> Result<impl FnOnce(&mut Preview<'_>) -> ControlFlow<Stopped> + use<'a>, PatchError> {
        let guard = PatchGuard::load(
            self,
            GuardedPlace {
                agent: request.agent,
                caller: request.caller,
                root: &request.root,
            },
        )?;
        let ask = levels.ask.value();
        Ok(move |preview: &mut Preview<'_>| {
            let protected: Vec<ProtectedFile> = preview
                .changes()
                .iter()
                .filter_map(|change| {
                    let reason = guard.reason(change)?;
                    let path = change.shown.clone();
                    Some(ProtectedFile { path, reason })
                })
                .collect();
            if protected.is_empty() {
                return Continue(());
            }
            if ask == Ask::Off {
                return Break(Stopped::Protected(protected));
            }
            let source = PatchSource {
                agent_id: request.agent.as_str(),
                session_key: request.session_key(),
                model: request.model,
                root: request.root.clone(),
                input: request.input,
            };
            match PatchPlan::new(source, preview, protected) {
                Ok(plan) => Break(Stopped::Ask(Box::new(plan))),
                Err(error) => Break(Stopped::Unshowable(error)),
            }
        })
    }

    /// Puts down what a patch names, before a file changes.
    pub(crate) fn record_begun(
        &self,
        request: &PatchRequest<'_>,
        patch: &Patch,
        approval: Option<&str>,
    ) -> Result<(), HostError> {
        let paths = patch.target_paths(&request.root);
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let begun = PatchRecord {
            paths: Some(paths),
            ..PatchRecord::new(request, approval, "begun")
        };
        self.record_patch(begun)
    }

    /// Puts down what became of it.
    pub(crate) fn record_applied(
        &self,
        request: &PatchRequest<'_>,
        applied: Result<PatchSummary, PatchError>,
        approval: Option<&str>,
    ) -> Result<PatchSummary, PatchError> {
        let report = match &applied {
            Ok(summary) => PatchRecord {
                files: Some(files(summary)),
                ..PatchRecord::new(request, approval, "applied")
            },
            Err(error) => PatchRecord {
                code: Some(error.code()),
                message: Some(error.to_string()),
                ..PatchRecord::new(request, approval, "refused")
            },
        };
        match (self.record_patch(report), applied) {
            (Err(error), Ok(_)) => Err(PatchError::Unrecorded(error)),
            // Why it was refused says more.
            (_, applied) => applied,
        }
    }

    /// The patch and where it may go, if the agent may have the tool.
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
        // A patch would be applied with the rights of this process, which the caller must not have.
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
        // A patch changes files of this host, wherever commands run.
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
            // The files would belong to root, and not to the user of the runs.
            WorkspaceAccess::None if rustix::process::geteuid().is_root() => {
                let why = "apply_patch cannot write to the scratch workspace of root's sandbox in this version; use workspaceAccess \"rw\", or write files with exec";
                Err(HostError::SandboxUnavailable(why.to_owned()).into())
            }
            WorkspaceAccess::Rw | WorkspaceAccess::Cow | WorkspaceAccess::None => {
                Ok(Some(PathBuf::from(prepared.host_cwd)))
            }
        }
    }

    /// The policy in force for this call: config, document and conversation, joined as for exec.
    fn patch_levels(
        &self,
        scope: &AgentScope<'_>,
        request: &PatchRequest<'_>,
    ) -> Result<Levels, HostError> {
        let session = self.session(&request.session_key())?.levels();
        let policy = scope.policy(session, None, None)?;
        Ok(policy.levels.clone())
    }

    /// What no patch may touch: a patch of these would be a policy of the agent's own.
    fn own_files(&self) -> Result<ReservedPaths, PatchError> {
        let binary = std::env::current_exe().map_err(PatchError::Binary)?;
        // So the kernel names a program that was replaced while it runs.
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

    fn record_patch(&self, mut record: PatchRecord<'_>) -> Result<(), HostError> {
        record.files_left_out = record.files.as_mut().and_then(shorten_list);
        record.paths_left_out = record.paths.as_mut().and_then(shorten_list);
        self.store()
            .append(AuditKind::Patch, &json!(record), now())?;
        Ok(())
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

/// The outcome of an approved patch, for its record and event.
pub(crate) fn summary_outcome(summary: &PatchSummary) -> RecordedOutcome {
    let mut files = files(summary);
    RecordedOutcome {
        exit_code: NullableField::Value(0),
        files_left_out: shorten_list(&mut files),
        files: Some(files),
        ..RecordedOutcome::new(RecordedStatus::Applied)
    }
}

/// The audit record of a patch: that it begins, or what became of it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PatchRecord<'a> {
    agent: &'a str,
    approval_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<RecordedFile>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files_left_out: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    model: Option<&'a str>,
    outcome: &'static str,
    patch_digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    paths: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paths_left_out: Option<usize>,
    root: String,
}

impl<'a> PatchRecord<'a> {
    fn new(
        request: &'a PatchRequest<'_>,
        approval_id: Option<&'a str>,
        outcome: &'static str,
    ) -> Self {
        Self {
            agent: request.agent.as_str(),
            approval_id,
            code: None,
            files: None,
            files_left_out: None,
            message: None,
            model: request.model,
            outcome,
            patch_digest: sha256(request.input.as_bytes()),
            paths: None,
            paths_left_out: None,
            root: request.root.display().to_string(),
        }
    }
}

/// As the reference compares them.
/// The codes of a sandbox that cannot be had.
fn sandbox_code(error: &ExecError) -> &'static str {
    match error {
        ExecError::Route(refused) => refused.code(),
        ExecError::Sandbox(error) => error.code(),
        ExecError::Workspace(error) => error.code(),
        _ => interlock_config::schema::SANDBOX_UNAVAILABLE,
    }
}

fn is_same_model(allowed: &str, named: &str) -> bool {
    let allowed = allowed.trim();
    !allowed.is_empty() && allowed.to_lowercase() == named.trim().to_lowercase()
}

/// Every file of a patch, what became of it, how much, and what it was before and after.
fn files(summary: &PatchSummary) -> Vec<RecordedFile> {
    use RecordedFileChange::{Added, Deleted, Moved, Updated};
    let file = |change, file: &FileSummary| RecordedFile {
        after: file.hashes.after.clone(),
        before: file.hashes.before.clone(),
        change,
        from: None,
        lines_added: file.lines_added,
        lines_removed: file.lines_removed,
        path: file.path.clone(),
    };
    let moved = |moved: &MoveSummary| RecordedFile {
        after: moved.hashes.after.clone(),
        before: moved.hashes.before.clone(),
        change: Moved,
        from: Some(moved.from.clone()),
        lines_added: moved.lines_added,
        lines_removed: moved.lines_removed,
        path: moved.to.clone(),
    };
    let added = summary.added.iter().map(|one| file(Added, one));
    let updated = summary.modified.iter().map(|one| file(Updated, one));
    let deleted = summary.deleted.iter().map(|one| file(Deleted, one));
    let moved = summary.moved.iter().map(moved);
    added.chain(updated).chain(deleted).chain(moved).collect()
}
