//! From a decision to a run: starts the stored plan and nothing else, once, if nothing it binds has
//! changed.

use interlock_approvals::clock::now;
use interlock_approvals::{
    ApprovalRefusal, Claim, DenialReason, EFFECT_BINDING, NETWORK_BINDING, NewApproval,
    PATCH_BINDING, check_allowed, check_bound, check_claim, process_name, queue_denial,
    stored_plan,
};
use interlock_local::plan_shield;
use interlock_plan::{Drift, PinnedFile, PlanProgram, RunPlan};
use interlock_policy::{Outcome, Transport, Verdict};
use interlock_sandbox::PreparedSandbox;
use interlock_store::{
    Approval, ApprovalEnding, Change, ClaimState, Claiming, GrantKey, RecordedOutcome,
    RecordedStatus, StoreError,
};
use interlock_supervisor::{Announced, SupervisorClient};

use super::run_records::{RunTicket, open_run};
use crate::exec::{ExecError, ExecRequest, JudgedRequest, Running};
use crate::local::LocalHost;
use crate::permission::Permission;
use crate::prepare::{PrepareError, command_text, environment, look_up};
use crate::sandbox::RunPlace;

/// Milliseconds that exceed the clock tick of every file system.
const YOUNG_MS: i64 = 3000;

impl LocalHost {
    /// Runs an approved plan. The caller's request must equal the request of the approval; the
    /// stored plan is what runs. The policy is evaluated anew and everything that the plan pins is
    /// checked again. Drift or a stricter policy ends the approval.
    pub fn run_approved(
        &self,
        reference: &str,
        request: &ExecRequest<'_>,
        supervisor: &SupervisorClient,
    ) -> Result<Running, ExecError> {
        let (approval, plan) = self.stored_run(reference, supervisor)?;
        // The shim already opens and reads the files. This starts nothing.
        let announced = supervisor.announce(&plan);
        if let Some(what) = self.plan_difference(&plan, request)? {
            let short_id = approval.short_id;
            return Err(ApprovalRefusal::Mismatch { short_id, what }.into());
        }
        self.run_stored(&approval, plan, request, (supervisor, announced))
    }

    /// Finds an approval and its stored plan.
    pub(super) fn stored_run(
        &self,
        reference: &str,
        supervisor: &SupervisorClient,
    ) -> Result<(Approval, RunPlan), ExecError> {
        let expired = self.approvals().expire_due();
        expired.map_err(ApprovalRefusal::from)?;
        let read = || {
            let approval = self.store().approval(reference);
            approval.map_err(ApprovalRefusal::from)
        };
        let mut approval = read()?;
        if let Some(claim) = &approval.claim
            && claim.state == ClaimState::Unfinished
        {
            // The process that claimed the approval may have died. Then recovery records its
            // outcome as unknown.
            self.recover(supervisor)?;
            approval = read()?;
        }
        if [PATCH_BINDING, EFFECT_BINDING, NETWORK_BINDING]
            .contains(&approval.request.binding.as_str())
        {
            let (short_id, what) = (approval.short_id, "the tool");
            return Err(ApprovalRefusal::Mismatch { short_id, what }.into());
        }
        let plan = stored_plan(&approval)?;
        Ok((approval, plan))
    }

