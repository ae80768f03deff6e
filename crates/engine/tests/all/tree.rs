//! Ending: time-outs, kill, and what runs leave behind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use interlock_engine::{RunStatus, Settings, Signal, tree};
use interlock_plan::RunPlan;
use tempfile::TempDir;
use testkit::plans::{Mark, begin, begin_with, has, plan, shell_plan};

fn quick() -> Settings {
    Settings {
        grace: Duration::from_millis(200),
        ..Settings::default()
    }
}

/// Ways to leave something behind. Those marked with `true` leave the session and the parent.
const ESCAPES: &[(&str, bool)] = &[
    ("sleep 600 & sleep 600 & exit 0", false),
    ("sleep 600 >/dev/null 2>&1 </dev/null & exit 0", false),
    (
        "trap '' TERM HUP INT; (trap '' TERM; while :; do sleep 1; done) & exit 0",
        false,
    ),
    ("(sleep 600 & sleep 600 &) ; exit 0", false),
    ("setsid sleep 600 & sleep 0.1; exit 0", true),
    (
        "setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' >/dev/null 2>&1 & sleep 0.1; exit 0",
        true,
    ),
    (
        "setsid sh -c 'setsid sh -c \"sleep 600 & sleep 600\" & sleep 600' & sleep 0.2; exit 0",
        true,
    ),
];

const DAEMON: &str = "import os, signal, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for number in range(3): os.close(number)
open('ready', 'w').close()
time.sleep(600)
";

#[test]
fn a_timeout_ends_the_whole_tree() {
    let scratch = TempDir::new().unwrap();
    let texts = [
        "sleep 600",
        "sleep 600 & sleep 600 & wait",
        "trap '' TERM; sleep 600 & while :; do sleep 1; done",
        "setsid sleep 600 & sleep 600",
        "kill -STOP $$",
        "while :; do :; done",
    ];
    for text in texts {
        let mut plan = shell_plan("sh", &[], &format!("echo on; {text}"), scratch.path());
        plan.timeout_ms = Some(300);
        let mark = Mark::on(&mut plan);
        let (run, kept) = begin_with(&plan, &quick()).unwrap();
        let outcome = run.wait();
        assert_eq!(outcome.status, RunStatus::TimedOut, "{text}");
        assert_eq!(outcome.leftovers, [], "{text}");
        assert_eq!(kept.get().stdout, b"on\n", "{text}");
        assert_eq!(run.wait_until_gone(), Ok(()), "{text}");
        mark.wait_until_none();
    }
}

