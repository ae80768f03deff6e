//! Takes what the root of a scope's container holds, in the container's own mount namespace, as
//! mounts for the view of a run. The run's namespaces are the same as with the native backend.
//! Nothing of the run executes in the container, which only keeps its image mounted.
//!
//! ```text
//! keeper ─► engine ─► container    its root file system, mounted while it lives
//!    └──── watches the container, and ends with it
//! maker ──► child in the container's mounts: takes what its root holds, entry by entry
//! ```

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use interlock_plan::{
    ContainerPlan, MountAccess, SandboxBackend, SandboxLimits, SandboxMount, SandboxPlan,
    SandboxUser,
};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, WaitOptions};
use serde::{Deserialize, Serialize};

use super::keeper::KEEPER_PATIENCE;
use super::link;
use super::mounts::{attributes, clone_tree, open_source};
use super::unsafe_confine::{self, MountReach, SeparatedPart, enter, exit, set_attributes};

/// Entries of the root that never come from the container, because they show the machine.
const NEVER_TAKEN: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Most entries that are taken, since each needs a mount.
const MOST_ENTRIES: usize = 2_000;

/// Message types of the child that takes the entries.
const TREE: u8 = b't';
const LINK: u8 = b'l';
const END: &[u8] = b"end";

/// The container that a keeper must hold, and what it is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerOrder {
    pub plan: ContainerPlan,
    pub backend: SandboxBackend,
    pub scope_id: String,
    /// The scope's directory on the host.
    pub scope_directory: String,
    pub user: SandboxUser,
    pub limits: SandboxLimits,
}

impl ContainerOrder {
    pub(super) fn of(sandbox: &SandboxPlan) -> Option<Self> {
        Some(Self {
            plan: sandbox.container.clone()?,
            backend: sandbox.backend,
            scope_id: sandbox.scope_id.clone(),
            scope_directory: sandbox.scope_directory.clone(),
            user: sandbox.user,
            limits: sandbox.limits,
        })
    }
}

/// Ensures that the container runs, and returns its first process.
pub type ReadyContainer = fn(&ContainerOrder) -> Result<i32, String>;

/// A running container, in the keeper of its scope.
#[derive(Debug)]
pub(super) struct HeldContainer {
    pub namespaces: ContainerNamespaces,
    /// Becomes readable when the container has ended.
    pub process: OwnedFd,
}

impl HeldContainer {
    pub fn hold(order: &ContainerOrder, ready: ReadyContainer) -> Result<Self, String> {
        let first = ready(order)?;
        let open = || -> io::Result<Self> {
            let pid = Pid::from_raw(first).ok_or(io::ErrorKind::NotFound)?;
            let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
            let namespaces = ContainerNamespaces {
                user: open_namespace(first, "user")?,
                mounts: open_namespace(first, "mnt")?,
            };
            Ok(Self {
                namespaces,
                process,
            })
        };
        let held = open().map_err(|error| {
            let hint = if error.kind() == io::ErrorKind::PermissionDenied {
                "; the engine runs as another user than Interlock: use the rootless podman of this account, or run Interlock as root"
            } else {
                ""
            };
            format!("opening the container: {error}{hint}")
        })?;
        // This confirms that the number did not pass to another process meanwhile.
        if ready(order)? != first {
            return Err("the container was started anew meanwhile; repeat the call".to_owned());
        }
        let own = open_namespace_of_self("mnt").map_err(|error| error.to_string())?;
        if is_same(own.as_fd(), held.namespaces.mounts.as_fd()).unwrap_or(true) {
            return Err("the container has no mounts of its own".to_owned());
        }
        Ok(held)
    }
}

/// The namespaces in which the root of a container is visible.
#[derive(Debug)]
pub(super) struct ContainerNamespaces {
    user: OwnedFd,
    mounts: OwnedFd,
}

/// One entry of an image's root, to be put where a run sees it.
#[derive(Debug)]
pub(super) enum ImageEntry {
    Tree { path: String, tree: OwnedFd },
    Link { path: String, to: String },
}

impl ContainerNamespaces {
    pub const COUNT: usize = 2;

