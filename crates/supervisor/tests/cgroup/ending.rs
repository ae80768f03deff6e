//! Who belongs to a group, and how it ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{Scratch, start_in, unique_name, wait_until};
use interlock_supervisor::cgroup::{
    Group, GroupError, Hierarchies, KilledBy, RunLimit, RunLimits, run_of, sweep,
};
use testkit::plans::{PATIENCE, has};

/// Every process of it forks without end, and goes on when it cannot.
const BOMB: &str = "exec perl -e 'fork while 1'";

#[test]
fn a_process_that_detaches_itself_is_still_a_member() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let group = &scratch.0;
    assert_eq!(group.is_populated().unwrap(), Some(false));
    assert_eq!(group.members().unwrap(), Some(vec![]));
    let text = "(setsid sh -c '(sleep 600 </dev/null >/dev/null 2>&1 &)' &) ; exit 0";
    assert!(start_in(group, text).wait().success());
    let only_sleep = || {
        let members = group.members().unwrap().unwrap();
        let command = |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline"));
        matches!(&members[..], [pid] if command(pid).is_ok_and(|text| text == b"sleep\x00600\x00"))
    };
    wait_until("the daemon alone is in the group", only_sleep);
    assert_eq!(group.is_populated().unwrap(), Some(true));
    let daemon = group.members().unwrap().unwrap()[0];
    assert_eq!(run_of(daemon).unwrap().as_deref(), Some(group.name()));
    assert!(group.kill().unwrap().is_some());
    wait_until("it is empty", || {
        group.is_populated().unwrap() == Some(false)
    });
}

#[test]
fn a_fork_bomb_is_ended_in_one_step() {
    if !has("perl") {
        return;
    }
    let Some(scratch) = Scratch::with(RunLimit::Pids) else {
        return;
    };
    let group = &scratch.0;
    let limits = RunLimits {
        pids: Some(50),
        ..RunLimits::default()
    };
    group.apply(&limits).unwrap();
    let bomb = start_in(group, BOMB);
    wait_until("it reached the limit", || {
        group.pids_refused().is_some_and(|count| count > 0)
    });
    assert!(group.members().unwrap().unwrap().len() > 10);
    let killed = group.kill().unwrap().unwrap();
    println!("ended by {killed:?}");
    if group.directories()[0].join("cgroup.kill").exists() {
        assert_eq!(killed, KilledBy::Kernel);
    }
    assert_eq!(bomb.wait().signal(), Some(9));
    wait_until("it is empty", || {
        group.is_populated().unwrap() == Some(false)
    });
    group.remove(PATIENCE).unwrap();
    assert_eq!(group.directories(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_group_with_processes_is_not_removed_and_they_are_named() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let group = &scratch.0;
    let mut child = start_in(group, "echo .; exec sleep 600");
    child.read(1);
    let pid = group.members().unwrap().unwrap()[0];
    match group.remove(Duration::ZERO) {
        Err(GroupError::Populated { members, .. }) => assert_eq!(members, [pid]),
        other => panic!("{other:?}"),
    }
    // While it ends, removing waits.
    assert!(group.kill().unwrap().is_some());
    group.remove(PATIENCE).unwrap();
    assert_eq!(child.wait().signal(), Some(9));
    // Again, when it is gone.
    group.remove(Duration::ZERO).unwrap();
    assert_eq!(group.members().unwrap(), None);
}

#[test]
fn groups_that_a_run_makes_below_its_own_are_its_own() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let group = &scratch.0;
    let nested = group.directories()[0].join("a").join("b");
    std::fs::create_dir_all(&nested).unwrap();
    let mut child = start_in(group, "echo .; exec sleep 600");
    child.read(1);
    let pid = group.members().unwrap().unwrap()[0];
    std::fs::write(nested.join("cgroup.procs"), pid.to_string()).unwrap();
    assert_eq!(group.members().unwrap(), Some(vec![pid]));
    assert_eq!(group.is_populated().unwrap(), Some(true));
    assert_eq!(run_of(pid).unwrap().as_deref(), Some(group.name()));
    assert!(group.kill().unwrap().is_some());
    assert_eq!(child.wait().signal(), Some(9));
    group.remove(PATIENCE).unwrap();
}

#[test]
fn a_name_is_taken_once() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let again = Group::create(&Hierarchies::probe(), scratch.0.name());
    assert!(
        again
            .as_ref()
            .is_err_and(|error| error.to_string().ends_with(": already there")),
        "{again:?}"
    );
}

