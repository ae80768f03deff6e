//! The system calls of the supervisor that have no safe form. Nothing here decides anything.

#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, size_of, size_of_val};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

/// Which of the two processes this is.
pub(crate) enum Forked {
    Parent(Pid),
    Child,
}

/// Splits this process in two.
///
/// # Safety
///
/// This process has only one thread, which [`has_one_thread`] checks. Then no lock, of the
/// allocator for example, is held in the child by a thread that does not exist there, and the child
/// may go on as if it were the parent.
pub(crate) unsafe fn fork() -> io::Result<Forked> {
    // SAFETY: the caller vouches that this process has one thread.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child),
        pid => match Pid::from_raw(pid.max(0)) {
            Some(pid) => Ok(Forked::Parent(pid)),
            None => Err(io::Error::last_os_error()),
        },
    }
}

/// Whether the calling thread is the only one of this process, so that no other can start one. An
/// error where the system does not say.
pub(crate) fn has_one_thread() -> io::Result<bool> {
    // The directory has two links of its own, and one for each thread.
    let links = rustix::fs::stat("/proc/self/task")?.st_nlink;
    Ok(links == 3)
}

/// Ends this process when it is dropped. In a forked child it keeps a panic from unwinding into the
/// frames of the parent, whose values own descriptors that the child has closed.
pub(crate) struct ExitOnDrop(pub i32);

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        exit(self.0)
    }
}

/// Closes every descriptor above 2 but `kept`.
///
/// # Safety
///
/// No value that owns or borrows another descriptor above 2 is used or dropped in this process any
/// more. A forked child keeps this with [`ExitOnDrop`]: it never returns into its parent's frames.
pub(crate) unsafe fn close_all_but(kept: &OwnedFd) {
    let kept = kept.as_raw_fd().unsigned_abs();
    for (first, last) in [(3, kept.saturating_sub(1)), (kept + 1, u32::MAX)] {
        if first > last {
            continue;
        }
        // SAFETY: closes descriptors; the caller vouches that none of them is used any more.
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if result != 0 {
            for descriptor in first..last.min(1 << 16) {
                // SAFETY: as above; a number that is not open gives an error, which is right.
                unsafe {
                    libc::close(i32::try_from(descriptor).unwrap_or(i32::MAX));
                }
            }
        }
    }
}

/// Who is at the other end of a Unix socket, as of its `connect`.
pub(super) struct Credentials {
    /// 0 where the peer has no number in this PID namespace.
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

/// A descriptor of exactly the process that connected, where the kernel has it (6.5).
pub(super) fn peer_process(socket: impl AsFd) -> io::Result<OwnedFd> {
    let descriptor: libc::c_int = socket_option(socket, libc::SO_PEERPIDFD)?;
    // SAFETY: the kernel made it for this call, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn socket_option<T: Copy>(socket: impl AsFd, option: libc::c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: the value is valid for writing `length` bytes; both types that are asked for
    // consist of integers, for which any bytes are valid.
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
    // SAFETY: zeroed, and filled by the successful call.
    Ok(unsafe { value.assume_init() })
}

/// A descriptor that can be read when a child has stopped, gone on or ended. For a process with one
/// thread, which no longer gets the signal itself.
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

/// Reads all that the descriptor tells. Which children are meant has to be asked: one signal may
/// stand for several.
pub(crate) fn clear_signals(children: &OwnedFd) {
    let mut signals = [0; 8 * size_of::<libc::signalfd_siginfo>()];
    while rustix::io::read(children, &mut signals).is_ok_and(|length| length > 0) {}
}

/// For a forked process, which has inherited what was set.
pub(super) fn watch_children_no_more() {
    let set = child_signal();
    // SAFETY: the set is valid; no handler is installed that could run.
    unsafe {
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

fn child_signal() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: filled by the first call, before anything reads it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        set.assume_init()
    }
}

/// How the system schedules a thread and its reads and writes, as the system says it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scheduling {
    /// Policy, niceness, priority and clamps.
    processor: [u64; 8],
    storage: libc::c_long,
}

/// The scheduling of this thread, or of the calling one.
pub(super) fn scheduling(thread: Option<Pid>) -> Option<Scheduling> {
    /// The request is about a thread, not a group or a user.
    const IOPRIO_WHO_PROCESS: libc::c_int = 1;
    const IOPRIO_CLASS_SHIFT: u32 = 13;
    /// Best effort, in the middle.
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
    // SAFETY: takes numbers and touches no memory.
    let storage = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, thread) };
    // Older systems name an unset class in several ways, another one after the first reading.
    let is_usual = storage >> IOPRIO_CLASS_SHIFT == 0 || storage == IOPRIO_USUAL;
    let storage = if is_usual { 0 } else { storage };
    (asked == 0).then_some(Scheduling { processor, storage })
}

/// SIGTERM does nothing to this process. What it starts for a run gets the usual reaction back.
pub(super) fn ignore_termination() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
    }
}

/// One heap for all threads: a run has few, and each heap of its own would cost a process more than
/// the run itself.
pub(super) fn use_one_heap() {
    // SAFETY: sets a number in the allocator.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives back memory that was only needed to get here: free heap, and the pages of the program and
/// its libraries that were read.
pub(crate) fn trim_memory() {
    // SAFETY: returns free pages to the system; touches no live memory.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
    for (start, length) in unchanged_mappings() {
        // SAFETY: the range is a mapping of a file of which this process has changed nothing and can
        // change nothing, so that the system has the same content again when a page is next used.
        unsafe {
            libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED);
        }
    }
}

/// Where files are mapped, private, not to be written to, and without a page that this process had
/// of its own: code and constants, but not what the loader has filled in before it was locked.
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

/// The addresses in the first line about a mapping, if it is one of a file that cannot be written
/// to.
fn file_mapping(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_fixed = matches!(fields.next()?, "r-xp" | "r--p") && fields.nth(3)?.starts_with('/');
    let number = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    is_fixed.then_some((start, end.checked_sub(start)?))
}

/// Ends this process at once: nothing is dropped, no handler runs.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: the call ends the process and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Gives the calling process, which has one thread, new namespaces.
pub(crate) fn separate(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: none of the flags separates memory or descriptors from another thread, since there is
    // none.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}
