//! Real groups of this system, with a part of it hidden.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::cgroup::hierarchies::{Ground, own_trees};
use crate::cgroup::lead::lead;
use crate::cgroup::mounts::{CgroupTree, HierarchyKind};
use crate::cgroup::service::leave;
use crate::cgroup::{Cpus, Group, Hierarchies, KilledBy, RunLimit, RunLimits, files};

const PATIENCE: Duration = Duration::from_mins(1);

struct Scratch(Group);

impl Scratch {
    fn new(hierarchies: &Hierarchies, name: &str) -> Self {
        let name = format!("unit-{}-{name}", std::process::id());
        Self(Group::create(hierarchies, &name).unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.remove(PATIENCE);
    }
}

/// Starts a text in a group.
fn start_in(group: &Group, text: &str) -> Child {
    let mut child = Command::new("sh")
        .args(["-c", "read go; exec sh -c \"$1\"", "sh", text])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    group.join(i32::try_from(child.id()).unwrap()).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    child
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// As on a system without version 2.
fn version_1_only() -> Hierarchies {
    let mut trees = own_trees().unwrap_or_default();
    trees.retain(|tree| tree.kind != HierarchyKind::V2);
    Hierarchies::of(&trees, Ground::Kernel)
}

#[test]
fn without_version_2_a_fork_bomb_is_kept_from_forking_and_ended() {
    let hierarchies = version_1_only();
    if let Err(reason) = hierarchies.limit(RunLimit::Pids) {
        return println!("skipped: {reason}");
    }
    let scratch = Scratch::new(&hierarchies, "bomb");
    let group = &scratch.0;
    // Nothing is made, and nothing known, before there are limits.
    assert!(group.directories().is_empty());
    assert_eq!(group.members().unwrap(), None);
    assert_eq!(group.kill().unwrap(), None);
    let limits = RunLimits {
        pids: Some(50),
        ..RunLimits::default()
    };
    group.apply(&limits).unwrap();
    let bomb = "b() { while :; do b & done; }; b";
    let mut child = start_in(group, bomb);
    wait_until("it reached the limit", || group.pids_refused() >= Some(1));
    assert_eq!(group.kill().unwrap(), Some(KilledBy::SignalsWithoutForking));
    assert_eq!(group.members().unwrap(), Some(vec![]));
    assert_eq!(group.is_populated().unwrap(), Some(false));
    child.wait().unwrap();
    group.remove(PATIENCE).unwrap();
    assert!(group.directories().is_empty());
}

#[test]
fn without_a_limit_of_processes_signals_go_on_until_none_is_left() {
    let hierarchies = version_1_only();
    if let Err(reason) = hierarchies.limit(RunLimit::Memory) {
        return println!("skipped: {reason}");
    }
    let scratch = Scratch::new(&hierarchies, "signals");
    let group = &scratch.0;
    let limits = RunLimits {
        memory_bytes: Some(1 << 30),
        ..RunLimits::default()
    };
    group.apply(&limits).unwrap();
    let mut child = start_in(group, "trap '' TERM; setsid sleep 600 & sleep 600 & wait");
    wait_until("all are there", || {
        group.members().unwrap().unwrap().len() >= 3
    });
    assert_eq!(group.kill().unwrap(), Some(KilledBy::Signals));
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_eq!(group.members().unwrap(), Some(vec![]));
}

#[test]
fn a_frozen_group_is_ended_by_signals() {
    let hierarchies = Hierarchies::probe();
    if let Err(reason) = hierarchies.groups() {
        return println!("skipped: {reason}");
    }
    let scratch = Scratch::new(&hierarchies, "frozen");
    let group = &scratch.0;
    let v2 = group.v2_directory().unwrap();
    if !v2.join("cgroup.freeze").exists() {
        return println!("skipped: groups cannot be frozen here");
    }
    let mut child = start_in(group, "while :; do sleep 0.01 & sleep 0.01; done");
    wait_until("it forks", || group.members().unwrap().unwrap().len() >= 2);
    let killed = group.freeze_and_signal(&v2).unwrap();
    assert_eq!(killed, Some(KilledBy::SignalsWhileFrozen));
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_eq!(group.members().unwrap(), Some(vec![]));
    // It thaws, so that it can be used again.
    assert_eq!(fs::read_to_string(v2.join("cgroup.freeze")).unwrap(), "0\n");
}

#[test]
fn a_smaller_share_of_processors_above_is_kept() {
    let trees = own_trees().unwrap_or_default();
    let is_cpu = |tree: &&CgroupTree| tree.has("cpu");
    let Some(tree) = trees.iter().find(is_cpu) else {
        return println!("skipped: v1 has no cpu controller here");
    };
    let cpus = |number: f64| RunLimits {
        cpus: Some(Cpus::try_from(number).unwrap()),
        ..RunLimits::default()
    };
    let hierarchies = version_1_only();
    if let Err(refused) = hierarchies.check(&cpus(1.0)) {
        return println!("skipped: {refused}");
    }
    let outer = Scratch::new(&hierarchies, "outer");
    outer.0.apply(&cpus(0.5)).unwrap();
    let own = outer.0.directories().remove(0);
    let inside = CgroupTree {
        own: own.clone(),
        ..tree.clone()
    };
    let hierarchies = Hierarchies::of(&[inside], Ground::Kernel);
    let inner = Scratch::new(&hierarchies, "inner");
    inner.0.apply(&cpus(2.0)).unwrap();
    let quota = |directory: &PathBuf| files::read(directory, "cpu.cfs_quota_us").unwrap();
    assert_eq!(quota(&own), "50000\n");
    assert_eq!(quota(&inner.0.directories()[0]), "-1\n");
    // A smaller one than above is set.
    inner.0.apply(&cpus(0.25)).unwrap();
    assert_eq!(quota(&inner.0.directories()[0]), "25000\n");
}

/// Set in a process that moves itself: the directory of its group, and what else it needs.
const ORDER: &str = "INTERLOCK_TEST_CGROUP_ORDER";

/// Runs a test that is ignored otherwise in a process of its own, in this group.
fn run_in(group: &Group, test: &str, order: &str) {
    let own = group.v2_directory().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("cgroup::tests::real::{test}")])
        .args(["--ignored", "--nocapture"])
        .env(ORDER, format!("{} {order}", own.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    group.join(i32::try_from(child.id()).unwrap()).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("1 passed"), "{said}");
}

/// In that process, once it is in the group.
fn order() -> (PathBuf, String) {
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let order = std::env::var(ORDER).unwrap();
    let (own, rest) = order.split_once(' ').unwrap();
    (PathBuf::from(own), rest.to_owned())
}

/// A controller that groups in a directory have, while this is there.
struct Enabled {
    file: PathBuf,
    controller: String,
    was_on: bool,
    _alone: File,
}

impl Enabled {
    /// The first one that there is.
    fn below(parent: &Path) -> Option<Self> {
        // Other programs that run these tests turn it on and off too.
        let alone = File::open(parent).unwrap();
        flock(&alone, FlockOperation::LockExclusive).unwrap();
        let offered = files::read(parent, "cgroup.controllers").unwrap();
        let controller = offered.split_whitespace().next()?.to_owned();
        let file = parent.join("cgroup.subtree_control");
        let on = fs::read_to_string(&file).unwrap();
        let was_on = on.split_whitespace().any(|name| name == controller);
        if !was_on {
            fs::write(&file, format!("+{controller}")).ok()?;
        }
        Some(Self {
            file,
            controller,
            was_on,
            _alone: alone,
        })
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        if !self.was_on {
            let _ = fs::write(&self.file, format!("-{}", self.controller));
        }
    }
}

#[test]
fn a_process_that_leads_its_group_lives_in_a_leaf_of_it() {
    let hierarchies = Hierarchies::probe();
    let parent = match hierarchies.groups() {
        Ok(parent) => parent,
        Err(reason) => return println!("skipped: {reason}"),
    };
    // Any controller shows the rule that only leaves may have processes.
    let Some(enabled) = Enabled::below(parent) else {
        return println!("skipped: v2 has no controller here that can be turned on");
    };
    let scratch = Scratch::new(&hierarchies, "leader");
    run_in(&scratch.0, "the_leader", &enabled.controller);
}

#[test]
#[ignore = "a process of its own, started by another test"]
fn the_leader() {
    let (own, controller) = order();
    let controller: &'static str = controller.leak();
    let led = lead(&own, &[controller]).unwrap();
    assert_eq!(led.group, own);
    assert_eq!(led.controllers, [controller]);
    assert_eq!(files::read(&own, "cgroup.procs").unwrap(), "");
    let leaf = own.join("interlock-leaf");
    let pid = i32::try_from(std::process::id()).unwrap();
    assert_eq!(files::members(&leaf).unwrap(), [pid]);

    // Groups are made beside it, with the controller, and the way out of one leads to the leaf.
    let tree = CgroupTree {
        kind: HierarchyKind::V2,
        top: own.clone(),
        own: leaf.clone(),
    };
    let hierarchies = Hierarchies::of(&[tree], Ground::Kernel);
    assert_eq!(hierarchies.groups(), Ok(own.as_path()));
    let run = Scratch::new(&hierarchies, "led");
    let offered = files::read(&run.0.v2_directory().unwrap(), "cgroup.controllers").unwrap();
    assert!(offered.split_whitespace().any(|name| name == controller));
    run.0.join_self().unwrap();
    assert_eq!(files::members(&leaf).unwrap(), Vec::<i32>::new());
    run.0.kill().unwrap();
    assert_eq!(files::members(&leaf).unwrap(), [pid]);

    // Again, from the leaf.
    assert_eq!(lead(&leaf, &[controller]).unwrap(), led);
}

#[test]
fn who_cannot_leave_everywhere_that_counts_goes_back() {
    let hierarchies = Hierarchies::probe();
    if let Err(reason) = hierarchies.groups() {
        return println!("skipped: {reason}");
    }
    let scratch = Scratch::new(&hierarchies, "undo");
    run_in(&scratch.0, "the_leaver", "");
}

#[test]
#[ignore = "a process of its own, started by another test"]
fn the_leaver() {
    let (own, _) = order();
    let top = own.parent().unwrap().to_owned();
    let supervisor = top.join(format!("interlock-supervisor-{}", std::process::id()));
    let v2 = CgroupTree {
        kind: HierarchyKind::V2,
        top,
        own: own.clone(),
    };
    // Only looks like a tree: a group that is made there cannot be joined.
    let scratch = tempfile::tempdir().unwrap();
    let named = CgroupTree {
        kind: HierarchyKind::V1(vec!["name=systemd".to_owned()]),
        top: scratch.path().to_owned(),
        own: scratch.path().join("a.service"),
    };
    fs::create_dir(&named.own).unwrap();
    let pid = i32::try_from(std::process::id()).unwrap();
    let reason = leave(vec![v2.clone(), named]).unwrap_err();
    assert!(
        reason.to_string().ends_with("no such group or file"),
        "{reason}"
    );
    assert_eq!(files::members(&own).unwrap(), [pid]);
    assert!(!supervisor.exists());
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);

    let left = leave(vec![v2]).unwrap();
    assert_eq!(left.moved[0].to, supervisor);
    assert_eq!(files::members(&supervisor).unwrap(), [pid]);
    // Back, so that both can be removed.
    files::write(&own, "cgroup.procs", "0").unwrap();
    fs::remove_dir(&supervisor).unwrap();
}
