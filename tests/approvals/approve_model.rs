//! The approve-and-run path against a model of it, with real files, a real supervisor and real
//! runs: whatever happens in whatever order, nothing starts without a decision, nothing starts
//! twice, and what ran is what was shown.
//!
//! `INTERLOCK_MODEL_CASES` sets the number of cases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model;
mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use interlock_approvals::{ApprovalDecision, AuditVerification, Lease};
use interlock_host::{Exec, now_ms};
use interlock_store::{ClaimState, Claiming, NewRun, StoreError};
use model::{Answering, Asked, Claim, Command, Model, Policy, RUNS, Who};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use world::{GONE, Mutation, SURFACES, World};

/// One step. `which` chooses among the approvals, the newest first, round and round.
#[derive(Debug, Clone)]
enum Step {
    Request {
        command: Command,
        session: usize,
        dies: bool,
    },
    Show {
        which: usize,
    },
    Decide {
        which: usize,
        decision: ApprovalDecision,
        by: Answering,
    },
    FallBack {
        which: usize,
    },
    Withdraw {
        which: usize,
    },
    TimeIsUp {
        which: usize,
    },
    ADayPasses {
        which: usize,
    },
    GrantEnds {
        which: usize,
    },
    Run {
        which: usize,
        mutation: Option<Mutation>,
        has_supervisor: bool,
        dies: bool,
    },
    DieWithClaim {
        which: usize,
    },
    EditScript,
    ReplaceProgram,
    ExchangeDirectory {
        with: usize,
    },
    SetPolicy {
        policy: Policy,
        fallback_is_full: bool,
    },
    RemoveEntries,
    Restart,
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        2 => Just(Command::Program),
        2 => Just(Command::Script),
        1 => Just(Command::Text),
    ]
}

