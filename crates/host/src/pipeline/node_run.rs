//! Runs that a gateway forwards to this host. This host's policy judges them like any other run.
//! Where the policy wants an approval, the gateway's approval counts: only for a plan that this
//! host made and issued, if all of the plan still holds, and once for each run id.

use interlock_approvals::clock::now;
use interlock_approvals::{
    ApprovalView, Claim, MESSAGE_BYTES, NewApproval, RunManner, add_manifest_names, add_scripts,
    build_view, check_bound, check_remembered, forwarded_run_id, pinned_scripts, process_name,
    usual_session_key, verdict_reasons,
};
use interlock_checks::{preflight, refusal};
use interlock_command::display::Secrets;
use interlock_plan::{PinnedDirectory, PlanProgram, RunPlan, WorkspaceAccess};
use interlock_policy::{Ask, Entry, Outcome, Proof, Transport, Verdict};
use interlock_store::{
    ApprovalDecision, ClaimState, Claiming, ForwardedClaim, IssuedPlan, RecordedOutcome,
    RecordedStatus, StoreError,
};
use interlock_supervisor::SupervisorClient;

use super::approved_run::{check_pins, is_same_sandbox};
use super::run_records::{RunTicket, open_run, record_closed, record_verdict};
use crate::exec::{ExecError, ExecRequest, JudgedRequest, Running, is_open};
use crate::local::{HostError, LocalHost};
use crate::permission::Permission;
use crate::prepare::{PreparedRun, prepare, turn_pagers_off};

/// Stands for the id of the approval, which only the gateway knows.
const GATEWAY: &str = "gateway";

/// Replaces the plan digest of a canceled run, which never had a plan.
const CANCELLED: &str = "cancelled";

/// The gateway's data for a run besides the command.
#[derive(Debug, Clone, Copy)]
pub struct ForwardedRun<'a> {
    /// The gateway chooses this id. It is never executed twice.
    pub run_id: &'a str,
    /// `None` means no limit.
    pub timeout_ms: Option<u64>,
    pub plan: CarriedPlan<'a>,
    /// The approver's decision according to the gateway; `None` if no approver decided.
    pub approved: Option<ApprovalDecision>,
    /// The owner of the background session, if the gateway handles the session later; see
    /// `interlock_sessions::owner_digest`.
    pub owner: Option<&'a str>,
    /// How long the operator of this host may take to decide about a run without an approval.
    /// `None`: the gateway asks its own approvers.
    pub operator_patience: Option<std::time::Duration>,
}

impl ForwardedRun<'_> {
    /// Whether an approver allowed the run, according to the gateway.
    fn is_approved(&self) -> bool {
        self.approved.is_some_and(ApprovalDecision::allows)
    }
}

/// The plan that a forwarded run carries. A run that carries a plan, or claims to be approved, must
/// match a plan that this host issued, under every policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarriedPlan<'a> {
    /// Neither a plan nor an approval: only the policy decides.
    None,
    /// The gateway claims an approval and names no plan, or names something that is no plan of a
    /// node.
    Missing,
    /// The digest under which the plan was issued. It covers every field of the plan.
    Digest(&'a str),
}

/// Why a forwarded run was not started.
#[derive(Debug, thiserror::Error)]
pub enum ForwardedRunError {
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error("approval required: {0}")]
    ApprovalRequired(String),
    #[error("the run carries no plan that this host handed out")]
    PlanUnknown,
    #[error("changed since the plan was made: {what}")]
    Drift { part: DriftedPart, what: String },
    #[error("run id was used already; it is not run again")]
    Used,
}

/// The part of a plan that no longer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftedPart {
    Cwd,
    /// A file whose content is bound.
    Script,
    /// The program that is started, or how it is started.
    Program,
}

impl From<HostError> for ForwardedRunError {
    fn from(error: HostError) -> Self {
        Self::Exec(error.into())
    }
}

impl From<StoreError> for ForwardedRunError {
    fn from(error: StoreError) -> Self {
        HostError::from(error).into()
    }
}

impl ForwardedRunError {
    /// A stable code for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::Exec(error) => error.code(),
            Self::ApprovalRequired(_) => "APPROVAL_REQUIRED",
            Self::PlanUnknown => "APPROVAL_REQUEST_MISMATCH",
            Self::Drift { .. } => "APPROVAL_DRIFT",
            Self::Used => "APPROVAL_USED",
        }
    }
}

