//! Limits that the kernel holds.

use std::os::unix::process::ExitStatusExt as _;

use crate::{Scratch, Waiting, start_in, unique_name, wait_until};
use interlock_supervisor::cgroup::{CgroupVersion, Cpus, Group, Hierarchies, RunLimit, RunLimits};
use testkit::plans::PATIENCE;

const MIB: u64 = 1 << 20;

#[test]
fn a_process_over_its_memory_is_ended_and_that_is_reported() {
    let Some(scratch) = Scratch::with(RunLimit::Memory) else {
        return;
    };
    let group = &scratch.0;
    let limits = RunLimits {
        memory_bytes: Some(48 * MIB),
        ..RunLimits::default()
    };
    group.apply(&limits).unwrap();
    assert_eq!(group.oom_kills(), Some(0));
    // `tail` keeps a line in memory, however long it is.
    let text = "head -c 400000000 /dev/zero | tail -n 1 >/dev/null";
    let status = start_in(group, text).wait();
    assert!(
        status.signal() == Some(9) || status.code() == Some(128 + 9),
        "{status:?}"
    );
    assert!(group.oom_kills() >= Some(1), "{:?}", group.oom_kills());

    // What stays below it is left alone.
    let before = group.oom_kills();
    let text = "head -c 1000000 /dev/zero | tail -n 1 >/dev/null";
    assert!(start_in(group, text).wait().success());
    assert_eq!(group.oom_kills(), before);
}

#[test]
fn a_process_too_many_is_refused_and_counted() {
    let Some(scratch) = Scratch::with(RunLimit::Pids) else {
        return;
    };
    let group = &scratch.0;
    let limits = RunLimits {
        pids: Some(5),
        ..RunLimits::default()
    };
    group.apply(&limits).unwrap();
    assert_eq!(group.pids_refused(), Some(0));
    let text = "for i in 1 2 3 4 5 6 7 8 9; do sleep 600 & done; wait";
    let child = start_in(group, text);
    wait_until("one is refused", || group.pids_refused() >= Some(1));
    assert!(group.members().unwrap().unwrap().len() <= 5);
    group.kill().unwrap();
    child.wait();
}

#[test]
fn a_process_gets_no_more_than_its_share_of_a_processor() {
    let Some(scratch) = Scratch::with(RunLimit::Cpus) else {
        return;
    };
    let group = &scratch.0;
    let limits = RunLimits {
        cpus: Some(Cpus::try_from(0.05).unwrap()),
        ..RunLimits::default()
    };
    group.apply(&limits).unwrap();
    assert_eq!(group.cpu_throttled(), Some(0));
    let child = start_in(group, "while :; do :; done");
    wait_until("it is held back", || group.cpu_throttled() >= Some(1));
    group.kill().unwrap();
    assert_eq!(child.wait().signal(), Some(9));
}

#[test]
fn limits_reach_who_is_in_the_group_already() {
    let Some(scratch) = Scratch::with(RunLimit::Pids) else {
        return;
    };
    let group = &scratch.0;
    if Hierarchies::probe().groups().is_err() {
        return println!("skipped: without v2 no process is in a group before it has limits");
    }
    let waiting = Waiting::new("sleep 600 & sleep 600 & wait");
    group.join(waiting.pid()).unwrap();
    let made_before = group.directories().len();
    assert_eq!(made_before, 1, "v1 only when there are limits");
    let limits = RunLimits {
        pids: Some(2),
        ..RunLimits::default()
    };
    group.apply(&limits).unwrap();
    let child = waiting.go();
    wait_until("one is refused", || group.pids_refused() >= Some(1));
    group.kill().unwrap();
    child.wait();
    group.remove(PATIENCE).unwrap();
    assert!(group.directories().is_empty());
}

