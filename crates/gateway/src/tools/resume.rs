//! Questions about runs on this host that an earlier process of this gateway asked: what is allowed by
//! now, or later, runs as if that one still lived.

use std::sync::Arc;

use interlock_host::ResumableRun;
use tokio::sync::oneshot;

use super::exec::{not_run, wait};
use super::patch::not_applied;
use super::{blocking, waiting};
use crate::approvals::HeldApproval;
use crate::gateway::Gateway;

/// Questions that are gone on with.
const MOST: usize = 4096;

/// Goes on with what an earlier process asked. Returns when all of it is waited for.
pub(crate) async fn resume(gateway: Arc<Gateway>) {
    let reader = Arc::clone(&gateway);
    let began = i64::try_from(gateway.started_at_ms).unwrap_or(i64::MAX);
    let left = blocking(move || reader.host.runs_to_resume(began, MOST)).await;
    match left {
        Ok(Ok(left)) => {
            for one in left {
                tokio::spawn(go_on(Arc::clone(&gateway), one));
            }
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "earlier questions about runs cannot be looked up");
        }
        Err(_) => {}
    }
}

async fn go_on(gateway: Arc<Gateway>, left: ResumableRun) {
    let held = gateway.approvals.hold(&left.id);
    let decided = gateway.approvals.wait_for(&left.id);
    let (reader, id) = (Arc::clone(&gateway), left.id.clone());
    // The decision may have been taken while there was no gateway.
    let ended = blocking(move || reader.host.approvals().ended(&id)).await;
    if matches!(ended, Ok(Ok(None))) {
        tokio::select! {
            _ = decided => {}
            () = gateway.stop.cancelled() => return,
        }
    }
    let own = Arc::clone(&gateway);
    let _ = waiting(&own, move || run(&gateway, &left, held)).await;
}

/// Runs it if that is allowed. No caller waits for it: its session gets an event at the end; of a
/// denial it has got one already.
fn run(gateway: &Gateway, left: &ResumableRun, held: HeldApproval) {
    let approvals = gateway.host.approvals();
    if matches!(approvals.ended(&left.id), Ok(Some(ended)) if !ended.ending.allows()) {
        return;
    }
    if left.is_patch {
        let applied = gateway.host.resume_patch(&left.id);
        drop(held);
        if let Err(error) = applied {
            let whose = (left.agent.as_str(), left.session_key.as_str());
            not_applied(gateway, whose, &left.id, &error);
        }
        gateway.events.look_now();
        return;
    }
    let begun = gateway
        .host
        .resume_run(&left.id, &gateway.environment, &gateway.supervisor);
    drop(held);
    match begun {
        Ok(running) => {
            let (no_caller, _) = oneshot::channel();
            let cwd = running.conversation.started().session.cwd.clone();
            wait(gateway, running, &cwd, no_caller);
        }
        Err(error) => not_run(gateway, (&left.agent, &left.session_key), &left.id, &error),
    }
}
