//! The real program, killed at any point between a question and its run: nothing that was told is
//! lost, nothing runs twice, and a decision and what it stores are there together or not at all.
//!
//! `INTERLOCK_CRASH_POINTS` sets the number of kills, `INTERLOCK_CRASH_SEED` repeats the choices.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use interlock_approvals::{AuditHead, AuditVerification};
use interlock_host::{LocalHost, OpenOptions};
use rusqlite::OptionalExtension as _;
use testkit::Machine;

/// Undisturbed lives, to know how long each step takes.
const MEASURED: usize = 5;

/// Of so many lives, one loses its supervisor too.
const SUPERVISOR_DIES: u64 = 12;

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

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap())
}

/// The steps of a life, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Ask,
    Approve,
    Run,
}

const STEPS: [Step; 3] = [Step::Ask, Step::Approve, Step::Run];

/// One command from its question to its run.
struct Life {
    name: String,
    is_always: bool,
}

impl Life {
    fn new(number: u64, is_always: bool) -> Self {
        Self {
            name: format!("mark-{number}"),
            is_always,
        }
    }

    /// A second run would leave a second file.
    fn command(&self) -> String {
        format!("cp --backup=numbered seed {}", self.name)
    }

    fn marks(&self, machine: &Machine) -> usize {
        let entries = fs::read_dir(machine.work()).unwrap().flatten();
        let backup = format!("{}.~", self.name);
        entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .filter(|name| *name == self.name || name.starts_with(&backup))
            .count()
    }

    fn program(&self, machine: &Machine, step: Step) -> Command {
        let command = self.command();
        let id = || self.stored(machine).unwrap().id;
        let mut program = match step {
            Step::Ask => machine.command(&["exec", "--no-wait", "--", &command]),
            Step::Approve if self.is_always => {
                machine.command(&["approvals", "approve", &id(), "--always"])
            }
            Step::Approve => machine.command(&["approvals", "approve", &id()]),
            Step::Run => machine.command(&["exec", "--approval", &id(), "--", &command]),
        };
        program.stdout(Stdio::null()).stderr(Stdio::null());
        program
    }

    /// Its approval, of which there is never more than one.
    fn stored(&self, machine: &Machine) -> Option<Stored> {
        let statement = "
            SELECT id, ending, (SELECT state FROM run_claim WHERE approval_id = approval.id),
                count(*) OVER ()
            FROM approval JOIN approval_content USING (number) WHERE preview = ?1";
        let found = machine
            .database()
            .query_row(statement, [self.command()], |row| {
                Ok(Stored {
                    id: row.get(0)?,
                    ending: row.get(1)?,
                    claim: row.get(2)?,
                    count: row.get(3)?,
                })
            });
        let found = found.optional().unwrap();
        assert!(found.as_ref().is_none_or(|found| found.count == 1));
        found
    }

    /// Whether this step has had its effect.
    fn is_done(&self, machine: &Machine, step: Step) -> bool {
        let stored = self.stored(machine);
        stored.is_some_and(|stored| match step {
            Step::Ask => true,
            Step::Approve => stored.ending.is_some(),
            Step::Run => stored.claim.is_some(),
        })
    }

    /// What is there after a step, killed or not: pending, decided or claimed, and nothing of what
    /// comes later.
    fn check(&self, machine: &Machine, last: Step) {
        let marks = self.marks(machine);
        let Some(stored) = self.stored(machine) else {
            assert_eq!((last, marks), (Step::Ask, 0), "{}: lost", self.name);
            return;
        };
        let allows = if self.is_always {
            "allow-always"
        } else {
            "allow-once"
        };
        match &stored.ending {
            None => assert!(last <= Step::Approve, "{stored:?}"),
            Some(ending) => assert_eq!(ending, allows),
        }
        match stored.claim.as_deref() {
            None => {
                assert_eq!(marks, 0, "{stored:?}: ran without a claim");
            }
            Some(state) => {
                assert_eq!(last, Step::Run);
                assert!(stored.ending.is_some(), "{stored:?}");
                assert!(marks <= 1, "{stored:?}: ran {marks} times");
                assert!(marks == 1 || state != "finished" || Self::may_fail(machine, &stored.id));
            }
        }
    }

    /// A run that is known to have ended and left nothing was ended itself, or never began.
    fn may_fail(machine: &Machine, id: &str) -> bool {
        let outcome: String = machine
            .database()
            .query_row("SELECT outcome FROM run_claim WHERE id = ?1", [id], |row| {
                row.get(0)
            })
            .unwrap();
        !outcome.contains("\"exitCode\":0")
    }
}

#[derive(Debug)]
struct Stored {
    id: String,
    ending: Option<String>,
    claim: Option<String>,
    count: i64,
}

/// How long each step takes when it is not disturbed.
fn measure(machine: &Machine) -> BTreeMap<Step, Duration> {
    let mut times: BTreeMap<Step, Vec<Duration>> = BTreeMap::new();
    for number in 0..MEASURED {
        let life = Life {
            name: format!("measured-{number}"),
            is_always: number % 2 == 0,
        };
        for step in STEPS {
            let mut program = life.program(machine, step);
            let began = Instant::now();
            program.status().unwrap();
            times.entry(step).or_default().push(began.elapsed());
            assert!(life.is_done(machine, step), "{step:?}");
        }
    }
    times
        .into_iter()
        .map(|(step, mut times)| {
            times.sort();
            (step, times[times.len() / 2])
        })
        .collect()
}

