//! Tries in a short-lived child whether this user gets the namespaces that make up the shield.

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;

use super::namespace::map_own_user;
use super::{STACK, SignalMask, reap, start_child};

/// The step that failed, and why.
type AttemptFailure = (&'static str, io::Error);

/// The values that the children borrow, and the outcome that they return.
struct Attempt {
    /// `None` for root, which needs no user namespace.
    users: Option<(CString, CString)>,
    /// The stack of the second child.
    stack: *mut c_void,
    outcome: Mutex<Result<(), AttemptFailure>>,
}

/// Makes everything that the shield needs, and leaves nothing behind.
pub(crate) fn try_namespaces(is_root: bool) -> Result<(), AttemptFailure> {
    let prepare = |error: io::Error| ("preparing a process", error);
    let same = |id: u32| CString::new(format!("{id} {id} 1")).map_err(io::Error::from);
    let users = || -> io::Result<_> {
        let user = same(rustix::process::geteuid().as_raw())?;
        Ok((user, same(rustix::process::getegid().as_raw())?))
    };
    let users = (!is_root).then(users).transpose().map_err(prepare)?;
    let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(STACK / size_of::<u128>());
    let attempt = Attempt {
        users,
        // SAFETY: this is the end of the allocation, from which the stack grows down.
        stack: unsafe { stack.as_mut_ptr().add(stack.capacity()) }.cast(),
        outcome: Mutex::new(Err((
            "starting a process",
            io::ErrorKind::Interrupted.into(),
        ))),
    };
    let before = SignalMask::block_all().map_err(prepare)?;
    let argument = (&raw const attempt).cast_mut().cast();
    // SAFETY: `outer` takes a pointer to `attempt`, which lives until both children have ended.
    let child = unsafe { start_child(outer, argument, 0) };
    before.restore();
    let _ = reap(child.map_err(prepare)?);
    attempt
        .outcome
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn outer(argument: *mut c_void) -> c_int {
    // SAFETY: `try_namespaces` passed a pointer to this value, which outlives this function.
    let attempt = unsafe { &*argument.cast_const().cast::<Attempt>() };
    let made = separate(attempt);
    let is_made = made.is_ok();
    say(attempt, made);
    if is_made {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the requirements of `start_child` hold: the stack is the child's own, this
        // process is suspended, and all signals are blocked.
        let child = unsafe { libc::clone(inner, attempt.stack, flags, argument) };
        if child < 0 {
            let error = io::Error::last_os_error();
            say(
                attempt,
                Err(("starting a process in a PID namespace", error)),
            );
        }
    }
    // SAFETY: the call ends the child at once, without running any code of the parent.
    unsafe { libc::_exit(0) }
}

fn separate(attempt: &Attempt) -> Result<(), AttemptFailure> {
    if let Some((users, groups)) = &attempt.users {
        let step = |error: io::Error| ("making a user namespace", error);
        // SAFETY: the child shares memory with nothing that a user namespace would separate.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }
            .map_err(|error| step(error.into()))?;
        map_own_user(users, groups)
            .map_err(|error| ("mapping the user into its namespace", error))?;
    }
    // SAFETY: as above.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWPID) }
        .map_err(|error| ("making mount and PID namespaces", error.into()))?;
    Ok(())
}

/// Process 1 of the new PID namespace.
extern "C" fn inner(argument: *mut c_void) -> c_int {
    // SAFETY: as in `outer`.
    let attempt = unsafe { &*argument.cast_const().cast::<Attempt>() };
    say(attempt, mount());
    // SAFETY: as in `outer`.
    unsafe { libc::_exit(0) }
}

fn mount() -> Result<(), AttemptFailure> {
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", slave)
        .map_err(|error| ("separating mounts", error.into()))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(c"proc", c"/proc", c"proc", flags, None).map_err(|error| {
        let step = "mounting a list of processes (in containers /proc is often masked)";
        (step, error.into())
    })?;
    rustix::mount::mount(c"interlock", c"/tmp", c"tmpfs", flags, None)
        .map_err(|error| ("mounting a cover", error.into()))
}

/// Stores the outcome in place of one that owns nothing, so that this allocates and frees nothing.
fn say(attempt: &Attempt, outcome: Result<(), AttemptFailure>) {
    if let Ok(mut place) = attempt.outcome.try_lock() {
        *place = outcome;
    }
}
