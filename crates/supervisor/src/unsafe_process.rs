//! The system calls of the supervisor that have no safe form. This module makes no decisions.

#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, size_of, size_of_val};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

/// The parent or the child after a fork.
pub(crate) enum Forked {
    Parent(Pid),
    Child,
}

/// Forks this process.
///
/// # Safety
///
/// This process has only one thread, which [`has_one_thread`] checks. Then no lock, of the
/// allocator for example, is held in the child by a thread that does not exist there, and the child
/// may continue like the parent.
pub(crate) unsafe fn fork() -> io::Result<Forked> {
    // SAFETY: the caller guarantees that this process has one thread.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child),
        pid => match Pid::from_raw(pid.max(0)) {
            Some(pid) => Ok(Forked::Parent(pid)),
            None => Err(io::Error::last_os_error()),
        },
    }
}

/// Whether the calling thread is the only one of this process, so that no other thread can start
/// one. Fails if the system does not say.
pub(crate) fn has_one_thread() -> io::Result<bool> {
    // The directory has two links of its own, and one for each thread.
    let links = rustix::fs::stat("/proc/self/task")?.st_nlink;
    Ok(links == 3)
}

/// Ends this process when it is dropped. In a forked child, it keeps a panic from unwinding into
/// the frames of the parent, whose values own descriptors that the child has closed.
pub(crate) struct ExitOnDrop(pub i32);

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        exit(self.0)
    }
}

/// Closes every descriptor above 2 except `kept`.
///
/// # Safety
///
/// No value that owns or borrows another descriptor above 2 is used or dropped in this process
/// anymore. A forked child guarantees this with [`ExitOnDrop`]: it never returns into its parent's
/// frames.
pub(crate) unsafe fn close_all_but(kept: &OwnedFd) {
    let kept = kept.as_raw_fd().unsigned_abs();
    for (first, last) in [(3, kept.saturating_sub(1)), (kept + 1, u32::MAX)] {
        if first > last {
            continue;
        }
        // SAFETY: the call closes descriptors; the caller guarantees that none of them is used
        // anymore.
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if result != 0 {
            for descriptor in first..last.min(1 << 16) {
                // SAFETY: as above. A number that is not open gives an error, which is harmless.
                unsafe {
                    libc::close(i32::try_from(descriptor).unwrap_or(i32::MAX));
                }
            }
        }
    }
}

/// The process at the other end of a Unix socket, as of its `connect`.
pub(super) struct Credentials {
    /// 0 if the peer has no number in this PID namespace.
    pub pid: i32,
    pub user: u32,
}

pub(super) fn peer_credentials(socket: impl AsFd) -> io::Result<Credentials> {
    let credentials: libc::ucred = socket_option(socket, libc::SO_PEERCRED)?;
    Ok(Credentials {
        pid: credentials.pid,
        user: credentials.uid,
    })
}

/// Returns a descriptor of exactly the process that connected, if the kernel supports it (6.5).
pub(super) fn peer_process(socket: impl AsFd) -> io::Result<OwnedFd> {
    let descriptor: libc::c_int = socket_option(socket, libc::SO_PEERPIDFD)?;
    // SAFETY: the kernel made the descriptor for this call, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn socket_option<T: Copy>(socket: impl AsFd, option: libc::c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: the value is valid for writing `length` bytes; both requested types consist of
    // integers, for which any bytes are valid.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the value was zeroed, and filled by the successful call.
    Ok(unsafe { value.assume_init() })
}

/// Returns a descriptor that becomes readable when a child has stopped, continued or ended. The
/// calling process must have one thread, and no longer gets the signal itself.
pub(crate) fn watch_children() -> io::Result<OwnedFd> {
    let set = child_signal();
    // SAFETY: the set is valid; blocking a signal runs no code. The descriptor is new, so it has no
    // other owner.
    unsafe {
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(OwnedFd::from_raw_fd(descriptor)),
        }
    }
}