#[test]
fn limits_can_be_set_anew() {
    let limits = |bytes, pids, cpus| RunLimits {
        memory_bytes: Some(bytes),
        pids: Some(pids),
        cpus: Some(Cpus::try_from(cpus).unwrap()),
    };
    let hierarchies = Hierarchies::probe();
    let first = limits(64 * MIB, 10, 0.5);
    if let Err(refused) = hierarchies.check(&first) {
        return println!("skipped: {refused}");
    }
    let scratch = Scratch(Group::create(&hierarchies, &unique_name()).unwrap());
    // Up and down, which version 1 is particular about.
    for limits in [first, limits(128 * MIB, 20, 1.0), limits(32 * MIB, 5, 0.25)] {
        scratch.0.apply(&limits).unwrap();
        let read = |file: &str| {
            let mut directories = scratch.0.directories().into_iter();
            let text = directories.find_map(|path| std::fs::read_to_string(path.join(file)).ok());
            text.unwrap().trim().to_owned()
        };
        let memory = match hierarchies.limit(RunLimit::Memory).unwrap() {
            CgroupVersion::V1 => "memory.limit_in_bytes",
            CgroupVersion::V2 => "memory.max",
        };
        assert_eq!(read(memory), limits.memory_bytes.unwrap().to_string());
        assert_eq!(read("pids.max"), limits.pids.unwrap().to_string());
        let quota = (limits.cpus.unwrap().millis() * 100).to_string();
        match hierarchies.limit(RunLimit::Cpus).unwrap() {
            CgroupVersion::V1 => assert_eq!(read("cpu.cfs_quota_us"), quota),
            CgroupVersion::V2 => assert_eq!(read("cpu.max"), format!("{quota} 100000")),
        }
    }
}

#[test]
fn what_cannot_be_limited_is_refused_and_never_ignored() {
    let hierarchies = Hierarchies::probe();
    let each = [
        (
            RunLimit::Memory,
            RunLimits {
                memory_bytes: Some(64 * MIB),
                ..RunLimits::default()
            },
        ),
        (
            RunLimit::Pids,
            RunLimits {
                pids: Some(10),
                ..RunLimits::default()
            },
        ),
        (
            RunLimit::Cpus,
            RunLimits {
                cpus: Some(Cpus::try_from(1.0).unwrap()),
                ..RunLimits::default()
            },
        ),
    ];
    for (limit, limits) in each {
        let possible = hierarchies.limit(limit).is_ok();
        assert_eq!(hierarchies.check(&limits).is_ok(), possible, "{limit:?}");
        // A handle is to be had even where no group is.
        let scratch = Scratch(Group::open(&hierarchies, &unique_name()).unwrap());
        if let Some(parent) = hierarchies.groups().ok().filter(|_| possible) {
            let name = format!("interlock-run-{}", scratch.0.name());
            std::fs::create_dir(parent.join(name)).unwrap();
        }
        match scratch.0.apply(&limits) {
            Ok(()) => assert!(possible, "{limit:?}"),
            Err(refused) => {
                assert!(!possible, "{refused}");
                assert_eq!(refused.refused.len(), 1);
                assert_eq!(refused.refused[0].0, limit);
                println!("{refused}");
            }
        }
    }
    assert!(hierarchies.check(&RunLimits::default()).is_ok());
}

#[test]
fn limits_are_read_strictly() {
    let read = serde_json::from_str::<RunLimits>;
    let all = r#"{"memoryBytes":1048576,"pids":7,"cpus":1.5}"#;
    let limits = read(all).unwrap();
    assert_eq!(
        limits,
        RunLimits {
            memory_bytes: Some(MIB),
            pids: Some(7),
            cpus: Some(Cpus::try_from(1.5).unwrap()),
        }
    );
    assert_eq!(serde_json::to_string(&limits).unwrap(), all);
    assert!(read("{}").unwrap().is_empty());
    assert_eq!(read(r#"{"cpus":2}"#).unwrap().cpus.unwrap().millis(), 2000);
    for text in [
        r#"{"memory":1}"#,
        r#"{"memoryBytes":-1}"#,
        r#"{"memoryBytes":"1m"}"#,
        r#"{"pids":1.5}"#,
        r#"{"cpus":0}"#,
        r#"{"cpus":0.009}"#,
        r#"{"cpus":-1}"#,
        r#"{"cpus":4097}"#,
    ] {
        assert!(read(text).is_err(), "{text}");
    }
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(Cpus::try_from(number).is_err());
    }
}