/// What an approver should know about a plan besides its words.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApproverNotes {
    ask: Ask,
    binding: &'static str,
    binding_reason: String,
    cwd: String,
    reasons: Vec<String>,
    /// The entries that *always* would store on this host.
    always: Vec<Entry>,
    no_always: Option<String>,
    /// The approver's view of the plan itself. The gateway masks the secrets in it.
    view: ApprovalView,
}

/// A plan for a gateway, which shows the plan and sends it back.
#[derive(Debug)]
pub struct PreparedPlan {
    plan: RunPlan,
    is_bound: bool,
    is_allowed_by_allowlist: bool,
    notes: ApproverNotes,
}

impl PreparedPlan {
    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    /// Whether an approval can bind the plan to its files.
    pub fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// Whether the allowlist of this host allows the plan at present, so that no approver is
    /// needed.
    pub fn is_allowed_by_allowlist(&self) -> bool {
        self.is_allowed_by_allowlist
    }

    /// Notes for the approver.
    pub fn notes(&self) -> &ApproverNotes {
        &self.notes
    }
}

impl ApproverNotes {
    /// The entries that *always* would store; empty if it would store nothing.
    pub fn always(&self) -> &[Entry] {
        &self.always
    }
}

impl LocalHost {
    /// Makes the plan of a request and pins everything that an approval would bind. A command that
    /// the policy denies gets no plan, even if an approver would allow it: no approver is asked in
    /// vain. A command that cannot be bound gets a plan only if the policy allows it without an
    /// approval.
    pub fn prepare_forwarded(&self, request: &ExecRequest<'_>) -> Result<PreparedPlan, ExecError> {
        let judged = self.judge_forwarded(request)?;
        // An approver should not have to decide about a command that cannot work.
        let analysis = &judged.evaluation.analysis;
        if let Some(refusal) = refusal(analysis) {
            return Err(refusal.into());
        }
        if judged.evaluation.verdict.outcome == Outcome::Deny {
            let verdict = judged.evaluation.verdict;
            return Err(ExecError::Denied(Box::new(verdict)));
        }
        if !is_open(&judged.levels)
            && let Some(mistake) = preflight(analysis)
        {
            return Err(mistake.into());
        }
        let asked = self.judge(&asking(request))?;
        let verdict = &asked.evaluation.verdict;
        let is_bound = match check_bound(&verdict.binding, asked.scope.exec()) {
            Ok(()) => true,
            Err(_) if judged.evaluation.verdict.outcome.is_allow() => false,
            Err(refusal) => return Err(refusal.into()),
        };
        let plan = asked.pinned(request, verdict.transport)?;
        let approval = NewApproval {
            plan: &plan,
            verdict: &judged.evaluation.verdict,
            ask: judged.levels.ask.value(),
            session_key: &session_key(request),
            requester: request.requester,
            resume: None,
            manner: RunManner::default(),
            scripts: Vec::new(),
        };
        let binding = &verdict.binding;
        let notes = ApproverNotes {
            ask: approval.ask,
            binding: binding.kind.as_str(),
            binding_reason: binding.reason.clone(),
            cwd: plan.cwd.canonical.clone(),
            reasons: verdict_reasons(approval.verdict),
            always: approval.always_entries(),
            no_always: approval.no_always(),
            view: plan_view(&plan, verdict),
        };
        let own = &judged.evaluation.verdict;
        Ok(PreparedPlan {
            plan,
            is_bound,
            is_allowed_by_allowlist: own.outcome.is_allow() && own.by_allowlist,
            notes,
        })
    }