    /// Runs the plan of an approval, if the approval allows it and nothing has changed. `request`
    /// is judged anew.
    pub(super) fn run_stored(
        &self,
        approval: &Approval,
        plan: RunPlan,
        request: &ExecRequest<'_>,
        by: (&SupervisorClient, Option<Announced>),
    ) -> Result<Running, ExecError> {
        let ending = check_allowed(approval)?;
        let judged = match self.judge(request) {
            Ok(judged) => judged,
            Err(ExecError::Tool(refusal)) => {
                return Err(self.refuse_run(approval, stricter(&refusal.to_string()).into()));
            }
            Err(error) => return Err(error),
        };
        if let Err(error) = judged.check_again(&plan, ending, request) {
            return Err(self.refuse_run(approval, error));
        }
        let manner = judged.manner(request)?;
        let ticket = RunTicket {
            run_id: approval.id.clone(),
            agent: plan.agent_id.clone(),
            is_claimed: true,
        };
        let claim = self.store().change(|change| {
            let Approval { id, request, .. } = approval;
            let claim = Claim::of_approval(change, id, &plan)?;
            if claim.is_ok() {
                open_run(change, &ticket, Some(id), &plan, &request.session_key)?;
            }
            Ok::<_, StoreError>(claim)
        });
        let claim = claim.map_err(ApprovalRefusal::from)?;
        let claim = claim.map_err(|why| why.refuse(&approval.short_id))?;
        let permission = Permission::Claim(claim);
        self.order(plan, permission, manner, ticket, by)
    }

    /// The first part of the request that differs from the plan.
    fn plan_difference(
        &self,
        plan: &RunPlan,
        request: &ExecRequest<'_>,
    ) -> Result<Option<&'static str>, ExecError> {
        let scope = self.scope(request.agent)?;
        let path = scope.path(request.caller);
        let session = self.session(&request.session_key())?;
        let RunPlace { sandbox, elevation } = self.place_of(request, &scope, &session)?;
        let mut settings = request.run_settings(&scope, &path);
        if let Some(sandbox) = &sandbox {
            settings = settings.inside(sandbox, scope.sandbox_timeout(request.timeout_seconds));
        }
        let cwd = sandbox
            .as_ref()
            .map_or(&request.cwd, |sandbox| &sandbox.host_cwd);
        let mut env = environment(&settings)?;
        // The host decides where programs are looked up. The check for drift covers PATH.
        env.insert(
            "PATH".to_owned(),
            plan.env.get("PATH").cloned().unwrap_or_default(),
        );
        let parts = [
            ("the agent", plan.agent_id != request.agent.as_str()),
            (
                "the user",
                plan.account.as_ref() != settings.account.as_ref().map(|own| &own.identity),
            ),
            (
                "the session",
                plan.session_key.as_deref() != request.session_key,
            ),
            ("the command", plan.command != command_text(&request.source)),
            ("the working directory", plan.cwd.requested != *cwd),
            ("the environment", plan.env != env),
            ("the sandbox", !is_same_sandbox(plan, sandbox.as_ref())),
            ("`elevated`", plan.elevated != elevation),
            ("`retryOf`", !is_same_retry(plan, request)),
            ("the terminal", plan.pty != request.pty),
            ("the standard input", plan.stdin != request.stdin),
            (
                "the time limit",
                request.timeout_seconds.is_some() && plan.timeout_ms != settings.timeout_ms,
            ),
        ];
        let different = parts.into_iter().find(|(_, differs)| *differs);
        Ok(different.map(|(what, _)| what))
    }

    /// Ends the approval of a refused run: a caller gets no second try at the same check.
    pub(super) fn refuse_run(&self, approval: &Approval, error: ExecError) -> ExecError {
        match self.consume_refused(approval, error.code(), &error.to_string()) {
            Ok(()) => error,
            Err(other) => other.into(),
        }
    }

    /// Ends the approval of a refused patch, like [`Self::refuse_run`].
    pub(super) fn refuse_patch(
        &self,
        approval: &Approval,
        error: ApprovalRefusal,
    ) -> ApprovalRefusal {
        match self.consume_refused(approval, error.code(), &error.to_string()) {
            Ok(()) => error,
            Err(other) => other,
        }
    }

    /// Claims the single use of an approval whose plan was refused before it began.
    fn consume_refused(
        &self,
        approval: &Approval,
        code: &str,
        message: &str,
    ) -> Result<(), ApprovalRefusal> {
        let outcome = RecordedOutcome::new(RecordedStatus::Refused)
            .with_code(code)
            .with_message(message);
        let notify = self.approvals().notify_settings(&approval.request.agent);
        let consumed = self.store().change(|change| {
            let digest = &approval.request.plan_digest;
            let claiming = change.claim(&approval.id, digest, process_name(), now())?;
            if claiming == Claiming::Claimed {
                change.finish_claim(&approval.id, &outcome, now())?;
                queue_denial(change, approval, DenialReason::of("approval-drift"), notify)?;
            }
            Ok::<_, StoreError>(claiming)
        });
        check_claim(consumed?, &approval.short_id)
    }
}

