//! Control groups, with real processes in real groups where this system offers them; what it does
//! not offer is printed and skipped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod ending;
mod limits;
mod mimic;
mod service;

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use interlock_supervisor::cgroup::{CgroupFinding, Group, Hierarchies, RunLimit};
use testkit::plans::{PATIENCE, run_again_as_ordinary_user};

#[test]
fn everything_holds_for_an_ordinary_user_too() {
    run_again_as_ordinary_user(module_path!(), "everything_holds_for_an_ordinary_user_too");
}

#[test]
fn what_is_not_to_be_had_is_said_in_words() {
    let hierarchies = Hierarchies::probe();
    let findings = hierarchies.findings();
    let titles: Vec<&str> = findings.iter().map(|finding| finding.what).collect();
    let expected = [
        "groups of runs",
        "limit of memory",
        "limit of processes",
        "limit of processors",
    ];
    assert_eq!(titles, expected);
    for CgroupFinding { what, found } in &findings {
        println!("{what}: {found:?}");
        if let Err(reason) = found {
            assert!(reason.to_string().len() > 10, "{what}: {reason}");
        }
    }
    // No group can be made exactly where none was found to be possible.
    let created = Group::create(&hierarchies, &unique_name());
    let possible = findings.iter().any(|finding| finding.found.is_ok());
    assert_eq!(created.is_ok(), possible, "{created:?}");
    if let Ok(group) = created {
        group.remove(PATIENCE).unwrap();
    }
}

#[test]
fn a_probe_leaves_nothing_behind() {
    let hierarchies = Hierarchies::probe();
    let Ok(parent) = hierarchies.groups() else {
        return println!("skipped: no groups here");
    };
    let mark = format!("interlock-probe-{}-", std::process::id());
    // Others of this program may be probing right now.
    wait_until("probes are gone", || {
        let entries = std::fs::read_dir(parent).unwrap().flatten();
        !entries
            .into_iter()
            .any(|entry| entry.file_name().to_string_lossy().starts_with(&mark))
    });
}

/// A group that is ended and removed with the test, also when that fails.
#[derive(Debug)]
struct Scratch(Group);

impl Scratch {
    /// None, and a word about it, where there are no groups.
    fn new() -> Option<Self> {
        let hierarchies = Hierarchies::probe();
        if let Err(reason) = hierarchies.groups() {
            println!("skipped: {reason}");
            return None;
        }
        Some(Self(Group::create(&hierarchies, &unique_name()).unwrap()))
    }

    /// None, and a word about it, where this cannot be limited.
    fn with(limit: RunLimit) -> Option<Self> {
        let hierarchies = Hierarchies::probe();
        if let Err(reason) = hierarchies.limit(limit) {
            println!("skipped: {reason}");
            return None;
        }
        Some(Self(Group::create(&hierarchies, &unique_name()).unwrap()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        if let Err(error) = self.0.remove(PATIENCE) {
            println!("left behind: {error}");
        }
    }
}

fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("test-{}-{number}", std::process::id())
}

/// A shell that begins its work only on request, so that it can be put into a group first.
#[derive(Debug)]
struct Waiting(Child);

impl Waiting {
    fn new(text: &str) -> Self {
        let child = Command::new("sh")
            .args(["-c", "read go; exec sh -c \"$1\"", "sh", text])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    fn go(mut self) -> Started {
        self.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
        Started(self.0)
    }
}

#[derive(Debug)]
struct Started(Child);

impl Started {
    /// Waits for this many bytes of output.
    fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let stdout = self.0.stdout.as_mut().unwrap();
        stdout.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn wait(mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }
}

/// Starts a text in a group.
fn start_in(group: &Group, text: &str) -> Started {
    let waiting = Waiting::new(text);
    group.join(waiting.pid()).unwrap();
    waiting.go()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
