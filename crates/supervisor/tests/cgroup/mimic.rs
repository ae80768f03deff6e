//! Version 2 with all controllers, on a tree of directories that mimics it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use interlock_supervisor::cgroup::{
    CgroupVersion, Cpus, Group, GroupError, Hierarchies, KilledBy, RunLimit, RunLimits,
};
use tempfile::TempDir;

fn tree(controllers: &str) -> TempDir {
    let tree = TempDir::new().unwrap();
    fs::write(tree.path().join("cgroup.controllers"), controllers).unwrap();
    fs::write(tree.path().join("cgroup.subtree_control"), controllers).unwrap();
    fs::write(tree.path().join("cgroup.procs"), "").unwrap();
    tree
}

/// The files that a kernel puts into a new group.
fn fill(directory: &Path, files: &[(&str, &str)]) {
    for (file, content) in files {
        fs::write(directory.join(file), content).unwrap();
    }
}

const ALL_FILES: &[(&str, &str)] = &[
    ("cgroup.procs", ""),
    ("cgroup.events", "populated 0\nfrozen 0\n"),
    ("cgroup.kill", ""),
    ("memory.max", "max\n"),
    ("memory.swap.max", "max\n"),
    ("memory.oom.group", "0\n"),
    (
        "memory.events",
        "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n",
    ),
    ("pids.max", "max\n"),
    ("pids.events", "max 4\n"),
    ("cpu.max", "max 100000\n"),
    (
        "cpu.stat",
        "usage_usec 5\nnr_periods 9\nnr_throttled 7\nthrottled_usec 1\n",
    ),
];

fn content(directory: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let pair = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read_to_string(entry.path()).unwrap())
    };
    entries.map(pair).collect()
}

fn all_limits() -> RunLimits {
    RunLimits {
        memory_bytes: Some(512 << 20),
        pids: Some(100),
        cpus: Some(Cpus::try_from(1.5).unwrap()),
    }
}

#[test]
fn all_limits_are_written_and_counters_read() {
    let tree = tree("cpu memory pids\n");
    let hierarchies = Hierarchies::at(tree.path());
    for limit in RunLimit::ALL {
        assert_eq!(hierarchies.limit(limit), Ok(CgroupVersion::V2));
    }
    assert_eq!(hierarchies.groups(), Ok(tree.path()));
    hierarchies.check(&all_limits()).unwrap();
    let group = Group::create(&hierarchies, "a").unwrap();
    let directory = tree.path().join("interlock-run-a");
    assert_eq!(group.directories(), std::slice::from_ref(&directory));
    fill(&directory, ALL_FILES);
    group.apply(&all_limits()).unwrap();
    let mut expected: BTreeMap<String, String> = ALL_FILES
        .iter()
        .map(|(file, content)| ((*file).to_owned(), (*content).to_owned()))
        .collect();
    let mut set = |file: &str, value: &str| expected.insert(file.to_owned(), value.to_owned());
    set("memory.max", "536870912");
    set("memory.swap.max", "0");
    set("pids.max", "100");
    set("cpu.max", "150000 100000");
    assert_eq!(content(&directory), expected);
    group.let_out_of_memory_end_all().unwrap();
    group.join_self().unwrap();
    let mut set = |file: &str, value: &str| expected.insert(file.to_owned(), value.to_owned());
    set("memory.oom.group", "1");
    set("cgroup.procs", "0");
    assert_eq!(content(&directory), expected);

    assert_eq!(group.oom_kills(), Some(2));
    assert_eq!(group.pids_refused(), Some(4));
    assert_eq!(group.cpu_throttled(), Some(7));
    assert_eq!(group.is_populated().unwrap(), Some(false));
    assert_eq!(group.kill().unwrap(), Some(KilledBy::Kernel));
    assert_eq!(content(&directory)["cgroup.kill"], "1");
}

#[test]
fn only_what_is_asked_for_is_written() {
    let tree = tree("cpu memory pids\n");
    let group = Group::create(&Hierarchies::at(tree.path()), "a").unwrap();
    let directory = tree.path().join("interlock-run-a");
    fill(&directory, ALL_FILES);
    let before = content(&directory);
    group.apply(&RunLimits::default()).unwrap();
    assert_eq!(content(&directory), before);
}

#[test]
fn a_kernel_that_does_not_count_swap_limits_memory_all_the_same() {
    let tree = tree("memory\n");
    let group = Group::create(&Hierarchies::at(tree.path()), "a").unwrap();
    let directory = tree.path().join("interlock-run-a");
    fill(&directory, &[("memory.max", "max\n")]);
    let limits = RunLimits {
        memory_bytes: Some(4096),
        ..RunLimits::default()
    };
    group.apply(&limits).unwrap();
    assert_eq!(content(&directory)["memory.max"], "4096");
    assert!(!directory.join("memory.swap.max").exists());
}

#[test]
fn every_limit_that_is_not_in_force_is_named() {
    let tree = tree("pids\n");
    fs::write(tree.path().join("cgroup.controllers"), "cpu pids\n").unwrap();
    let hierarchies = Hierarchies::at(tree.path());
    let group = Group::create(&hierarchies, "a").unwrap();
    // The kernel's file for the one that is said to be there is missing.
    let refused = group.apply(&all_limits()).unwrap_err();
    let place = tree.path().display();
    let expected = format!(
        "no limit of memory: there is no memory controller in {place}; \
         no limit of processes: cannot write {place}/interlock-run-a/pids.max: there is no such group or file; \
         no limit of processors: the cpu controller is not turned on for groups in {place}"
    );
    assert_eq!(refused.to_string(), expected);
    // Known before anything is started, as far as it can be.
    let refused = hierarchies.check(&all_limits()).unwrap_err();
    let limits: Vec<RunLimit> = refused.refused.iter().map(|(limit, _)| *limit).collect();
    assert_eq!(limits, [RunLimit::Memory, RunLimit::Cpus]);
    // No file was made up.
    assert!(content(&tree.path().join("interlock-run-a")).is_empty());
}

#[test]
fn a_directory_that_cannot_be_written_to_is_an_answer() {
    let tree = TempDir::new().unwrap();
    let gone = tree.path().join("gone");
    let hierarchies = Hierarchies::at(&gone);
    let reason = hierarchies.groups().unwrap_err().to_string();
    let expected = format!(
        "cannot make a group in {}: there is no such group or file",
        gone.display()
    );
    assert_eq!(reason, expected);
    let created = Group::create(&hierarchies, "a");
    assert!(
        matches!(created, Err(GroupError::Unavailable(_))),
        "{created:?}"
    );
    let handle = Group::open(&hierarchies, "a").unwrap();
    assert_eq!(handle.members().unwrap(), None);
    assert_eq!(handle.is_populated().unwrap(), None);
    assert_eq!(handle.kill().unwrap(), None);
    assert_eq!(handle.oom_kills(), None);
    handle.join_self().unwrap();
    handle.leave_self().unwrap();
    handle.remove(Duration::ZERO).unwrap();
}

#[test]
fn handles_survive_being_handed_over() {
    let tree = tree("cpu memory pids\n");
    let hierarchies = Hierarchies::at(tree.path());
    let group = Group::create(&hierarchies, "a").unwrap();
    let text = serde_json::to_string(&group).unwrap();
    assert_eq!(serde_json::from_str::<Group>(&text).unwrap(), group);
    group.remove(Duration::ZERO).unwrap();
}
