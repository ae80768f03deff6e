//! Processes that are killed at any point, again and again: what they had told is there, and
//! nothing ran twice.
//!
//! `INTERLOCK_CRASH_ROUNDS` sets the number of rounds, `INTERLOCK_CRASH_SEED` repeats the choices.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::num::NonZeroU32;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{NOW, SURFACE, answer, delivery, exit_outcome, request, worker};
use interlock_store::{
    ApprovalDecision, AuditHead, AuditKind, AuditVerification, ClaimState, Claiming, DATABASE_NAME,
    Decided, DeliveryState, GrantKey, Lease, RecordedOutcome, Store,
};

const WORKER: &str = "INTERLOCK_STORE_CRASH_WORKER";

/// Of each lease that the workers give.
const LEASE_USES: u32 = 3;

/// The same choices for the same seed.
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

fn seed() -> u64 {
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .subsec_nanos()
    };
    let given = std::env::var("INTERLOCK_CRASH_SEED").ok();
    given.map_or_else(|| u64::from(now()) | 1, |seed| seed.parse().unwrap())
}

fn raw(directory: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(directory.join(DATABASE_NAME)).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection
}

fn column(directory: &Path, statement: &str) -> Vec<String> {
    let connection = raw(directory);
    let mut statement = connection.prepare(statement).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// What stands for a run: a line in a file. It happens after the claim and never without one.
fn run(directory: &Path, id: &str) {
    let path = directory.join("runs");
    let mut runs = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    runs.write_all(format!("{id}\n").as_bytes()).unwrap();
}

/// Not a test of its own: the body of the processes that are killed. Everything that it has been
/// promised, it tells.
#[test]
fn crash_worker() {
    let Some(directory) = std::env::var_os(WORKER) else {
        return;
    };
    let directory = Path::new(&directory);
    let mut choices = Choices(seed() ^ u64::from(std::process::id()).wrapping_mul(0x9e37_79b9));
    let store = Store::open(directory).unwrap();
    println!();
    recover(&store, directory);
    for number in 0..100_000 {
        live(
            &store,
            directory,
            &format!("{}-{number}", std::process::id()),
            &mut choices,
        );
    }
}

/// What a start does: what was left behind is unknown, and whatever is allowed and has not run
/// yet, runs.
fn recover(store: &Store, directory: &Path) {
    let me = std::process::id().to_string();
    let gone: HashSet<_> = std::fs::read_to_string(directory.join("killed"))
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect();
    for claim in store.unfinished_claims().unwrap() {
        if gone.contains(&claim.claimer) {
            store.mark_unknown(&claim.id, NOW + 9).unwrap();
            println!("unknown {}", claim.id);
        }
    }
    for id in column(
        directory,
        "SELECT id FROM approval ORDER BY number DESC LIMIT 30",
    ) {
        let digest = store.approval(&id).unwrap().request.plan_digest;
        if store.claim(&id, &digest, &me, NOW + 9).unwrap() == Claiming::Claimed {
            run(directory, &id);
            println!("claimed {id}");
        }
    }
}

/// One approval from its beginning to its end.
fn live(store: &Store, directory: &Path, name: &str, choices: &mut Choices) {
    let me = std::process::id().to_string();
    let lease = Lease {
        expires_in: Duration::from_mins(1),
        max_uses: NonZeroU32::new(LEASE_USES),
    };
    let decision = [
        ApprovalDecision::AllowOnce,
        ApprovalDecision::AllowSession,
        ApprovalDecision::Lease(lease),
        ApprovalDecision::Deny,
    ][usize::try_from(choices.below(4)).unwrap()];
    let asked = request(name);
    let id = store.create_approval(&asked).unwrap().id;
    println!("created {id}");
    let sent = delivery(SURFACE, DeliveryState::Sent, NOW);
    store.record_delivery(&id, &sent).unwrap();
    if choices.below(8) == 0 {
        return; // stays pending
    }
    assert_eq!(store.decide(&answer(&id, decision)).unwrap(), Decided::Won);
    println!("decided {id} {}", decision.as_str());
    if choices.below(8) == 0 {
        return; // the next process claims it
    }
    if store.claim(&id, &asked.plan_digest, &me, NOW + 2).unwrap() == Claiming::Claimed {
        run(directory, &id);
        println!("claimed {id}");
        store.finish_claim(&id, &exit_outcome(0), NOW + 3).unwrap();
        println!("finished {id}");
    }
    let key = GrantKey {
        content_digest: &asked.content_digest,
        agent: &asked.agent,
        session_key: &asked.session_key,
        host: &asked.host,
        node: None,
    };
    for _ in 0..=LEASE_USES {
        if let Some(used) = store.use_grant(&key, &me, NOW + 2).unwrap() {
            run(directory, &used.run_id);
            println!("claimed {}", used.run_id);
            store
                .finish_claim(&used.run_id, &RecordedOutcome::default(), NOW + 3)
                .unwrap();
        }
    }
}

#[test]
fn nothing_is_lost_and_nothing_runs_twice_when_processes_are_killed() {
    let rounds =
        std::env::var("INTERLOCK_CRASH_ROUNDS").map_or(40, |rounds| rounds.parse().unwrap());
    let seed = seed();
    println!("INTERLOCK_CRASH_SEED={seed}");
    let mut choices = Choices(seed);
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let mut promised = Promised::default();
    let mut head = None;
    for round in 0..rounds {
        kill_two(directory, &mut choices, &mut promised);
        head = Some(check(directory, &promised, head.as_ref(), round));
        promised.next_round();
    }
    println!("{} records after {rounds} rounds", head.unwrap().seq);
}

/// All that the killed processes had been told was done.
#[derive(Default)]
struct Promised {
    created: HashSet<String>,
    decided: HashMap<String, String>,
    claimed: HashSet<String>,
    finished: HashSet<String>,
    unknown: HashSet<String>,
    /// The lines of all rounds: nothing is told twice.
    told: HashSet<String>,
}

impl Promised {
    /// What was checked need not be checked again: from then on it is in the chain of records.
    fn next_round(&mut self) {
        let told = std::mem::take(&mut self.told);
        *self = Self {
            told,
            ..Self::default()
        };
    }

    fn hear(&mut self, line: &str) {
        let words: Vec<_> = line.trim_end().split(' ').collect();
        let id = words.get(1).map(|&id| id.to_owned());
        let Some(id) = id else { return };
        match words[0] {
            "created" => drop(self.created.insert(id)),
            "decided" => drop(self.decided.insert(id, words[2].to_owned())),
            "claimed" => drop(self.claimed.insert(id)),
            "finished" => drop(self.finished.insert(id)),
            // Two that start at once may both say so.
            "unknown" => {
                self.unknown.insert(id);
                return;
            }
            _ => return, // of the test program itself
        }
        assert!(self.told.insert(line.to_owned()), "told twice: {line}");
    }
}

/// Starts two processes, lets them tell a few things, and kills them a moment later.
fn kill_two(directory: &Path, choices: &mut Choices, promised: &mut Promised) {
    let mut children = [(); 2].map(|()| worker("crash::crash_worker", WORKER, directory));
    let mut readers: Vec<_> = children
        .iter_mut()
        .map(|child| BufReader::new(child.stdout.take().unwrap()))
        .collect();
    let mut heard = [String::new(), String::new()];
    for _ in 0..choices.below(25) {
        let bytes = readers[0].read_line(&mut heard[0]).unwrap();
        assert_ne!(bytes, 0, "a worker failed: {}", heard[0]);
    }
    for _ in 0..choices.below(200_000) {
        std::hint::spin_loop();
    }
    let mut killed = OpenOptions::new()
        .create(true)
        .append(true)
        .open(directory.join("killed"))
        .unwrap();
    for child in &mut children {
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "a worker failed: {heard:?}");
        writeln!(killed, "{}", child.id()).unwrap();
    }
    for (reader, heard) in readers.iter_mut().zip(&mut heard) {
        reader.read_to_string(heard).unwrap();
        // The last line may have been cut; then it was not told.
        let lines = heard.split_inclusive('\n');
        lines
            .filter(|line| line.ends_with('\n'))
            .for_each(|line| promised.hear(line));
    }
}