#[test]
fn a_timeout_ends_a_line_and_starts_nothing_more_of_it() {
    let scratch = TempDir::new().unwrap();
    let mut plan = plan("sleep 600 | cat || touch a; touch b", scratch.path());
    plan.timeout_ms = Some(200);
    let mark = Mark::on(&mut plan);
    let (run, _) = begin_with(&plan, &quick()).unwrap();
    assert_eq!(run.wait().status, RunStatus::TimedOut);
    mark.wait_until_none();
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn kill_returns_when_the_tree_is_gone() {
    let scratch = TempDir::new().unwrap();
    for signal in [Signal::TERM, Signal::KILL] {
        let text = "trap 'exit 3' TERM; sleep 600 & echo on; while :; do sleep 0.05; done";
        let mut by_shell = shell_plan("sh", &[], text, scratch.path());
        let mark = Mark::on(&mut by_shell);
        let (run, kept) = begin_with(&by_shell, &quick()).unwrap();
        kept.wait_for("on");
        assert_eq!(run.kill(signal), Ok(()));
        assert_eq!(mark.processes(), Vec::<String>::new());
        let expected = match signal {
            Signal::TERM => RunStatus::Exited(3),
            _ => RunStatus::Signaled(signal.as_raw()),
        };
        assert_eq!(run.wait().status, expected);
        // Again, when it is over.
        assert_eq!(run.kill(signal), Ok(()));

        let mut line = plan("printf on; sleep 600; touch after", scratch.path());
        let mark = Mark::on(&mut line);
        let (run, kept) = begin_with(&line, &quick()).unwrap();
        kept.wait_for("on");
        assert_eq!(run.kill(signal), Ok(()));
        assert_eq!(mark.processes(), Vec::<String>::new());
        assert_eq!(run.wait().status, RunStatus::Signaled(signal.as_raw()));
        assert!(!scratch.path().join("after").exists());
    }
}

#[test]
fn another_signal_goes_to_what_runs_and_ends_a_line_as_it_would_a_shell() {
    let scratch = TempDir::new().unwrap();
    let text = "trap 'echo got' USR1; echo on; while :; do sleep 0.02; done";
    let (run, kept) = begin(&shell_plan("sh", &[], text, scratch.path()));
    kept.wait_for("on");
    run.kill(Signal::USR1).unwrap();
    kept.wait_for("got");
    assert_eq!(run.outcome(), None);
    run.kill(Signal::KILL).unwrap();

    let (run, kept) = begin(&plan("printf on; sleep 600; touch after", scratch.path()));
    kept.wait_for("on");
    // `printf` may be just about to end, so until it has an effect.
    while run.outcome().is_none() {
        run.kill(Signal::INT).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(run.wait().status, RunStatus::Signaled(Signal::INT.as_raw()));
    assert!(!scratch.path().join("after").exists());
}

#[test]
fn a_run_ends_when_its_process_does_and_names_what_it_leaves() {
    let scratch = TempDir::new().unwrap();
    for (text, _) in ESCAPES.iter().filter(|(_, leaves)| !leaves) {
        let mut plan = shell_plan("sh", &[], &format!("echo out; {text}"), scratch.path());
        let mark = Mark::on(&mut plan);
        let (run, kept) = begin_with(&plan, &quick()).unwrap();
        let outcome = run.wait();
        assert_eq!(outcome.status, RunStatus::Exited(0), "{text}");
        assert_eq!(kept.get().stdout, b"out\n", "{text}");
        assert!(!outcome.leftovers.is_empty(), "{text}");
        assert_eq!(run.wait_until_gone(), Ok(()), "{text}");
        mark.wait_until_none();
    }
}

/// Runs a plan in a process that is dedicated to it, and returns its report.
fn dedicated(plan: &RunPlan, scratch: &Path) -> String {
    let [file, report] = ["plan.json", "report"].map(|name| scratch.join(name));
    std::fs::write(&file, serde_json::to_vec(plan).unwrap()).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "tree::dedicated_process",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env("INTERLOCK_TEST_PLAN", &file)
        .env("INTERLOCK_TEST_REPORT", &report)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::read_to_string(report).unwrap()
}

#[test]
#[ignore = "not a test: the process that `dedicated` starts"]
fn dedicated_process() {
    let Some(file) = std::env::var_os("INTERLOCK_TEST_PLAN") else {
        return;
    };
    let plan: RunPlan = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    tree::dedicate_process().unwrap();
    let (run, _) = begin_with(&plan, &quick()).unwrap();
    let again = begin_with(&plan, &quick()).map(|_| ()).unwrap_err();
    let outcome = run.wait();
    let gone = run.wait_until_gone();
    let left = tree::end_descendants(Duration::from_millis(50));
    let commands: Vec<String> = outcome
        .leftovers
        .into_iter()
        .map(|leftover| leftover.command)
        .collect();
    let status = outcome.status;
    let report = format!(
        "{status:?} {gone:?} {left:?} {again}\n{}",
        commands.join("\n")
    );
    std::fs::write(std::env::var_os("INTERLOCK_TEST_REPORT").unwrap(), report).unwrap();
}

#[test]
fn in_a_dedicated_process_nothing_escapes() {
    if !has("setsid") {
        return;
    }
    let scratch = TempDir::new().unwrap();
    for (text, _) in ESCAPES {
        let mut plan = shell_plan("sh", &[], text, scratch.path());
        let mark = Mark::on(&mut plan);
        let report = dedicated(&plan, scratch.path());
        let (first, leftovers) = report.split_once('\n').unwrap();
        assert_eq!(
            first, "Exited(0) Ok(()) [] this process is dedicated to another run",
            "{text}"
        );
        assert!(leftovers.contains("sleep"), "{text}: {report}");
        mark.wait_until_none();
    }
}

#[test]
fn in_a_dedicated_process_a_daemon_is_named_and_ended() {
    let scratch = TempDir::new().unwrap();
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        eprintln!("skipped: there is no {}", python.display());
        return;
    }
    std::fs::write(scratch.path().join("daemon.py"), DAEMON).unwrap();
    let text = "/usr/bin/python3 daemon.py; until [ -e ready ]; do sleep 0.01; done";
    let mut plan = shell_plan("sh", &[], text, scratch.path());
    let mark = Mark::on(&mut plan);
    let report = dedicated(&plan, scratch.path());
    assert!(report.starts_with("Exited(0) Ok(()) []"), "{report}");
    assert!(report.ends_with("\n/usr/bin/python3 daemon.py"), "{report}");
    mark.wait_until_none();
}

#[test]
fn in_a_dedicated_process_a_timeout_ends_daemons_too() {
    let scratch = TempDir::new().unwrap();
    let text = "setsid sh -c 'trap \"\" TERM; setsid sleep 600 & sleep 600' & sleep 600";
    let mut plan = shell_plan("sh", &[], text, scratch.path());
    plan.timeout_ms = Some(300);
    let mark = Mark::on(&mut plan);
    let report = dedicated(&plan, scratch.path());
    assert!(report.starts_with("TimedOut Ok(()) []"), "{report}");
    mark.wait_until_none();
}

#[test]
fn in_a_dedicated_process_a_line_leaves_nothing_either() {
    let scratch = TempDir::new().unwrap();
    let line = "setsid -f sleep 600; sleep 600 & printf a | cat && true";
    let mut plan = plan(line, scratch.path());
    let mark = Mark::on(&mut plan);
    let report = dedicated(&plan, scratch.path());
    assert!(report.starts_with("Exited(0) Ok(()) []"), "{report}");
    assert_eq!(report.matches("sleep 600").count(), 2, "{report}");
    mark.wait_until_none();
}

#[test]
fn all_this_holds_for_an_ordinary_user_too() {
    testkit::plans::run_again_as_ordinary_user(
        module_path!(),
        "all_this_holds_for_an_ordinary_user_too",
    );
}