fn decision() -> impl Strategy<Value = ApprovalDecision> {
    let lease = |uses: u32| {
        ApprovalDecision::Lease(Lease {
            expires_in: Duration::from_hours(1),
            max_uses: NonZeroU32::new(uses),
        })
    };
    prop_oneof![
        6 => Just(ApprovalDecision::AllowOnce),
        2 => Just(ApprovalDecision::AllowSession),
        2 => (0..3u32).prop_map(lease),
        2 => Just(ApprovalDecision::AllowAlways),
        1 => Just(ApprovalDecision::Deny),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    // Mostly what succeeds, so that cases get far; often enough what must be refused.
    let which = || prop_oneof![6 => Just(0usize), 3 => 0..5usize];
    let session = prop_oneof![5 => Just(0usize), 1 => Just(1)];
    let rarely = || prop::bool::weighted(0.12);
    let mostly = || prop::bool::weighted(0.95);
    let who = prop_oneof![
        16 => Just(Who::Operator),
        1 => Just(Who::OperatorElsewhere),
        1 => Just(Who::Requester),
        1 => Just(Who::AtRequester),
    ];
    let by =
        (who, mostly(), prop::bool::weighted(0.8)).prop_map(|(who, names_the_plan, has_shown)| {
            Answering {
                who,
                names_the_plan,
                has_shown,
            }
        });
    let mutation = prop::option::weighted(
        0.12,
        prop::sample::select(vec![
            Mutation::Command,
            Mutation::Directory,
            Mutation::Environment,
            Mutation::Agent,
            Mutation::Session,
            Mutation::Stdin,
            Mutation::Timeout,
        ]),
    );
    let policy = prop_oneof![
        5 => Just(Policy::Cautious),
        2 => Just(Policy::AskAlways),
        1 => Just(Policy::Open),
        1 => Just(Policy::Silent),
        1 => Just(Policy::Closed),
    ];
    prop_oneof![
        16 => (command(), session, rarely())
            .prop_map(|(command, session, dies)| Step::Request { command, session, dies }),
        5 => which().prop_map(|which| Step::Show { which }),
        30 => (which(), decision(), by)
            .prop_map(|(which, decision, by)| Step::Decide { which, decision, by }),
        1 => which().prop_map(|which| Step::FallBack { which }),
        1 => which().prop_map(|which| Step::Withdraw { which }),
        1 => which().prop_map(|which| Step::TimeIsUp { which }),
        1 => which().prop_map(|which| Step::ADayPasses { which }),
        1 => which().prop_map(|which| Step::GrantEnds { which }),
        34 => (which(), mutation, prop::bool::weighted(0.96), rarely()).prop_map(
            |(which, mutation, has_supervisor, dies)| {
                Step::Run { which, mutation, has_supervisor, dies }
            }
        ),
        2 => which().prop_map(|which| Step::DieWithClaim { which }),
        3 => Just(Step::EditScript),
        3 => Just(Step::ReplaceProgram),
        2 => (0..4usize).prop_map(|with| Step::ExchangeDirectory { with }),
        4 => (policy, prop::bool::weighted(0.3)).prop_map(|(policy, fallback_is_full)| {
            Step::SetPolicy { policy, fallback_is_full }
        }),
        1 => Just(Step::RemoveEntries),
        2 => Just(Step::Restart),
    ]
}

/// Takes the step in both, compares what they say, and returns it. None where there is nothing to
/// say, or no approval yet.
fn take(
    step: &Step,
    world: &mut World,
    model: &mut Model,
    fresh: &mut u32,
) -> Option<(&'static str, String)> {
    let count = model.approvals.len();
    let of = |which: usize| (count > 0).then(|| count - 1 - which % count);
    let told = |outcome: Result<(), interlock_approvals::ApprovalRefusal>, word: &str| match outcome
    {
        Ok(()) => word.to_owned(),
        Err(error) => error.code().to_owned(),
    };
    let mut version = || {
        *fresh += 1;
        *fresh
    };
    match *step {
        Step::Request {
            command,
            session,
            dies,
        } => {
            let said = request(world, model, command, session, dies);
            return Some(("request", said.to_owned()));
        }
        Step::Show { which } => {
            let which = of(which)?;
            let one = &mut model.approvals[which];
            world.host().approvals().seen(&one.id, SURFACES[0]).unwrap();
            one.is_shown[0] = true;
        }
        Step::Decide {
            which,
            decision,
            by,
        } => {
            let which = of(which)?;
            let one = &model.approvals[which];
            let said = world.decide(&one.id, &one.digest, decision, by);
            let said = said.map_or_else(|code| code, str::to_owned);
            assert_eq!(said, model.decide(which, decision, by));
            return Some(("decide", said));
        }
        Step::FallBack { which } => {
            let which = of(which)?;
            let said = world
                .host()
                .approvals()
                .fall_back(&model.approvals[which].id);
            let said = told(said, "decided");
            assert_eq!(said, model.fall_back(which));
            return Some(("fall back", said));
        }
        Step::Withdraw { which } => {
            let which = of(which)?;
            let said = world
                .host()
                .approvals()
                .withdraw(&model.approvals[which].id);
            let said = told(said, "withdrawn");
            assert_eq!(said, model.withdraw(which));
            return Some(("withdraw", said));
        }
        Step::TimeIsUp { which } => {
            let which = of(which)?;
            let one = &mut model.approvals[which];
            let due = "UPDATE approval SET expires_at_ms = created_at_ms WHERE id = ?1";
            world.alter(due, &one.id);
            one.is_due = true;
        }
        Step::ADayPasses { which } => {
            let which = of(which)?;
            let one = &mut model.approvals[which];
            let late = "UPDATE approval SET ended_at_ms = ended_at_ms - 86400001 WHERE id = ?1";
            world.alter(late, &one.id);
            one.is_too_late |= one.ended.is_some();
        }
        Step::GrantEnds { which } => {
            let which = of(which)?;
            let one = &mut model.approvals[which];
            let over = "UPDATE run_grant SET expires_at_ms = 1 WHERE approval_id = ?1";
            world.alter(over, &one.id);
            if let Some(grant) = &mut one.grant {
                grant.is_over = true;
            }
        }
        Step::Run {
            which,
            mutation,
            has_supervisor,
            dies,
        } => {
            let which = of(which)?;
            let one = &model.approvals[which];
            let asked = (one.content.command, one.content.session);
            let outcome = world.run_approved(&one.id, asked, mutation, has_supervisor);
            let said = match &outcome {
                Ok(_) => RUNS.to_owned(),
                Err(error) => error.code().to_owned(),
            };
            assert_eq!(said, model.run(which, mutation.is_none(), has_supervisor));
            if let Ok(running) = outcome {
                world.finish(running, dies);
                if dies {
                    model.approvals[which].claim = Some(Claim::LeftBehind);
                }
            }
            return Some(("run", said));
        }
        Step::DieWithClaim { which } => {
            let which = of(which)?;
            let one = &model.approvals[which];
            let said = die_with_claim(world, &one.id, &one.digest);
            assert_eq!(said, model.die_with_claim(which));
            return Some(("die with claim", said.to_owned()));
        }
        Step::EditScript => {
            let version = version();
            world.write_script(version);
            model.scripts[model.directory] = version;
        }
        Step::ReplaceProgram => {
            model.program = version();
            world.write_program(model.program);
        }
        Step::ExchangeDirectory { with } => {
            world.leave_directory(model.directory);
            model.directory = with.min(model.scripts.len());
            world.enter_new_directory(model.directory);
            if model.directory == model.scripts.len() {
                model.scripts.push(version());
                world.write_script(model.scripts[model.directory]);
            }
        }
        Step::SetPolicy {
            policy,
            fallback_is_full,
        } => {
            world.set_policy(policy, fallback_is_full);
            model.policy = policy;
            model.fallback_is_full = fallback_is_full;
        }
        Step::RemoveEntries => {
            world.remove_entries();
            model.entries.clear();
        }
        Step::Restart => {
            world.restart();
            model.recover();
        }
    }
    None
}

fn request(
    world: &World,
    model: &mut Model,
    command: Command,
    session: usize,
    dies: bool,
) -> &'static str {
    let content = model.current(command, session);
    let expected = model.ask(command, session);
    match world.exec(command, session) {
        Err(error) => {
            assert_eq!(error.code(), "EXEC_DENIED");
            assert_eq!(expected, Asked::Refused);
            "EXEC_DENIED"
        }
        Ok(Exec::Pending(pending)) => {
            assert_eq!(expected, Asked::Waits);
            let approval = pending.approval;
            model.put_down(approval.id, approval.plan_digest, content);
            "asked"
        }
        Ok(Exec::Started(running)) => {
            let claim = world.host().store().run_claim(&running.ticket.run_id);
            let said = match claim.unwrap() {
                None => {
                    assert_eq!(expected, Asked::Runs);
                    model.ran(content);
                    "allowed by the policy"
                }
                Some(claim) => {
                    let Asked::Granted(grants) = expected else {
                        panic!("claimed, and not granted: {claim:?}");
                    };
                    let mut grants = grants.into_iter();
                    let used = grants.find(|&one| model.approvals[one].id == claim.approval_id);
                    model.ran_by_grant(used.expect("a grant that is not in force"));
                    "allowed by a grant"
                }
            };
            world.finish(*running, dies);
            said
        }
    }
}

