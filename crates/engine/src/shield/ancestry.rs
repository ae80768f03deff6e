//! Determines which run a process belongs to, by the namespace that the run was started in.
//!
//! A process can make user namespaces below its own and enter them. It can never enter a namespace
//! above or beside its own, because it would need a capability there. The namespace of a run is
//! therefore an ancestor of the user namespace of every process of the run, whatever the process
//! does. A UTS namespace, which marks the runs of root, holds only as long as root does not leave
//! it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

use super::unsafe_namespaces::parent_namespace;
use crate::process_table;

/// Deepest nesting of user namespaces that the kernel allows.
const MOST_LEVELS: usize = 33;

/// Identifies the namespace of one shim's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunNamespace {
    number: u64,
    is_user: bool,
}

impl RunNamespace {
    pub fn of_descriptor(namespace: impl AsFd, is_user: bool) -> io::Result<Self> {
        let number = rustix::fs::fstat(namespace)?.st_ino;
        Ok(Self { number, is_user })
    }

    /// Whether a process that `init` has adopted lives in this namespace or below it. If that
    /// cannot be found out although the process lives, the answer is yes: no process may outlive
    /// its run because it cannot be inspected. A process that is ending has no namespaces for a
    /// moment while it still counts as alive; one of the init's own helpers must not be mistaken
    /// for a process of the run then.
    pub fn has(self, pid: i32, init: Pid) -> bool {
        let lives = || {
            process_table::row(pid)
                .is_some_and(|row| !row.is_zombie() && row.parent == init.as_raw_pid())
        };
        for _ in 0..LOOKS {
            match self.look(pid) {
                Ok(is_inside) => return is_inside && lives(),
                Err(_) if !lives() => return false,
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        lives()
    }

    fn look(self, pid: i32) -> io::Result<bool> {
        if !self.is_user {
            return Ok(number(&open(pid, "uts")?)? == self.number);
        }
        let mut namespace = open(pid, "user")?;
        for _ in 0..MOST_LEVELS {
            if number(&namespace)? == self.number {
                return Ok(true);
            }
            // Namespaces above that of this process are not visible, and no run is in them.
            match parent_namespace(&namespace) {
                Ok(parent) => namespace = parent,
                Err(_) => return Ok(false),
            }
        }
        Ok(false)
    }
}

fn open(pid: i32, kind: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(
        format!("/proc/{pid}/ns/{kind}"),
        flags,
        Mode::empty(),
    )?)
}

fn number(namespace: &OwnedFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(namespace)?.st_ino)
}

/// How often a changing list or an ending process is looked at.
const LOOKS: usize = 16;

/// Returns the children of a process with one thread. The kernel writes its list entry by entry,
/// and a child that ends meanwhile hides the next one, so a list counts only if two reads agree. An
/// empty list is always true, because a later child is added at the end.
pub fn stable_children_of(parent: Pid) -> Vec<i32> {
    let mut children = children_of(parent);
    for _ in 0..LOOKS {
        if children.is_empty() {
            break;
        }
        let again = children_of(parent);
        if again == children {
            break;
        }
        children = again;
    }
    children
}

fn children_of(parent: Pid) -> Vec<i32> {
    let parent = parent.as_raw_pid();
    let listed = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    match listed {
        Ok(listed) => {
            let numbers = listed.split_ascii_whitespace();
            numbers.filter_map(|number| number.parse().ok()).collect()
        }
        // The kernel has no such lists, or the process does not exist.
        Err(_) => process_table::read()
            .into_iter()
            .filter(|row| row.parent == parent)
            .map(|row| row.pid)
            .collect(),
    }
}
