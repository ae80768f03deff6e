//! After many runs of every untidy kind nothing is left: no process, no zombie, no descriptor, no
//! control group, no directory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use interlock_engine::{Leftovers, Signal};
use interlock_plan::RunPlan;
use interlock_supervisor::{About, Manner, Waited};
use rustix::process::Pid;
use testkit::plans::{Mark, has};
use testkit::supervised::{State, children, descriptors, eventually, guards, settled};

const AT_ONCE: usize = 32;

/// How many are run by default.
const RUNS: usize = 1000;

/// Longer than a run waits for those who collect its processes.
const STANDSTILL: Duration = Duration::from_millis(1400);

/// How a run is ended that does not end by itself.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Itself,
    TimeOut,
    Kill(Signal),
}

/// What runs do, and how each is ended.
const KINDS: &[(&str, End)] = &[
    ("echo tidy", End::Itself),
    ("sleep 600 & echo background", End::Itself),
    ("(sleep 600 >/dev/null 2>&1 &); exit 3", End::Itself),
    ("((sleep 600 &) &) ; echo twice", End::Itself),
    // A daemon in a session of its own that does not listen and has closed everything.
    (
        "setsid sh -c 'trap \"\" TERM HUP; exec <&- >&- 2>&-; while :; do sleep 600; done' & true",
        End::Itself,
    ),
    // A child that ended and that its parent never asks about.
    ("sh -c 'true & exec sleep 600' & true", End::Itself),
    (
        "trap '' TERM HUP INT; exec <&- >&- 2>&-; sleep 600 & exit 0",
        End::Itself,
    ),
    ("trap '' TERM; while :; do sleep 600; done", End::TimeOut),
    (
        "trap '' TERM; sleep 600 & wait; wait",
        End::Kill(Signal::TERM),
    ),
    (
        "(setsid sleep 600 &); exec sleep 600",
        End::Kill(Signal::KILL),
    ),
];

fn plan(state: &State, (text, end): (&str, End)) -> RunPlan {
    let mut plan = state.shell(text);
    plan.timeout_ms = (end == End::TimeOut).then_some(30);
    plan
}

/// The control groups of a supervisor's runs, wherever they are.
fn groups(supervisor: i32) -> Vec<PathBuf> {
    fn search(directory: &Path, prefix: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                found.push(entry.path());
            }
            search(&entry.path(), prefix, found);
        }
    }
    let mut found = Vec::new();
    let prefix = format!("interlock-run-{supervisor}-");
    search(Path::new("/sys/fs/cgroup"), &prefix, &mut found);
    found
}

/// The supervisor, once nothing of its first run is left in it.
fn calm(state: &State) -> About {
    eventually("a calm start", || {
        let about = state.supervisor();
        about.running == 0 && children(about.pid).len() == 2
    });
    state.supervisor()
}

fn session_directories(state: &State) -> usize {
    fs::read_dir(state.path().join("sessions")).unwrap().count()
}

#[test]
fn many_untidy_runs_leave_nothing() {
    let runs: usize = match std::env::var("INTERLOCK_LEAK_RUNS") {
        Ok(number) => number.parse().unwrap(),
        Err(_) => RUNS,
    };
    untidy_runs_leave_nothing(runs, |_| {});
}

/// All times are over at once when a machine goes on that stood still: who was waited for has had
/// no time at all.
#[test]
fn a_machine_that_stands_still_leaves_nothing() {
    untidy_runs_leave_nothing(RUNS / 4, |about| {
        for _ in 0..3 {
            let mut all = vec![about.guard_pid, about.pid];
            all.extend(children(about.pid).iter().map(|shim| shim.pid));
            let signal_all = |signal| {
                for pid in all.iter().filter_map(|pid| Pid::from_raw(*pid)) {
                    let _ = rustix::process::kill_process(pid, signal);
                }
            };
            signal_all(Signal::STOP);
            std::thread::sleep(STANDSTILL);
            signal_all(Signal::CONT);
            std::thread::sleep(STANDSTILL / 4);
        }
    });
}

