//! Leaving the group of a service.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Scratch, unique_name, wait_until};
use interlock_supervisor::cgroup::leave_service_group;
use testkit::plans::PATIENCE;

/// A pretended service: a group in every tree in which this process can make one.
///
/// Below the group of this process, so that nothing here leaves what confines the tests.
struct Service {
    groups: Vec<PathBuf>,
}

impl Service {
    fn new() -> Option<Self> {
        let name = format!("interlock-{}.service", unique_name());
        let made = own_groups().into_iter().filter_map(|own| {
            let group = own.join(&name);
            fs::create_dir(&group).ok().map(|()| group)
        });
        let groups: Vec<PathBuf> = made.collect();
        if groups.is_empty() {
            println!("skipped: no group can be made");
            return None;
        }
        Some(Self { groups })
    }

    fn add(&self, pid: u32) {
        for group in &self.groups {
            fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap();
        }
    }

    /// Ends every listed process, as a service manager does it.
    fn end(&self) {
        for group in &self.groups {
            for pid in members(group) {
                let pid = rustix::process::Pid::from_raw(pid).unwrap();
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| members(group).is_empty())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
        let began = Instant::now();
        while !self.is_empty() && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
        for group in &self.groups {
            let _ = fs::remove_dir(group);
        }
    }
}

fn members(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// The directories of the groups that this process is in, in trees that services are ended by.
fn own_groups() -> Vec<PathBuf> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let mut groups = Vec::new();
    for line in own.lines() {
        let parts: Vec<&str> = line.splitn(3, ':').collect();
        let [_, controllers, path] = parts[..] else {
            continue;
        };
        let matters = ["", "freezer", "pids", "memory"].contains(&controllers)
            || controllers.starts_with("name=");
        // All of the tree must be mounted, else the path means another place.
        let wanted = |mount: &&str| {
            if mount.split(' ').nth(3) != Some("/") {
                false
            } else if controllers.is_empty() {
                mount.contains(" - cgroup2 ")
            } else {
                mount.contains(" - cgroup ") && mount.ends_with(&format!(",{controllers}"))
            }
        };
        if let (true, Some(mount)) = (matters, mountinfo.lines().find(wanted)) {
            let point = mount.split(' ').nth(4).unwrap();
            groups.push(Path::new(point).join(path.trim_start_matches('/')));
        }
    }
    groups
}

/// A process of this program, in the service.
struct Member {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Member {
    fn of(service: &Service) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "service::the_member", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        service.add(child.id());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let lines = Box::new(lines.map_while(Result::ok));
        Self { child, lines }
    }

    fn order(&mut self, word: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{word}").unwrap();
    }

    fn wait_for(&mut self, word: &str) -> String {
        let line = self.lines.find(|line| line.contains(word));
        line.unwrap_or_else(|| panic!("no {word:?}"))
    }

    fn left_groups(&self, service: &Service) -> Vec<PathBuf> {
        let beside = |group: &PathBuf| {
            let name = format!("interlock-supervisor-{}", self.child.id());
            group.parent().unwrap().join(name)
        };
        service.groups.iter().map(beside).collect()
    }
}

#[test]
#[ignore = "a process of its own, started by others"]
fn the_member() {
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "leave" => match leave_service_group() {
                Ok(left) => println!("member left {} groups: {left:?}", left.moved.len()),
                Err(reason) => println!("member stayed: {reason}"),
            },
            "ping" => println!("member lives"),
            _ => return,
        }
    }
}

#[test]
fn who_left_the_group_of_a_service_outlives_the_service() {
    let Some(service) = Service::new() else {
        return;
    };
    let (mut stays, mut leaves) = (Member::of(&service), Member::of(&service));
    // Limits of the service are not shed by leaving.
    let limited = service.groups.iter().find(|group| {
        let limit = group.join("pids.max");
        limit.exists() && fs::write(limit, "1234").is_ok()
    });
    leaves.order("leave");
    let report = leaves.wait_for("member ");
    println!("{report}");
    assert!(
        report.contains(&format!("left {} groups", service.groups.len())),
        "{report}"
    );
    let groups = leaves.left_groups(&service);
    let pid = i32::try_from(leaves.child.id()).unwrap();
    for group in &groups {
        assert_eq!(members(group), [pid], "{}", group.display());
    }
    if let Some(limited) = limited {
        let index = service
            .groups
            .iter()
            .position(|one| one == limited)
            .unwrap();
        let carried = fs::read_to_string(groups[index].join("pids.max")).unwrap();
        assert_eq!(carried.trim(), "1234");
    }

    service.end();
    wait_until("the service is over", || service.is_empty());
    assert!(!stays.child.wait().unwrap().success());
    leaves.order("ping");
    leaves.wait_for("member lives");
    // A second time there is nothing to leave.
    leaves.order("leave");
    let report = leaves.wait_for("member ");
    assert!(report.contains("left 0 groups"), "{report}");
    assert!(report.contains("own already"), "{report}");
    leaves.order("end");
    assert!(leaves.child.wait().unwrap().success());

    // The next one that leaves tidies up after it.
    let mut next = Member::of(&service);
    next.order("leave");
    next.wait_for("member left");
    for group in &groups {
        assert!(!group.exists(), "{}", group.display());
    }
    let groups = next.left_groups(&service);
    next.order("end");
    next.child.wait().unwrap();
    for group in groups {
        wait_until("it can be removed", || {
            !group.exists() || fs::remove_dir(&group).is_ok()
        });
    }
}

#[test]
fn a_process_of_a_run_does_not_leave_its_run() {
    let Some(scratch) = Scratch::new() else {
        return;
    };
    let service = Service { groups: Vec::new() };
    let mut member = Member::of(&service);
    let pid = i32::try_from(member.child.id()).unwrap();
    scratch.0.join(pid).unwrap();
    member.order("leave");
    let report = member.wait_for("member ");
    let expected = format!(
        "stayed: this process belongs to the run {}",
        scratch.0.name()
    );
    assert!(report.contains(&expected), "{report}");
    assert_eq!(scratch.0.members().unwrap(), Some(vec![pid]));
    member.order("end");
    assert!(member.child.wait().unwrap().success());
    scratch.0.remove(PATIENCE).unwrap();
}

#[test]
fn who_may_not_leave_is_told_why_and_nothing_happens() {
    if Service::new().is_some() {
        return println!("skipped: this process may make groups");
    }
    // Nothing to leave, or not permitted: either way everything is as before.
    let before = fs::read_to_string("/proc/self/cgroup").unwrap();
    match leave_service_group() {
        Ok(left) => assert_eq!(left.moved, []),
        Err(reason) => assert!(reason.to_string().len() > 10, "{reason}"),
    }
    assert_eq!(fs::read_to_string("/proc/self/cgroup").unwrap(), before);
}
