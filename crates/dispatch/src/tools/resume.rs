//! Resumes calls for which an earlier process of this gateway requested approvals: an allowed call
//! is carried out as if that process still lived.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use interlock_approvals::{ApprovalRefusal, PendingApproval};
use interlock_host::{HostError, ResumableRun};

use super::node_run::StoredNodeRun;
use super::pipeline::{
    AwaitedDecision, OutcomeReceiver, RunHost, RunStart, carry_out_when_decided,
};
use super::run_outcome::RunLocation;
use super::{local_run, patch};
use crate::dispatcher::Dispatcher;
use crate::work::{CallError, blocking, waiting};

/// The most approvals that are resumed.
const MAX_RESUMED: usize = 4096;

/// Continues everything that an earlier process requested. Returns when all of it is being waited
/// for.
pub async fn resume(dispatcher: Arc<Dispatcher>) {
    let reader = Arc::clone(&dispatcher);
    let stored = match blocking(move || stored_calls(&reader)).await {
        Ok(Ok(stored)) => stored,
        Ok(Err(error)) => {
            tracing::warn!(%error, "approvals of an earlier gateway cannot be read");
            return;
        }
        Err(_) => return,
    };
    for (id, host) in stored {
        let held = dispatcher.approvals.hold(&id);
        let decision = AwaitedDecision::of(&dispatcher, &id);
        tokio::spawn(carry_out_when_decided(
            Arc::clone(&dispatcher),
            host,
            decision,
            held,
        ));
    }
}

/// Asks an approver again about a call whose approval expired. An allowed call is carried out as if
/// its caller had left, and the conversation is notified of the end.
pub async fn ask_again(
    dispatcher: &Arc<Dispatcher>,
    id: &str,
) -> Result<Result<PendingApproval, ApprovalRefusal>, CallError> {
    let (asking, id) = (Arc::clone(dispatcher), id.to_owned());
    let asked = blocking(move || asking.host.ask_again(&id)).await?;
    let (approval, stored) = match asked {
        Ok(asked) => asked,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let held = dispatcher.approvals.hold(&approval.id);
    let decision = AwaitedDecision::of(dispatcher, &approval.id);
    let host: Arc<dyn RunHost> = Arc::new(StoredHere {
        dispatcher: Arc::clone(dispatcher),
        stored,
    });
    tokio::spawn(carry_out_when_decided(
        Arc::clone(dispatcher),
        host,
        decision,
        held,
    ));
    dispatcher.approvals.tell(dispatcher, approval.clone());
    Ok(Ok(approval))
}

/// A call by the id of its approval.
type StoredCall = (String, Arc<dyn RunHost>);

/// The calls whose unused approvals were requested before this process started.
fn stored_calls(dispatcher: &Arc<Dispatcher>) -> Result<Vec<StoredCall>, HostError> {
    let began = i64::try_from(dispatcher.started_at_ms).unwrap_or(i64::MAX);
    let local = dispatcher.host.runs_to_resume(began, MAX_RESUMED)?;
    let mut calls: Vec<StoredCall> = Vec::new();
    for stored in local {
        let id = stored.id.clone();
        let dispatcher = Arc::clone(dispatcher);
        calls.push((id, Arc::new(StoredHere { dispatcher, stored })));
    }
    for id in dispatcher.host.approvals().unclaimed_remote(MAX_RESUMED)? {
        if let Some(run) = StoredNodeRun::read(dispatcher, &id) {
            calls.push((id, Arc::new(run)));
        }
    }
    Ok(calls)
}

/// A run or a patch on this machine, as its approval stores it.
#[derive(Debug)]
struct StoredHere {
    dispatcher: Arc<Dispatcher>,
    stored: ResumableRun,
}

impl RunHost for StoredHere {
    fn carry_out(
        self: Arc<Self>,
        start: RunStart,
        receiver: OutcomeReceiver,
    ) -> BoxFuture<'static, ()> {
        let dispatcher = Arc::clone(&self.dispatcher);
        let work = move || {
            let RunStart::Approved(approved) = start else {
                return;
            };
            let ResumableRun {
                agent,
                session_key,
                is_patch,
                ..
            } = &self.stored;
            let conversation = (agent.as_str(), session_key.as_str());
            if *is_patch {
                patch::resume(&self.dispatcher, conversation, approved, receiver);
            } else {
                local_run::resume(&self.dispatcher, conversation, approved, receiver);
            }
        };
        Box::pin(async move {
            let _ = waiting(&dispatcher, work).await;
        })
    }

    fn location(&self) -> RunLocation {
        RunLocation {
            cwd: None,
            node: None,
            is_sandboxed: false,
        }
    }
}