/// What one who dies between claim and order leaves behind.
fn die_with_claim(world: &World, id: &str, digest: &str) -> &'static str {
    let now_ms = i64::try_from(now_ms()).unwrap();
    let claiming = world.host().store().change(|change| {
        let approval = change.approval(id)?;
        let claiming = change.claim(id, digest, GONE, now_ms)?;
        if claiming == Claiming::Claimed {
            change.open_run(&NewRun {
                id,
                approval_id: Some(id),
                agent: &approval.request.agent,
                session_key: &approval.request.session_key,
                host: &approval.request.host,
                node: None,
                command: "-",
                waiter: GONE,
                now_ms,
            })?;
        }
        Ok::<_, StoreError>(claiming)
    });
    match claiming.unwrap() {
        Claiming::Claimed => "claimed",
        _ => "not claimed",
    }
}

/// What is stored, what is on the disk, and what the model says are the same.
fn compare(world: &World, model: &Model) {
    let mut expected = model.evidence.clone();
    expected.sort();
    assert_eq!(world.evidence(), expected, "what ran");
    assert_eq!(world.entry_count(), model.entries.len());
    for one in &model.approvals {
        let stored = world.host().store().approval(&one.id).unwrap();
        assert_eq!(stored.ended.map(|ended| ended.ending), one.ended);
        let claim = stored.claim.map(|claim| match claim.state {
            ClaimState::Unfinished => Claim::LeftBehind,
            ClaimState::Finished { .. } | ClaimState::Unknown { .. } => Claim::Over,
        });
        assert_eq!(claim, one.claim);
    }
}

