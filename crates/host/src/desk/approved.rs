//! From an answer to a run: the stored plan and nothing else, once, if all is still as it was.

use interlock_plan::{Drift, PinnedFile, PlanProgram, RunPlan};
use interlock_policy::{Outcome, Transport, Verdict};
use interlock_store::{
    Approval, ApprovalDecision, ApprovalEnding, ApprovalError, ClaimState, Claiming, NotAllowed,
    StoreError,
};
use interlock_supervisor::{Announced, SupervisorClient};
use serde_json::json;

use super::claim::{Claim, NotClaimed, check_claimed};
use super::error::DeskError;
use super::events::{DenialReason, denied};
use super::patch::PATCH;
use super::pending::plan;
use super::records::{RunTicket, open};
use super::{Desk, check_bound, now, process_name};
use crate::exec::{ExecError, ExecRequest, JudgedRequest, Running};
use crate::permission::Permission;
use crate::prepare::{PrepareError, command_text, environment, look_up};
use crate::shield::plan_shield;

/// Longer than a tick of any file system's clock.
const YOUNG_MS: i64 = 3000;

impl Desk<'_> {
    /// Runs what was approved. The caller's request must be the one that was asked about; what runs
    /// is the stored plan. The policy is evaluated anew, and everything that the plan pins is
    /// looked at again; what became stricter or drifted ends the approval.
    pub fn run_approved(
        self,
        reference: &str,
        request: &ExecRequest<'_>,
        supervisor: &SupervisorClient,
    ) -> Result<Running, ExecError> {
        let (approval, plan) = self.stored(reference, supervisor)?;
        // The files are opened and read while the rest is found out; nothing starts by this.
        let announced = supervisor.announce(&plan);
        if let Some(what) = self.difference(&plan, request)? {
            let short_id = approval.short_id;
            return Err(DeskError::Mismatch { short_id, what }.into());
        }
        self.run_stored(&approval, plan, request, (supervisor, announced))
    }

    /// An approval with the plan that it is for.
    pub(super) fn stored(
        self,
        reference: &str,
        supervisor: &SupervisorClient,
    ) -> Result<(Approval, RunPlan), DeskError> {
        self.expire(now())?;
        let read = || {
            self.host
                .store()
                .approval(reference)
                .map_err(DeskError::from)
        };
        let mut approval = read()?;
        if let Some(claim) = &approval.claim
            && claim.state == ClaimState::Unfinished
        {
            // The process that claimed it may be gone. Then recovery records that the outcome is
            // unknown.
            self.recover(supervisor)?;
            approval = read()?;
        }
        if approval.request.binding == PATCH {
            let (short_id, what) = (approval.short_id, "the tool");
            return Err(DeskError::Mismatch { short_id, what });
        }
        let plan = plan(&approval)?;
        Ok((approval, plan))
    }

    /// Runs the plan of an approval, if that allows it and all is as it was; `request` is what is
    /// judged anew.
    pub(super) fn run_stored(
        self,
        approval: &Approval,
        plan: RunPlan,
        request: &ExecRequest<'_>,
        by: (&SupervisorClient, Option<Announced>),
    ) -> Result<Running, ExecError> {
        let ending = allowing(approval)?;
        let judged = match self.host.judge(request) {
            Ok(judged) => judged,
            Err(ExecError::Tool(refusal)) => {
                return Err(self.give_up(approval, stricter(&refusal.to_string())));
            }
            Err(error) => return Err(error),
        };
        if let Err(error) = self.check_again(&plan, ending, &judged, request) {
            return Err(self.give_up(approval, error));
        }
        let manner = judged.manner(request)?;
        let ticket = RunTicket {
            run_id: approval.id.clone(),
            agent: plan.agent_id.clone(),
            is_claimed: true,
        };
        let claim = self.host.store().change(|change| {
            let Approval { id, request, .. } = approval;
            let claim = Claim::of_approval(change, id, &plan)?;
            if claim.is_ok() {
                open(change, &ticket, Some(id), &plan, &request.session_key)?;
            }
            Ok::<_, StoreError>(claim)
        });
        let claim = claim.map_err(DeskError::from)?;
        let claim = claim.map_err(|why| not_claimed(why, &approval.short_id))?;
        let permission = Permission::Claim(claim);
        self.host.order(plan, permission, manner, ticket, by)
    }

    /// What of the request is not as in the plan.
    fn difference(
        self,
        plan: &RunPlan,
        request: &ExecRequest<'_>,
    ) -> Result<Option<&'static str>, ExecError> {
        let path = self.host.path(request.agent, request.caller)?;
        let settings = self.host.run_settings(request, &path)?;
        let mut env = environment(&settings)?;
        // Where programs are looked up is the host's business, and part of the check for drift.
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
            ("the working directory", plan.cwd.requested != request.cwd),
            ("the environment", plan.env != env),
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

    /// The present policy, then everything that was pinned.
    fn check_again(
        self,
        plan: &RunPlan,
        ending: ApprovalEnding,
        judged: &JudgedRequest,
        request: &ExecRequest<'_>,
    ) -> Result<(), DeskError> {
        let verdict = &judged.evaluation.verdict;
        if verdict.outcome == Outcome::Deny {
            return Err(stricter(&verdict.reason.message));
        }
        if let (ApprovalEnding::FallbackAllow, Some(fallback)) = (ending, &verdict.fallback)
            && !fallback.allow
        {
            return Err(stricter(&fallback.reason));
        }
        let path = self.host.path(request.agent, request.caller)?;
        check_marks(plan, &path).map_err(|found| drift(&found))?;
        self.check_lookups(plan, verdict, judged, request)?;
        check_contents(plan).map_err(|found| drift(&found))?;
        let exec = judged.config.config().exec_for(request.agent.as_str());
        let shield = plan_shield(&exec, verdict.shield);
        let shield = shield.map_err(|missing| stricter(&missing.to_string()))?;
        if shield.is_shielded() && !plan.shield.is_shielded() {
            return Err(stricter("the run would be shielded now"));
        }
        check_bound(&verdict.binding, &exec).map_err(|refusal| stricter(&refusal.to_string()))
    }

    /// Every name must still lead to the file that was shown, even where another file would not be
    /// started: the approver of the line meant what it says now, too.
    fn check_lookups(
        self,
        plan: &RunPlan,
        verdict: &Verdict,
        judged: &JudgedRequest,
        request: &ExecRequest<'_>,
    ) -> Result<(), DeskError> {
        let asked = Verdict {
            outcome: Outcome::Ask,
            transport: match plan.program {
                PlanProgram::Direct { .. } => Transport::Direct,
                PlanProgram::Shell { .. } => Transport::Shell,
            },
            ..verdict.clone()
        };
        let path = self.host.path(request.agent, request.caller)?;
        let settings = self.host.run_settings(request, &path)?;
        let analysis = &judged.evaluation.analysis;
        let look = || look_up(analysis, &asked, &settings);
        let fresh = match self.host.as_run_account(request.agent, look)? {
            Ok(fresh) => fresh,
            Err(PrepareError::Drift(found)) => return Err(drift(&found)),
            Err(error) => {
                let what = error.to_string();
                return Err(DeskError::Drift { what });
            }
        };
        let now: Vec<&str> = fresh
            .all_directories()
            .map(|one| one.requested.as_str())
            .collect();
        let entered = plan.all_directories().map(|one| one.requested.as_str());
        if !entered.eq(now.iter().copied()) {
            let what = "the line enters other directories now".to_owned();
            return Err(DeskError::Drift { what });
        }
        let before = plan.executables().into_iter().chain(plan.passed_on());
        let mut now = fresh.executables().into_iter().chain(fresh.passed_on());
        for file in before {
            match now.next() {
                Some(found) if found.found == file.found => {}
                Some(found) => return Err(drift(&Drift::Appeared(found.found.clone()))),
                None => return Err(drift(&Drift::Gone(file.found.clone()))),
            }
        }
        match now.next() {
            None => Ok(()),
            Some(more) => Err(drift(&Drift::Appeared(more.found.clone()))),
        }
    }

    /// An approval whose run is refused is over: a caller gets no second try at the same check.
    pub(super) fn give_up(self, approval: &Approval, error: DeskError) -> ExecError {
        self.refuse_approved(approval, error).into()
    }

    /// The same for whatever the approval is about.
    pub(super) fn refuse_approved(self, approval: &Approval, error: DeskError) -> DeskError {
        let outcome = refused_run(&error);
        let notify = self.notify(&approval.request.agent);
        let consumed = self.host.store().change(|change| {
            let digest = &approval.request.plan_digest;
            let claiming = change.claim(&approval.id, digest, process_name(), now())?;
            if claiming == Claiming::Claimed {
                change.finish_claim(&approval.id, &outcome, now())?;
                denied(change, approval, DenialReason::of("approval-drift"), notify)?;
            }
            Ok::<_, StoreError>(claiming)
        });
        let consumed = consumed.map_err(DeskError::from);
        match consumed.and_then(|claiming| claim_failed(claiming, &approval.short_id)) {
            Ok(()) => error,
            Err(other) => other,
        }
    }
}

