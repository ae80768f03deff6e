//! A limit of another process, which the safe libraries read for the calling process only.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;

/// The hard limit of file locks of a process. Refused for processes of other users, unless this one is
/// root.
pub(crate) fn hard_limit_of_locks(pid: i32) -> io::Result<u64> {
    let mut limit = MaybeUninit::<libc::rlimit64>::zeroed();
    // SAFETY: sets nothing, and the place for the answer is valid for writing.
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
    // SAFETY: zeroed above, and all fields are integers.
    Ok(unsafe { limit.assume_init() }.rlim_max)
}
