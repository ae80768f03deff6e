//! The single desktop companion of a state directory. Its lock ends with its process.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::FlockOperation;

use super::listener::take_lock;

const LOCK_NAME: &str = "companion.lock";

/// Held while this process shows approvals on the desktop.
#[derive(Debug)]
pub struct DesktopLock {
    _file: File,
}

impl DesktopLock {
    /// Takes the lock; `None` if another process holds it.
    pub fn take(state_dir: &Path) -> io::Result<Option<Self>> {
        let file = take_lock(&state_dir.join(LOCK_NAME))?;
        Ok(file.map(|file| Self { _file: file }))
    }
}

/// The process that currently shows approvals on the desktop.
pub fn desktop_companion(state_dir: &Path) -> Option<u32> {
    let path = state_dir.join(LOCK_NAME);
    let file = File::open(&path).ok()?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => fs::read_to_string(path).ok()?.trim().parse().ok(),
        _ => None,
    }
}
