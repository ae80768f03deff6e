//! The local approval socket. A companion program of the same user listens in the state directory,
//! is shown pending approvals, and may decide them.
//!
//! ```text
//! host ──connect──► companion        both check the peer
//!      ◄── hello ──                  protocol and nonce of the companion
//!      ─── hello ─►                  protocol and nonce of the host
//!      ─ request ─►                  the approval; from here on every line is authenticated
//!      ◄ received, shown, reveal, answer
//!      ─ revealed, result, ended ─►
//! ```
//!
//! Read `wire` (the lines and their authentication), `link` (lines over a socket, with bounds),
//! `courier` (the host's side), `listener` (the companion's side), `desktop` (which process shows
//! notifications), and `token`. Authors of other companions find the protocol in
//! `docs/approval-socket.md`.
//!
//! These guarantees hold: both sides refuse a process of another user by its credentials, and a run
//! by its descent. A process without the token can neither show nor decide. No message can be
//! replayed, moved to another approval or kept for later.
//!
//! This does not hold: a process of the same user, outside of runs, can read the token from the
//! state directory. Between such processes the socket is a guard and not a wall.
//! guard and not a wall.

mod courier;
mod desktop;
mod link;
mod listener;
mod token;
mod wire;

pub use courier::{Courier, CourierWaits};
pub use desktop::{DesktopLock, desktop_companion};
pub use listener::{CompanionListener, ListenerError};
pub use token::SocketToken;

use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

const SOCKET_NAME: &str = "exec-approvals.sock";

/// Where a companion of this state directory listens.
pub fn socket_path(state_dir: &Path) -> PathBuf {
    state_dir.join(SOCKET_NAME)
}

/// Whether a companion listens and has room for another approval. Never waits.
pub fn is_listening(state_dir: &Path) -> bool {
    connect(&socket_path(state_dir)).is_ok()
}

/// Whether a companion's socket exists. It may be left over from an earlier companion. Unlike
/// [`is_listening`], this function does not connect.
pub fn has_socket(state_dir: &Path) -> bool {
    is_socket(&socket_path(state_dir))
}

/// The longest path that fits into a socket address with its final zero.
const MAX_ADDRESS: usize = 107;

/// Socket addresses are short, so a longer path goes through a descriptor of its directory.
fn with_address<T>(path: &Path, use_it: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= MAX_ADDRESS {
        return use_it(path);
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    use_it(
        &Path::new("/proc/self/fd")
            .join(directory.as_raw_fd().to_string())
            .join(name),
    )
}

/// Connects without waiting: a full queue is an error.
fn connect(path: &Path) -> io::Result<UnixStream> {
    with_address(path, |path| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
            Ok(()) => Ok(socket.into()),
            Err(Errno::AGAIN) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.into()),
        }
    })
}

/// Whether the path is a socket. A link to a socket elsewhere does not count.
fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}
