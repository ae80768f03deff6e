//! `exec` on this host: judge, pin, ask, authorize, start. The security argument rests on this
//! path.
//!
//! Read this module (the path), with `request` (the caller's request), `judged` (verdict and plan),
//! `ask` (what an approver has to allow) and `order` (the only place that starts a
//! plan).

mod ask;
mod error;
mod judged;
mod key;
mod request;

use interlock_approvals::PendingApproval;
use interlock_local::RouteRefusal;
use interlock_plan::{Elevation, RunPlan};
use interlock_policy::Verdict;
use interlock_store::Change;
use interlock_supervisor::{Announced, ClientError, Manner, RunConversation, SupervisorClient};

use crate::local::{HostError, LocalHost};
use crate::permission::Permission;
use crate::pipeline::{RunTicket, record_closed, record_verdict, started_record};
use crate::retry::{RanInside, RetryRefusal};
use ask::Earlier;

pub use error::ExecError;
pub(crate) use judged::{JudgedRequest, is_open, judge_in};
pub use request::{ExecRequest, RequestedPlace, Yield};

/// The outcome of a request that was not refused.
#[derive(Debug)]
pub enum Exec {
    Started(Box<Running>),
    /// An approver has to decide first. Nothing was started.
    Pending(Box<Pending>),
}

/// A run that was started.
#[derive(Debug)]
pub struct Running {
    pub conversation: RunConversation,
    /// The caller that waits for the end of the run records it with this ticket:
    /// [`LocalHost::record_end`].
    pub ticket: RunTicket,
    /// How far the run left the sandbox of its conversation.
    pub elevation: Elevation,
    /// Where the run is confined; `None` outside of a sandbox. See [`LocalHost::note_denials`].
    pub inside: Option<Box<RanInside>>,
}

/// An approval that was stored for a run.
#[derive(Debug)]
pub struct Pending {
    pub approval: PendingApproval,
    pub verdict: Verdict,
}

impl Exec {
    pub fn started(self) -> Option<Running> {
        match self {
            Self::Started(running) => Some(*running),
            Self::Pending(_) => None,
        }
    }
}

impl LocalHost {
    /// Runs a command if the policy of this host allows it, and asks an approver where the policy
    /// says so. Otherwise nothing runs. The verdict is in the audit before anything is started.
    pub fn exec(
        &self,
        request: &ExecRequest<'_>,
        supervisor: &SupervisorClient,
    ) -> Result<Exec, ExecError> {
        self.exec_with(request, supervisor, Earlier::Named)
    }

    /// Like [`Self::exec`], for callers that cannot name an approval. An unused approval for the
    /// same request in the same session counts for them, unless another call is about to use it.
    pub fn exec_again(
        &self,
        request: &ExecRequest<'_>,
        supervisor: &SupervisorClient,
        is_free: &dyn Fn(&str) -> bool,
    ) -> Result<Exec, ExecError> {
        self.exec_with(request, supervisor, Earlier::Found(is_free))
    }

    fn exec_with(
        &self,
        request: &ExecRequest<'_>,
        supervisor: &SupervisorClient,
        earlier: Earlier<'_>,
    ) -> Result<Exec, ExecError> {
        // A run must see what earlier runs changed, even those that just ended in the background.
        self.effects().settle_layers()?;
        let judged = self.judge_recorded(request)?;
        let verdict = &judged.evaluation.verdict;
        let record = |change: &Change<'_>, refused: Option<&str>| {
            record_verdict(change, request, verdict, refused, judged.confinement())
        };
        let prepared = match judged.plan(request) {
            Ok(prepared) => prepared,
            Err(error) => {
                let code = error.code();
                let recorded = self.store().change(|change| record(change, Some(code)));
                recorded.map_err(HostError::from)?;
                return Err(error);
            }
        };
        let manner = judged.manner(request)?;
        let (plan, allowed) = prepared.into_parts();
        let Some(allowed) = allowed else {
            let record = |change: &Change<'_>| record(change, None);
            return self.ask(
                request,
                &judged,
                (plan, manner),
                supervisor,
                earlier,
                record,
            );
        };
        let ticket = RunTicket {
            run_id: uuid::Uuid::new_v4().to_string(),
            agent: plan.agent_id.clone(),
            is_claimed: false,
        };
        // The process that will start the plan opens its files while the record goes to disk.
        let announced = supervisor.announce(&plan);
        let recorded = self.store().change(|change| {
            record(change, None)?;
            started_record(change, &ticket, &plan, &request.session_key())
        });
        recorded.map_err(HostError::from)?;
        let permission = Permission::Verdict(allowed);
        let by = (supervisor, announced);
        let running = self.order(plan, permission, manner, ticket, by)?;
        Ok(Exec::Started(Box::new(running)))
    }

    /// Judges a request, and records in the audit if it was refused.
    fn judge_recorded<'a>(
        &'a self,
        request: &ExecRequest<'a>,
    ) -> Result<JudgedRequest<'a>, ExecError> {
        let judged = match self.judge(request) {
            Err(ExecError::Tool(refusal)) => {
                let recorded = self.store().change(|change| record_closed(change, request));
                recorded.map_err(HostError::from)?;
                return Err(refusal.into());
            }
            Err(ExecError::Route(RouteRefusal::Elevation(refusal))) => {
                let key = request.session_key();
                self.record_kept_inside(request.agent, &request.source, &key)?;
                return Err(RouteRefusal::from(refusal).into());
            }
            judged => judged?,
        };
        let retry = self.retry_of(request)?;
        if retry.is_some() && !judged.elevation.leaves() {
            return Err(RetryRefusal::NotOutside.into());
        }
        let judged = JudgedRequest { retry, ..judged };
        match self.preview_of(request, &judged) {
            Ok(Some(preview)) => Ok(preview),
            Ok(None) => Ok(judged),
            Err(error) => {
                let (verdict, place) = (&judged.evaluation.verdict, judged.confinement());
                let code = Some(error.code());
                let recorded = self
                    .store()
                    .change(|change| record_verdict(change, request, verdict, code, place));
                recorded.map_err(HostError::from)?;
                Err(error)
            }
        }
    }

    /// Authorizes a plan with the permission for it, and starts the plan. The permission is
    /// consumed. No other place starts a plan. A failed start is recorded in the audit.
    pub(crate) fn order(
        &self,
        plan: RunPlan,
        permission: Permission,
        mut manner: Manner,
        ticket: RunTicket,
        (supervisor, announced): (&SupervisorClient, Option<Announced>),
    ) -> Result<Running, ExecError> {
        manner.run_id = Some(ticket.run_id.clone());
        let elevation = plan.elevated;
        let inside = RanInside::of_plan(&plan);
        let key = key::load_or_create(&supervisor.place().run_key())?;
        let authorized = key.authorize(plan, permission).map_err(ClientError::from);
        let started = authorized.and_then(|authorized| match announced {
            Some(announced) => supervisor.start_announced(announced, authorized, &manner),
            None => supervisor.start(authorized, &manner),
        });
        match started {
            Ok(conversation) => Ok(Running {
                conversation,
                ticket,
                elevation,
                inside,
            }),
            Err(error) => {
                self.failed_start(&ticket, &error)?;
                Err(error.into())
            }
        }
    }
}
