//! `apply_patch`: changes several files in the agent's workspace, all or nothing. Patches of
//! protected files wait for an approver, like runs.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use interlock_config::ConfigFile;
use interlock_host::parameters::PatchParameters;
use interlock_host::{EndListener, PatchError, PatchOutcome, PatchRequest};
use interlock_patch::PatchSummary;
use serde_json::Value;

use super::pipeline::{self, ApprovedStart, OutcomeReceiver, RunHost, RunStart, deliver_refusal};
use super::result::ToolResult;
use super::run_outcome::{RunLocation, RunRefusal, ToolOutcome};
use super::{CallError, ToolCall, no_workspace, start_directory};
use crate::dispatcher::Dispatcher;
use crate::work::blocking;

pub(super) async fn apply_patch(
    dispatcher: &Arc<Dispatcher>,
    config: &Arc<ConfigFile>,
    call: &ToolCall,
    arguments: &Value,
) -> Result<ToolResult, CallError> {
    let parameters = PatchParameters::parse(arguments)?;
    let root = {
        let (dispatcher, config, call) = (Arc::clone(dispatcher), Arc::clone(config), call.clone());
        let start = move || {
            let scope = dispatcher.host.scope_under(&call.agent, config)?;
            start_directory(&scope, &call)
        };
        match blocking(start).await? {
            Ok(root) => root,
            Err(error) => return Ok(no_workspace(&error)),
        }
    };
    let patch = Arc::new(PatchRun {
        dispatcher: Arc::clone(dispatcher),
        call: call.clone(),
        parameters,
        root,
    });
    let exec = config.config().exec_for(call.agent.as_str());
    pipeline::run(dispatcher, patch, call, call.patience(&exec)).await
}

/// A call of `apply_patch`.
#[derive(Debug)]
struct PatchRun {
    dispatcher: Arc<Dispatcher>,
    call: ToolCall,
    parameters: PatchParameters,
    root: PathBuf,
}

impl RunHost for PatchRun {
    fn carry_out(
        self: Arc<Self>,
        start: RunStart,
        receiver: OutcomeReceiver,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = blocking(move || self.carry_out_here(start, receiver)).await;
        })
    }

    fn location(&self) -> RunLocation {
        RunLocation::gateway(&self.root.display().to_string())
    }
}

impl PatchRun {
    fn request(&self) -> PatchRequest<'_> {
        PatchRequest {
            agent: &self.call.agent,
            session_key: Some(&self.call.session_key),
            model: self.parameters.model.as_deref(),
            caller: &self.call.context,
            root: self.root.clone(),
            input: &self.parameters.input,
            dry_run: self.parameters.dry_run,
            requester: &self.call.requester,
            runs_later: true,
        }
    }

    fn carry_out_here(&self, start: RunStart, receiver: OutcomeReceiver) {
        let (dispatcher, request) = (&self.dispatcher, self.request());
        match start {
            RunStart::Judged => {
                let is_free = |id: &str| !dispatcher.approvals.is_held(id);
                receiver.deliver(
                    match dispatcher.host.apply_patch_again(&request, &is_free) {
                        Ok(PatchOutcome::Applied(summary)) => ToolOutcome::Patched(summary),
                        Ok(PatchOutcome::Pending(approval)) => ToolOutcome::Pending {
                            approval,
                            location: self.location(),
                        },
                        Err(error) => ToolOutcome::Refused(RunRefusal::of_patch(&error)),
                    },
                );
            }
            RunStart::Approved(ApprovedStart { id, held }) => {
                let listener = if receiver.is_absent() {
                    EndListener::SessionEvent
                } else {
                    EndListener::Caller
                };
                let applied = dispatcher.host.apply_approved(&id, &request, listener);
                drop(held);
                let conversation = (self.call.agent.as_str(), &*self.call.session_key);
                deliver(dispatcher, conversation, &id, applied, receiver);
            }
        }
    }
}

/// Applies the stored patch of an approval that an earlier process of this gateway asked for.
pub(super) fn resume(
    dispatcher: &Dispatcher,
    conversation: (&str, &str),
    approved: ApprovedStart,
    receiver: OutcomeReceiver,
) {
    let ApprovedStart { id, held } = approved;
    let applied = dispatcher.host.resume_patch(&id);
    drop(held);
    deliver(dispatcher, conversation, &id, applied, receiver);
}

/// Delivers the outcome of an approved patch.
fn deliver(
    dispatcher: &Dispatcher,
    conversation: (&str, &str),
    id: &str,
    applied: Result<PatchSummary, PatchError>,
    receiver: OutcomeReceiver,
) {
    match applied {
        Ok(summary) => {
            receiver.deliver(ToolOutcome::Patched(summary));
            dispatcher.events.look_now();
        }
        Err(error) => {
            dispatcher.approvals.look_now();
            let (title, refusal) = ("Patch not applied", RunRefusal::of_patch(&error));
            deliver_refusal(dispatcher, conversation, (id, title), refusal, receiver);
        }
    }
}