/// Reads all pending signals from the descriptor. The affected children must be queried, because
/// one signal may stand for several.
pub(crate) fn clear_signals(children: &OwnedFd) {
    let mut signals = [0; 8 * size_of::<libc::signalfd_siginfo>()];
    while rustix::io::read(children, &mut signals).is_ok_and(|length| length > 0) {}
}

/// Undoes [`watch_children`] in a forked process, which has inherited it.
pub(super) fn watch_children_no_more() {
    let set = child_signal();
    // SAFETY: the set is valid; no handler is installed that could run.
    unsafe {
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

fn child_signal() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call fills the set before anything reads it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        set.assume_init()
    }
}

/// How the system schedules a thread and its reads and writes, as the system reports it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scheduling {
    /// Policy, niceness, priority and clamps.
    processor: [u64; 8],
    storage: libc::c_long,
}

/// Returns the scheduling of this thread, or of the calling one.
pub(super) fn scheduling(thread: Option<Pid>) -> Option<Scheduling> {
    /// The request is about a thread, not a group or a user.
    const IOPRIO_WHO_PROCESS: libc::c_int = 1;
    const IOPRIO_CLASS_SHIFT: u32 = 13;
    /// Best effort, with the middle priority.
    const IOPRIO_USUAL: libc::c_long = (2 << IOPRIO_CLASS_SHIFT) | 4;
    let thread = Pid::as_raw(thread);
    let mut processor = [0_u64; 8];
    // SAFETY: the kernel writes at most as many bytes as the length says, into numbers.
    let asked = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            thread,
            processor.as_mut_ptr(),
            libc::c_uint::try_from(size_of_val(&processor)).unwrap_or(0),
            0,
        )
    };
    // SAFETY: the call takes numbers and touches no memory.
    let storage = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, thread) };
    // Older systems report an unset class in several ways, and differently after the first reading.
    let is_usual = storage >> IOPRIO_CLASS_SHIFT == 0 || storage == IOPRIO_USUAL;
    let storage = if is_usual { 0 } else { storage };
    (asked == 0).then_some(Scheduling { processor, storage })
}

/// Ignores SIGTERM in this process. Programs that it starts for a run get the default reaction
/// back.
pub(super) fn ignore_termination() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
    }
}

/// Uses one heap for all threads: a run has few threads, and a heap for each would cost a process
/// more than the run itself.
pub(super) fn use_one_heap() {
    // SAFETY: the call sets a number in the allocator.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives back memory that was needed only for the start: free heap, and pages of the program and
/// its libraries that were read.
pub(crate) fn trim_memory() {
    // SAFETY: the call returns free pages to the system, and touches no live memory.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
    for (start, length) in unchanged_mappings() {
        // SAFETY: the range is a mapping of a file of which this process has changed nothing and
        // can change nothing, so the system has the same content when a page is next used.
        unsafe {
            libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED);
        }
    }
}

/// Returns private, read-only file mappings in which this process has no page of its own: code and
/// constants, but not the parts that the loader filled in before they were locked.
fn unchanged_mappings() -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut range = None;
    for line in std::fs::read_to_string("/proc/self/smaps")
        .unwrap_or_default()
        .lines()
    {
        let mut fields = line.split_ascii_whitespace();
        match fields.next() {
            Some("Anonymous:") => {
                if let Some(range) = range.take()
                    && fields.next() == Some("0")
                {
                    found.push(range);
                }
            }
            Some(name) if !name.ends_with(':') => range = file_mapping(line),
            _ => {}
        }
    }
    found
}

/// Parses the addresses from the first line about a mapping, if it is a file mapping that cannot be
/// written to.
fn file_mapping(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_fixed = matches!(fields.next()?, "r-xp" | "r--p") && fields.nth(3)?.starts_with('/');
    let number = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    is_fixed.then_some((start, end.checked_sub(start)?))
}

/// Ends this process at once: nothing is dropped, and no handler runs.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: the call ends the process and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Gives the calling process, which must have one thread, new namespaces.
pub(crate) fn separate(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: none of the flags separates memory or descriptors from another thread, because there
    // is no other thread.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}
