//! Reads a limit of another process, which the safe libraries read only for the calling process.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;

/// Returns the hard limit of file locks of a process. The kernel refuses this for processes of
/// other users, unless this process is root.
pub(crate) fn hard_limit_of_locks(pid: i32) -> io::Result<u64> {
    let mut limit = MaybeUninit::<libc::rlimit64>::zeroed();
    // SAFETY: the call sets nothing, and `limit` is valid for writing.
    let result = unsafe {
        libc::prlimit64(
            pid,
            libc::RLIMIT_LOCKS,
            std::ptr::null(),
            limit.as_mut_ptr(),
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the value was zeroed above, and all of its fields are integers.
    Ok(unsafe { limit.assume_init() }.rlim_max)
}