/// Everything that must hold after every crash.
fn check(
    directory: &Path,
    promised: &Promised,
    before: Option<&AuditHead>,
    round: u64,
) -> AuditHead {
    let store = Store::open(directory).unwrap();
    let head = match store.verify_audit(before).unwrap() {
        AuditVerification::Intact(head) => head,
        AuditVerification::Broken(broken) => panic!("round {round}: {broken}"),
    };
    assert_eq!(column(directory, "PRAGMA integrity_check"), ["ok"]);
    for id in &promised.created {
        let approval = store.approval(id).unwrap();
        let ending = approval.ended.map(|ended| ended.ending.as_str());
        if let Some(decision) = promised.decided.get(id) {
            assert_eq!(ending, Some(decision.as_str()));
        }
        if let Some(claim) = &approval.claim {
            assert_ne!(ending, None, "claimed, so decided");
            assert_ne!(ending, Some("deny"));
            assert_eq!(claim.approval_id, *id);
        }
    }
    for id in &promised.claimed {
        assert!(store.run_claim(id).unwrap().is_some(), "{id}");
    }
    for id in &promised.finished {
        let state = store.run_claim(id).unwrap().unwrap().state;
        assert!(matches!(state, ClaimState::Finished { .. }), "{id}");
    }
    for id in &promised.unknown {
        let state = store.run_claim(id).unwrap().unwrap().state;
        assert!(matches!(state, ClaimState::Unknown { .. }), "{id}");
    }
    check_runs(directory);
    check_records(directory);
    head
}

