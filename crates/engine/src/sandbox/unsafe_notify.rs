//! The system calls by which the kernel asks before a process of a run starts a program. This
//! module makes no decisions.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd as _, BorrowedFd};

use crate::unsafe_spawn::CStrings;
use interlock_syscalls::FilterInstruction;

/// Lets only signals that end the process interrupt the wait. Kernels before 5.19 do not support
/// this.
const WAIT_KILLABLE: libc::c_ulong = 1 << 5;

/// Most parts of a message: the path of the program, and its first arguments.
const MOST_PARTS: usize = 17;

/// Most bytes of each part that are handed over.
const MOST_PART_BYTES: usize = 100;

/// A waiting process, and the call that it wants to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallNotification {
    pub id: u64,
    /// The process number, as the receiver sees it.
    pub pid: u32,
    pub number: i64,
    pub arguments: [u64; 6],
}

/// A process that waits to start a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExecNotification {
    pub id: u64,
    /// The process number, as the receiver sees it.
    pub pid: u32,
    /// The descriptor of the directory that the path is relative to.
    pub directory: i32,
    /// Addresses in the memory of the process.
    pub path: u64,
    pub argv: u64,
}

/// The answer to a waiting process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotificationAnswer {
    GoOn,
    /// The call is not made, because the listener has already made it.
    Done,
    /// The call is not made, and fails with this error.
    Refuse(i32),
}

/// Makes the kernel ask from now on, in a child that shares its memory with the process that
/// started it, and hands over the listener with the path and the arguments of the program that the
/// child becomes. This allocates nothing.
pub(super) fn install_listener(
    program: &[FilterInstruction],
    to: BorrowedFd<'_>,
    path: &CStr,
    words: &CStrings,
) -> io::Result<()> {
    let Ok(length) = libc::c_ushort::try_from(program.len()) else {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    };
    let head = libc::sock_fprog {
        len: length,
        filter: program.as_ptr().cast_mut().cast(),
    };
    let install = |flags: libc::c_ulong| {
        // SAFETY: the header states the actual number of instructions, which are laid out as the
        // kernel reads them and are not changed. Both outlive the call.
        unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | flags,
                &raw const head,
            )
        }
    };
    let mut listener = install(WAIT_KILLABLE);
    if listener < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
        listener = install(0);
    }
    let Ok(listener) = i32::try_from(listener) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    let sent = hand_over(listener, to, path, words);
    // The child must keep no descriptor by which it could answer itself.
    // SAFETY: the descriptor is this child's own.
    unsafe { libc::close(listener) };
    sent
}

fn hand_over(
    listener: libc::c_int,
    to: BorrowedFd<'_>,
    path: &CStr,
    words: &CStrings,
) -> io::Result<()> {
    const SPACE: usize = 64;
    #[repr(align(8))]
    struct Ancillary([u8; SPACE]);
    static SEPARATOR: [u8; 1] = [0];
    // SAFETY: all fields are numbers and pointers, for which zero is valid.
    let mut parts: [libc::iovec; MOST_PARTS * 2] = unsafe { zeroed() };
    let mut count = 0;
    let path = path.as_ptr();
    let all = std::iter::once(&path).chain(words.pointers.iter());
    for word in all.take_while(|word| !word.is_null()).take(MOST_PARTS) {
        if count > 0 {
            parts[count].iov_base = SEPARATOR.as_ptr().cast_mut().cast();
            parts[count].iov_len = 1;
            count += 1;
        }
        parts[count].iov_base = word.cast_mut().cast();
        // SAFETY: the word is a C string, which outlives this call.
        parts[count].iov_len = unsafe { libc::strnlen(*word, MOST_PART_BYTES) };
        count += 1;
    }
    let mut ancillary = Ancillary([0; SPACE]);
    // SAFETY: as above.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = count as _;
    message.msg_control = ancillary.0.as_mut_ptr().cast();
    let size = u32::try_from(size_of::<libc::c_int>()).unwrap_or(4);
    // SAFETY: the call only computes a number.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as _;
    // SAFETY: the space is large enough for one header and one descriptor, and aligned.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size) as _;
        libc::CMSG_DATA(header)
            .cast::<libc::c_int>()
            .write_unaligned(listener);
    }
    // SAFETY: everything that the message refers to outlives the call.
    let sent = unsafe { libc::sendmsg(to.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns the next process that waits to start a program.
pub(super) fn receive_notification(listener: BorrowedFd<'_>) -> io::Result<ExecNotification> {
    let CallNotification {
        id,
        pid,
        number,
        arguments,
    } = receive_call(listener)?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // as the kernel reads it
    let (directory, path, argv) = if number == libc::SYS_execveat {
        (arguments[0] as i32, arguments[1], arguments[2])
    } else {
        (libc::AT_FDCWD, arguments[0], arguments[1])
    };
    Ok(ExecNotification {
        id,
        pid,
        directory,
        path,
        argv,
    })
}

/// Returns the next waiting process.
pub(super) fn receive_call(listener: BorrowedFd<'_>) -> io::Result<CallNotification> {
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut notification: libc::seccomp_notif = unsafe { zeroed() };
    // SAFETY: the kernel writes one notification, which outlives the call.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE as _, &raw mut notification) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(CallNotification {
        id: notification.id,
        pid: notification.pid,
        number: i64::from(notification.data.nr),
        arguments: notification.data.args,
    })
}

/// Whether a process still waits. If not, its number may belong to another process.
pub(super) fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads one number, which outlives the call.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), IS_VALID as _, &raw const id) };
    result == 0
}

pub(super) fn answer(
    listener: BorrowedFd<'_>,
    id: u64,
    answer: NotificationAnswer,
) -> io::Result<()> {
    const GO_ON: u32 = 1;
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut response: libc::seccomp_notif_resp = unsafe { zeroed() };
    response.id = id;
    match answer {
        NotificationAnswer::GoOn => response.flags = GO_ON,
        NotificationAnswer::Done => {}
        NotificationAnswer::Refuse(error) => response.error = -error,
    }
    // SAFETY: the kernel reads one response, which outlives the call.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), ANSWER as _, &raw mut response) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Lets the kernel switch immediately to the side that is waited for. Kernels before 6.6 do not
/// support this.
pub(super) fn wake_at_once(listener: BorrowedFd<'_>) {
    const AT_ONCE: u64 = 1;
    // SAFETY: the call takes a number, and touches no memory.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS as _, AT_ONCE) };
}

/// Composes a request number as the kernel does, from direction, size, `!` and number.
const fn request(direction: u64, size: usize, number: u64) -> u64 {
    (direction << 30) | ((size as u64) << 16) | (0x21 << 8) | number
}

const RECEIVE: u64 = request(3, size_of::<libc::seccomp_notif>(), 0);
const ANSWER: u64 = request(3, size_of::<libc::seccomp_notif_resp>(), 1);
const IS_VALID: u64 = request(1, size_of::<u64>(), 2);
const SET_FLAGS: u64 = request(1, size_of::<u64>(), 4);
