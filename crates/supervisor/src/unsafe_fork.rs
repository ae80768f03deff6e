//! The forks that create Interlock's own processes, each with the reason why its child may
//! continue. `guard`, `supervisor`, `shim` and `shield` decide what the children do.

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

/// Exit code of a child that panicked.
const PANICKED: i32 = 101;

fn check_one_thread() -> io::Result<()> {
    if has_one_thread()? {
        return Ok(());
    }
    Err(io::Error::other(
        "this process has more than one thread, so it cannot be forked",
    ))
}

/// Forks the guard. The child keeps only `ready` and the standard streams, so that a reader of a
/// pipe that the starter passed on does not wait for it. It stands guard and ends. The first
/// message on `ready` comes from [`stand_guard`], or is the error.
pub(super) fn fork_guard(
    place: &SupervisorPaths,
    version: &str,
    idle_time: Option<Duration>,
    ready: File,
) -> io::Result<()> {
    check_one_thread()?;
    // SAFETY: checked just before; this is the only thread, so no other thread can have started.
    match unsafe { fork() }? {
        Forked::Parent(_) => Ok(()),
        Forked::Child => {
            let end = ExitOnDrop(PANICKED);
            let ready = OwnedFd::from(ready);
            // SAFETY: `ready` is the only descriptor that is used from here on: the other arguments
            // of `stand_guard` are paths and numbers, and `end` keeps every frame above from being
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

/// Forks a child that keeps its own copy of all descriptors: the supervisor from the guard, and the
/// processes of an agent's namespaces.
pub(crate) fn fork_copy() -> io::Result<Forked> {
    check_one_thread()?;
    // SAFETY: checked just before; this is the only thread, so no other thread can have started.
    unsafe { fork() }
}

/// Forks the process that makes the namespaces of an agent from the supervisor. The child keeps
/// only `control` and the standard streams, calls `make` and ends. `make` must use no other
/// descriptor.
pub(crate) fn fork_maker(
    hidden: &Path,
    control: &OwnedFd,
    make: fn(&Path, &OwnedFd),
) -> io::Result<Pid> {
    check_one_thread()?;
    // SAFETY: checked just before; this is the only thread, so no other thread can have started.
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

/// Forks a shim from the supervisor. The child keeps only `control` and the standard streams:
/// neither the listening socket nor a connection may stay open in it. It serves its runs and ends.
pub(super) fn fork_shim(parent: &Parent, group: &str, control: OwnedFd) -> io::Result<Pid> {
    check_one_thread()?;
    // SAFETY: checked just before; this is the only thread, so no other thread can have started.
    match unsafe { fork() }? {
        Forked::Parent(pid) => Ok(pid),
        Forked::Child => {
            let end = ExitOnDrop(PANICKED);
            // SAFETY: `control` is the only descriptor that is used from here on: everything else
            // that a shim is born with consists of paths, names and numbers, and `end` keeps every
            // frame above from being returned or unwound to.
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

/// Forks the keeper of a sandbox scope from the supervisor. The child keeps only `link`, as its
/// standard input, and the other standard streams: no connection and no other scope may stay open
/// in it. It keeps the scope and ends.
pub(super) fn fork_keeper(order: &KeeperOrder, link: OwnedFd) -> io::Result<Pid> {
    check_one_thread()?;
    // SAFETY: checked just before; this is the only thread, so no other thread can have started.
    match unsafe { fork() }? {
        Forked::Parent(pid) => Ok(pid),
        Forked::Child => {
            let end = ExitOnDrop(PANICKED);
            // SAFETY: `link` is the only descriptor that is used from here on: the order consists
            // of names and numbers, and `end` keeps every frame above from being returned or
            // unwound to.
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
