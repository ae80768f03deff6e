//! Removes what runs left: trees of any depth, whose directories may be closed even to their owner.
//!
//! A run can nest directories deeper than a path, a stack or the number of open files reaches. Here
//! no path is longer than two names, nothing recurses, and three directories are open at a time:
//! whatever is two levels down is moved up.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::scope::open_to_owner;

/// Flags that open a directory without following a link.
const PLACE: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

const LISTED: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Removes a file, a link or a directory with everything in it. A missing path is no error. No run
/// may still be writing there.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let top = match rustix::fs::open(path, PLACE, Mode::empty()) {
        Ok(place) => listed(&place)?,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return std::fs::remove_file(path),
        Err(error) => return Err(error.into()),
    };
    let mut moved = 0;
    loop {
        let mut is_empty = true;
        for (name, is_directory) in entries(&top)? {
            is_empty = false;
            if is_directory {
                empty_below(&top, &name, &mut moved)?;
                rustix::fs::unlinkat(&top, &name, AtFlags::REMOVEDIR)?;
            } else {
                rustix::fs::unlinkat(&top, &name, AtFlags::empty())?;
            }
        }
        if is_empty {
            break;
        }
    }
    drop(top);
    std::fs::remove_dir(path)
}

/// Empties a directory in `top`: its content is removed, and non-empty directories are moved to
/// `top`.
fn empty_below(top: &OwnedFd, name: &CStr, moved: &mut u64) -> io::Result<()> {
    let below = listed(&rustix::fs::openat(top, name, PLACE, Mode::empty())?)?;
    loop {
        let mut is_empty = true;
        for (inner, is_directory) in entries(&below)? {
            is_empty = false;
            if !is_directory {
                rustix::fs::unlinkat(&below, &inner, AtFlags::empty())?;
                continue;
            }
            match rustix::fs::unlinkat(&below, &inner, AtFlags::REMOVEDIR) {
                Ok(()) => continue,
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            // Moving a directory requires write access to it, because its `..` changes.
            open_to_owner(&rustix::fs::openat(&below, &inner, PLACE, Mode::empty())?)?;
            move_up(top, (&below, &inner), moved)?;
        }
        if is_empty {
            return Ok(());
        }
    }
}

fn move_up(top: &OwnedFd, (from, name): (&OwnedFd, &CStr), moved: &mut u64) -> io::Result<()> {
    loop {
        *moved += 1;
        let free = CString::new(format!(".removed-{moved}"))?;
        match rustix::fs::renameat_with(from, name, top, &free, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            done => return Ok(done?),
        }
    }
}

/// Opens the directory for reading, after giving its owner the rights to read and change it.
fn listed(place: &OwnedFd) -> io::Result<OwnedFd> {
    open_to_owner(place)?;
    Ok(rustix::fs::openat(place, c".", LISTED, Mode::empty())?)
}

/// Returns the entries of a directory, each with whether it is a directory.
fn entries(directory: &OwnedFd) -> io::Result<Vec<(CString, bool)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
        found.push((name.to_owned(), kind == rustix::fs::FileType::Directory));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deeper than any path, and closed on the way.
    #[test]
    fn a_tree_of_any_depth_is_removed() {
        const DEPTH: usize = 6_000;
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        let mut at = rustix::fs::open(&tree, PLACE, Mode::empty()).unwrap();
        for level in 0..DEPTH {
            rustix::fs::mkdirat(&at, c"d", Mode::RWXU).unwrap();
            rustix::fs::symlinkat(c"/etc/passwd", &at, c"link").unwrap();
            let file = rustix::fs::openat(&at, c"f", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR);
            drop(file.unwrap());
            let next = rustix::fs::openat(&at, c"d", PLACE, Mode::empty()).unwrap();
            if level % 7 == 0 {
                rustix::fs::mkdirat(&next, c"e", Mode::RWXU).unwrap();
                rustix::fs::mkdirat(&next, c".removed-1", Mode::RWXU).unwrap();
            }
            at = next;
        }
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o000);
        std::fs::set_permissions(tree.join("d/d"), closed).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        remove_tree(&tree).unwrap();
        assert!(Path::new("/etc/passwd").exists());
    }
}
