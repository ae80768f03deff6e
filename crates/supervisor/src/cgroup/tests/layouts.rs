//! Where trees are mounted, and what that means.

use std::path::{Path, PathBuf};

use crate::cgroup::hierarchies::Ground;
use crate::cgroup::limits::RunLimit;
use crate::cgroup::mounts::{CgroupTree, HierarchyKind, trees};
use crate::cgroup::name::{is_within, run_in};
use crate::cgroup::{Hierarchies, name};

fn v1(controllers: &[&str], top: &str, own: &str) -> CgroupTree {
    let controllers = controllers.iter().map(|&one| one.to_owned()).collect();
    tree(HierarchyKind::V1(controllers), top, own)
}

fn v2(top: &str, own: &str) -> CgroupTree {
    tree(HierarchyKind::V2, top, own)
}

fn tree(kind: HierarchyKind, top: &str, own: &str) -> CgroupTree {
    CgroupTree {
        kind,
        top: PathBuf::from(top),
        own: PathBuf::from(own),
    }
}

#[test]
fn the_own_groups_are_found_in_every_layout() {
    let table: &[(&str, &str, &str, Vec<CgroupTree>)] = &[
        (
            "version 2 alone",
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate",
            "0::/system.slice/a.service",
            vec![v2(
                "/sys/fs/cgroup",
                "/sys/fs/cgroup/system.slice/a.service",
            )],
        ),
        (
            "both versions, with optional fields and shared controllers",
            "31 23 0:28 / /sys/fs/cgroup ro shared:9 - tmpfs tmpfs ro,mode=755\n\
             32 31 0:29 / /sys/fs/cgroup/unified rw shared:10 master:1 - cgroup2 cgroup2 rw\n\
             33 31 0:30 / /sys/fs/cgroup/systemd rw shared:11 - cgroup cgroup rw,xattr,name=systemd\n\
             34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
            "2:cpu,cpuacct:/x\n1:name=systemd:/x/y:z\n0::/x",
            vec![
                v1(
                    &["cpu", "cpuacct"],
                    "/sys/fs/cgroup/cpu,cpuacct",
                    "/sys/fs/cgroup/cpu,cpuacct/x",
                ),
                v1(
                    &["name=systemd"],
                    "/sys/fs/cgroup/systemd",
                    "/sys/fs/cgroup/systemd/x/y:z",
                ),
                v2("/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/x"),
            ],
        ),
        (
            "a container that sees only its own part",
            "30 23 0:26 /docker/c /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids",
            "3:pids:/docker/c/inner",
            vec![v1(
                &["pids"],
                "/sys/fs/cgroup/pids",
                "/sys/fs/cgroup/pids/inner",
            )],
        ),
        (
            "a group outside of the namespace is not visible",
            "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            "0::/../other",
            vec![],
        ),
        (
            "a part that the own group is not in",
            "30 23 0:26 /docker/c /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            "0::/docker/cc",
            vec![],
        ),
        (
            "mounted twice: where it can be written to",
            "30 23 0:26 / /a ro - cgroup2 cgroup2 rw\n31 23 0:26 / /b\\040c rw - cgroup2 cgroup2 rw",
            "0::/",
            vec![v2("/b c", "/b c")],
        ),
        (
            "a controller that is mounted nowhere",
            "30 23 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids",
            "5:memory:/\n4:pids:/\n0::/",
            vec![v1(&["pids"], "/sys/fs/cgroup/pids", "/sys/fs/cgroup/pids")],
        ),
        ("nothing at all", "", "", vec![]),
        ("noise", "a b c\n - \n1 2 3 - cgroup2", "x\n0:\n:::", vec![]),
    ];
    for (what, mountinfo, cgroup, expected) in table {
        assert_eq!(&trees(mountinfo, cgroup), expected, "{what}");
    }
}

#[test]
fn a_run_is_known_by_the_group_of_its_processes() {
    let name = |text: &str| run_in(text).map(String::from);
    assert_eq!(name("0::/interlock-run-a").as_deref(), Some("a"));
    assert_eq!(name("0::/x/interlock-run-a/b/c").as_deref(), Some("a"));
    assert_eq!(
        name("1:pids:/\n0::/interlock-run-a/interlock-run-b").as_deref(),
        Some("b")
    );
    assert_eq!(name("0::/my-interlock-run-a\n1:pids:/interlock-run-"), None);
    assert_eq!(name("0::/interlock-run-A"), None);
    let a = name::GroupName::try_from("a".to_owned()).unwrap();
    assert!(is_within("1:pids:/\n0::/interlock-run-a/x", &a));
    assert!(!is_within("0::/interlock-run-aa", &a));
}

#[test]
fn what_only_looks_like_a_tree_is_not_used() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().to_str().unwrap();
    let hierarchies = Hierarchies::of(&[v2(path, path)], Ground::Kernel);
    let expected = format!("something else is mounted over {path}");
    assert_eq!(hierarchies.groups().unwrap_err().to_string(), expected);
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
}

#[test]
fn groups_lie_beside_the_leaf_that_a_supervisor_moved_to() {
    let scratch = tempfile::tempdir().unwrap();
    let leaf = scratch.path().join("interlock-leaf");
    std::fs::create_dir(&leaf).unwrap();
    std::fs::write(scratch.path().join("cgroup.subtree_control"), "pids\n").unwrap();
    let tree = v2(scratch.path().to_str().unwrap(), leaf.to_str().unwrap());
    let hierarchies = Hierarchies::of(&[tree], Ground::Any);
    assert_eq!(hierarchies.groups(), Ok(scratch.path()));
    assert!(hierarchies.limit(RunLimit::Pids).is_ok());
    assert_eq!(hierarchies.v2().unwrap().home, leaf);
}

#[test]
fn without_version_2_the_reason_is_said_and_version_1_still_limits() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().to_str().unwrap();
    let hierarchies = Hierarchies::of(&[v1(&["pids"], path, path)], Ground::Any);
    let missing = "control groups v2 are not mounted";
    assert_eq!(hierarchies.groups().unwrap_err().to_string(), missing);
    assert!(hierarchies.limit(RunLimit::Pids).is_ok());
    let memory = hierarchies.limit(RunLimit::Memory).unwrap_err();
    assert_eq!(memory.to_string(), missing);
    assert_eq!(hierarchies.v1()[0].parent, Path::new(path));
}
