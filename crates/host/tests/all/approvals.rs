//! Approvals without a command line: who may decide what, and what happens when no approver can.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use interlock_approvals::{
    ApprovalDecision, ApprovalEnding, ApprovalRefusal, AuditFilter, AuditKind, AuditVerification,
    DecisionBy, OutsideRuns, PendingApproval,
};
use interlock_command::Source;
use interlock_command::display::Secrets;
use interlock_host::{Exec, ExecRequest, LocalHost, OpenOptions, RequestedPlace, Yield};
use interlock_plan::PlanStdin;
use interlock_policy::{AgentId, Fallback};
use interlock_store::{ApprovalRequest, CreatedApproval};
use interlock_supervisor::{SupervisorClient, SupervisorPaths};
use tempfile::TempDir;

struct World {
    scratch: TempDir,
    host: LocalHost,
    agent: AgentId,
    base_env: BTreeMap<String, String>,
}

impl World {
    /// Cautious: a miss is asked about.
    fn new() -> Self {
        let scratch = TempDir::new().unwrap();
        fs::create_dir(scratch.path().join("work")).unwrap();
        let options = OpenOptions {
            state_dir: Some(scratch.path().join("state")),
            path: Some("/usr/bin:/bin".to_owned()),
            ..OpenOptions::default()
        };
        let (host, _) = LocalHost::open(options).unwrap();
        Self {
            scratch,
            host,
            agent: AgentId::default(),
            base_env: BTreeMap::new(),
        }
    }

    fn request(&self, text: &str) -> ExecRequest<'_> {
        ExecRequest {
            agent: &self.agent,
            config: None,
            caller: &interlock_host::NO_CALLER_CONTEXT,
            source: Source::Text(text.to_owned()),
            cwd: self.scratch.path().join("work").display().to_string(),
            env: BTreeMap::new(),
            ask: None,
            gateway: None,
            timeout_seconds: Some(60),
            base_env: &self.base_env,
            session_key: Some("agent:main:talk"),
            pty: None,
            stdin: PlanStdin::Null,
            yields: Yield::Never,
            show_chars: None,
            requester: "connection 7",
            runs_later: false,
            place: RequestedPlace::default(),
        }
    }

    /// There is no supervisor here: what gets as far as that was not refused, and does not run.
    fn supervisor(&self) -> SupervisorClient {
        SupervisorClient::new(SupervisorPaths::new(self.host.state_dir()), "none")
    }

    fn asked(&self, text: &str) -> PendingApproval {
        let outcome = self.host.exec(&self.request(text), &self.supervisor());
        let Exec::Pending(pending) = outcome.unwrap() else {
            panic!("not asked");
        };
        pending.approval
    }

    fn decide(
        &self,
        approval: &PendingApproval,
        digest: &str,
        decision: ApprovalDecision,
        (decider, surface): (&str, &str),
    ) -> Result<(), String> {
        let outside = OutsideRuns::this_process(&self.supervisor()).unwrap();
        let by = DecisionBy {
            decider,
            surface,
            reason: None,
            has_shown: false,
            outside,
        };
        let outcome = self
            .host
            .approvals()
            .decide(&approval.id, digest, decision, by);
        outcome.map(|_| ()).map_err(|error| error.code().to_owned())
    }

    fn run_code(&self, id: &str, text: &str) -> String {
        let error = self
            .host
            .run_approved(id, &self.request(text), &self.supervisor())
            .unwrap_err();
        error.code().to_owned()
    }

    #[track_caller]
    fn intact(&self) {
        let verified = self.host.approvals().audit_verify(None).unwrap();
        assert!(matches!(verified, AuditVerification::Intact(_)));
    }
}

const OPERATOR: (&str, &str) = ("operator", "browser");

#[test]
fn only_what_was_asked_so_is_left_to_a_later_process() {
    let world = World::new();
    world.asked("touch other");
    let request = ExecRequest {
        env: BTreeMap::from([("MARK".to_owned(), "kept".to_owned())]),
        runs_later: true,
        place: RequestedPlace::default(),
        ..world.request("touch later")
    };
    let outcome = world.host.exec(&request, &world.supervisor()).unwrap();
    let Exec::Pending(asked) = outcome else {
        panic!("not asked");
    };
    let left = |before: i64| {
        let left = world.host.runs_to_resume(before, 10).unwrap();
        left.into_iter().map(|one| one.id).collect::<Vec<String>>()
    };
    let after = asked.approval.created_at_ms + 1;
    assert_eq!(left(after), std::slice::from_ref(&asked.approval.id));
    assert_eq!(left(asked.approval.created_at_ms), Vec::<String>::new());
    let by = ("person", "terminal 3");
    let shown = world.host.approvals().seen(&asked.approval.id, by.1);
    shown.unwrap();
    let digest = asked.approval.plan_digest.clone();
    world
        .decide(&asked.approval, &digest, ApprovalDecision::Deny, by)
        .unwrap();
    assert_eq!(left(after), Vec::<String>::new());
}

#[test]
fn an_answer_counts_only_where_the_question_was_shown_and_never_from_who_asked() {
    let world = World::new();
    let approval = world.asked("touch marker");
    let digest = approval.plan_digest.as_str();
    let decide =
        |digest: &str, who| world.decide(&approval, digest, ApprovalDecision::AllowOnce, who);
    assert_eq!(
        decide(digest, OPERATOR),
        Err("APPROVAL_NOT_SHOWN".to_owned())
    );
    world
        .host
        .approvals()
        .seen(&approval.id, "browser")
        .unwrap();
    for who in [("connection 7", "browser"), ("operator", "connection 7")] {
        assert_eq!(
            decide(digest, who),
            Err("APPROVAL_SELF_DECISION".to_owned())
        );
    }
    let other = world.asked("touch other").plan_digest;
    assert_eq!(
        decide(&other, OPERATOR),
        Err("APPROVAL_REQUEST_MISMATCH".to_owned())
    );
    assert_eq!(decide(digest, OPERATOR), Ok(()));
    world.intact();
}