    /// Runs a forwarded command. Either the policy of this host allows it, or the policy asks and
    /// the gateway's approval is for a plan of this host. Nothing that a gateway says overrules a
    /// deny.
    pub fn exec_forwarded(
        &self,
        request: &ExecRequest<'_>,
        forwarded: &ForwardedRun<'_>,
        supervisor: &SupervisorClient,
    ) -> Result<Running, ForwardedRunError> {
        let agent = request.agent.as_str();
        let judged = match self.judge_forwarded(request) {
            Err(ExecError::Tool(refusal)) => {
                self.store()
                    .change(|change| record_closed(change, request))?;
                return Err(ExecError::from(refusal).into());
            }
            judged => judged?,
        };
        let verdict = &judged.evaluation.verdict;
        let permitted = self.permitted(request, &judged, forwarded);
        let (mut plan, proof) = match permitted {
            Ok(permitted) => permitted,
            Err(ForwardedRunError::ApprovalRequired(_))
                if self.may_ask_operator(judged.levels.ask.value(), forwarded) =>
            {
                return self.exec_by_operator(request, forwarded, supervisor);
            }
            Err(error) => {
                self.store().change(|change| {
                    // An approved run gets no second try at the same check. Other runs must not
                    // delete the plan that an approval is bound to.
                    if let (ForwardedRunError::Drift { .. }, CarriedPlan::Digest(digest)) =
                        (&error, forwarded.plan)
                        && forwarded.is_approved()
                    {
                        change.forget_issued_plan(digest)?;
                    }
                    let code = Some(error.code());
                    record_verdict(change, request, verdict, code, judged.confinement())
                })?;
                return Err(error);
            }
        };
        // The sandbox of this host may have a limit of its own.
        plan.timeout_ms = match (&plan.sandbox, plan.timeout_ms, forwarded.timeout_ms) {
            (Some(_), Some(own), Some(asked)) => Some(own.min(asked)),
            (Some(_), own, asked) => own.or(asked),
            (None, _, asked) => asked,
        };
        let (plan, allowed) = PreparedRun::forwarded(plan, proof).into_parts();
        let mut manner = judged.manner(request)?;
        manner.owner = forwarded.owner.map(str::to_owned);
        let session_key = session_key(request);
        let ticket = RunTicket {
            run_id: forwarded_run_id(forwarded.run_id),
            agent: plan.agent_id.clone(),
            is_claimed: true,
        };
        let claim = self.store().change(|change| {
            record_verdict(change, request, verdict, None, judged.confinement())?;
            let run = (ticket.run_id.as_str(), agent, session_key.as_str());
            let claim = Claim::of_forwarded(change, run, &plan)?;
            if claim.is_ok() {
                open_run(change, &ticket, Some(GATEWAY), &plan, &session_key)?;
            }
            Ok::<_, StoreError>(claim)
        })?;
        let Ok(claim) = claim else {
            return Err(ForwardedRunError::Used);
        };
        let permission = match allowed {
            Some(allowed) => Permission::Verdict(allowed),
            None => {
                if forwarded.approved == Some(ApprovalDecision::AllowAlways) {
                    self.remember(request, &judged, &plan)?;
                }
                Permission::Claim(claim)
            }
        };
        Ok(self.order(plan, permission, manner, ticket, (supervisor, None))?)
    }

