//! The store against a model of it that is simple enough to be seen to be right.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod approvals;

use crate::common::{NOW, digest, exit_outcome, request, verified};
use approvals::{Model, Modelled, ModelledClaim, Named, PEOPLE, decision};
use interlock_store::{
    ApprovalAnswer, ApprovalRequest, CLAIM_WINDOW_MS, ClaimState, Claiming, Decided, Delivery,
    DeliveryState, FallbackAnswer, GrantKey, RecordedOutcome, Store, StoreError,
};
use proptest::prelude::*;
use serde_json::json;

const SURFACES: [&str; 3] = ["web:1", "terminal", "connection:agent"];
const STATES: [DeliveryState; 3] = [
    DeliveryState::Sent,
    DeliveryState::Failed,
    DeliveryState::Seen,
];
const SESSION: &str = "agent:main:main";

/// One step. Indices choose among what there is, round and round.
#[derive(Debug, Clone)]
enum Step {
    Create {
        wait_ms: i64,
        content: usize,
        always: bool,
    },
    Deliver {
        which: usize,
        surface: usize,
        state: usize,
    },
    Decide {
        which: usize,
        decision: usize,
        decider: usize,
        surface: usize,
        digest: Named,
    },
    Fallback {
        which: usize,
        allow: bool,
    },
    Expire,
    Claim {
        which: usize,
        right: bool,
    },
    Finish {
        which: usize,
        outcome: u8,
    },
    MarkUnknown {
        which: usize,
    },
    UseGrant {
        content: usize,
    },
    EndSession,
    Pass {
        ms: i64,
    },
    Purge,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    // Mostly what succeeds, so that runs get far; often enough what must be refused.
    let which = || prop_oneof![6 => Just(0usize), 4 => 0..6usize];
    let first = || prop_oneof![5 => Just(0usize), 2 => 1..3usize];
    let content = || prop_oneof![4 => Just(0usize), 1 => Just(1)];
    let named = prop_oneof![
        3 => Just(Named::Nothing),
        3 => Just(Named::Right),
        1 => Just(Named::Wrong),
    ];
    let create = (5..100i64, content(), prop::bool::weighted(0.8));
    let deliver = (which(), first(), first());
    let decide = (which(), 0..6usize, first(), first(), named);
    prop_oneof![
        4 => create.prop_map(|(wait_ms, content, always)| Step::Create { wait_ms, content, always }),
        6 => deliver.prop_map(|(which, surface, state)| Step::Deliver { which, surface, state }),
        8 => decide.prop_map(|(which, decision, decider, surface, digest)| {
            Step::Decide { which, decision, decider, surface, digest }
        }),
        1 => (which(), any::<bool>()).prop_map(|(which, allow)| Step::Fallback { which, allow }),
        1 => Just(Step::Expire),
        6 => (which(), prop::bool::weighted(0.9))
            .prop_map(|(which, right)| Step::Claim { which, right }),
        3 => (which(), 0..2u8).prop_map(|(which, outcome)| Step::Finish { which, outcome }),
        1 => which().prop_map(|which| Step::MarkUnknown { which }),
        6 => content().prop_map(|content| Step::UseGrant { content }),
        1 => Just(Step::EndSession),
        3 => prop_oneof![9 => 0..15i64, 1 => Just(CLAIM_WINDOW_MS)]
            .prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::Purge),
        1 => Just(Step::Reopen),
    ]
}

fn told<T>(result: Result<T, StoreError>, tell: impl FnOnce(T) -> String) -> String {
    result.map_or_else(|error| error.code().to_owned(), tell)
}

fn tell_decided(decided: Decided) -> String {
    match decided {
        Decided::Won => "won".to_owned(),
        Decided::Same => "same".to_owned(),
        Decided::Lost { winner } => format!("lost to {:?}", winner.decider.as_deref()),
    }
}

fn tell_state(state: &ClaimState) -> String {
    match state {
        ClaimState::Unfinished => "unfinished".to_owned(),
        ClaimState::Unknown { .. } => "unknown".to_owned(),
        ClaimState::Finished { outcome, .. } => outcome.to_value().to_string(),
    }
}

