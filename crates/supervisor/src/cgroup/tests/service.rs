//! Leaving and leading, on directories that mimic trees.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::cgroup::lead::lead;
use crate::cgroup::mounts::{CgroupTree, HierarchyKind};
use crate::cgroup::service::leave;

/// A tree with this group of our own in it.
fn tree(kind: HierarchyKind, top: &Path, own: &str) -> CgroupTree {
    let own = if own.is_empty() {
        top.to_owned()
    } else {
        top.join(own)
    };
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("cgroup.procs"), "").unwrap();
    CgroupTree {
        kind,
        top: top.to_owned(),
        own,
    }
}

/// Directories of a mimicked tree have no files until a test makes them. Joining a new group there
/// fails, and the error names the path of the group.
fn refused_place(own: &str) -> String {
    let scratch = TempDir::new().unwrap();
    let reason = leave(vec![tree(HierarchyKind::V2, scratch.path(), own)]).unwrap_err();
    let report = reason.to_string();
    let path = report.strip_prefix("cannot write ").unwrap();
    let path = path.split(": ").next().unwrap();
    let path = Path::new(path).strip_prefix(scratch.path()).unwrap();
    let group = path.parent().unwrap();
    assert!(!scratch.path().join(group).exists(), "{report}");
    let name = format!("interlock-supervisor-{}", std::process::id());
    assert_eq!(group.file_name().unwrap().to_str().unwrap(), name);
    group.parent().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn the_way_out_of_a_service_leads_beside_its_unit() {
    let table = [
        ("system.slice/a.service", "system.slice"),
        // A service with groups of its own.
        ("system.slice/a.service/main/worker", "system.slice"),
        (
            "user.slice/user-1.slice/session-3.scope",
            "user.slice/user-1.slice",
        ),
        (
            "user.slice/user-1.slice/user@1.service/app.slice/a.service",
            "user.slice/user-1.slice/user@1.service/app.slice",
        ),
        // Service managers with other habits.
        ("openrc.a", ""),
        ("openrc/a", "openrc"),
    ];
    for (own, beside) in table {
        assert_eq!(refused_place(own), beside, "{own}");
    }
}

#[test]
fn there_is_nothing_to_leave_at_the_top_or_in_a_supervisors_own_group() {
    for own in [
        "",
        "system.slice/interlock-supervisor-1",
        "system.slice/interlock-supervisor-1/interlock-leaf",
    ] {
        let scratch = TempDir::new().unwrap();
        let left = leave(vec![tree(HierarchyKind::V2, scratch.path(), own)]).unwrap();
        assert_eq!((left.moved.len(), left.stayed.len()), (0, 1), "{own}");
    }
}

#[test]
fn trees_that_only_share_the_fate_do_not_decide() {
    let scratch = TempDir::new().unwrap();
    let kind = |word: &str| HierarchyKind::V1(vec![word.to_owned()]);
    let of = |word: &str| tree(kind(word), &scratch.path().join(word), "a.service");
    let left = leave(vec![of("memory"), of("pids"), of("cpu")]).unwrap();
    let stayed: Vec<&str> = left.stayed.iter().map(|stay| stay.tree.as_str()).collect();
    assert_eq!(stayed, ["v1 memory", "v1 pids"]);
    let decides = leave(vec![of("memory"), of("name=systemd")]).unwrap_err();
    assert!(decides.to_string().contains("name=systemd"), "{decides}");
}

/// A group that the caller is alone in.
fn delegated(controllers: &str) -> (TempDir, PathBuf) {
    let scratch = TempDir::new().unwrap();
    let own = scratch.path().join("interlock.service");
    fs::create_dir_all(own.join("interlock-leaf")).unwrap();
    let pid = std::process::id().to_string();
    for (file, content) in [
        ("cgroup.controllers", controllers),
        ("cgroup.subtree_control", ""),
        ("cgroup.events", "populated 1\n"),
        ("cgroup.procs", &pid),
        ("interlock-leaf/cgroup.procs", ""),
    ] {
        fs::write(own.join(file), content).unwrap();
    }
    (scratch, own)
}

#[test]
fn leading_moves_down_and_turns_controllers_on() {
    let (_scratch, own) = delegated("cpuset cpu io memory pids\n");
    let read = |file: &str| fs::read_to_string(own.join(file)).unwrap();
    // A plain file keeps what was written last; the kernel would keep all three.
    let led = lead(&own, &["memory", "pids", "cpu"]).unwrap();
    assert_eq!(led.group, own);
    assert_eq!(read("cgroup.subtree_control"), "+cpu");
    assert_eq!(read("interlock-leaf/cgroup.procs"), "0");
}

#[test]
fn who_is_not_alone_does_not_lead() {
    let (_scratch, own) = delegated("memory pids\n");
    let both = format!("1\n{}\n", std::process::id());
    fs::write(own.join("cgroup.procs"), &both).unwrap();
    let reason = lead(&own, &["memory"]).unwrap_err();
    let expected = format!("other processes are in {}", own.display());
    assert_eq!(reason.to_string(), expected);
    assert_eq!(
        fs::read_to_string(own.join("cgroup.subtree_control")).unwrap(),
        ""
    );
}

#[test]
fn without_controllers_there_is_nothing_to_lead() {
    let (_scratch, own) = delegated("hugetlb\n");
    let reason = lead(&own, &["memory", "pids", "cpu"]).unwrap_err();
    let expected = format!("{} has no controller that sets a limit", own.display());
    assert_eq!(reason.to_string(), expected);
    assert_eq!(
        fs::read_to_string(own.join("interlock-leaf/cgroup.procs")).unwrap(),
        ""
    );
}
