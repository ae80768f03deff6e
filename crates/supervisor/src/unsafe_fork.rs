//! The forks by which Interlock's own processes come to be, each with the reason why its child may
//! go on. What the children do is decided in `guard`, `supervisor`, `shim` and `shield`.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use interlock_engine::sandbox::{KeeperOrder, keep_scope};
use rustix::process::Pid;

use super::guard::stand_guard;
use super::paths::SupervisorPaths;
use super::pool::Parent;
use super::shim::{self, Birth, ShimEnding};
use super::unsafe_process::{
    ExitOnDrop, Forked, close_all_but, fork, has_one_thread, watch_children_no_more,
};

/// Code of a child that panicked.
const PANICKED: i32 = 101;

fn check_one_thread() -> io::Result<()> {
    if has_one_thread()? {
        return Ok(());
    }
    Err(io::Error::other(
        "this process has more than one thread, so it cannot be forked",
    ))
}

/// Forks the guard. The child keeps `ready` and the standard streams alone, so that a reader of a
/// pipe that the starter passed on does not wait for it. It stands guard and ends. What it says
/// first on `ready` is said by [`stand_guard`], or is the error.
pub(super) fn fork_guard(
    place: &SupervisorPaths,
    version: &str,
    idle_time: Option<Duration>,
    ready: File,
) -> io::Result<()> {
    check_one_thread()?;
    // SAFETY: checked just before; the only thread is this one, so that no other can have begun.
    match unsafe { fork() }? {
        Forked::Parent(_) => Ok(()),
        Forked::Child => {
            let end = ExitOnDrop(PANICKED);
            let ready = OwnedFd::from(ready);
            // SAFETY: `ready` is the only descriptor that is used from here on: the other arguments of
            // `stand_guard` are paths and numbers, and `end` keeps every frame above from being
            // returned or unwound to.
            unsafe { close_all_but(&ready) };
            let mut ready = Some(File::from(ready));
            let outcome = stand_guard(place, version, idle_time, &mut ready);
            if let (Err(error), Some(ready)) = (&outcome, &mut ready) {
                let _ = writeln!(ready, "{error}");
            }
            exit_with(end, i32::from(outcome.is_err()))
        }
    }
}

/// Forks a child that keeps all descriptors, of which each process has its own copy: the supervisor
/// off the guard, and the processes of an agent's namespaces.
pub(crate) fn fork_copy() -> io::Result<Forked> {
    check_one_thread()?;
    // SAFETY: checked just before; the only thread is this one, so that no other can have begun.
    unsafe { fork() }
}

/// Forks the process that makes the namespaces of an agent off the supervisor. The child keeps
/// `control` and the standard streams alone; it does what `make` says and ends. `make` must use no
/// other descriptor.
pub(crate) fn fork_maker(
    hidden: &Path,
    control: &OwnedFd,
    make: fn(&Path, &OwnedFd),
) -> io::Result<Pid> {
    check_one_thread()?;
    // SAFETY: checked just before; the only thread is this one, so that no other can have begun.
    match unsafe { fork() }? {
        Forked::Parent(pid) => Ok(pid),
        Forked::Child => {
            let end = ExitOnDrop(PANICKED);
            // SAFETY: `make` captures nothing and gets a path and `control`, the only descriptor that
            // is used from here on; `end` keeps every frame above from being returned or unwound to.
            unsafe { close_all_but(control) };
            make(hidden, control);
            exit_with(end, 0)
        }
    }
}

/// Forks a shim off the supervisor. The child keeps `control` and the standard streams alone:
/// neither the listening socket nor a connection may live on in it. It serves one run and ends.
pub(super) fn fork_shim(parent: &Parent, group: &str, control: OwnedFd) -> io::Result<Pid> {
    check_one_thread()?;
    // SAFETY: checked just before; the only thread is this one, so that no other can have begun.
    match unsafe { fork() }? {
        Forked::Parent(pid) => Ok(pid),
        Forked::Child => {
            let end = ExitOnDrop(PANICKED);
            // SAFETY: `control` is the only descriptor that is used from here on: what else a shim is
            // born with are paths, names and numbers, and `end` keeps every frame above from being
            // returned or unwound to.
            unsafe { close_all_but(&control) };
            watch_children_no_more();
            let ending = shim::run(&Birth {
                place: parent.place.clone(),
                instance: parent.instance.clone(),
                open_files: parent.open_files,
                hierarchies: parent.hierarchies.clone(),
                limits: parent.limits,
                group: group.to_owned(),
                control,
            });
            exit_with(end, i32::from(ending == ShimEnding::Bad))
        }
    }
}

/// Forks the keeper of a sandbox scope off the supervisor. The child keeps `link`, as its standard input, and
/// the other standard streams alone: no connection and no other scope may live on in it. It keeps the scope and
/// ends.
pub(super) fn fork_keeper(order: &KeeperOrder, link: OwnedFd) -> io::Result<Pid> {
    check_one_thread()?;
    // SAFETY: checked just before; the only thread is this one, so that no other can have begun.
    match unsafe { fork() }? {
        Forked::Parent(pid) => Ok(pid),
        Forked::Child => {
            let end = ExitOnDrop(PANICKED);
            // SAFETY: `link` is the only descriptor that is used from here on: the order is names and
            // numbers, and `end` keeps every frame above from being returned or unwound to.
            unsafe { close_all_but(&link) };
            watch_children_no_more();
            let moved = rustix::stdio::dup2_stdin(&link);
            drop(link);
            exit_with(end, moved.map_or(1, |()| keep_scope(order)))
        }
    }
}

fn exit_with(mut end: ExitOnDrop, code: i32) -> ! {
    end.0 = code;
    drop(end);
    unreachable!("the process has ended")
}
