//! Decides whether a request becomes a preview. A preview runs the command once, in a sandbox whose
//! changes are committed only if an approver allows exactly these changes. `interlock_effects`
//! handles the changes.

use std::sync::Arc;

use interlock_checks::refusal;
use interlock_config::ExecEffects;
use interlock_config::types::ExecConfig;
use interlock_plan::{Elevation, SandboxEffects, WorkspaceAccess};
use interlock_policy::BindingKind;
use interlock_policy::Outcome;
use interlock_rules::SessionLevels;
use interlock_sandbox::SandboxStanding;

use crate::exec::{ExecError, ExecRequest, JudgedRequest, Yield, judge_in};
use crate::local::LocalHost;
use crate::sandbox::{RunPlace, SandboxCaller, usual_sandbox};

/// The `effects` parameter of a call. Neither value permits more than the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEffects {
    /// An approver decides about the command's changes instead of the command.
    Preview,
    /// Changes are made directly. Where the owner wants a preview, an approver decides about the
    /// command first.
    Direct,
}

impl CallEffects {
    pub const WORDS: &'static [&'static str] = &["preview", "direct"];

    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "preview" => Some(Self::Preview),
            "direct" => Some(Self::Direct),
            _ => None,
        }
    }
}

/// Why a call that asks for a preview gets none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PreviewRefusal {
    #[error("a preview ends before its result is there, and this call wants the background")]
    Background,
    #[error("a preview is of a command that can be bound, and this one cannot")]
    Unbound,
    #[error("a preview stays in a sandbox, and this call leaves one")]
    Elevated,
    #[error("the sandbox of this conversation lets no run change the workspace")]
    NothingToChange,
    #[error("the policy of sandboxed runs does not allow the command without a prompt")]
    NotAllowedInside,
    #[error("previews are made on the machine of the gateway, and the call goes to a node")]
    OnNode,
}

impl PreviewRefusal {
    pub fn code(self) -> &'static str {
        "PREVIEW_REFUSED"
    }

    pub fn remedy(self) -> &'static str {
        match self {
            Self::Background => "leave out `background`, or `effects`",
            Self::Unbound | Self::NotAllowedInside | Self::OnNode => {
                "leave out `effects`: the policy decides about the command itself"
            }
            Self::Elevated => "leave out `elevated`, or `effects`",
            Self::NothingToChange => {
                "leave out `effects`: there is nothing that could be committed"
            }
        }
    }
}

/// Whether a call asks for direct changes where the owner wants previews.
pub(crate) fn is_for_real(request: &ExecRequest<'_>, exec: &ExecConfig) -> bool {
    let wanted = exec.effects.unwrap_or(ExecEffects::Direct);
    request.place.effects == Some(CallEffects::Direct) && wanted != ExecEffects::Direct
}

impl LocalHost {
    /// The request judged as a preview, if the call or the owner wants one; `None` if it runs as
    /// usual. A preview is judged twice: a command that the policy denies where it would run is not
    /// previewed, and the policy of sandboxed runs must allow it inside the sandbox.
    pub(crate) fn preview_of<'a>(
        &'a self,
        request: &ExecRequest<'a>,
        judged: &JudgedRequest<'a>,
    ) -> Result<Option<JudgedRequest<'a>>, ExecError> {
        let outcome = judged.evaluation.verdict.outcome;
        let is_asked_for = request.place.effects == Some(CallEffects::Preview);
        let is_wanted = match judged.scope.exec().effects {
            _ if request.place.effects == Some(CallEffects::Direct) => false,
            None | Some(ExecEffects::Direct) => is_asked_for,
            Some(ExecEffects::Ask) => is_asked_for || outcome == Outcome::Ask,
            Some(ExecEffects::Always) => true,
        };
        // A denied request is refused on its usual path.
        if !is_wanted || outcome == Outcome::Deny {
            return Ok(None);
        }
        let preview = match self.preview_settings(request, judged) {
            Ok(settings) => {
                let caller = SandboxCaller {
                    agent: request.agent,
                    session_key: &request.session_key(),
                    caller: request.caller,
                    cwd: (!request.place.is_cwd_usual).then_some(request.cwd.as_str()),
                    effects: SandboxEffects::Preview,
                };
                let scope = self.scope_under(request.agent, Arc::clone(judged.scope.config()))?;
                let sandbox = self.prepare_sandbox_of(&scope, &settings, caller)?;
                let place = RunPlace {
                    sandbox: Some(sandbox),
                    elevation: Elevation::Off,
                };
                // The prompt that conversation and call want is the prompt about the effect.
                let levels = (SessionLevels::default(), None);
                let preview = judge_in(request, scope, place, levels)?;
                match preview.evaluation.verdict.outcome {
                    Outcome::Allow(..) => Ok(preview),
                    _ => Err(PreviewRefusal::NotAllowedInside),
                }
            }
            Err(refused) => Err(refused),
        };
        match preview {
            Ok(preview) => Ok(Some(preview)),
            Err(refused) if is_asked_for => Err(refused.into()),
            // The request runs as usual, by the policy of the place where it runs.
            Err(_) => Ok(None),
        }
    }

    /// The sandbox settings of a preview: those of the conversation, or the default ones.
    fn preview_settings(
        &self,
        request: &ExecRequest<'_>,
        judged: &JudgedRequest<'_>,
    ) -> Result<interlock_config::types::Sandbox, PreviewRefusal> {
        if request.yields == Yield::After(std::time::Duration::ZERO) {
            return Err(PreviewRefusal::Background);
        }
        if judged.elevation.leaves() || request.place.retry.is_some() {
            return Err(PreviewRefusal::Elevated);
        }
        let evaluation = &judged.evaluation;
        let is_opaque = evaluation.verdict.binding.kind == BindingKind::Unbound;
        if is_opaque || refusal(&evaluation.analysis).is_some() {
            return Err(PreviewRefusal::Unbound);
        }
        if judged.sandbox.is_none() {
            return Ok(usual_sandbox());
        }
        let key = request.session_key();
        let standing = self.sandbox_standing(&judged.scope, request.agent, &key);
        let mut settings = match standing {
            SandboxStanding::Active(settings) => *settings,
            SandboxStanding::Off(_) => usual_sandbox(),
        };
        match settings.workspace_access {
            Some(WorkspaceAccess::Rw | WorkspaceAccess::Cow) => {
                settings.workspace_access = Some(WorkspaceAccess::Cow);
                Ok(settings)
            }
            None | Some(WorkspaceAccess::None | WorkspaceAccess::Ro) => {
                Err(PreviewRefusal::NothingToChange)
            }
        }
    }
}
