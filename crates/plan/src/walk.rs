//! Follows the way from `/` to a file, component by component and link by link, like the kernel.

use crate::ownership::{Flaw, Weakness};
use crate::paths;
use rustix::fs::{Access, AtFlags, CWD, FileType, Stat};
use rustix::io::Errno;

/// As many symbolic links as Linux follows in one lookup.
const MAX_LINKS: usize = 40;

/// The extended attribute with permissions beyond the mode bits.
const ACCESS_CONTROL_LIST: &str = "system.posix_acl_access";

/// The target of a path, and who could change something on the way.
#[derive(Debug)]
pub(crate) struct PathWalk {
    /// Absolute, without links, `.` or `..`. File names are bytes.
    pub canonical: Vec<u8>,
    pub stat: Stat,
    /// The first part of the path that an account other than root could change. `None` means that
    /// the given path may be trusted, not that the file may run.
    pub weakness: Option<Weakness>,
    /// Whether the effective user could change the file's content, or put another file in its
    /// place.
    pub mutable: bool,
    /// The first directory or link of the path that the effective user, or any account but root,
    /// could change.
    pub open_way: Option<Vec<u8>>,
    /// Whether these accounts could write to the file itself.
    pub open_content: bool,
}

/// Follows `path`, which must be absolute. Its end may be of any type.
///
/// The walk looks at names, so a change during the walk gives a mixed answer: a caller that opens
/// the file must compare its identity with `stat`.
pub(crate) fn walk(path: &str) -> Result<PathWalk, Errno> {
    let mut inspector = Inspector::new();
    if paths::has_parent_component(path) {
        inspector.note(path.as_bytes(), Flaw::ParentComponent);
        inspector.open_way = Some(path.as_bytes().to_vec());
    }
    let root = rustix::fs::lstat("/")?;
    inspector.look_at(b"/", &root);

    // The remaining components, with the next one last.
    let mut pending: Vec<Vec<u8>> = Vec::new();
    put_in_front(&mut pending, path.as_bytes());
    // The present place, always without links, and its metadata.
    let mut here = b"/".to_vec();
    let mut stat = root;
    let mut links = 0;

    while let Some(component) = pending.pop() {
        // Also applies to the empty component after a final slash: `file/` is an error.
        if file_type(&stat) != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        match component.as_slice() {
            b"" | b"." => {}
            b".." => {
                // Everything above was inspected on the way down.
                let parent = here.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                here.truncate(parent.max(1));
                stat = rustix::fs::lstat(here.as_slice())?;
            }
            name => {
                let parent_length = here.len();
                if here.len() > 1 {
                    here.push(b'/');
                }
                here.extend_from_slice(name);
                let next = rustix::fs::lstat(here.as_slice())?;
                if file_type(&next) != FileType::Symlink {
                    inspector.look_at(&here, &next);
                    stat = next;
                    continue;
                }
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP);
                }
                inspector.look_at_link(&here, &next);
                let target = rustix::fs::readlink(here.as_slice(), Vec::new())?.into_bytes();
                if target.is_empty() {
                    return Err(Errno::NOENT);
                }
                if target.starts_with(b"/") {
                    here.truncate(1);
                    stat = root;
                } else {
                    here.truncate(parent_length);
                }
                put_in_front(&mut pending, &target);
            }
        }
    }
    Ok(PathWalk {
        canonical: here,
        stat,
        weakness: inspector.weakness,
        mutable: inspector.mutable,
        open_way: inspector.open_way,
        open_content: inspector.open_content,
    })
}

pub(crate) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

pub(crate) fn is_same_file(one: &Stat, other: &Stat) -> bool {
    one.st_dev == other.st_dev && one.st_ino == other.st_ino
}

fn put_in_front(pending: &mut Vec<Vec<u8>>, path: &[u8]) {
    pending.extend(path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec));
}

/// Collects the observations of the walk.
struct Inspector {
    user: u32,
    weakness: Option<Weakness>,
    mutable: bool,
    open_way: Option<Vec<u8>>,
    open_content: bool,
}

impl Inspector {
    fn new() -> Self {
        let user = rustix::process::geteuid();
        Self {
            user: user.as_raw(),
            weakness: None,
            mutable: user.is_root(),
            open_way: user.is_root().then(|| b"/".to_vec()),
            open_content: user.is_root(),
        }
    }

    fn note(&mut self, path: &[u8], flaw: Flaw) {
        if self.weakness.is_none() {
            self.weakness = Some(Weakness {
                path: path.to_vec(),
                flaw,
            });
        }
    }

    /// Inspects a directory, or the file at the end.
    fn look_at(&mut self, path: &[u8], stat: &Stat) {
        let mut is_open = false;
        if self.weakness.is_none()
            && let Some(flaw) = flaw_of(path, stat)
        {
            self.note(path, flaw);
            is_open = true;
        }
        // The owner of a directory or file can give itself the write bit.
        if (!self.mutable || self.open_way.is_none())
            && (stat.st_uid == self.user
                || rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok())
        {
            self.mutable = true;
            is_open = true;
        }
        if is_open && file_type(stat) == FileType::Directory {
            self.open_way.get_or_insert_with(|| path.to_vec());
        } else if is_open {
            self.open_content = true;
        }
    }

    /// Inspects a link. Its mode means nothing, and its directory was inspected before.
    fn look_at_link(&mut self, path: &[u8], stat: &Stat) {
        if stat.st_uid != 0 {
            self.note(path, Flaw::LinkOwner(stat.st_uid));
            self.open_way.get_or_insert_with(|| path.to_vec());
        }
    }
}

fn flaw_of(path: &[u8], stat: &Stat) -> Option<Flaw> {
    if stat.st_uid != 0 {
        return Some(Flaw::Owner(stat.st_uid));
    }
    // The sticky bit does not help: it prevents others from removing names, but not from adding
    // them.
    if stat.st_mode & 0o002 != 0 {
        return Some(Flaw::WritableByOthers);
    }
    if stat.st_mode & 0o020 != 0 {
        return Some(Flaw::WritableByGroup(stat.st_gid));
    }
    match rustix::fs::getxattr(path, ACCESS_CONTROL_LIST, &mut [0_u8; 0]) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => None,
        Ok(_) | Err(Errno::RANGE) => Some(Flaw::AccessControlList),
        Err(error) => Some(Flaw::Unknown(error)),
    }
}