#[test]
fn sweeping_removes_unused_groups() {
    let hierarchies = Hierarchies::probe();
    let (Some(dead), Some(alive), Some(busy)) = (Scratch::new(), Scratch::new(), Scratch::new())
    else {
        return;
    };
    let limits = RunLimits {
        pids: Some(50),
        ..RunLimits::default()
    };
    if hierarchies.limit(RunLimit::Pids).is_ok() {
        dead.0.apply(&limits).unwrap();
    }
    let mut child = start_in(&busy.0, "echo .; exec sleep 600");
    child.read(1);
    let ours = [&dead, &alive, &busy].map(|scratch| scratch.0.name().to_owned());
    // Other tests of this program have groups too.
    let is_alive = |name: &str| name == ours[1] || !ours.iter().any(|one| one == name);
    assert!(sweep(&hierarchies, "other-", is_alive).removed.is_empty());
    let swept = sweep(&hierarchies, "test-", is_alive);
    assert_eq!(swept.removed, [ours[0].clone()]);
    let kept: Vec<&str> = swept.kept.iter().map(|kept| kept.name.as_str()).collect();
    assert_eq!(kept, [ours[2].as_str()]);
    assert!(matches!(swept.kept[0].reason, GroupError::Populated { .. }));
    assert!(dead.0.directories().is_empty());
    assert!(!alive.0.directories().is_empty());
}

/// Set in the process that plays the shim: its group, as it is handed over.
const SHIM: &str = "INTERLOCK_TEST_CGROUP_SHIM";

#[test]
fn a_shim_ends_its_group_and_goes_on() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let group = &scratch.0;
    let mut shim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ending::the_shim", "--ignored", "--nocapture"])
        .env(SHIM, serde_json::to_string(group).unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = i32::try_from(shim.id()).unwrap();
    let lines = BufReader::new(shim.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let mut wait_for = |word: &str| lines.find(|line| line.contains(word)).unwrap();
    wait_for("shim joined");
    let members = group.members().unwrap().unwrap();
    assert!(members.contains(&pid) && members.len() == 2, "{members:?}");
    shim.stdin.as_mut().unwrap().write_all(b"kill\n").unwrap();
    wait_for("shim killed");
    // It lives, outside of the group, which can be removed while it does.
    assert_eq!(run_of(pid).unwrap(), None);
    group.remove(PATIENCE).unwrap();
    shim.stdin.as_mut().unwrap().write_all(b"end\n").unwrap();
    assert!(shim.wait().unwrap().success());
}

#[test]
#[ignore = "a process of its own, started by another test"]
fn the_shim() {
    let group: Group = serde_json::from_str(&std::env::var(SHIM).unwrap()).unwrap();
    let order = || {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        line
    };
    group.joiner().unwrap().join().unwrap();
    let child = Command::new("sleep").arg("600").spawn();
    let mut child = child.unwrap();
    println!("shim joined");
    assert_eq!(order(), "kill\n");
    assert!(group.kill().unwrap().is_some());
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    println!("shim killed");
    assert_eq!(order(), "end\n");
}

#[test]
fn names_that_are_not_ours_are_refused() {
    let long = "a".repeat(101);
    let hierarchies = Hierarchies::probe();
    for name in [
        "", ".", "..", "a/b", "../a", "a b", "A", "a.b", "a\n", "ä", &long,
    ] {
        for group in [
            Group::create(&hierarchies, name),
            Group::open(&hierarchies, name),
        ] {
            assert!(matches!(group, Err(GroupError::BadName(_))), "{name:?}");
        }
        let handed = serde_json::json!({
            "name": name,
            "hierarchies": serde_json::to_value(&hierarchies).unwrap(),
        });
        assert!(serde_json::from_value::<Group>(handed).is_err(), "{name:?}");
    }
    assert!(Group::open(&hierarchies, &unique_name()).is_ok());
}
