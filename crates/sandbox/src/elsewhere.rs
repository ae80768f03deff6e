//! Scopes whose directories are below another directory than the state directory (`workspaceRoot`).
//!
//! The state directory keeps a link for each of them, by which every command finds it, whatever the
//! config says by now. Only Interlock writes there, so a link leads where Interlock put it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::SandboxError;
use crate::scope::private;

/// Directories in which no scope is kept.
const SYSTEM: [&str; 16] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix",
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/boot",
    "/workspace",
];

/// Directories that contain directories of other users.
const SHARED: [&str; 6] = ["/", "/home", "/root", "/tmp", "/var/tmp", "/var"];

/// Permission bits that must not be set, so that only the owner has access.
const OTHERS: u32 = 0o077;

/// Permission bits that let other users change what a path leads to.
const WRITE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Checks the directory that the owner's config names for scopes, and makes it if only the last
/// component is missing. `beside` are paths that it may neither be below nor contain, each with a
/// description.
pub(crate) fn check_root(
    named: &str,
    state_dir: &Path,
    beside: &[(&Path, &str)],
) -> Result<PathBuf, SandboxError> {
    let refused = |rule: String| SandboxError::Setting {
        key: "workspaceRoot",
        value: named.to_owned(),
        rule,
    };
    let path = Path::new(named);
    if !path.is_absolute() {
        return Err(refused("it is not an absolute path".to_owned()));
    }
    let looked = |error: io::Error| refused(format!("it cannot be looked at: {error}"));
    let real = match std::fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(looked(error));
            };
            std::fs::canonicalize(parent).map_err(looked)?.join(name)
        }
        real => real.map_err(looked)?,
    };
    if SHARED.iter().any(|shared| Path::new(shared) == real) {
        return Err(refused(
            "other files lie in it; name one of its own".to_owned(),
        ));
    }
    if let Some(system) = SYSTEM.iter().find(|system| real.starts_with(system)) {
        return Err(refused(format!(
            "it lies in {system}, which is the system's"
        )));
    }
    let state = (state_dir, "the state directory");
    for (other, what) in beside.iter().copied().chain([state]) {
        if real.starts_with(other) || other.starts_with(&real) {
            let other = other.display();
            return Err(refused(format!(
                "it lies in or above {other}, which is {what}"
            )));
        }
    }
    // The directory is made only after the checks, so that nothing is made in a forbidden place.
    match private().create(&real) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(refused(format!("it cannot be made: {error}")));
        }
        _ => {}
    }
    let own = rustix::process::geteuid().as_raw();
    let found = std::fs::symlink_metadata(&real).map_err(|error| refused(error.to_string()))?;
    if !found.is_dir() || found.uid() != own || found.mode() & OTHERS != 0 {
        return Err(refused(
            "it is not a directory that this user owns and no other can read (mode 0700)"
                .to_owned(),
        ));
    }
    for above in real.ancestors().skip(1) {
        let found = std::fs::metadata(above).map_err(|error| refused(error.to_string()))?;
        let is_open = found.mode() & WRITE_BY_OTHERS != 0 && found.mode() & STICKY == 0;
        if is_open || (found.uid() != own && found.uid() != 0) {
            let above = above.display();
            return Err(refused(format!(
                "another user can replace it: {above} is theirs"
            )));
        }
    }
    Ok(real)
}

/// Returns the directory of a scope, which an entry of the state directory is or leads to.
pub(crate) fn scope_directory(entry: &Path) -> PathBuf {
    match std::fs::read_link(entry) {
        Ok(target) if target.is_absolute() && target.file_name() == entry.file_name() => target,
        _ => entry.to_owned(),
    }
}

/// Returns the directories outside the state directory that contain scopes.
pub(crate) fn other_roots(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    let mut roots: Vec<PathBuf> = links
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter_map(|target| target.parent().map(Path::to_owned))
        .collect();
    roots.sort();
    roots.dedup();
    roots
}

/// Makes the link of a scope.
pub(crate) fn link_scope(entry: &Path, root: &Path, id: &OsStr) -> io::Result<()> {
    match std::os::unix::fs::symlink(root.join(id), entry) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}
