//! Finds accounts other than root and the owner that could change or replace a file.
//!
//! The protection of programs (`plan`) is stricter and asks whether any account but root could. For
//! a file of an ordinary user the answer is always yes, which says nothing about other users.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

/// How many symbolic links Linux follows in one lookup.
const MAX_LINKS: usize = 40;

const STICKY: u32 = 0o1000;

/// How the last component of a path is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathUse {
    /// An existing file. In a sticky directory, other users cannot replace it.
    Present,
    /// A directory in which any name counts. The sticky bit does not keep other users from adding a
    /// file.
    AnyName,
}

/// Describes the first component of `path` that a user other than root and `owner` could change. A
/// path that does not exist is an error.
pub fn outside_writer(path: &Path, owner: u32, used_as: PathUse) -> io::Result<Option<String>> {
    let mut here = PathBuf::from("/");
    let mut pending = components(path);
    let mut links = 0;
    if let Some(reason) = weakness(&here, &fs::symlink_metadata(&here)?, owner, true) {
        return Ok(Some(reason));
    }
    while let Some(name) = pending.pop_front() {
        if name == ".." {
            here.pop();
            continue;
        }
        here.push(&name);
        let metadata = fs::symlink_metadata(&here)?;
        if metadata.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::LOOP.into());
            }
            if !is_trusted(metadata.uid(), owner) {
                let user = metadata.uid();
                return Ok(Some(format!(
                    "the link {} belongs to user {user}",
                    here.display()
                )));
            }
            let target = fs::read_link(&here)?;
            here.pop();
            if target.is_absolute() {
                here = PathBuf::from("/");
            }
            let mut next = components(&target);
            next.append(&mut pending);
            pending = next;
            continue;
        }
        let sticky_helps = !pending.is_empty() || used_as == PathUse::Present;
        if let Some(reason) = weakness(&here, &metadata, owner, sticky_helps) {
            return Ok(Some(reason));
        }
    }
    Ok(None)
}

/// The components of a path that are names or `..`.
fn components(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

fn is_trusted(user: u32, owner: u32) -> bool {
    user == 0 || user == owner
}

fn weakness(path: &Path, metadata: &Metadata, owner: u32, sticky_helps: bool) -> Option<String> {
    let shown = path.display();
    if !is_trusted(metadata.uid(), owner) {
        return Some(format!("{shown} belongs to user {}", metadata.uid()));
    }
    let mode = metadata.mode();
    if metadata.is_dir() && mode & STICKY != 0 && sticky_helps {
        return None;
    }
    if mode & 0o002 != 0 {
        return Some(format!("every user can write {shown}"));
    }
    if mode & 0o020 != 0 && !is_private_group(metadata.gid(), owner) {
        return Some(format!("group {} can write {shown}", metadata.gid()));
    }
    let list = rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0_u8; 0]);
    match list {
        // If a file has an access control list, the group bits of its mode are the most that the
        // list can grant to others.
        Ok(_) | Err(Errno::RANGE) if mode & 0o020 != 0 => {
            Some(format!("an access control list lets others write {shown}"))
        }
        _ => None,
    }
}

/// Whether root and `owner` are the only members of a group: many systems give each user a private
/// group.
fn is_private_group(group: u32, owner: u32) -> bool {
    let (Ok(passwd), Ok(groups)) = (fs::read("/etc/passwd"), fs::read("/etc/group")) else {
        return false;
    };
    holds_only(
        &String::from_utf8_lossy(&passwd),
        &String::from_utf8_lossy(&groups),
        group,
        owner,
    )
}

fn holds_only(passwd: &str, groups: &str, group: u32, owner: u32) -> bool {
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let mut trusted_names = Vec::new();
    for line in passwd.lines() {
        let row = fields(line);
        let (Some(name), Some(user), Some(primary)) = (row.first(), row.get(2), row.get(3)) else {
            continue;
        };
        let Ok(user) = user.parse::<u32>() else {
            continue;
        };
        if is_trusted(user, owner) {
            trusted_names.push(name.clone());
        } else if primary.parse() == Ok(group) {
            return false;
        }
    }
    // A group that the table does not list may have members in a directory service.
    let listed = groups.lines().map(fields).find(|row| {
        let number = row.get(2).map(|number| number.parse::<u32>());
        number == Some(Ok(group))
    });
    listed.is_some_and(|row| {
        let members = row.get(3).map(String::as_str).unwrap_or_default();
        let mut members = members.split(',').filter(|name| !name.is_empty());
        members.all(|name| trusted_names.iter().any(|trusted| trusted == name))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nada:x:1001:1001::/home/ada:/bin/sh\nbob:x:1002:1003::/home/bob:/bin/sh\n";
    const GROUPS: &str =
        "root:x:0:\nada:x:1001:ada\nstaff:x:50:ada,bob\nshared:x:1003:\nempty:x:60:\n";

    #[test]
    fn a_group_is_private_when_no_other_user_is_in_it() {
        for (group, owner, expected) in [
            (1001, 1001, true),
            (60, 1001, true),
            (50, 1001, false),
            (1003, 1001, false),
            (1001, 1002, false),
            (7777, 1001, false),
            (0, 1001, true),
        ] {
            assert_eq!(
                holds_only(PASSWD, GROUPS, group, owner),
                expected,
                "{group} {owner}"
            );
        }
    }

    #[test]
    fn links_are_followed_and_each_directory_on_the_way_counts() {
        let directory = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(directory.path()).unwrap();
        let user = fs::metadata(&root).unwrap().uid();
        let (open, closed) = (root.join("open"), root.join("closed"));
        for path in [&open, &closed] {
            fs::create_dir(path).unwrap();
        }
        fs::write(open.join("tool"), "").unwrap();
        symlink(open.join("tool"), closed.join("tool")).unwrap();
        let look = |path: &Path, used_as| outside_writer(path, user, used_as).unwrap();
        assert_eq!(look(&closed.join("tool"), PathUse::Present), None);
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let found = look(&closed.join("tool"), PathUse::Present).unwrap();
        assert!(found.contains("every user can write"), "{found}");
        // With the sticky bit the file itself cannot be replaced, but names can be added.
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(look(&closed.join("tool"), PathUse::Present), None);
        assert!(look(&open, PathUse::AnyName).is_some());
        assert!(outside_writer(&root.join("gone"), user, PathUse::Present).is_err());
    }
}
