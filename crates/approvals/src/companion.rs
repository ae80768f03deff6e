//! The local approval socket: a companion program of the same user listens in the state directory,
//! is shown what waits for a decision, and may decide.
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
//! Read `wire` (what a line says, and what makes it believed), `link` (lines over a socket, with
//! bounds), `courier` (the host's side), `listener` (the companion's), `desktop` (which process shows
//! notifications), `token`. Authors of other
//! companions find the protocol in `docs/approval-socket.md`.
//!
//! What holds: another user's process is turned away by its credentials, and a run by its descent,
//! on both sides. Without the token a process can neither show nor decide, and nothing can be
//! replayed, moved to another approval or kept for later. What does not: a process of the same
//! user, outside of runs, can read the token from the state directory. Between those this is a
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

/// Whether one listens, and has room for another approval. Never waits.
pub fn is_listening(state_dir: &Path) -> bool {
    connect(&socket_path(state_dir)).is_ok()
}

/// Whether there is a socket of a companion, which may be one that it left behind. Unlike
/// [`is_listening`] this does not connect.
pub fn has_socket(state_dir: &Path) -> bool {
    is_socket(&socket_path(state_dir))
}

/// As much as fits into the address of a socket, with its final zero.
const MAX_ADDRESS: usize = 107;

/// Sockets have short addresses: a long path is taken through a descriptor of its directory.
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

/// Never waits: a full queue is an error.
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

/// Whether there is a socket at all, and no link to one elsewhere.
fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}