/// The outcome of a run that was refused before it began.
fn refused_run(error: &DeskError) -> serde_json::Value {
    json!({ "code": error.code(), "message": error.to_string(), "status": "refused" })
}

/// Only an approval that allows, and that nothing was made of yet, goes on.
pub(super) fn allowing(approval: &Approval) -> Result<ApprovalEnding, DeskError> {
    let short_id = approval.short_id.clone();
    if let Some(claim) = &approval.claim {
        let became = became(&claim.state);
        return Err(DeskError::Used { short_id, became });
    }
    let Some(ended) = &approval.ended else {
        return Err(DeskError::Undecided { short_id });
    };
    match ended.ending {
        ApprovalEnding::Decision(ApprovalDecision::Deny) => Err(DeskError::denied(short_id, ended)),
        ApprovalEnding::FallbackDeny => Err(DeskError::FallbackDenied {
            short_id,
            reason: ended.to_string(),
        }),
        ApprovalEnding::Expired => Err(DeskError::Expired { short_id }),
        ending => Ok(ending),
    }
}

/// Only [`Claiming::Claimed`] goes on.
pub(super) fn claim_failed(claiming: Claiming, short_id: &str) -> Result<(), DeskError> {
    check_claimed(claiming).map_err(|why| not_claimed(why, short_id))
}