fn tell_claiming(claiming: Claiming) -> String {
    match claiming {
        Claiming::Claimed => "claimed".to_owned(),
        Claiming::AlreadyClaimed { at_ms, state } => {
            format!("already {at_ms} {}", tell_state(&state))
        }
        Claiming::NotAllowed(reason) => reason.to_string(),
    }
}

/// Does the step in both and compares what they say.
fn take(step: &Step, store: &Store, model: &mut Model) {
    let count = model.approvals.len();
    let pick = |which: usize| (count > 0).then(|| count - 1 - which % count);
    let now_ms = model.now;
    match *step {
        Step::Create {
            wait_ms,
            content,
            always,
        } => {
            let asked = ApprovalRequest {
                created_at_ms: now_ms,
                expires_at_ms: now_ms + wait_ms,
                content_digest: format!("content-{content}"),
                always: always.then(|| json!([])),
                ..request(&count.to_string())
            };
            let id = store.create_approval(&asked).unwrap().id;
            model.records += 1;
            model.approvals.push(Modelled {
                id,
                content,
                always,
                expires: now_ms + wait_ms,
                shown: Vec::new(),
                ended: None,
                claim: None,
                grant: None,
                forgotten: false,
            });
        }
        Step::Deliver {
            which,
            surface,
            state,
        } => {
            let Some(which) = pick(which) else { return };
            let delivery = Delivery {
                surface: SURFACES[surface].to_owned(),
                state: STATES[state],
                at_ms: now_ms,
                detail: None,
            };
            let approval = &mut model.approvals[which];
            match store.record_delivery(&approval.id, &delivery) {
                Ok(added) => {
                    assert!(!approval.forgotten);
                    model.records += u64::from(added);
                    if STATES[state] != DeliveryState::Failed {
                        approval.shown.push(surface);
                    }
                }
                Err(error) => {
                    assert_eq!(error.code(), "APPROVAL_NOT_FOUND");
                    assert!(approval.forgotten);
                }
            }
        }
        Step::Decide {
            which,
            decision: index,
            decider,
            surface,
            digest: named,
        } => {
            let Some(which) = pick(which) else { return };
            let right = digest(&which.to_string());
            let answer = ApprovalAnswer {
                id: &model.approvals[which].id,
                decision: decision(index),
                decider: PEOPLE[decider],
                surface: SURFACES[surface],
                reason: None,
                plan_digest: match named {
                    Named::Nothing => None,
                    Named::Right => Some(&right),
                    Named::Wrong => Some("plan-of-another"),
                },
                now_ms,
            };
            let said = told(store.decide(&answer), tell_decided);
            assert_eq!(said, model.decide(which, index, decider, surface, named));
        }
        Step::Fallback { which, allow } => {
            let Some(which) = pick(which) else { return };
            let answer = FallbackAnswer {
                id: &model.approvals[which].id,
                allow,
                now_ms,
            };
            let said = told(store.decide_by_fallback(&answer), tell_decided);
            assert_eq!(said, model.fall_back(which, allow));
        }
        Step::Expire => {
            let mut expected = Vec::new();
            for approval in &mut model.approvals {
                if approval.ended.is_none() && approval.expires <= now_ms {
                    approval.ended = Some(("expired".to_owned(), None, now_ms));
                    expected.push(approval.id.clone());
                    model.records += 1;
                }
            }
            let expired = store.expire_due(now_ms).unwrap();
            let mut expired: Vec<_> = expired.into_iter().map(|one| one.id).collect();
            expired.sort();
            expected.sort();
            assert_eq!(expired, expected);
        }
        Step::Claim { which, right } => {
            let Some(which) = pick(which) else { return };
            let named = if right {
                digest(&which.to_string())
            } else {
                "plan-of-another".to_owned()
            };
            let claiming = store.claim(&model.approvals[which].id, &named, "gateway", now_ms);
            assert_eq!(told(claiming, tell_claiming), model.claim(which, right));
        }
        Step::Finish { which, outcome } => {
            let Some(which) = pick(which) else { return };
            let outcome = exit_outcome(outcome);
            let result = store.finish_claim(&model.approvals[which].id, &outcome, now_ms);
            let said = told(result, |()| "ok".to_owned());
            assert_eq!(
                said,
                model.end_claim(which, &outcome.to_value().to_string())
            );
        }
        Step::MarkUnknown { which } => {
            let Some(which) = pick(which) else { return };
            let result = store.mark_unknown(&model.approvals[which].id, now_ms);
            let said = told(result, |()| "ok".to_owned());
            assert_eq!(said, model.end_claim(which, "unknown"));
        }
        Step::UseGrant { content } => use_grant(content, store, model),
        Step::EndSession => {
            let grants = model
                .approvals
                .iter_mut()
                .filter_map(|approval| approval.grant.take());
            let live = grants.filter(|grant| grant.alive(now_ms)).count();
            // Grants that allow nothing any more may or may not have been forgotten before.
            let ended = store.end_session(SESSION, now_ms).unwrap();
            assert!(ended >= live, "{ended} {live}");
            model.records += ended as u64;
        }
        Step::Pass { ms } => model.now += ms,
        Step::Purge => {
            store.purge(now_ms).unwrap();
            model.purge();
        }
        Step::Reopen => unreachable!("done by the caller"),
    }
}

