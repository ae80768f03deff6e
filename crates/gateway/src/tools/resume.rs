//! Calls that an earlier process of this gateway asked an approver about: what is allowed by now, or
//! later, is carried out as if that process still lived.

use std::sync::Arc;

use interlock_host::{HostError, ResumableRun};

use super::local_run::StoredLocalRun;
use super::node_run::StoredNodeRun;
use super::patch::StoredPatch;
use super::pipeline::{AwaitedDecision, RunHost, carry_out_when_decided};
use crate::gateway::Gateway;
use crate::work::blocking;

/// Approvals that are resumed at most.
const MAX_RESUMED: usize = 4096;

/// Goes on with everything that an earlier process asked. Returns when all of it is waited for.
pub(crate) async fn resume(gateway: Arc<Gateway>) {
    let reader = Arc::clone(&gateway);
    let stored = match blocking(move || stored_calls(&reader)).await {
        Ok(Ok(stored)) => stored,
        Ok(Err(error)) => {
            tracing::warn!(%error, "approvals of an earlier gateway cannot be read");
            return;
        }
        Err(_) => return,
    };
    for (id, host) in stored {
        let held = gateway.approvals.hold(&id);
        let decision = AwaitedDecision::of(&gateway, &id);
        tokio::spawn(carry_out_when_decided(
            Arc::clone(&gateway),
            host,
            decision,
            held,
        ));
    }
}

/// A call by the id of its approval.
type StoredCall = (String, Arc<dyn RunHost>);

/// The calls whose approvals were asked for before this process began and are not used.
fn stored_calls(gateway: &Arc<Gateway>) -> Result<Vec<StoredCall>, HostError> {
    let began = i64::try_from(gateway.started_at_ms).unwrap_or(i64::MAX);
    let local = gateway.host.runs_to_resume(began, MAX_RESUMED)?;
    let mut calls: Vec<StoredCall> = local
        .into_iter()
        .map(|stored| stored_local(gateway, stored))
        .collect();
    for id in gateway.host.approvals().unclaimed_remote(MAX_RESUMED)? {
        if let Some(run) = StoredNodeRun::read(gateway, &id) {
            calls.push((id, Arc::new(run)));
        }
    }
    Ok(calls)
}

fn stored_local(gateway: &Arc<Gateway>, stored: ResumableRun) -> StoredCall {
    let gateway = Arc::clone(gateway);
    let ResumableRun {
        id,
        agent,
        session_key,
        is_patch,
    } = stored;
    if is_patch {
        let patch = StoredPatch {
            gateway,
            agent,
            session_key,
        };
        return (id, Arc::new(patch));
    }
    let run = StoredLocalRun {
        gateway,
        agent,
        session_key,
    };
    (id, Arc::new(run))
}