    /// Makes the value from descriptors in the order of [`Self::descriptors`].
    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let all: [OwnedFd; Self::COUNT] = descriptors
            .try_into()
            .map_err(|_| io::Error::other("a namespace of the container is missing"))?;
        let [user, mounts] = all;
        Ok(Self { user, mounts })
    }

    pub fn descriptors(&self) -> [BorrowedFd<'_>; Self::COUNT] {
        [self.user.as_fd(), self.mounts.as_fd()]
    }

    pub fn into_descriptors(self) -> [OwnedFd; Self::COUNT] {
        [self.user, self.mounts]
    }

    /// Takes what the root of the container holds, read-only, except for the paths where the plan
    /// mounts something else. A child does this, because a process cannot return from another mount
    /// namespace.
    pub fn take_root(&self, plan: &SandboxPlan) -> io::Result<Vec<ImageEntry>> {
        let targets: Vec<&str> = plan
            .mounts
            .iter()
            .filter(|mount| !matches!(mount, SandboxMount::Image { .. }))
            .map(SandboxMount::target)
            .collect();
        let (own, of_child) = link::pair()?;
        match unsafe_confine::fork()? {
            None => {
                drop(own);
                let taken = self.enter().and_then(|()| take("/", &targets, &of_child));
                let word = match taken {
                    Ok(()) => END.to_vec(),
                    Err(error) => error.to_string().into_bytes(),
                };
                let sent = link::send(&of_child, &word, &[]);
                exit(i32::from(sent.is_err()))
            }
            Some(child) => {
                drop(of_child);
                let received = receive(&own);
                drop(own);
                let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
                received
            }
        }
    }

    fn enter(&self) -> io::Result<()> {
        let own = open_namespace_of_self("user")?;
        if !is_same(own.as_fd(), self.user.as_fd())? {
            enter(self.user.as_fd(), SeparatedPart::User)?;
        }
        enter(self.mounts.as_fd(), SeparatedPart::Mounts)
    }
}

fn receive(link: &OwnedFd) -> io::Result<Vec<ImageEntry>> {
    let mut entries = Vec::new();
    loop {
        let (word, mut descriptors) = link::receive(link, KEEPER_PATIENCE)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match (word.split_first(), descriptors.pop()) {
            (Some((&TREE, path)), Some(tree)) => entries.push(ImageEntry::Tree {
                path: text(path),
                tree,
            }),
            (Some((&LINK, words)), None) if words.contains(&0) => {
                let mut words = words.splitn(2, |byte| *byte == 0);
                let mut next = || text(words.next().unwrap_or_default());
                entries.push(ImageEntry::Link {
                    path: next(),
                    to: next(),
                });
            }
            _ if word == END => return Ok(entries),
            _ => return Err(io::Error::other(text(&word))),
        }
        if entries.len() > MOST_ENTRIES {
            return Err(io::Error::other("the image has too many entries"));
        }
    }
}

/// Hands over the entries of a directory, in the child. An entry that leads to a target of the plan
/// is not taken as a whole, so that the mount point can be made beside its other entries.
fn take(directory: &str, targets: &[&str], link: &OwnedFd) -> io::Result<()> {
    let mut names: Vec<String> = std::fs::read_dir(directory)?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    for name in names {
        let path = format!("{}/{name}", directory.trim_end_matches('/'));
        if NEVER_TAKEN.contains(&path.as_str()) || targets.contains(&path.as_str()) {
            continue;
        }
        let found = std::fs::symlink_metadata(&path)?;
        let is_way = targets.iter().any(|target| {
            target
                .strip_prefix(&path)
                .is_some_and(|rest| rest.starts_with('/'))
        });
        if found.is_dir() && is_way {
            take(&path, targets, link)?;
        } else if is_way {
            // A new directory takes the place of this entry.
        } else if found.is_symlink() {
            let to = std::fs::read_link(&path)?.into_os_string().into_vec();
            let words = [&[LINK], path.as_bytes(), &[0], &to].concat();
            link::send(link, &words, &[])?;
        } else if found.is_dir() || found.is_file() {
            let tree = clone_tree(&open_source(&path)?)?;
            let fixed = attributes(MountAccess::Ro);
            set_attributes(tree.as_fd(), MountReach::Whole, fixed, None)?;
            let words = [&[TREE], path.as_bytes()].concat();
            link::send(link, &words, &[tree.as_fd()])?;
        }
    }
    Ok(())
}

fn open_namespace(process: i32, kind: &str) -> io::Result<OwnedFd> {
    open_at(&format!("/proc/{process}/ns/{kind}"))
}

fn open_namespace_of_self(kind: &str) -> io::Result<OwnedFd> {
    open_at(&format!("/proc/self/ns/{kind}"))
}

fn open_at(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(Path::new(path), flags, Mode::empty())?)
}

fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<bool> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}
