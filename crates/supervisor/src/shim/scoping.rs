//! Asks the supervisor, which has the keeper of the scope, for what a sandboxed run shares with the
//! other runs of its scope.

use std::os::unix::net::UnixStream;

use interlock_engine::sandbox::{KeeperOrder, ScopeNamespaces};
use interlock_plan::{RunPlan, SandboxBackend, SandboxPlan};

use super::Birth;
use crate::frame;
use crate::handover::{self, Note};
use crate::message::{ShimReport, SupervisorRefusal};

/// Whether it is already decided that the run may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScopeAsker {
    /// It is not. The run gets what exists, and nothing is made for it.
    Announced,
    Authorized,
}

/// Returns what the run of a plan shares with others: `None` for a run without a sandbox, and
/// before the authorization also if the scope does not exist yet. If the plan requires a scope that
/// is not available, the run is refused.
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
            // The connection comes too late for the last run.
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

/// Whether the scope has a keeper. Runs without namespaces share only directories.
pub(super) fn has_keeper(sandbox: &SandboxPlan) -> bool {
    sandbox.backend != SandboxBackend::Landlock
}
