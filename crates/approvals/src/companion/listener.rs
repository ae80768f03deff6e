//! The companion's side: listens, believes hosts of this state directory only, and says what it
//! has received and shown.

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

/// How long a host that connected may take to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// More connections are not held at once.
const MAX_CONNECTIONS: usize = 64;

/// Sent instead of a hello to a host that is refused.
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
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::State(error) => error.code(),
            Self::Busy { .. } => "COMPANION_BUSY",
            Self::Io { .. } => "SOCKET_UNUSABLE",
        }
    }
}

/// The socket of this state directory. It is gone when this is.
#[derive(Debug)]
pub struct CompanionListener {
    door: UnixListener,
    path: PathBuf,
    /// Device and inode, so that the socket of another companion is not removed.
    identity: (u64, u64),
    place: SupervisorPaths,
    visitors: Vec<HostConnection>,
    /// Held as long as this listens.
    _lock: File,
}

impl CompanionListener {
    /// Listens, also in place of a companion that ended without cleaning up. Only one companion
    /// listens at a time.
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
        // A foreign companion, which does not know the lock.
        match connect(&path) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {}
            _ => return Err(ListenerError::Busy { pid: None }),
        }
        let door = listen(&path).map_err(fail)?;
        let metadata = fs::symlink_metadata(&path).map_err(fail)?;
        Ok(Self {
            door,
            identity: (metadata.dev(), metadata.ino()),
            path: path.clone(),
            place: SupervisorPaths::new(state_dir),
            visitors: Vec::new(),
            _lock: lock,
        })
    }

    /// Reads from every connection without waiting; returns the ids of the approvals that arrived
    /// now.
    pub fn look(&mut self, approvals: Approvals<'_>) -> Result<Vec<String>, RulesError> {
        while let Ok((stream, _)) = self.door.accept() {
            self.visitors.extend(admit(stream, &self.place));
            // Who has said nothing for the longest time goes first.
            if self.visitors.len() > MAX_CONNECTIONS {
                let silent = self.visitors.iter().position(|one| one.id.is_none());
                self.visitors.remove(silent.unwrap_or(0));
            }
        }
        if self.visitors.is_empty() {
            return Ok(Vec::new());
        }
        let Some(token) = approvals.socket_token()? else {
            self.visitors.clear();
            return Ok(Vec::new());
        };
        let mut brought = Vec::new();
        self.visitors.retain_mut(|visitor| {
            let stays = visitor.hear(&token, &mut brought).is_some();
            stays && (visitor.id.is_some() || Instant::now() < visitor.until)
        });
        Ok(brought)
    }

    /// Notifies the host that brought the approval that an approver can see it now.
    pub fn shown(&mut self, id: &str) {
        let bearers = self.visitors.iter_mut();
        for bearer in bearers.filter(|one| one.id.as_deref() == Some(id) && !one.is_shown) {
            bearer.is_shown = true;
            let _ = bearer.say(&FromCompanion::Shown {});
        }
    }
}

impl Drop for CompanionListener {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if is_ours {
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
    /// The id of the approval that it brought.
    id: Option<String>,
    is_shown: bool,
    until: Instant,
}

impl HostConnection {
    /// `None` when there is nothing left to say to each other.
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

/// What this end needs of an approval that it received.
#[derive(Deserialize)]
struct ReceivedApproval {
    id: String,
}

/// Greets a host that may send approvals; the others get the reason why not.
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

/// `None` when another one holds it. It names who does.
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

/// Complete, with its mode, before it has its name.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let listener = with_address(&new, |path| UnixListener::bind(path))?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
    fs::rename(&new, path)?;
    Ok(listener)
}