/// Each run happened once, after its claim; what is known to have ended did run.
fn check_runs(directory: &Path) {
    let runs = std::fs::read_to_string(directory.join("runs")).unwrap_or_default();
    let claims = "SELECT id || ' ' || state FROM run_claim";
    let mut claims: HashMap<_, _> = column(directory, claims)
        .into_iter()
        .map(|line| {
            line.split_once(' ')
                .map(|(id, state)| (id.to_owned(), state.to_owned()))
        })
        .map(Option::unwrap)
        .collect();
    for id in runs.lines() {
        assert!(
            claims.remove(id).is_some(),
            "{id} ran twice, or without a claim"
        );
    }
    for (id, state) in claims {
        assert_ne!(state, "finished", "{id} ended without having run");
    }
    let overused = "SELECT grant_id FROM run_claim JOIN run_grant ON grant_id = run_grant.id
        WHERE max_uses IS NOT NULL GROUP BY grant_id HAVING count(*) <> max(uses) OR count(*) > 3";
    assert_eq!(column(directory, overused), Vec::<String>::new());
}

/// What is stored and what the audit tells are the same.
fn check_records(directory: &Path) {
    for (kind, field, statement) in [
        (AuditKind::Prompt, "approvalId", "SELECT id FROM approval"),
        (
            AuditKind::Delivery,
            "approvalId",
            "SELECT id FROM approval JOIN approval_delivery USING (number)",
        ),
        (
            AuditKind::Decision,
            "approvalId",
            "SELECT id FROM approval WHERE ending IS NOT NULL",
        ),
        (AuditKind::RunStarted, "runId", "SELECT id FROM run_claim"),
        (
            AuditKind::RunEnded,
            "runId",
            "SELECT id FROM run_claim WHERE state <> 'unfinished'",
        ),
    ] {
        let kind = kind.as_str();
        let told = format!("SELECT body ->> '{field}' FROM audit WHERE kind = '{kind}' ORDER BY 1");
        let stored = format!("{statement} ORDER BY 1");
        assert_eq!(
            column(directory, &told),
            column(directory, &stored),
            "{kind}"
        );
    }
}
