//! Asks the supervisor for the namespaces that the next run is started in, and keeps them for
//! further runs. All runs of a process belong to one agent.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use interlock_engine::shield::RunShield;
use interlock_plan::RunPlan;

use super::Birth;
use crate::frame;
use crate::handover::{self, Note};
use crate::message::{ShimReport, SupervisorRefusal};

/// The namespaces of the agent that this process serves.
#[derive(Debug)]
pub(super) struct AgentShield(Arc<RunShield>);

impl AgentShield {
    /// Returns the namespaces for a plan: `None` for a plan without a shield. If the plan requires
    /// a shield that is not available, the run is refused.
    pub fn of(
        known: &mut Option<Self>,
        birth: &Birth,
        plan: &RunPlan,
    ) -> Result<Option<Arc<RunShield>>, SupervisorRefusal> {
        if !plan.shield.is_shielded() {
            return Ok(None);
        }
        if !known.as_ref().is_some_and(|known| known.0.is_alive()) {
            *known = None;
            *known = Some(Self(Arc::new(ask(birth, &plan.agent_id)?)));
        }
        Ok(known.as_ref().map(|known| Arc::clone(&known.0)))
    }
}

fn ask(birth: &Birth, agent: &str) -> Result<RunShield, SupervisorRefusal> {
    let failed = |why: &str| {
        let message = format!(
            "the shield of the run cannot be set up: {why}; the owner can see to that, or set tools.exec.shield to \"off\""
        );
        SupervisorRefusal::new("SHIELD_FAILED", message)
    };
    let agent = agent.to_owned();
    handover::send_report(&birth.control, &ShimReport::Shield { agent })
        .map_err(|error| failed(&error.to_string()))?;
    loop {
        match handover::receive_note(&birth.control) {
            Ok(Some(Note::Shield(descriptors, init))) => {
                let shield = RunShield::from_descriptors(descriptors, init);
                return shield.map_err(|error| failed(&error.to_string()));
            }
            Ok(Some(Note::ShieldFailed(why))) => return Err(failed(&why)),
            // The connection comes too late for the last run.
            Ok(Some(Note::Connection(connection))) => {
                let gone =
                    SupervisorRefusal::new("SESSION_NOT_RUNNING", "the session has just ended");
                let _ = frame::send(&UnixStream::from(connection), &Err::<(), _>(gone));
            }
            Ok(Some(
                Note::Quota(_)
                | Note::Start(_)
                | Note::Scope(_)
                | Note::ScopeFailed(_)
                | Note::ScopeAbsent
                | Note::ScopeGone,
            )) => {}
            Ok(Some(Note::Drain) | None) | Err(_) => {
                let message = "this supervisor takes no further runs";
                return Err(SupervisorRefusal::new("DRAINING", message));
            }
        }
    }
}
