//! One run after another in one process: which process may have a second one, and what that finds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod sessions;
mod support;

use std::collections::BTreeSet;

use interlock_plan::{PtySize, RunPlan};
use interlock_run::Leftovers;
use interlock_run::cgroup::Limits;
use interlock_run::supervisor::Manner;
use sessions::{State, end_of, eventually, is_alive, kill, patient};

/// Runs a text that writes numbers, and gives them.
fn numbers(state: &State, plan: &RunPlan, manner: &Manner) -> Option<Vec<i32>> {
    let conversation = state.start(plan, manner).ok()?;
    let text = end_of(&conversation).shown.text;
    conversation.taken().unwrap();
    let words = text.split_ascii_whitespace();
    Some(words.map(|word| word.parse().unwrap()).collect())
}

/// Below which process a run is that leaves nothing behind.
fn shim(state: &State) -> i32 {
    let plan = state.shell("echo $PPID");
    numbers(state, &plan, &patient()).unwrap()[0]
}

/// Whether one of many runs that come later is below this process.
fn has_another_run(state: &State, shim_before: i32) -> bool {
    (0..20).any(|_| shim(state) == shim_before)
}

#[test]
fn a_process_whose_run_left_nothing_behind_has_the_next_one() {
    let state = State::new();
    let all: Vec<i32> = (0..50).map(|_| shim(&state)).collect();
    let different: BTreeSet<&i32> = all.iter().collect();
    assert!(different.len() < all.len() / 2, "{all:?}");
}

#[test]
fn a_process_that_still_has_one_below_it_has_no_other_run() {
    let state = State::new();
    let keep = Manner {
        leftovers: Leftovers::Keep,
        ..patient()
    };
    let plan = state.shell("sleep 600 >/dev/null 2>&1 & echo $PPID $!");
    let [used, left] = numbers(&state, &plan, &keep).unwrap()[..] else {
        panic!("two numbers");
    };
    assert!(!has_another_run(&state, used));
    assert!(is_alive(left), "it was to stay");
    kill(left);
}

#[test]
fn a_process_that_had_a_terminal_has_no_other_run() {
    let state = State::new();
    let mut plan = state.shell("echo $PPID");
    plan.pty = Some(PtySize {
        columns: 80,
        rows: 24,
    });
    let used = numbers(&state, &plan, &patient()).unwrap()[0];
    assert!(!has_another_run(&state, used));
}

#[test]
fn a_process_that_had_limits_has_no_other_run() {
    let state = State::new();
    let limited = Manner {
        limits: Limits {
            pids: Some(50),
            ..Limits::default()
        },
        ..patient()
    };
    let plan = state.shell("echo $PPID");
    let Some(used) = numbers(&state, &plan, &limited) else {
        println!("skipped: this user may not set limits");
        return;
    };
    assert!(!has_another_run(&state, used[0]));
}

/// What outlives the run is ended before anybody else gets its process.
#[test]
fn the_next_run_finds_nothing_of_the_last() {
    let state = State::new();
    let hide = "(setsid sleep 600 >/dev/null 2>&1 &) ; cd /; umask 077; export SECRET=1; ulimit -n 20; echo $PPID";
    let look =
        "echo $PPID; umask; ulimit -n; pwd; echo SECRET=$SECRET; ps -o pid= --ppid $PPID | wc -l";
    let usual = state.run(look).shown.text;
    let usual: Vec<&str> = usual.lines().skip(1).collect();
    let mut used = BTreeSet::new();
    let mut met = false;
    for _ in 0..20 {
        used.extend(numbers(&state, &state.shell(hide), &patient()).unwrap());
        let found = state.run(look).shown.text;
        let (shim, found) = found.split_once('\n').unwrap();
        met |= used.contains(&shim.parse().unwrap());
        assert_eq!(found.lines().collect::<Vec<_>>(), usual);
    }
    assert!(met, "no run was below a process of one before it");
}

/// A name is told to whoever ordered the run: it must not mean another one soon after.
#[test]
fn every_run_has_a_name_and_files_of_its_own() {
    let state = State::new();
    let mut names = BTreeSet::new();
    for number in 0..30 {
        // Some write too much for an answer, and are kept in files; some write nothing.
        let text = match number % 3 {
            0 => "true",
            1 => "echo small",
            _ => "head -c 100000 /dev/zero | tr '\\0' x",
        };
        let conversation = state.start(&state.shell(text), &patient()).unwrap();
        let ended = end_of(&conversation);
        let expected = [0, 6, 100_000][number % 3];
        assert_eq!(ended.totals.bytes, expected, "{text}");
        assert_eq!(ended.shown.text.len() as u64, expected);
        assert!(names.insert(conversation.started().session.name.clone()));
        conversation.taken().unwrap();
    }
    eventually("nothing is kept of what was taken", || {
        state.client.list().is_empty()
    });
}