fn not_claimed(why: NotClaimed, short_id: &str) -> DeskError {
    let short_id = short_id.to_owned();
    match why {
        NotClaimed::Already(state) => DeskError::Used {
            short_id,
            became: became(&state),
        },
        NotClaimed::NotAllowed(NotAllowed::Expired) => DeskError::Expired { short_id },
        NotClaimed::NotAllowed(NotAllowed::Undecided) => DeskError::Undecided { short_id },
        NotClaimed::NotAllowed(why) => DeskError::Ended {
            short_id,
            why: why.to_string(),
        },
    }
}

fn became(state: &ClaimState) -> String {
    match state {
        ClaimState::Unfinished => "it runs, or is about to".to_owned(),
        ClaimState::Unknown { .. } => "what became of it is unknown".to_owned(),
        ClaimState::Finished { outcome, .. } => {
            let status = outcome["status"].as_str().unwrap_or("ended");
            match outcome["exitCode"].as_i64() {
                Some(code) => format!("it {status} with {code}"),
                None => format!("it ended as {status}"),
            }
        }
    }
}

/// All that the plan holds on to, as it is now.
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

/// All that the plan holds on to is where it was, with the same size and times.
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

/// And has the same content, as far as a cheap look shows: old enough times reveal most changes.
/// The run's own process decides: it compares the content of each executable once more, on the
/// descriptor that it starts, and trusts the times only where they reveal every write.
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

/// Changed so lately, or in the future, that another change could have left the same time.
fn is_young(file: &PinnedFile) -> bool {
    let changed_ms = file.ctime_ns / 1_000_000;
    now().saturating_sub(changed_ms) < YOUNG_MS
}

fn drift(drift: &Drift) -> DeskError {
    DeskError::Drift {
        what: drift.to_string(),
    }
}

pub(super) fn stricter(reason: &str) -> DeskError {
    DeskError::Drift {
        what: format!("the policy became stricter: {reason}"),
    }
}

impl From<ApprovalError> for DeskError {
    fn from(error: ApprovalError) -> Self {
        StoreError::from(error).into()
    }
}