/// Which of several equal grants is used is not said; that it is one that may be, is.
fn use_grant(content: usize, store: &Store, model: &mut Model) {
    let now = model.now;
    let content_digest = format!("content-{content}");
    let key = GrantKey {
        content_digest: &content_digest,
        agent: "main",
        session_key: SESSION,
        host: "gateway",
        node: None,
    };
    let used = store.use_grant(&key, "gateway", now).unwrap();
    let may_be_used = |approval: &&mut Modelled| {
        approval.content == content
            && approval
                .grant
                .as_ref()
                .is_some_and(|grant| grant.alive(now))
    };
    let mut usable: Vec<_> = model.approvals.iter_mut().filter(may_be_used).collect();
    let Some(used) = used else {
        assert!(usable.is_empty(), "a grant was not found");
        return;
    };
    let grant = usable
        .iter_mut()
        .find(|approval| approval.id == used.approval_id)
        .and_then(|approval| approval.grant.as_mut())
        .expect("a grant that allows this");
    grant.take();
    assert_eq!(used.uses_left, grant.left);
    store
        .finish_claim(&used.run_id, &RecordedOutcome::default(), now)
        .unwrap();
    model.records += 2;
}

/// All that can be read of the store is what the model says.
fn compare(store: &Store, model: &Model) {
    assert_eq!(verified(store).seq, model.records);
    let mut pending: Vec<_> = model
        .approvals
        .iter()
        .enumerate()
        .filter(|(_, approval)| approval.ended.is_none())
        .collect();
    pending.sort_by_key(|(number, one)| (one.expires <= model.now, one.expires, *number));
    let pending: Vec<_> = pending
        .into_iter()
        .map(|(_, approval)| &approval.id)
        .collect();
    let page = store.pending_approvals(model.now, 0, 1000).unwrap();
    assert_eq!(
        page.approvals.iter().map(|one| &one.id).collect::<Vec<_>>(),
        pending
    );

    let mut unfinished = Vec::new();
    for modelled in &model.approvals {
        let found = store.approval(&modelled.id);
        if modelled.forgotten {
            assert_eq!(found.unwrap_err().code(), "APPROVAL_NOT_FOUND");
            continue;
        }
        let found = found.unwrap();
        let ended = found.ended.map(|ended| (ended.decider, ended.at_ms));
        let expected = modelled.ended.as_ref();
        let expected = expected.map(|(_, who, at)| (who.map(|who| PEOPLE[who].to_owned()), *at));
        assert_eq!(ended, expected);
        let claim = found.claim.map(|claim| ModelledClaim {
            at: claim.claimed_at_ms,
            state: tell_state(&claim.state),
        });
        assert_eq!(claim, modelled.claim);
        if claim.is_some_and(|claim| claim.state == "unfinished") {
            unfinished.push(modelled.id.clone());
        }
    }
    let left = store.unfinished_claims().unwrap();
    let mut left: Vec<_> = left.into_iter().map(|claim| claim.id).collect();
    left.sort();
    unfinished.sort();
    assert_eq!(left, unfinished);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_the_model_says(steps in prop::collection::vec(step(), 1..120)) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        let mut model = Model { now: NOW, ..Model::default() };
        for step in &steps {
            if let Step::Reopen = step {
                drop(store);
                store = Store::open(directory.path()).unwrap();
            } else {
                take(step, &store, &mut model);
            }
        }
        compare(&store, &model);
    }
}