/// Starts of runs that no decision before them allows, by the records alone.
const UNALLOWED: &str = "
    SELECT count(*) FROM audit AS start
    WHERE start.kind = 'run-started' AND start.body ->> 'approvalId' IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM audit AS decision WHERE decision.kind = 'decision'
        AND decision.seq < start.seq
        AND decision.body ->> 'approvalId' = start.body ->> 'approvalId'
        AND decision.body ->> 'decision' IN
            ('allow-once', 'allow-session', 'allow-always', 'lease', 'fallback-allow')
        AND (start.body ->> 'grantId' IS NOT NULL
            OR decision.body ->> 'planDigest' = start.body ->> 'digest'))";

/// Starts that neither a decision nor a verdict of its own right before it allows.
const UNJUDGED: &str = "
    SELECT count(*) FROM audit AS start
    WHERE start.kind = 'run-started' AND start.body ->> 'approvalId' IS NULL
    AND NOT EXISTS (
        SELECT 1 FROM audit AS verdict WHERE verdict.kind = 'verdict'
        AND verdict.seq = start.seq - 1 AND verdict.body ->> 'verdict' = 'allow'
        AND verdict.body ->> 'refused' IS NULL)";

const DECIDED_TWICE: &str = "
    SELECT count(*) FROM (SELECT 1 FROM audit WHERE kind = 'decision'
        GROUP BY body ->> 'approvalId' HAVING count(*) > 1)";

const STARTED_TWICE: &str = "
    SELECT count(*) FROM (SELECT 1 FROM audit WHERE kind IN ('run-started', 'run-ended')
        GROUP BY kind, body ->> 'runId' HAVING count(*) > 1)";

const WITHOUT_END: &str = "
    SELECT count(*) FROM audit AS start WHERE kind = 'run-started' AND NOT EXISTS (
        SELECT 1 FROM audit AS over WHERE over.kind = 'run-ended'
        AND over.body ->> 'runId' = start.body ->> 'runId')";

fn check_records(world: &World) {
    let verified = world.host().approvals().audit_verify(None).unwrap();
    assert!(matches!(verified, AuditVerification::Intact(_)));
    let database = world.database();
    for (what, statement) in [
        ("started without a decision", UNALLOWED),
        ("started without a verdict", UNJUDGED),
        ("decided twice", DECIDED_TWICE),
        ("started or ended twice", STARTED_TWICE),
        ("without an end", WITHOUT_END),
    ] {
        let found: i64 = database.query_row(statement, [], |row| row.get(0)).unwrap();
        assert_eq!(found, 0, "{what}");
    }
}

/// Without these a test run would prove little.
const USUAL: [&str; 8] = [
    "asked",
    "allowed by the policy",
    "allowed by a grant",
    "decided",
    RUNS,
    "APPROVAL_DRIFT",
    "APPROVAL_USED",
    "APPROVAL_REQUEST_MISMATCH",
];

#[test]
fn what_runs_is_what_was_shown_and_allowed_and_runs_once() {
    let cases = std::env::var("INTERLOCK_MODEL_CASES");
    let mut runner = TestRunner::new(ProptestConfig {
        cases: cases.map_or(96, |cases| cases.parse().unwrap()),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let tally = RefCell::new(Tally::new());
    let outcome = runner.run(&prop::collection::vec(step(), 1..90), |steps| {
        live(&steps, &mut tally.borrow_mut());
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let tally = tally.into_inner();
    println!("{tally:#?}");
    let steps: u32 = tally.values().sum();
    for usual in USUAL {
        let is_seen = tally.keys().any(|(_, said)| said == usual);
        assert!(is_seen || steps < 1000, "never seen: {usual}");
    }
}

/// How often each kind of step was told what.
type Tally = BTreeMap<(&'static str, String), u32>;

/// One history, from the first start to the last.
fn live(steps: &[Step], tally: &mut Tally) {
    let mut world = World::new();
    let mut fresh = 1;
    let mut model = Model {
        directory: 0,
        scripts: vec![fresh],
        program: 0,
        policy: Policy::Cautious,
        fallback_is_full: false,
        entries: Vec::new(),
        approvals: Vec::new(),
        evidence: Vec::new(),
    };
    world.write_script(fresh);
    for step in steps {
        if let Some((kind, said)) = take(step, &mut world, &mut model, &mut fresh) {
            *tally.entry((kind, said)).or_default() += 1;
        }
        compare(&world, &model);
    }
    world.settle();
    model.recover();
    compare(&world, &model);
    check_records(&world);
}