    /// Judges the request together with the gateway's policy layer, which can only make the verdict
    /// stricter: where this host refuses a miss without asking, no gateway turns that into an
    /// approval.
    fn judge_forwarded<'a>(
        &'a self,
        request: &ExecRequest<'a>,
    ) -> Result<JudgedRequest<'a>, ExecError> {
        let judged = self.judge(request)?;
        let sandbox = judged.sandbox.as_ref();
        if sandbox.is_some_and(|sandbox| sandbox.plan.workspace_access == WorkspaceAccess::Cow) {
            let why = "the changes of runs that a gateway forwards are not committed in this version: workspaceAccess \"cow\" is for runs of this machine";
            return Err(HostError::SandboxUnavailable(why.to_owned()).into());
        }
        let has_ask = request.gateway.is_some_and(|layer| layer.ask.is_some());
        if has_ask && judged.evaluation.verdict.outcome == Outcome::Ask {
            let own = self.judge(&ExecRequest {
                gateway: None,
                ..same(request)
            })?;
            if own.evaluation.verdict.outcome == Outcome::Deny {
                return Ok(own);
            }
        }
        Ok(judged)
    }

    /// The plan that may run, with the verdict's proof. Without a proof, the gateway's approval
    /// permits the plan.
    fn permitted(
        &self,
        request: &ExecRequest<'_>,
        judged: &JudgedRequest<'_>,
        forwarded: &ForwardedRun<'_>,
    ) -> Result<(RunPlan, Option<Proof>), ForwardedRunError> {
        let fresh = match judged.plan(request) {
            Err(error @ ExecError::Denied(_)) => return Err(error.into()),
            fresh => fresh,
        };
        // The plan is looked up before its files are read, because the caller chooses the paths of
        // an unknown plan.
        let stored = match forwarded.plan {
            CarriedPlan::None => None,
            CarriedPlan::Missing => return Err(ForwardedRunError::PlanUnknown),
            CarriedPlan::Digest(digest) => {
                let stored = self.issued_plan(digest, forwarded.is_approved())?;
                Some(stored.ok_or(ForwardedRunError::PlanUnknown)?)
            }
        };
        let mut plan = match &stored {
            // Drift is reported first: a later change may be the reason why there is no fresh plan.
            Some(stored) => {
                let mut unchanged = self.unchanged(request, judged, stored)?;
                let fresh = fresh?.into_plan();
                // A stored plan was pinned as one that needs an approval. Where an entry allows it,
                // the paths by which the entry was judged are pinned too.
                let is_direct = |plan: &RunPlan| matches!(plan.program, PlanProgram::Direct { .. });
                let by_entry = judged.evaluation.verdict.by_allowlist;
                if by_entry && is_direct(&unchanged) && is_direct(&fresh) {
                    unchanged.program = fresh.program;
                }
                unchanged
            }
            None => fresh?.into_plan(),
        };
        if let Outcome::Allow(proof) = judged.evaluation.verdict.outcome {
            if judged.evaluation.verdict.by_allowlist {
                turn_pagers_off(&mut plan);
            }
            return Ok((plan, Some(proof)));
        }
        match (forwarded.is_approved(), stored) {
            (true, Some(_)) => Ok((plan, None)),
            _ => {
                let reason = &judged.evaluation.verdict.reason;
                Err(ForwardedRunError::ApprovalRequired(reason.message.clone()))
            }
        }
    }

    /// The plan that was issued under this digest. An approval belongs to the first one: preparing
    /// the same words again must not change what an approver was shown. A run that the policy
    /// allows without an approval is held to the newest one, so that a rebuilt program runs.
    fn issued_plan(
        &self,
        digest: &str,
        is_approved: bool,
    ) -> Result<Option<RunPlan>, ForwardedRunError> {
        let which = if is_approved {
            IssuedPlan::First
        } else {
            IssuedPlan::Newest
        };
        let stored = self.store().issued_plan(digest, which, now())?;
        // A plan that cannot be read was written by another version and must be prepared again.
        Ok(stored.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Makes the plan of the request anew, and returns it if it equals the issued plan: the same
    /// program files, the same directory, the same content of bound files.
    fn unchanged(
        &self,
        request: &ExecRequest<'_>,
        judged: &JudgedRequest<'_>,
        stored: &RunPlan,
    ) -> Result<RunPlan, ForwardedRunError> {
        let drift = |part, what: String| ForwardedRunError::Drift { part, what };
        let path = &judged.path;
        if let Err(found) = stored.cwd.check() {
            return Err(drift(DriftedPart::Cwd, found.to_string()));
        }
        if let Err(found) = stored.binding.check(path) {
            return Err(drift(DriftedPart::Script, found.to_string()));
        }
        if let Err(found) = check_pins(stored, path) {
            return Err(drift(DriftedPart::Program, found.to_string()));
        }
        if !is_same_sandbox(stored, judged.sandbox.as_ref()) {
            let why = match &stored.sandbox {
                Some(_) => "the plan is for a sandbox that this host does not have any more",
                None => "the run would be in a sandbox by now",
            };
            return Err(HostError::SandboxUnavailable(why.to_owned()).into());
        }
        let transport = match stored.program {
            PlanProgram::Direct { .. } => Transport::Direct,
            PlanProgram::Shell { .. } | PlanProgram::Inside { .. } => Transport::Shell,
        };
        let asked = self.judge(&asking(request))?;
        let fresh = asked.pinned(request, transport)?;
        let same_words = (&fresh.agent_id, &fresh.session_key, &fresh.command)
            == (&stored.agent_id, &stored.session_key, &stored.command);
        if !same_words {
            return Err(ForwardedRunError::PlanUnknown);
        }
        let place = |cwd: &PinnedDirectory| (cwd.canonical.clone(), cwd.device, cwd.inode);
        if place(&fresh.cwd) != place(&stored.cwd) {
            return Err(drift(
                DriftedPart::Cwd,
                "the working directory is another".to_owned(),
            ));
        }
        if fresh.binding != stored.binding {
            let what = "the files that it reads are others".to_owned();
            return Err(drift(DriftedPart::Script, what));
        }
        if fresh.program != stored.program {
            let what = "a name leads to another program".to_owned();
            return Err(drift(DriftedPart::Program, what));
        }
        Ok(fresh)
    }

    /// Stores the entries that *always* stands for, if there are any.
    fn remember(
        &self,
        request: &ExecRequest<'_>,
        judged: &JudgedRequest<'_>,
        plan: &RunPlan,
    ) -> Result<(), HostError> {
        let session_key = session_key(request);
        let approval = NewApproval {
            plan,
            verdict: &judged.evaluation.verdict,
            ask: judged.levels.ask.value(),
            session_key: &session_key,
            requester: request.requester,
            resume: None,
            manner: RunManner::default(),
            scripts: Vec::new(),
        };
        let agent = request.agent.as_str();
        for entry in approval.always_entries() {
            let (document, _) = self.document()?;
            let own = document.agents.get(agent);
            let own = own.map_or(&[][..], |scope| &scope.allowlist);
            if let Err(error) = check_remembered(agent, own) {
                tracing::warn!(%error, "what was always allowed is not stored");
                return Ok(());
            }
            self.rules().add_entry(agent, &entry)?;
        }
        Ok(())
    }
}

impl JudgedRequest<'_> {
    /// The plan as an approval would bind it.
    fn pinned(
        &self,
        request: &ExecRequest<'_>,
        transport: Transport,
    ) -> Result<RunPlan, ExecError> {
        let verdict = Verdict {
            outcome: Outcome::Ask,
            transport,
            ..self.evaluation.verdict.clone()
        };
        let settings = self.shielded_settings(request)?;
        Ok(prepare(&self.evaluation.analysis, &verdict, &settings)?)
    }
}

