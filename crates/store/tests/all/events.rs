//! Events of sessions, open runs and stale results: each once, none lost without being counted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common::{NOW, code, decided, digest, verified};
use interlock_store::{
    ApprovalDecision, Claiming, DATABASE_NAME, EVENT_KEPT_MS, EVENT_KEPT_WHEN_DELIVERED_MS,
    EventKind, MAX_EVENT_BYTES, MAX_EVENTS, MAX_SESSION_EVENTS, NewEvent, NewRun, OpenRun,
    STALE_KEPT_MS, Store, StoreError, WaitingEvents,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const SESSIONS: [&str; 2] = ["agent:main:main", "agent:main:other"];

fn open() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    (directory, store)
}

fn event<'a>(session: usize, kind: usize, run_id: &'a str, payload: &'a Value) -> NewEvent<'a> {
    NewEvent {
        session_key: SESSIONS[session],
        agent: "main",
        kind: EventKind::ALL[kind],
        run_id,
        text: run_id,
        payload,
        wakes: true,
        now_ms: NOW,
    }
}

fn append(store: &Store, new: &NewEvent<'_>) -> Result<Option<i64>, StoreError> {
    store.change(|change| change.append_event(new))
}

fn texts(waiting: &WaitingEvents) -> Vec<String> {
    waiting.events.iter().map(|one| one.text.clone()).collect()
}

/// What the model knows of one event.
#[derive(Debug, Clone)]
struct Modelled {
    run: String,
    kind: usize,
    session: usize,
    at: i64,
    delivered: bool,
}

#[derive(Debug, Default)]
struct Model {
    now: i64,
    /// In the order of their time.
    events: Vec<Modelled>,
    dropped: [u64; 2],
}

impl Model {
    fn append(&mut self, session: usize, kind: usize, run: &str) -> bool {
        if self
            .events
            .iter()
            .any(|one| one.run == run && one.kind == kind)
        {
            return false;
        }
        self.events.push(Modelled {
            run: run.to_owned(),
            kind,
            session,
            at: self.now,
            delivered: false,
        });
        let of_session = |one: &Modelled| one.session == session;
        while self.events.iter().filter(|one| of_session(one)).count() > MAX_SESSION_EVENTS {
            let delivered = |one: &Modelled| of_session(one) && one.delivered;
            let first = self.events.iter().position(delivered);
            let first = first.or_else(|| self.events.iter().position(of_session));
            let gone = self.events.remove(first.unwrap());
            self.dropped[session] += u64::from(!gone.delivered);
        }
        true
    }

    fn waiting(&self, session: usize) -> Vec<String> {
        let waits = |one: &&Modelled| one.session == session && !one.delivered;
        let waiting = self.events.iter().filter(waits);
        waiting.map(|one| one.run.clone()).collect()
    }

    fn purge(&mut self) {
        for one in &self.events {
            if !one.delivered && one.at <= self.now - EVENT_KEPT_MS {
                self.dropped[one.session] += 1;
            }
        }
        let now = self.now;
        self.events.retain(|one| {
            let kept = if one.delivered {
                EVENT_KEPT_WHEN_DELIVERED_MS
            } else {
                EVENT_KEPT_MS
            };
            one.at > now - kept
        });
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// So many in one change, of runs that follow each other.
    Append {
        session: usize,
        kind: usize,
        first: u32,
        count: u32,
    },
    Take {
        session: usize,
        limit: usize,
    },
    Told {
        run: u32,
    },
    Pass {
        ms: i64,
    },
    Purge,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let append = (
        prop_oneof![3 => Just(0usize), 1 => Just(1)],
        0..3usize,
        0..2000u32,
        prop_oneof![3 => 1..5u32, 2 => 300..600u32],
    );
    prop_oneof![
        6 => append.prop_map(|(session, kind, first, count)| {
            Step::Append { session, kind, first, count }
        }),
        3 => (0..2usize, prop_oneof![1..10usize, Just(400), Just(2000)])
            .prop_map(|(session, limit)| Step::Take { session, limit }),
        2 => (0..2000u32).prop_map(|run| Step::Told { run }),
        2 => prop_oneof![0..9i64, Just(EVENT_KEPT_WHEN_DELIVERED_MS), Just(EVENT_KEPT_MS)]
            .prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::Purge),
        1 => Just(Step::Reopen),
    ]
}

