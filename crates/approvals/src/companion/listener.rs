//! The companion's side: listens, accepts only hosts of this state directory, and reports what it
//! received and showed.

use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use interlock_supervisor::{SupervisorPaths, check_peer};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::link::{Link, MAX_FROM_HOST};
use super::token::SocketToken;
use super::wire::{CompanionHello, FromCompanion, FromHost, SealedLink, Side, hello};
use super::{connect, socket_path, with_address};
use crate::approvals::Approvals;
use crate::clock::now_ms;
use crate::origin::OutsideRuns;
use interlock_rules::RulesError;

const LOCK_NAME: &str = "exec-approvals.lock";

/// How long a connected host may take to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// At most this many connections are held at once.
const MAX_CONNECTIONS: usize = 64;

/// The answer to a refused host, instead of a hello.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RefusedHost {
    pub refused: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ListenerError {
    #[error(transparent)]
    State(#[from] RulesError),
    #[error("another companion listens already{}", .pid.as_ref().map_or(String::new(), |pid| format!(" (pid {pid})")))]
    Busy { pid: Option<String> },
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl ListenerError {
    /// A stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::State(error) => error.code(),
            Self::Busy { .. } => "COMPANION_BUSY",
            Self::Io { .. } => "SOCKET_UNUSABLE",
        }
    }
}

/// The listening socket of this state directory. Dropping the listener removes the socket.
#[derive(Debug)]
pub struct CompanionListener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode, so that dropping never removes another companion's socket.
    identity: (u64, u64),
    place: SupervisorPaths,
    connections: Vec<HostConnection>,
    /// Held while this companion listens.
    _lock: File,
}

impl CompanionListener {
    /// Listens, and replaces the socket of a companion that ended without cleaning up. Only one
    /// companion listens at a time.
    pub fn bind(approvals: Approvals<'_>, outside: OutsideRuns) -> Result<Self, ListenerError> {
        approvals.make_socket_token(outside)?;
        let state_dir = approvals.store.state_dir();
        let path = socket_path(state_dir);
        let fail = |error| ListenerError::Io {
            path: path.clone(),
            error,
        };
        let lock = take_lock(&state_dir.join(LOCK_NAME)).map_err(fail)?;
        let Some(lock) = lock else {
            let pid = fs::read_to_string(state_dir.join(LOCK_NAME)).unwrap_or_default();
            let pid = Some(pid.trim().to_owned()).filter(|pid| pid.parse::<i32>().is_ok());
            return Err(ListenerError::Busy { pid });
        };
        // A foreign companion does not know the lock.
        match connect(&path) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {}
            _ => return Err(ListenerError::Busy { pid: None }),
        }
        let socket = listen(&path).map_err(fail)?;
        let metadata = fs::symlink_metadata(&path).map_err(fail)?;
        Ok(Self {
            socket,
            identity: (metadata.dev(), metadata.ino()),
            path: path.clone(),
            place: SupervisorPaths::new(state_dir),
            connections: Vec::new(),
            _lock: lock,
        })
    }

    /// Reads from every connection without waiting. Returns the ids of the approvals that just
    /// arrived.
    pub fn look(&mut self, approvals: Approvals<'_>) -> Result<Vec<String>, RulesError> {
        while let Ok((stream, _)) = self.socket.accept() {
            self.connections.extend(admit(stream, &self.place));
            // The connection that has been silent for the longest time is dropped first.
            if self.connections.len() > MAX_CONNECTIONS {
                let silent = self.connections.iter().position(|one| one.id.is_none());
                self.connections.remove(silent.unwrap_or(0));
            }
        }
        if self.connections.is_empty() {
            return Ok(Vec::new());
        }
        let Some(token) = approvals.socket_token()? else {
            self.connections.clear();
            return Ok(Vec::new());
        };
        let mut brought = Vec::new();
        self.connections.retain_mut(|connection| {
            let stays = connection.hear(&token, &mut brought).is_some();
            stays && (connection.id.is_some() || Instant::now() < connection.until)
        });
        Ok(brought)
    }

    /// Notifies the host that brought the approval that an approver can now see it.
    pub fn shown(&mut self, id: &str) {
        let bearers = self.connections.iter_mut();
        for bearer in bearers.filter(|one| one.id.as_deref() == Some(id) && !one.is_shown) {
            bearer.is_shown = true;
            let _ = bearer.say(&FromCompanion::Shown {});
        }
    }
}

impl Drop for CompanionListener {
    fn drop(&mut self) {
        let is_own_socket = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if is_own_socket {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A connection of a host.
#[derive(Debug)]
struct HostConnection {
    link: Link,
    own: CompanionHello,
    sealed: Option<SealedLink>,
    /// The id of the approval that the host brought.
    id: Option<String>,
    is_shown: bool,
    until: Instant,
}

impl HostConnection {
    /// Handles the host's messages. `None` if the connection is to be closed.
    fn hear(&mut self, token: &SocketToken, brought: &mut Vec<String>) -> Option<()> {
        for line in self.link.lines(Duration::ZERO).ok()? {
            let Some(sealed) = &mut self.sealed else {
                let other: CompanionHello = serde_json::from_str(&line).ok()?;
                let sealed = SealedLink::new(token.clone(), Side::Companion, &self.own, &other);
                self.sealed = Some(sealed.ok()?);
                continue;
            };
            match sealed.open::<FromHost>(&line, now_ms()).ok()? {
                FromHost::Request { approval, .. } if self.id.is_none() => {
                    let id = ReceivedApproval::deserialize(&approval).ok()?.id;
                    brought.push(id.clone());
                    self.id = Some(id);
                    self.say(&FromCompanion::Received {})?;
                }
                FromHost::Request { .. } | FromHost::Ended { .. } => return None,
                FromHost::Revealed { .. } | FromHost::Result { .. } => {}
            }
        }
        Some(())
    }

    fn say(&mut self, message: &FromCompanion) -> Option<()> {
        let line = self.sealed.as_mut()?.seal(message, now_ms()).ok()?;
        self.link.say(&line).ok()
    }
}

/// The part of a received approval that the companion needs.
#[derive(Deserialize)]
struct ReceivedApproval {
    id: String,
}

/// Greets a host that may send approvals. Any other peer gets the reason for its refusal.
fn admit(stream: UnixStream, place: &SupervisorPaths) -> Option<HostConnection> {
    let refused = check_peer(&stream, place).err();
    let mut link = Link::new(stream, MAX_FROM_HOST).ok()?;
    if let Some(refusal) = refused {
        let refused = refusal.message;
        let words = serde_json::to_string(&RefusedHost { refused }).ok()?;
        let _ = link.say(&words);
        return None;
    }
    let own = hello().ok()?;
    link.say(&serde_json::to_string(&own).ok()?).ok()?;
    Some(HostConnection {
        link,
        own,
        sealed: None,
        id: None,
        is_shown: false,
        until: Instant::now() + REQUEST_TIME,
    })
}

/// Takes a lock and writes the id of this process into it. `None` if another process holds the
/// lock.
pub(super) fn take_lock(path: &Path) -> io::Result<Option<File>> {
    let mut lock = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0))
        .open(path)?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())?;
    Ok(Some(lock))
}

/// Binds the socket under a temporary name and sets its mode before it gets its final name.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let listener = with_address(&new, |path| UnixListener::bind(path))?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
    fs::rename(&new, path)?;
    Ok(listener)
}