impl LocalHost {
    /// Stores a plan for a gateway, bound or not, under the digest by which the plan is recognized.
    pub fn issue_plan(&self, digest: &str, prepared: &PreparedPlan) -> Result<(), HostError> {
        let plan = serde_json::to_string(&prepared.plan).unwrap_or_default();
        let store = self.store();
        Ok(store.change(|change| change.issue_plan(digest, &plan, now()))?)
    }
}

/// The state of a forwarded run that has no session.
#[derive(Debug, Clone, PartialEq)]
pub enum NoSession {
    /// The run was not started, and never will be.
    Never,
    /// The run is about to get a session.
    Starting,
    /// The run is over and its session was deleted. Holds the outcome, if it is known.
    Over(Option<Box<RecordedOutcome>>),
}

impl LocalHost {
    /// Uses up the id of a forwarded run without a session, so that a start request that is still
    /// under way cannot start the run later.
    pub fn forbid_forwarded(&self, run_id: &str) -> Result<NoSession, HostError> {
        let id = forwarded_run_id(run_id);
        let agent = interlock_policy::AgentId::MAIN;
        Ok(self.store().change(|change| {
            let claiming = change.claim_forwarded(&ForwardedClaim {
                id: &id,
                digest: CANCELLED,
                agent,
                session_key: &usual_session_key(agent),
                claimer: process_name(),
                now_ms: now(),
            })?;
            Ok::<_, StoreError>(match claiming {
                Claiming::Claimed => {
                    let outcome =
                        RecordedOutcome::new(RecordedStatus::NotStarted).with_code(CANCELLED);
                    change.finish_claim(&id, &outcome, now())?;
                    NoSession::Never
                }
                Claiming::AlreadyClaimed { state, .. } => match state {
                    ClaimState::Unfinished => NoSession::Starting,
                    ClaimState::Finished { outcome, .. } => NoSession::Over(Some(outcome)),
                    ClaimState::Unknown { .. } => NoSession::Over(None),
                },
                Claiming::NotAllowed(_) => NoSession::Over(None),
            })
        })?)
    }
}

/// This host's view of a plan, for the host that shows it.
fn plan_view(plan: &RunPlan, verdict: &Verdict) -> ApprovalView {
    let mut view = build_view(plan, &RunManner::default(), Secrets::Revealed);
    add_manifest_names(&mut view, verdict);
    add_scripts(&mut view, plan, &pinned_scripts(plan));
    view.bounded(MESSAGE_BYTES)
}

/// The same request with `ask: always`, so that everything is examined that an approval binds.
fn asking<'a>(request: &ExecRequest<'a>) -> ExecRequest<'a> {
    ExecRequest {
        ask: Some(Ask::Always),
        ..same(request)
    }
}

pub(super) fn same<'a>(request: &ExecRequest<'a>) -> ExecRequest<'a> {
    ExecRequest {
        source: request.source.clone(),
        cwd: request.cwd.clone(),
        env: request.env.clone(),
        config: request.config.clone(),
        place: request.place.clone(),
        ..*request
    }
}

pub(super) fn session_key(request: &ExecRequest<'_>) -> String {
    match request.session_key {
        Some(key) if !key.is_empty() => key.to_owned(),
        _ => format!("agent:{}:main", request.agent),
    }
}