#[test]
fn a_claim_is_on_the_disk_before_the_order_and_a_failed_order_is_recorded() {
    let world = World::new();
    let approval = world.asked("touch marker");
    let approvals = world.host.approvals();
    approvals.seen(&approval.id, "browser").unwrap();
    let digest = approval.plan_digest.as_str();
    assert_eq!(
        world.run_code(&approval.id, "touch marker"),
        "APPROVAL_PENDING"
    );
    world
        .decide(&approval, digest, ApprovalDecision::AllowOnce, OPERATOR)
        .unwrap();
    // No supervisor can be started here, so the order fails; the approval is used all the same.
    assert_eq!(
        world.run_code(&approval.id, "touch marker"),
        "SUPERVISOR_UNAVAILABLE"
    );
    assert_eq!(
        world.run_code(&approval.id, "touch marker"),
        "APPROVAL_USED"
    );
    let kinds: Vec<AuditKind> = approvals
        .audit_log(&AuditFilter::default())
        .unwrap()
        .iter()
        .map(|record| record.kind)
        .collect();
    assert_eq!(kinds[..2], [AuditKind::RunEnded, AuditKind::RunStarted]);
    world.intact();
}

#[test]
fn where_no_surface_can_show_it_the_fallback_decides_at_once() {
    for (fallback, expected) in [(Fallback::Deny, false), (Fallback::Full, true)] {
        let world = World::new();
        world
            .host
            .rules()
            .set_levels(None, None, Some(fallback), None)
            .unwrap();
        let approval = world.asked("touch marker");
        let outcome = world.host.approvals().fall_back(&approval.id);
        let ended = world.host.approvals().ended(&approval.id).unwrap().unwrap();
        if expected {
            outcome.unwrap();
            assert_eq!(ended.ending, ApprovalEnding::FallbackAllow);
            // It may run, until the policy says otherwise.
            let strict = Some(Fallback::Deny);
            world
                .host
                .rules()
                .set_levels(None, None, strict, None)
                .unwrap();
            assert_eq!(
                world.run_code(&approval.id, "touch marker"),
                "APPROVAL_DRIFT"
            );
        } else {
            let Err(ApprovalRefusal::FallbackDenied { reason, .. }) = outcome else {
                panic!("{outcome:?}");
            };
            assert!(reason.contains("askFallback"), "{reason}");
            assert_eq!(ended.ending, ApprovalEnding::FallbackDeny);
            assert_eq!(
                world.run_code(&approval.id, "touch marker"),
                "APPROVAL_FALLBACK_DENIED"
            );
        }
        world.intact();
    }
}

#[test]
fn the_fallback_stands_in_for_all_undecided_approvals_however_many() {
    let world = World::new();
    let full = Some(Fallback::Full);
    world
        .host
        .rules()
        .set_levels(None, None, full, None)
        .unwrap();
    let store = world.host.store();
    let asked = world.asked("touch marker");
    let like = store.approval(&asked.id).unwrap().request;
    let many = interlock_store::MAX_PAGE + 1;
    let overdue = ApprovalRequest {
        expires_at_ms: like.created_at_ms + 1,
        ..like
    };
    let created = store.change(|change| {
        let create = |_| change.create_approval(&overdue);
        (0..many).map(create).collect::<Result<Vec<_>, _>>()
    });
    let created: Vec<CreatedApproval> = created.unwrap();
    world.host.approvals().expire_due().unwrap();
    for one in created {
        let ended = world.host.approvals().ended(&one.id).unwrap().unwrap();
        assert_eq!(ended.ending, ApprovalEnding::FallbackAllow);
    }
    assert_eq!(world.host.approvals().ended(&asked.id).unwrap(), None);
    world.intact();
}

#[test]
fn a_wait_ends_with_the_decision_of_another_or_with_its_time() {
    let world = World::new();
    let approval = world.asked("touch marker");
    let approvals = world.host.approvals();
    let waited = approvals
        .wait(&approval.id, Duration::from_millis(30))
        .unwrap();
    assert_eq!(waited, None);
    approvals.seen(&approval.id, "browser").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            approvals
                .wait(&approval.id, Duration::from_mins(1))
                .unwrap()
        });
        let digest = approval.plan_digest.as_str();
        world
            .decide(&approval, digest, ApprovalDecision::Deny, OPERATOR)
            .unwrap();
        let ended = waiting.join().unwrap().unwrap();
        assert_eq!(
            ended.ending,
            ApprovalEnding::Decision(ApprovalDecision::Deny)
        );
        assert_eq!(ended.decider.as_deref(), Some("operator"));
    });
    assert_eq!(
        world.run_code(&approval.id, "touch marker"),
        "APPROVAL_DENIED"
    );
}

#[test]
fn a_restart_forgets_no_question() {
    let world = World::new();
    let approval = world.asked("touch marker; echo 'a\u{202e}b'");
    let options = OpenOptions {
        state_dir: Some(world.host.state_dir().to_owned()),
        ..OpenOptions::default()
    };
    let (again, _) = LocalHost::open(options).unwrap();
    let page = again.approvals().pending(0, 10).unwrap();
    assert_eq!(page.approvals.len(), 1);
    let read = again
        .approvals()
        .approval(&approval.short_id, Secrets::Masked)
        .unwrap();
    assert_eq!(read.plan_digest, approval.plan_digest);
    assert!(read.command.text.contains("\\u{202E}"), "{read:?}");
}
