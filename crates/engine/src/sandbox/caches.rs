//! The caches of a scope: directories of the owner's home under layers that the runs of the scope
//! share. The keeper mounts each layer once and holds it, because two mounts over one layer would
//! corrupt it.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use interlock_plan::{MountAccess, MountOwner, SandboxMount, SandboxPlan, SandboxUser};
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::init::{InitFailure, Step as _};
use super::mounts::{self, MapIds, clone_tree, open_checked};
use crate::streams::above_standard;

/// The directory of the caches, below the directory of the scope.
const CACHES: &str = "caches";

/// Most keepers of one scope that can exist at one time. When settings change, an old keeper
/// remains until its last run ends. Each keeper has layers of its own.
const MOST_KEEPERS: usize = 64;

/// One cache of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct KeptCache {
    source: String,
    device: u64,
    inode: u64,
    pub target: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<MountOwner>,
    layer: String,
}

impl KeptCache {
    /// Returns the caches of a plan, in the order of their mounts.
    pub fn of(sandbox: &SandboxPlan) -> Vec<Self> {
        let caches = sandbox.mounts.iter().filter_map(|mount| match mount {
            SandboxMount::Cache {
                source,
                device,
                inode,
                target,
                owner,
                layer,
                ..
            } => Some(Self {
                source: source.clone(),
                device: *device,
                inode: *inode,
                target: target.clone(),
                owner: *owner,
                layer: layer.clone(),
            }),
            _ => None,
        });
        caches.collect()
    }
}

/// The parts of a cache, opened and detached.
pub(super) struct OpenedCache {
    pub source: String,
    pub lower: OwnedFd,
    pub layer: OwnedFd,
}

/// Cache layers that no other keeper uses.
pub(super) struct CacheLayers {
    directory: PathBuf,
    _lock: OwnedFd,
}

impl CacheLayers {
    /// Claims the first layers of a scope that no other keeper mounts, and creates missing ones.
    /// The keeper holds the lock until it ends, and the runs of its scope end with it.
    pub fn take(scope: &Path, caches: &[KeptCache], user: SandboxUser) -> io::Result<Self> {
        let root = scope.join(CACHES);
        make_private(&root)?;
        for number in 0..MOST_KEEPERS {
            let directory = root.join(number.to_string());
            make_private(&directory)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let lock = above_standard(rustix::fs::open(&directory, flags, Mode::empty())?)?;
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => continue,
                Err(error) => return Err(error.into()),
            }
            for cache in caches {
                make_layer(&directory.join(&cache.layer), cache, user)?;
            }
            return Ok(Self {
                directory,
                _lock: lock,
            });
        }
        Err(io::Error::other("too many keepers of the scope"))
    }
}

fn make_private(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Makes `upper` and `work` of one cache, which belong to the user of the runs. The top directory
/// of an overlay has the mode of its layer's directory.
fn make_layer(directory: &Path, cache: &KeptCache, user: SandboxUser) -> io::Result<()> {
    make_private(directory)?;
    give(directory, user)?;
    for part in ["upper", "work"] {
        let path = directory.join(part);
        let is_new = !path.exists();
        make_private(&path)?;
        give(&path, user)?;
        if is_new && part == "upper" {
            let mode = std::fs::symlink_metadata(&cache.source)?.mode() & 0o777;
            rustix::fs::chmod(&path, Mode::from_raw_mode(mode | 0o700))?;
        }
    }
    Ok(())
}

fn give(path: &Path, user: SandboxUser) -> io::Result<()> {
    let found = std::fs::symlink_metadata(path)?;
    if !found.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    if (found.uid(), found.gid()) == (user.host_uid, user.host_gid) {
        return Ok(());
    }
    std::os::unix::fs::lchown(path, Some(user.host_uid), Some(user.host_gid))
}

/// Opens every part once, and refuses a directory that is not the one that was checked.
pub(super) fn open_caches(
    caches: &[KeptCache],
    layers: &CacheLayers,
    map_ids: MapIds<'_>,
) -> Result<Vec<OpenedCache>, InitFailure> {
    let mut opened = Vec::with_capacity(caches.len());
    for cache in caches {
        let source = &cache.source;
        let place = open_checked(source, cache.device, cache.inode)?;
        let lower = clone_tree(&place).step(|| format!("taking {source}"))?;
        // The runs' writes go to the layer.
        mounts::map_and_close(&lower, source, MountAccess::Ro, 0, cache.owner, map_ids)?;
        let layer = layers.directory.join(&cache.layer);
        let layer = layer.to_str().ok_or(io::ErrorKind::InvalidInput);
        let layer = layer
            .map_err(io::Error::from)
            .and_then(mounts::open_source)
            .and_then(|place| clone_tree(&place))
            .step(|| format!("taking the layer of {source}"))?;
        opened.push(OpenedCache {
            source: source.clone(),
            lower,
            layer,
        });
    }
    Ok(opened)
}