impl JudgedRequest<'_> {
    /// Checks the plan against the present policy, then everything that it pins.
    fn check_again(
        &self,
        plan: &RunPlan,
        ending: ApprovalEnding,
        request: &ExecRequest<'_>,
    ) -> Result<(), ExecError> {
        let verdict = &self.evaluation.verdict;
        if verdict.outcome == Outcome::Deny {
            return Err(stricter(&verdict.reason.message).into());
        }
        if let (ApprovalEnding::FallbackAllow, Some(fallback)) = (ending, &verdict.fallback)
            && !fallback.allow
        {
            return Err(stricter(&fallback.reason).into());
        }
        check_marks(plan, &self.path).map_err(|found| drift(&found))?;
        self.check_lookups(plan, request)?;
        check_contents(plan).map_err(|found| drift(&found))?;
        if !is_same_sandbox(plan, self.sandbox.as_ref()) {
            return Err(stricter("the run would be in another sandbox now").into());
        }
        let exec = self.scope.exec();
        if plan.sandbox.is_some() {
            let bound = check_bound(&verdict.binding, exec);
            return bound.map_err(|refusal| stricter(&refusal.to_string()).into());
        }
        let shield = plan_shield(exec, verdict.shield);
        let shield = shield.map_err(|missing| stricter(&missing.to_string()))?;
        if shield.is_shielded() && !plan.shield.is_shielded() {
            return Err(stricter("the run would be shielded now").into());
        }
        let bound = check_bound(&verdict.binding, exec);
        bound.map_err(|refusal| stricter(&refusal.to_string()).into())
    }

    /// Checks that every name still leads to the file that was shown, even where another file would
    /// not be started: the approver meant the line with its present meaning.
    fn check_lookups(&self, plan: &RunPlan, request: &ExecRequest<'_>) -> Result<(), ExecError> {
        let verdict = &self.evaluation.verdict;
        let asked = Verdict {
            outcome: Outcome::Ask,
            transport: match plan.program {
                PlanProgram::Direct { .. } => Transport::Direct,
                PlanProgram::Shell { .. } | PlanProgram::Inside { .. } => Transport::Shell,
            },
            ..verdict.clone()
        };
        let settings = self.run_settings(request);
        let analysis = &self.evaluation.analysis;
        let look = || look_up(analysis, &asked, &settings);
        let fresh = match self.scope.as_run_account(look)? {
            Ok(fresh) => fresh,
            Err(PrepareError::Drift(found)) => return Err(drift(&found).into()),
            Err(error) => {
                let what = error.to_string();
                return Err(ApprovalRefusal::Drift { what }.into());
            }
        };
        let now: Vec<&str> = fresh
            .all_directories()
            .map(|one| one.requested.as_str())
            .collect();
        let entered = plan.all_directories().map(|one| one.requested.as_str());
        if !entered.eq(now.iter().copied()) {
            let what = "the line enters other directories now".to_owned();
            return Err(ApprovalRefusal::Drift { what }.into());
        }
        let before = plan.executables().into_iter().chain(plan.passed_on());
        let mut now = fresh.executables().into_iter().chain(fresh.passed_on());
        for file in before {
            match now.next() {
                Some(found) if found.found == file.found => {}
                Some(found) => return Err(drift(&Drift::Appeared(found.found.clone())).into()),
                None => return Err(drift(&Drift::Gone(file.found.clone())).into()),
            }
        }
        match now.next() {
            None => Ok(()),
            Some(more) => Err(drift(&Drift::Appeared(more.found.clone())).into()),
        }
    }
}