/// `meanwhile` is done beside the runs.
fn untidy_runs_leave_nothing(runs: usize, meanwhile: impl Fn(&About) + Sync) {
    if !has("setsid") {
        return;
    }
    let state = State::new();
    let manner = Manner {
        wait_ms: None,
        grace_ms: 30,
        cleanup_ms: 1,
        leftovers: Leftovers::End,
        ..Manner::default()
    };
    let mut first = state.shell("true");
    let mark = Mark::on(&mut first);
    let marked = &first.env["INTERLOCK_TEST_MARK"];
    state.run_plan(&first, &manner);
    let plans: Vec<(RunPlan, End)> = KINDS
        .iter()
        .map(|kind| {
            let mut plan = plan(&state, *kind);
            plan.env
                .insert("INTERLOCK_TEST_MARK".to_owned(), marked.clone());
            (plan, kind.1)
        })
        .collect();
    let about = calm(&state);
    // Every shim that waits has one.
    let own_descriptors = |pid: i32| {
        descriptors(pid)
            .unwrap()
            .saturating_sub(children(about.pid).len())
    };
    let before = (
        settled(|| own_descriptors(about.pid)),
        descriptors(about.guard_pid),
    );
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| meanwhile(&about));
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs {
                        return;
                    }
                    let (plan, end) = &plans[number % plans.len()];
                    one_run(&state, plan, *end, &manner, number.is_multiple_of(3));
                }
            });
        }
    });
    mark.wait_until_none();
    // What is left is what waits for the next run.
    eventually("shims that wait, and nothing else", || {
        let shims = children(about.pid);
        shims
            .iter()
            .all(|shim| !shim.zombie && children(shim.pid).is_empty())
            && shims.len() <= 16
            && session_directories(&state) == shims.len()
            && groups(about.pid).len() <= shims.len()
            && own_descriptors(about.pid) <= before.0
    });
    assert_eq!(
        descriptors(about.guard_pid).unwrap(),
        before.1.unwrap(),
        "descriptors of the guard"
    );
    assert_eq!(children(about.guard_pid).len(), 1);
    eventually("the same supervisor, as calm as before", || {
        state.supervisor() == about
    });

    state.client.drain();
    eventually("the end of both", || guards(state.path()).is_empty());
    assert_eq!(session_directories(&state), 0);
    assert_eq!(groups(about.pid), Vec::<PathBuf>::new());
    let doors = fs::read_dir(state.path().join("supervisor")).unwrap();
    let doors = doors.flatten().filter(|entry| {
        let name = entry.file_name();
        Path::new(&name).extension() == Some("sock".as_ref())
    });
    assert_eq!(doors.count(), 0);
}

/// Some results are taken, others are kept until their time is over.
fn one_run(state: &State, plan: &RunPlan, end: End, manner: &Manner, taken: bool) {
    let conversation = state.start(plan, manner).unwrap();
    if let End::Kill(signal) = end {
        let name = &conversation.started().session.name;
        state.client.session(name).unwrap().kill(signal).unwrap();
    }
    assert!(matches!(conversation.wait().unwrap(), Waited::Ended(_)));
    if taken {
        conversation.taken().unwrap();
    }
}

/// Clients that go away at every moment leave nothing either.
#[test]
fn clients_that_do_not_wait_leave_nothing() {
    let state = State::new();
    state.run("true");
    let about = calm(&state);
    let own = |pid: i32| {
        descriptors(pid)
            .unwrap()
            .saturating_sub(children(about.pid).len())
    };
    let before = settled(|| own(about.pid));
    let manner = Manner {
        cleanup_ms: 1,
        ..Manner::default()
    };
    let mut plan = state.shell("echo hello; sleep 0.05");
    let mark = Mark::on(&mut plan);
    for number in 0..60 {
        let conversation = state.start(&plan, &manner).unwrap();
        if number % 2 == 1 {
            // Unused connections to a session.
            let name = &conversation.started().session.name;
            let _ = state.client.session(name);
        }
    }
    mark.wait_until_none();
    eventually("shims that wait, and nothing else", || {
        let shims = children(about.pid);
        shims
            .iter()
            .all(|shim| !shim.zombie && children(shim.pid).is_empty())
            && session_directories(&state) == shims.len()
            && own(about.pid) <= before
    });
}

#[test]
fn all_of_it_holds_for_an_ordinary_user() {
    testkit::supervised::again_as_ordinary_user(module_path!(), &["all_of_it_holds"]);
}
