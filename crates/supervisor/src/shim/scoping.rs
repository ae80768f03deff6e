//! What a sandboxed run shares with the other runs of its scope: asked of the supervisor, which has the
//! keeper of the scope.

use std::os::unix::net::UnixStream;

use interlock_engine::sandbox::{KeeperOrder, ScopeNamespaces};
use interlock_plan::{RunPlan, SandboxBackend, SandboxPlan};

use super::Birth;
use crate::frame;
use crate::handover::{self, Note};
use crate::message::{ShimReport, SupervisorRefusal};

/// Whether the run may start is decided already, or not yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScopeAsker {
    /// It gets what is there, and nothing is made for it.
    Announced,
    Authorized,
}

/// What the run of a plan shares with others: `None` for one without a sandbox, and before the authorization
/// also where it is not there yet. A scope that the plan says and that is not to be had is a refusal.
pub(super) fn join_scope(
    birth: &Birth,
    plan: &RunPlan,
    asker: ScopeAsker,
) -> Result<Option<ScopeNamespaces>, SupervisorRefusal> {
    let Some(sandbox) = plan.sandbox.as_ref().filter(|own| has_keeper(own)) else {
        return Ok(None);
    };
    let failed = |why: &str| {
        let message = format!("the sandbox of the run cannot be set up: {why}");
        SupervisorRefusal::new("SANDBOX_UNAVAILABLE", message)
    };
    let order = Box::new(KeeperOrder::of(sandbox));
    let report = ShimReport::Scope {
        order,
        is_authorized: asker == ScopeAsker::Authorized,
    };
    handover::send_report(&birth.control, &report).map_err(|error| failed(&error.to_string()))?;
    loop {
        match handover::receive_note(&birth.control) {
            Ok(Some(Note::Scope(descriptors))) => {
                let scope = ScopeNamespaces::from_descriptors(descriptors);
                return scope.map(Some).map_err(|error| failed(&error.to_string()));
            }
            Ok(Some(Note::ScopeAbsent)) => return Ok(None),
            Ok(Some(Note::ScopeFailed(why))) => return Err(failed(&why)),
            Ok(Some(Note::ScopeGone)) => return Err(failed("the keeper of its scope has ended")),
            // It comes too late for the last run.
            Ok(Some(Note::Connection(connection))) => {
                let gone =
                    SupervisorRefusal::new("SESSION_NOT_RUNNING", "the session has just ended");
                let _ = frame::send(&UnixStream::from(connection), &Err::<(), _>(gone));
            }
            Ok(Some(
                Note::Quota(_) | Note::Start(_) | Note::Shield(..) | Note::ShieldFailed(_),
            )) => {}
            Ok(Some(Note::Drain) | None) | Err(_) => {
                let message = "this supervisor takes no further runs";
                return Err(SupervisorRefusal::new("DRAINING", message));
            }
        }
    }
}

/// Runs without namespaces share directories alone.
pub(super) fn has_keeper(sandbox: &SandboxPlan) -> bool {
    sandbox.backend != SandboxBackend::Landlock
}