fn take(step: &Step, store: &Store, model: &mut Model) {
    match *step {
        Step::Append {
            session,
            kind,
            first,
            count,
        } => {
            let payload = json!({});
            let appended: Vec<bool> = store
                .change(|change| {
                    (first..first + count)
                        .map(|run| {
                            let run = run.to_string();
                            let mut new = event(session, kind, &run, &payload);
                            new.now_ms = model.now;
                            Ok::<_, StoreError>(change.append_event(&new)?.is_some())
                        })
                        .collect()
                })
                .unwrap();
            let modelled = (first..first + count)
                .map(|run| model.append(session, kind, &run.to_string()))
                .collect::<Vec<_>>();
            assert_eq!(appended, modelled);
        }
        Step::Take { session, limit } => {
            let taken = store.waiting_events(SESSIONS[session], limit).unwrap();
            let expected = model.waiting(session);
            let count = expected.len().min(limit).min(1000);
            assert_eq!(texts(&taken), expected[..count]);
            assert_eq!(taken.dropped, model.dropped[session]);
            let last = taken.events.last().map_or(0, |one| one.id);
            let marked = store.mark_delivered(SESSIONS[session], last, taken.dropped, model.now);
            assert_eq!(marked.unwrap(), count);
            model.dropped[session] = 0;
            let waits = |one: &&mut Modelled| one.session == session && !one.delivered;
            let waiting = model.events.iter_mut().filter(waits);
            waiting.take(count).for_each(|one| one.delivered = true);
        }
        Step::Told { run } => {
            let run = run.to_string();
            let told = store.mark_run_events_delivered(&run, model.now).unwrap();
            let waits = |one: &&mut Modelled| one.run == run && !one.delivered;
            let mut count = 0;
            for one in model.events.iter_mut().filter(waits) {
                one.delivered = true;
                count += 1;
            }
            assert_eq!(told, count);
        }
        Step::Pass { ms } => model.now += ms,
        Step::Purge => {
            store.purge_events(model.now).unwrap();
            model.purge();
        }
        Step::Reopen => unreachable!("done by the caller"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_does_what_the_model_says(steps in prop::collection::vec(step(), 1..40)) {
        let (directory, mut store) = open();
        let mut model = Model { now: NOW, ..Model::default() };
        for step in &steps {
            if let Step::Reopen = step {
                drop(store);
                store = Store::open(directory.path()).unwrap();
            } else {
                take(step, &store, &mut model);
            }
        }
        for (session, key) in SESSIONS.iter().enumerate() {
            let waiting = store.waiting_events(key, 1000).unwrap();
            assert_eq!(texts(&waiting), model.waiting(session));
            assert_eq!(waiting.dropped, model.dropped[session]);
        }
        let mut all = Vec::new();
        loop {
            let after = all.last().map_or(0, |one: &interlock_store::SessionEvent| one.id);
            let page = store.events_after(after, 700).unwrap();
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        let found: Vec<_> = all.iter().map(|one| (&one.run_id, one.kind)).collect();
        let expected = model.events.iter();
        let expected: Vec<_> = expected.map(|one| (&one.run, EventKind::ALL[one.kind])).collect();
        assert_eq!(found, expected);
        // Events are no records of the audit.
        assert_eq!(verified(&store).seq, 0);
    }
}

#[test]
fn an_event_reads_back_as_it_was_written() {
    let (_directory, store) = open();
    let payload = json!({ "exitCode": 3, "output": "a\nb" });
    let id = append(&store, &event(0, 1, "run-1", &payload)).unwrap();
    let waiting = store.waiting_events(SESSIONS[0], 10).unwrap();
    assert_eq!(waiting.events.len(), 1);
    let found = &waiting.events[0];
    assert_eq!(Some(found.id), id);
    assert_eq!(found.kind, EventKind::Finished);
    assert_eq!(found.kind.as_str(), "exec-finished");
    assert_eq!(found.payload, payload);
    assert!(found.wakes);
    assert_eq!((found.created_at_ms, found.delivered_at_ms), (NOW, None));
    store
        .mark_delivered(SESSIONS[0], found.id, 0, NOW + 5)
        .unwrap();
    let all = store.events_after(0, 10).unwrap();
    assert_eq!(all[0].delivered_at_ms, Some(NOW + 5));
}

#[test]
fn an_event_is_part_of_its_change() {
    let (_directory, store) = open();
    let payload = json!({});
    let failed: Result<(), StoreError> = store.change(|change| {
        change.append_event(&event(0, 2, "run-1", &payload))?;
        change.mark_stale(SESSIONS[0], "ls", NOW)?;
        change.mark_unknown("no such run", NOW)
    });
    assert_eq!(code(failed), "RUN_NOT_FOUND");
    assert!(store.events_after(0, 10).unwrap().is_empty());
    assert_eq!(store.stale_marks().unwrap().since(SESSIONS[0], "ls"), None);
}

#[test]
fn what_is_too_long_is_refused() {
    let (_directory, store) = open();
    let long = "x".repeat(MAX_EVENT_BYTES + 1);
    let payload = json!({});
    let mut new = event(0, 0, "run-1", &payload);
    new.text = &long;
    assert_eq!(code(append(&store, &new)), "INPUT_TOO_LARGE");
    let payload = json!({ "output": long });
    let new = event(0, 0, "run-1", &payload);
    assert_eq!(code(append(&store, &new)), "INPUT_TOO_LARGE");
}

fn run<'a>(id: &'a str, approval_id: Option<&'a str>) -> NewRun<'a> {
    NewRun {
        id,
        approval_id,
        agent: "main",
        session_key: SESSIONS[0],
        host: "gateway",
        node: None,
        command: "cargo test",
        waiter: "process:1",
        now_ms: NOW,
    }
}

#[test]
fn a_run_is_closed_by_one_and_announced_once() {
    let (_directory, store) = open();
    store
        .change(|change| {
            change.open_run(&run("a", None))?;
            change.open_run(&run("b", Some("b")))
        })
        .unwrap_or_else(|error: StoreError| panic!("{error}"));
    let change = |work: &dyn Fn(&interlock_store::Change<'_>) -> Option<OpenRun>| {
        store
            .change(|change| Ok::<_, StoreError>(work(change)))
            .unwrap()
    };
    let announce = || change(&|change| change.announce_run("b").unwrap());
    assert!(announce().is_some_and(|run| run.announced));
    assert_eq!(announce(), None);
    store
        .change(|change| change.to_background("b", "brave-otter"))
        .map(|changed| assert!(changed))
        .unwrap();
    let background = store.background_run("brave-otter").unwrap().unwrap();
    assert_eq!(background.id, "b");
    assert_eq!(store.open_runs_of(SESSIONS[0]).unwrap().len(), 2);
    let close = || change(&|change| change.close_run("b").unwrap());
    assert_eq!(close(), Some(background));
    assert_eq!(close(), None);
    let left: Vec<_> = store.open_runs().unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].id, "a");
    assert!(
        !store
            .change(|change| change.to_background("b", "brave-otter"))
            .unwrap()
    );
}

#[test]
fn runs_that_were_claimed_by_an_earlier_version_are_open() {
    let (directory, store) = open();
    let id = decided(&store, "make", ApprovalDecision::AllowOnce).id;
    let claim = store.claim(&id, &digest("make"), "process:1", NOW + 2);
    assert_eq!(claim.unwrap(), Claiming::Claimed);
    let record = json!({ "runId": id, "session": "brave-otter", "state": "background" });
    store
        .append(interlock_store::AuditKind::RunStarted, &record, NOW + 3)
        .unwrap();
    drop(store);
    // As the fourth version left it.
    let known = "'approvals_document', 'audit', 'approval', 'approval_content', 'approval_delivery', \
                 'run_claim', 'run_grant'";
    let database = rusqlite::Connection::open(directory.path().join(DATABASE_NAME)).unwrap();
    let later: Vec<String> = database
        .prepare(&format!(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' \
             AND name NOT IN ({known})"
        ))
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for table in later {
        database
            .execute_batch(&format!("DROP TABLE {table}"))
            .unwrap();
    }
    database
        .execute_batch(
            "DROP INDEX approval_waiting_of;
            ALTER TABLE run_grant DROP COLUMN preview;
            ALTER TABLE run_grant DROP COLUMN seal;
            ALTER TABLE approval DROP COLUMN seal;
            ALTER TABLE approval DROP COLUMN deny_reason;
            ALTER TABLE approvals_document DROP COLUMN seal;
            ALTER TABLE approvals_document DROP COLUMN audit_seq;
            PRAGMA user_version = 4;",
        )
        .unwrap();
    drop(database);
    let store = Store::open(directory.path()).unwrap();
    let runs = store.open_runs().unwrap();
    let expected = OpenRun {
        id: id.clone(),
        approval_id: Some(id),
        agent: "main".to_owned(),
        session_key: SESSIONS[0].to_owned(),
        host: "gateway".to_owned(),
        node: None,
        command: "make".to_owned(),
        waiter: "process:1".to_owned(),
        started_at_ms: NOW + 2,
        session: Some("brave-otter".to_owned()),
        announced: false,
    };
    assert_eq!(runs, [expected]);
}

#[test]
fn a_mark_of_stale_results_belongs_to_one_session_and_one_command() {
    let (_directory, store) = open();
    let mark = |at| {
        store
            .change(|change| change.mark_stale(SESSIONS[0], "ls -l", at))
            .unwrap();
    };
    mark(NOW + 5);
    // A clock that went back takes nothing away.
    mark(NOW);
    let marks = store.stale_marks().unwrap();
    assert_eq!(marks.since(SESSIONS[0], "ls -l"), Some(NOW + 5));
    assert_eq!(marks.since(SESSIONS[0], "ls  -l"), None);
    assert_eq!(marks.since(SESSIONS[1], "ls -l"), None);
    assert_eq!(store.purge_stale(NOW + STALE_KEPT_MS).unwrap(), 0);
    assert_eq!(store.purge_stale(NOW + 5 + STALE_KEPT_MS).unwrap(), 1);
    assert_eq!(
        store.stale_marks().unwrap().since(SESSIONS[0], "ls -l"),
        None
    );
}

/// A caller names as many sessions as it likes.
#[test]
fn there_is_an_end_to_the_events_of_all_sessions_together() {
    let (_directory, store) = open();
    let nothing = json!({});
    let count = MAX_EVENTS + 2_000;
    let numbers: Vec<usize> = (0..count).collect();
    for piece in numbers.chunks(5_000) {
        let written = store.change(|change| {
            for number in piece {
                let (session, run) = (format!("agent:main:{number}"), format!("run-{number}"));
                let new = NewEvent {
                    session_key: &session,
                    ..event(0, 1, &run, &nothing)
                };
                change.append_event(&new)?;
            }
            Ok::<_, StoreError>(())
        });
        written.unwrap();
    }
    let of = |number: usize| {
        let session = format!("agent:main:{number}");
        store.waiting_events(&session, 10).unwrap()
    };
    let dropped = of(0);
    assert_eq!((dropped.events.len(), dropped.dropped), (0, 1));
    assert_eq!(of(count - 1).events.len(), 1);
    let mut kept = (0..count).filter(|number| !of(*number).events.is_empty());
    let oldest = kept.next().unwrap();
    assert!(
        (count - MAX_EVENTS - 256..=count - MAX_EVENTS).contains(&oldest),
        "{oldest}"
    );
}
