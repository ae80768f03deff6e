//! Runs that this host makes by itself once they are allowed, also when the process that asked is gone.

use std::collections::BTreeMap;

use interlock_command::Source;
use interlock_policy::{AgentId, Ask};
use interlock_store::Approval;
use interlock_supervisor::SupervisorClient;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::error::DeskError;
use super::patch::PATCH;
use super::{Desk, now};
use crate::caller_context::CallerContext;
use crate::exec::{ExecError, ExecRequest, Running, Yield};
use crate::local::HostError;

/// The property of a stored verdict that holds what the plan does not say of the request. No
/// surface shows it.
const LATER: &str = "runsLater";

/// More is not stored; then it runs when it is asked for again.
const MOST_BYTES: usize = 64 * 1024;

/// An allowed plan runs until so long after the time for a decision was over. No caller expects a
/// command to start after that.
const LATE_MS: i64 = 60_000;

/// Whether an allowed plan without a waiting caller does not run any more: a decision may have come
/// at the last moment, but not much later.
pub fn is_too_late(expires_at_ms: i64) -> bool {
    now() >= expires_at_ms.saturating_add(LATE_MS)
}

/// What is judged anew besides the plan.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct LaterFacts {
    env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ask: Option<Ask>,
    /// Where the calling program found its programs, and worked.
    #[serde(default)]
    caller: CallerContext,
}

/// A question of an earlier process whose run is left to this one.
#[derive(Debug, Clone)]
pub struct LeftRun {
    pub id: String,
    pub agent: String,
    pub session_key: String,
    pub is_patch: bool,
}

impl LaterFacts {
    pub(crate) fn of(request: &ExecRequest<'_>) -> Self {
        Self {
            env: request.env.clone(),
            ask: request.ask,
            caller: request.caller.clone(),
        }
    }

    /// Puts it into the verdict that is stored.
    pub(super) fn write(&self, verdict: &mut Value) {
        let bytes: usize = self
            .env
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        if bytes <= MOST_BYTES {
            verdict[LATER] = json!(self);
        }
    }

    fn read(approval: &Approval) -> Option<Self> {
        Self::deserialize(approval.request.verdict.get(LATER)?).ok()
    }
}

impl Desk<'_> {
    /// The questions that were asked before this time, whose runs are left to this host: undecided, or
    /// allowed and never run. The oldest first; at most so many.
    pub fn left_to_run(self, asked_before_ms: i64, most: usize) -> Result<Vec<LeftRun>, HostError> {
        let store = self.host.store();
        let mut left = Vec::new();
        for id in store.unclaimed_here(super::HOST, asked_before_ms, most)? {
            // What cannot be read is no reason to leave out the others.
            let Ok(approval) = store.approval(&id) else {
                continue;
            };
            if LaterFacts::read(&approval).is_some() {
                left.push(LeftRun {
                    id,
                    is_patch: approval.request.binding == PATCH,
                    agent: approval.request.agent,
                    session_key: approval.request.session_key,
                });
            }
        }
        Ok(left)
    }

    /// Runs an allowed plan whose caller is gone: the stored plan, as [`Self::run_approved`] does.
    pub fn run_left(
        self,
        id: &str,
        base_env: &BTreeMap<String, String>,
        supervisor: &SupervisorClient,
    ) -> Result<Running, ExecError> {
        let (approval, plan) = self.stored(id, supervisor)?;
        let damaged = |problem: &str| DeskError::Damaged {
            short_id: approval.short_id.clone(),
            problem: problem.to_owned(),
        };
        let later =
            LaterFacts::read(&approval).ok_or_else(|| damaged("it is not left to this host"))?;
        let agent = AgentId::new(&plan.agent_id).map_err(|_| damaged("its agent has no name"))?;
        if is_too_late(approval.request.expires_at_ms) {
            let what =
                "it was allowed, and Interlock was not running in time to start it".to_owned();
            return Err(self.give_up(&approval, DeskError::Drift { what }));
        }
        let exec = self.host.config()?.config().exec_for(agent.as_str());
        let session_key = plan.session_key.clone();
        let request = ExecRequest {
            agent: &agent,
            caller: &later.caller,
            source: Source::Text(plan.command.clone()),
            cwd: plan.cwd.requested.clone(),
            env: later.env,
            ask: later.ask,
            gateway: None,
            timeout_seconds: None,
            base_env,
            session_key: session_key.as_deref(),
            pty: plan.pty,
            stdin: plan.stdin,
            yields: Yield::After(exec.background_after()),
            show_chars: None,
            requester: &approval.request.requester,
            runs_later: true,
        };
        let announced = supervisor.announce(&plan);
        self.run_stored(&approval, plan, &request, (supervisor, announced))
    }
}
