//! The system calls of the shield that have no safe form. This module makes no decisions.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::thread::{CapabilitySet, CapabilitySets};

/// What a namespace separates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamespaceKind {
    User,
    Mounts,
    /// Separates the processes that the caller starts from now on.
    Processes,
    HostName,
}

/// Moves the calling process, which must have one thread, into a namespace. This allocates nothing.
pub(super) fn enter(namespace: BorrowedFd<'_>, kind: NamespaceKind) -> io::Result<()> {
    let kind = match kind {
        NamespaceKind::User => libc::CLONE_NEWUSER,
        NamespaceKind::Mounts => libc::CLONE_NEWNS,
        NamespaceKind::Processes => libc::CLONE_NEWPID,
        NamespaceKind::HostName => libc::CLONE_NEWUTS,
    };
    // SAFETY: the call takes a descriptor and a number, and touches no memory.
    match unsafe { libc::setns(namespace.as_raw_fd(), kind) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the user namespace that another namespace was made in. Fails if that is not visible from
/// here.
pub(super) fn parent_namespace(namespace: impl AsFd) -> io::Result<OwnedFd> {
    /// `_IO(0xb7, 0x2)`
    const NS_GET_PARENT: libc::c_ulong = 0xb702;
    // SAFETY: the call takes no argument and touches no memory. The returned descriptor is new, so
    // it has no other owner.
    unsafe {
        match libc::ioctl(namespace.as_fd().as_raw_fd(), NS_GET_PARENT as _) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(OwnedFd::from_raw_fd(descriptor)),
        }
    }
}

/// Removes every capability from the calling process. This allocates nothing.
pub(super) fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(rustix::thread::set_capabilities(None, none)?)
}