/// Takes one use of a grant that an approver gave for the same request in this conversation, if
/// there is one. The grant allows nothing before the change is on disk.
pub(crate) fn use_grant(
    change: &Change<'_>,
    approval: &NewApproval<'_>,
    key: &GrantKey<'_>,
) -> Result<Option<(RunTicket, Claim)>, StoreError> {
    let Some((used, claim)) = Claim::of_grant(change, key, approval.plan)? else {
        return Ok(None);
    };
    let ticket = RunTicket {
        run_id: used.run_id,
        agent: approval.plan.agent_id.clone(),
        is_claimed: true,
    };
    let approval_id = Some(used.approval_id.as_str());
    open_run(
        change,
        &ticket,
        approval_id,
        approval.plan,
        approval.session_key,
    )?;
    Ok(Some((ticket, claim)))
}

/// Whether a request would be confined as the plan is: by the same user, with the same limits, and
/// in the same scope, which stands for workspace and settings.
pub(super) fn is_same_sandbox(plan: &RunPlan, now: Option<&PreparedSandbox>) -> bool {
    match (&plan.sandbox, now) {
        (None, None) => true,
        (Some(before), Some(now)) => {
            let now = &now.plan;
            (&before.scope_id, before.user, before.limits) == (&now.scope_id, now.user, now.limits)
        }
        _ => false,
    }
}

/// Whether a request repeats the same run as the plan, for the same reason.
fn is_same_retry(plan: &RunPlan, request: &ExecRequest<'_>) -> bool {
    let planned = plan.retry.as_ref();
    let planned = planned.map(|retry| (retry.run.as_str(), retry.justification.as_str()));
    let asked = request.place.retry.as_ref();
    planned == asked.map(|retry| (retry.run.as_str(), retry.justification.as_str()))
}

/// Checks all directories, files and bound contents of the plan against their present state.
pub(super) fn check_pins(plan: &RunPlan, path: &str) -> Result<(), Drift> {
    let _as_the_run = plan.assume_account()?;
    for directory in plan.all_directories() {
        directory.check()?;
    }
    for file in plan.pinned_files() {
        file.check()?;
    }
    plan.binding.check(path)
}

/// Checks that everything the plan pins is still in its place, with the same size and times.
fn check_marks(plan: &RunPlan, path: &str) -> Result<(), Drift> {
    let _as_the_run = plan.assume_account()?;
    for directory in plan.all_directories() {
        directory.check()?;
    }
    for file in plan.pinned_files() {
        file.check_marks()?;
    }
    plan.binding.check_marks(path)
}

/// Checks the content of pinned files, as far as a cheap check can: the times of files that did not
/// change recently reveal most changes. The decisive check happens in the run's own process. It
/// compares the content of each executable once more, on the descriptor that it starts, and trusts
/// the times only where they reveal every write.
fn check_contents(plan: &RunPlan) -> Result<(), Drift> {
    let _as_the_run = plan.assume_account()?;
    for bound in &plan.binding.files {
        bound.file.check()?;
    }
    for file in plan.pinned_files() {
        if is_young(file) {
            file.check()?;
        }
    }
    Ok(())
}

/// Whether a file changed so recently, or in the future, that a further change could have left the
/// same time.
fn is_young(file: &PinnedFile) -> bool {
    let changed_ms = file.ctime_ns / 1_000_000;
    now().saturating_sub(changed_ms) < YOUNG_MS
}

fn drift(drift: &Drift) -> ApprovalRefusal {
    ApprovalRefusal::Drift {
        what: drift.to_string(),
    }
}

pub(super) fn stricter(reason: &str) -> ApprovalRefusal {
    ApprovalRefusal::Drift {
        what: format!("the policy became stricter: {reason}"),
    }
}
