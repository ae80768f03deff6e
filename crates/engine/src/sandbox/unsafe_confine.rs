//! The system calls of the sandbox that have no safe form. This module makes no decisions.

#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::process::Pid;
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};

use interlock_syscalls::FilterInstruction;

/// What a namespace separates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeparatedPart {
    User,
    Mounts,
    /// Separates the processes that the caller starts from now on.
    Processes,
    Network,
    Communication,
    HostName,
}

/// Moves the calling process, which must have one thread, into a namespace. This allocates nothing.
pub(super) fn enter(namespace: BorrowedFd<'_>, part: SeparatedPart) -> io::Result<()> {
    let kind = match part {
        SeparatedPart::User => libc::CLONE_NEWUSER,
        SeparatedPart::Mounts => libc::CLONE_NEWNS,
        SeparatedPart::Processes => libc::CLONE_NEWPID,
        SeparatedPart::Network => libc::CLONE_NEWNET,
        SeparatedPart::Communication => libc::CLONE_NEWIPC,
        SeparatedPart::HostName => libc::CLONE_NEWUTS,
    };
    // SAFETY: the call takes a descriptor and a number, and touches no memory.
    match unsafe { libc::setns(namespace.as_raw_fd(), kind) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the calling process, which must have one thread, namespaces of its own.
pub(super) fn separate(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: none of the flags in use separates memory, descriptors or signal handlers.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Forks the calling process, which must have one thread. Returns `None` in the child.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the process was executed for this purpose, or forked by a process with a single
    // thread, and never starts a thread, so the child finds no lock held by a thread that it does
    // not have.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        pid => match Pid::from_raw(pid.max(0)) {
            Some(pid) => Ok(Some(pid)),
            None => Err(io::Error::last_os_error()),
        },
    }
}

/// Ends the calling process at once.
pub(super) fn exit(code: i32) -> ! {
    // SAFETY: the call ends the process and never returns.
    unsafe { libc::_exit(code) }
}

pub(super) const ATTRIBUTE_READ_ONLY: u64 = 0x1;
pub(super) const ATTRIBUTE_NO_SET_ID: u64 = 0x2;
pub(super) const ATTRIBUTE_NO_DEVICES: u64 = 0x4;
pub(super) const ATTRIBUTE_NO_EXECUTE: u64 = 0x8;
const ATTRIBUTE_ID_MAP: u64 = 0x10_0000;

/// The mounts of a tree that get attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MountReach {
    Whole,
    TopOnly,
}

/// The structure that the kernel reads.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Adds attributes to the mounts of a tree, makes them private, and maps their ids if a user
/// namespace is given.
pub(super) fn set_attributes(
    tree: BorrowedFd<'_>,
    reach: MountReach,
    set: u64,
    ids: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    const MS_PRIVATE: u64 = 1 << 18;
    let attributes = MountAttributes {
        set: set | if ids.is_some() { ATTRIBUTE_ID_MAP } else { 0 },
        clear: 0,
        propagation: MS_PRIVATE,
        user_namespace: ids.map_or(0, |ids| u64::try_from(ids.as_raw_fd()).unwrap_or(u64::MAX)),
    };
    let flags = libc::AT_EMPTY_PATH
        | match reach {
            MountReach::Whole => libc::AT_RECURSIVE,
            MountReach::TopOnly => 0,
        };
    // SAFETY: the path is a C string, and the kernel reads as many bytes as the length says.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Turns on the loopback interface of the calling process's network.
pub(super) fn switch_loopback_on(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = libc::c_char::try_from(*byte).unwrap_or(0);
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(1);
    // SAFETY: the kernel reads the request, which outlives the call.
    let result = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sets the host name in the calling process's namespace.
pub(super) fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as the length says.
    match unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Removes every capability from the calling process, now and for everything that it executes. This
/// allocates nothing.
pub(super) fn give_up_capabilities() -> io::Result<()> {
    const MOST: libc::c_ulong = 63;
    const ZERO: libc::c_ulong = 0;
    for capability in 0..=MOST {
        // SAFETY: the call takes numbers and touches no memory.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, ZERO, ZERO, ZERO) };
        // This is the first number that the kernel does not know.
        if result != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
            break;
        }
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    give_up_held_capabilities()
}

/// Does the same for an ordinary user outside any namespace, who cannot empty the bounding set:
/// `no_new_privs` keeps programs from gaining any of its capabilities. This allocates nothing.
pub(super) fn give_up_held_capabilities() -> io::Result<()> {
    const ZERO: libc::c_ulong = 0;
    let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
    // SAFETY: as above.
    if unsafe { libc::prctl(libc::PR_CAP_AMBIENT, clear, ZERO, ZERO, ZERO) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none)?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// Puts the calling thread, and everything that it starts from now on, under these Landlock rules.
/// It needs `no_new_privs`. This allocates nothing.
pub(super) fn restrict_self(rules: BorrowedFd<'_>) -> io::Result<()> {
    const NO_FLAGS: libc::c_uint = 0;
    // SAFETY: the call takes a descriptor and a number, and touches no memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_restrict_self,
            rules.as_raw_fd(),
            NO_FLAGS,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Puts the system calls of the calling thread, and of everything that it starts from now on, under
/// this filter program. It needs `no_new_privs`. This allocates nothing.
pub(super) fn install_filter(program: &[FilterInstruction]) -> io::Result<()> {
    #[repr(C)]
    struct FilterHead {
        length: libc::c_ushort,
        first: *const FilterInstruction,
    }
    let Ok(length) = libc::c_ushort::try_from(program.len()) else {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    };
    let head = FilterHead {
        length,
        first: program.as_ptr(),
    };
    // SAFETY: the header states the actual number of instructions, which are laid out as the kernel
    // reads them. Both outlive the call.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::c_ulong::from(libc::SECCOMP_MODE_FILTER),
            &raw const head,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Lets a socket receive only packets that a classic BPF program passes.
pub(super) fn attach_filter(
    socket: BorrowedFd<'_>,
    program: &[FilterInstruction],
) -> io::Result<()> {
    let Ok(length) = libc::c_ushort::try_from(program.len()) else {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    };
    let head = libc::sock_fprog {
        len: length,
        filter: program.as_ptr().cast_mut().cast(),
    };
    let Ok(size) = libc::socklen_t::try_from(size_of::<libc::sock_fprog>()) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    // SAFETY: the header states the actual number of instructions, which are laid out as the kernel
    // reads them and which it does not change. Both outlive the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const head).cast(),
            size,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes SIGCHLD readable from the returned descriptor. The calling process must have one thread.
pub(super) fn watch_children() -> io::Result<rustix::fd::OwnedFd> {
    use std::os::fd::FromRawFd as _;
    // SAFETY: the first call fills the set; blocking a signal runs no code; the descriptor is new,
    // so it has no other owner.
    unsafe {
        let mut set = zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(rustix::fd::OwnedFd::from_raw_fd(descriptor)),
        }
    }
}
