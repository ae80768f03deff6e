//! Every byte arrives, in order, whatever the size, the number of runs or the speed of the reader.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use interlock_engine::{OpenedPlan, OutputSink, RunStatus, Settings, StreamKind, start};
use tempfile::TempDir;
use testkit::plans::{PATIENCE, authorized, begin, key, plan, run_line, shell_plan};

/// Those who count the descriptors of this process and those who open some take turns.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts, sums up, and takes its time.
#[derive(Clone, Default)]
struct Count {
    bytes: Arc<AtomicU64>,
    sum: Arc<AtomicU64>,
    pause: Duration,
}

impl OutputSink for Count {
    fn output(&self, _: StreamKind, bytes: &[u8]) {
        let sum = bytes.iter().map(|byte| u64::from(*byte)).sum();
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.sum.fetch_add(sum, Ordering::Relaxed);
        std::thread::sleep(self.pause);
    }
}

#[test]
fn a_hundred_megabytes_without_a_newline_arrive_whole() {
    let _turn = alone();
    let scratch = TempDir::new().unwrap();
    let plan = plan(
        "head -c 100000000 /dev/zero | tr '\\0' '\\001'",
        scratch.path(),
    );
    let count = Count::default();
    let key = key();
    let authorized = authorized(&key, &plan);
    let settings = Settings::default();
    let run = start(
        OpenedPlan::open(plan),
        authorized.authorization(),
        &key,
        &settings,
        count.clone(),
    )
    .unwrap();
    assert_eq!(run.wait().status, RunStatus::Exited(0));
    assert_eq!(count.bytes.load(Ordering::Relaxed), 100_000_000);
    assert_eq!(count.sum.load(Ordering::Relaxed), 100_000_000);
}

#[test]
fn a_slow_reader_misses_nothing() {
    let _turn = alone();
    let scratch = TempDir::new().unwrap();
    let plan = plan("head -c 3000000 /dev/zero", scratch.path());
    let count = Count {
        pause: Duration::from_millis(5),
        ..Count::default()
    };
    let key = key();
    let authorized = authorized(&key, &plan);
    let settings = Settings::default();
    let run = start(
        OpenedPlan::open(plan),
        authorized.authorization(),
        &key,
        &settings,
        count.clone(),
    )
    .unwrap();
    assert_eq!(run.wait().status, RunStatus::Exited(0));
    assert_eq!(count.bytes.load(Ordering::Relaxed), 3_000_000);
}

#[test]
fn both_streams_are_kept_apart_and_bytes_are_not_text() {
    let _turn = alone();
    let scratch = TempDir::new().unwrap();
    let text =
        "i=0; while [ $i -lt 300 ]; do printf '\\377\\000o'; printf '\\200e' >&2; i=$((i+1)); done";
    let (run, kept) = begin(&shell_plan("sh", &[], text, scratch.path()));
    assert_eq!(run.wait().status, RunStatus::Exited(0));
    assert!(kept.get().stdout == b"\xff\0o".repeat(300));
    assert!(kept.get().stderr == b"\x80e".repeat(300));
}

#[test]
fn what_is_in_the_pipe_at_the_end_is_read_and_later_output_only_for_a_moment() {
    let _turn = alone();
    let ran = run_line("sh -c 'head -c 60000 /dev/zero; exit 3'");
    assert_eq!(ran.stdout.len(), 60000);
    assert_eq!(ran.outcome.status, RunStatus::Exited(3));
    // A holder that writes without an end cannot keep the run open.
    let scratch = TempDir::new().unwrap();
    let plan = shell_plan("sh", &[], "yes & echo out; exit 0", scratch.path());
    let (run, kept) = begin(&plan);
    let outcome = run.wait();
    assert_eq!(outcome.status, RunStatus::Exited(0));
    assert_eq!(outcome.leftovers.len(), 1);
    let stdout = String::from_utf8(kept.get().stdout).unwrap();
    assert!(stdout.lines().any(|line| line == "out"));
    assert_eq!(run.wait_until_gone(), Ok(()));
    let length = kept.get().stdout.len();
    assert_eq!(stdout.len(), length, "nothing comes after the end");
}

#[test]
fn six_hundred_short_runs_twenty_at_a_time_lose_nothing() {
    let _turn = alone();
    let scratch = TempDir::new().unwrap();
    std::thread::scope(|scope| {
        for worker in 0..20 {
            let scratch = scratch.path();
            scope.spawn(move || {
                for number in 0..30 {
                    let line = match number % 3 {
                        0 => format!("printf '%s\\n' {worker}-{number}"),
                        1 => format!("printf '%s\\n' {worker}-{number} | cat"),
                        _ => format!("sh -c 'echo {worker}-{number}; exit 0' && true"),
                    };
                    let ran = testkit::plans::run(&plan(&line, scratch));
                    assert_eq!(ran.outcome.status, RunStatus::Exited(0), "{line}");
                    assert_eq!(ran.stdout, format!("{worker}-{number}\n"), "{line}");
                    assert_eq!(ran.stderr, "", "{line}");
                }
            });
        }
    });
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn zombies() -> usize {
    let me = std::process::id();
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
        .filter(|stat| stat.contains(&format!(") Z {me} ")))
        .count()
}

#[test]
fn two_hundred_runs_leave_no_descriptor_thread_or_zombie() {
    let _turn = alone();
    let scratch = TempDir::new().unwrap();
    let lines = [
        "true; cat",
        "cat",
        "printf a | cat | cat",
        "sh -c 'false; true' | cat && pwd >/dev/null",
        "sleep 0.001 & true",
    ];
    let plans: Vec<_> = lines
        .iter()
        .map(|line| plan(line, scratch.path()))
        .collect();
    let mut on_terminal = plans[1].clone();
    on_terminal.pty = Some(interlock_plan::PtySize {
        columns: 80,
        rows: 24,
    });
    let round = || {
        for plan in &plans {
            let (run, _) = begin(plan);
            run.wait();
            run.wait_until_gone().unwrap();
        }
        let (run, _) = begin(&on_terminal);
        run.write_stdin(&[4]).unwrap();
        run.wait();
    };
    round();
    let settled = |before: usize| {
        let began = Instant::now();
        while descriptors() > before || zombies() > 0 {
            assert!(
                began.elapsed() < PATIENCE,
                "{} of {before}, {} zombies",
                descriptors(),
                zombies()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    settled(usize::MAX);
    let (before, threads_before) = (descriptors(), threads());
    for _ in 0..34 {
        round();
    }
    settled(before);
    let began = Instant::now();
    while threads() > threads_before {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn all_this_holds_for_an_ordinary_user_too() {
    testkit::plans::run_again_as_ordinary_user(
        module_path!(),
        "all_this_holds_for_an_ordinary_user_too",
    );
}