/// Opens the state as the next process does, and looks at all that must hold.
fn reopen(machine: &Machine, head: Option<&AuditHead>) -> AuditHead {
    let options = OpenOptions {
        state_dir: Some(machine.state()),
        ..OpenOptions::default()
    };
    let (host, _) = LocalHost::open(options).unwrap();
    let head = match host.approvals().audit_verify(head).unwrap() {
        AuditVerification::Intact(head) => head,
        AuditVerification::Broken(broken) => panic!("{broken}"),
    };
    let (document, _) = host.document().unwrap();
    let scopes = document.agents.values();
    let entries: Vec<String> = scopes
        .flat_map(|scope| &scope.allowlist)
        .map(|entry| entry.command_text.clone().unwrap())
        .collect();
    let stored: BTreeSet<&String> = entries.iter().collect();
    assert_eq!(stored.len(), entries.len(), "stored twice");
    let database = machine.database();
    let mut decided = database
        .prepare(
            "SELECT preview FROM approval JOIN approval_content USING (number)
             WHERE ending = 'allow-always'",
        )
        .unwrap();
    let decided: BTreeSet<String> = decided
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(stored, decided.iter().collect(), "an entry for a decision");
    head
}

#[test]
fn killed_at_any_point_it_runs_at_most_once_and_forgets_nothing() {
    let points = number("INTERLOCK_CRASH_POINTS").unwrap_or(200);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("INTERLOCK_CRASH_SEED").unwrap_or(u64::from(clock.subsec_nanos()) | 1);
    println!("INTERLOCK_CRASH_SEED={seed}");
    let mut choices = Choices(seed);
    let machine = Machine::new();
    machine.start();
    machine.file("work/seed", "seed\n");
    let times = measure(&machine);
    let mut head = None;
    // How many kills of each step came before its effect, and how many after.
    let mut kills: BTreeMap<Step, (u64, u64)> = BTreeMap::new();
    for number in 0..points.div_ceil(3) {
        let life = Life::new(number, choices.below(2) == 0);
        for step in STEPS {
            // Some come a little too late, and some hit the very end.
            let longest = u64::try_from(times[&step].as_micros()).unwrap() * 5 / 4;
            let delay = Duration::from_micros(choices.below(longest));
            let mut child = life.program(&machine, step).spawn().unwrap();
            std::thread::sleep(delay);
            child.kill().unwrap();
            let is_killed = child.wait().unwrap().signal() == Some(9);
            if step == Step::Run && choices.below(SUPERVISOR_DIES) == 0 {
                for pid in machine.supervisors() {
                    let pid = pid.to_string();
                    let _ = Command::new("/bin/kill").args(["-KILL", &pid]).status();
                }
            }
            let is_done = life.is_done(&machine, step);
            let (before, after) = kills.entry(step).or_default();
            *before += u64::from(is_killed && !is_done);
            *after += u64::from(is_killed && is_done);
            head = Some(reopen(&machine, head.as_ref()));
            life.check(&machine, step);
            // The next process goes on from there. A run is tried again in any case.
            if !is_done || step == Step::Run {
                life.program(&machine, step).status().unwrap();
            }
            assert!(life.is_done(&machine, step), "{}: {step:?}", life.name);
            life.check(&machine, step);
        }
    }
    println!("killed before and after the effect: {kills:?}; usual times: {times:?}");
    let hit: u64 = kills.values().map(|(before, after)| before + after).sum();
    assert!(hit > 0, "nothing was killed");
    settle(&machine, points.div_ceil(3));
    reopen(&machine, head.as_ref());
    machine.ok(&["audit", "verify"]);
}

/// All runs have ended, each was told once, and none left more than one mark.
fn settle(machine: &Machine, lives: u64) {
    let count = |statement: &str| -> i64 {
        let database = machine.database();
        database.query_row(statement, [], |row| row.get(0)).unwrap()
    };
    testkit::eventually("all have ended", || {
        machine.pending();
        count("SELECT count(*) FROM open_run") == 0
    });
    let lives = i64::try_from(lives).unwrap() + i64::try_from(MEASURED).unwrap();
    for kind in ["prompt", "decision", "run-started", "run-ended"] {
        let of_kind = format!("FROM audit WHERE kind = '{kind}'");
        assert_eq!(
            count(&format!("SELECT count(*) {of_kind}")),
            lives,
            "{kind}"
        );
        let distinct = format!("SELECT count(DISTINCT body ->> 'approvalId') {of_kind}");
        assert_eq!(count(&distinct), lives, "{kind}");
    }
    let ran = count("SELECT count(*) FROM run_claim WHERE outcome LIKE '%\"exitCode\":0%'");
    let marks = fs::read_dir(machine.work()).unwrap().flatten();
    let marks: Vec<String> = marks
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name != "seed")
        .collect();
    assert!(marks.iter().all(|name| !name.contains('~')), "{marks:?}");
    let marks = i64::try_from(marks.len()).unwrap();
    assert!(ran <= marks && marks <= lives, "{ran} {marks} {lives}");
    assert!(ran > 0, "nothing ran at all");
    let integrity: String = machine
        .database()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(integrity, "ok");
}
