//! Covers what a run must not see, in every place where the run would see it.
//!
//! A directory can be reached by several paths, because its file system may be mounted more than
//! once. The table of mounts lists them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, StatxFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};

/// Where the system shows its processes.
const PROCESSES: &str = "/proc";

/// One line of the table of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MountLine {
    id: u64,
    device: String,
    /// The part of the file system that is mounted, and the mount point.
    root: PathBuf,
    point: PathBuf,
    file_system: String,
}

/// Hides a directory in the mount namespace of the calling process, wherever it is visible, and
/// every process list except the one at `/proc`.
pub(super) fn cover(directory: &Path, is_root: bool) -> io::Result<()> {
    // Later mounts outside are seen inside, but not the other way round.
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", slave)?;
    let directory = directory.canonicalize()?;
    let hidden = std::fs::metadata(&directory)?;
    // Root can undo all of it, and the mount points would only prevent its own renames.
    if !is_root {
        hold_ancestors(&directory)?;
    }
    let mounts = parse(&std::fs::read("/proc/self/mountinfo")?);
    let mut points = places(&mounts, &directory)?;
    for mount in &mounts {
        if mount.file_system == "proc" && !mount.point.starts_with(PROCESSES) {
            points.insert(mount.point.clone());
        }
    }
    points.insert(directory.clone());
    for point in points {
        put_cover(&point)?;
    }
    // The result is verified.
    let now = std::fs::metadata(&directory)?;
    if (now.dev(), now.ino()) == (hidden.dev(), hidden.ino()) {
        return Err(io::Error::other(format!(
            "{} is still to be seen",
            directory.display()
        )));
    }
    Ok(())
}

/// Makes mount points of the ancestors that this user could rename. Otherwise a run could move the
/// covered directory away together with one of them, and put another in its place.
fn hold_ancestors(directory: &Path) -> io::Result<()> {
    let mut ancestors: Vec<&Path> = directory.ancestors().skip(1).collect();
    ancestors.reverse();
    for ancestor in ancestors {
        let Some(parent) = ancestor.parent() else {
            continue;
        };
        let may_rename = Access::WRITE_OK | Access::EXEC_OK;
        if rustix::fs::accessat(CWD, parent, may_rename, AtFlags::EACCESS).is_ok() {
            rustix::mount::mount_bind_recursive(ancestor, ancestor)?;
        }
    }
    Ok(())
}

/// Mounts an empty directory, or the empty file, over a path. A path that this user cannot reach
/// needs no cover.
fn put_cover(point: &Path) -> io::Result<()> {
    match std::fs::metadata(point) {
        Ok(metadata) if metadata.is_dir() => {
            let flags =
                MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            let options = c"mode=0555,size=4k,nr_inodes=2";
            Ok(rustix::mount::mount(
                "interlock",
                point,
                "tmpfs",
                flags,
                options,
            )?)
        }
        Ok(_) => Ok(rustix::mount::mount_bind("/dev/null", point)?),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Returns every path at which the directory, or a part of it, is mounted.
fn places(mounts: &[MountLine], directory: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let id = rustix::fs::statx(CWD, directory, AtFlags::empty(), mask)?.stx_mnt_id;
    let Some(own) = mounts.iter().find(|mount| mount.id == id) else {
        return Err(io::Error::other(format!(
            "{} is in no line of the table of mounts",
            directory.display()
        )));
    };
    Ok(places_of(mounts, own, directory))
}

fn places_of(mounts: &[MountLine], own: &MountLine, directory: &Path) -> BTreeSet<PathBuf> {
    let below = directory.strip_prefix(&own.point).unwrap_or(Path::new(""));
    let in_file_system = join(&own.root, below);
    let same = mounts.iter().filter(|mount| mount.device == own.device);
    same.filter_map(|mount| {
        if let Ok(rest) = in_file_system.strip_prefix(&mount.root) {
            Some(join(&mount.point, rest))
        } else {
            // Only a part of the directory is mounted.
            mount
                .root
                .starts_with(&in_file_system)
                .then(|| mount.point.clone())
        }
    })
    .collect()
}

/// Joins two paths, without a trailing slash if nothing is added.
fn join(base: &Path, rest: &Path) -> PathBuf {
    let parts = rest.components().filter(|part| *part != Component::CurDir);
    base.components().chain(parts).collect()
}

fn parse(table: &[u8]) -> Vec<MountLine> {
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(parse_line).collect()
}

/// Parses `36 35 98:0 /root /point options [fields…] - type source options`.
fn parse_line(line: &[u8]) -> Option<MountLine> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let separator = fields.iter().position(|field| *field == b"-")?;
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    Some(MountLine {
        id: text(fields.first()?).parse().ok()?,
        device: text(fields.get(2)?),
        root: unescape(fields.get(3)?),
        point: unescape(fields.get(4)?),
        file_system: text(fields.get(separator + 1)?),
    })
}

/// Decodes blanks, tabs, line breaks and backslashes, which are written as `\` and three octal
/// digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code =
            digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
21 1 8:1 / / rw shared:1 - ext4 /dev/a rw
22 21 8:2 / /home rw shared:2 - ext4 /dev/b rw
23 21 8:2 /u /mnt/again rw shared:3 master:4 - ext4 /dev/b rw
24 21 8:2 /u/.interlock/sessions /srv/a\\040b rw - ext4 /dev/b rw
25 21 8:2 /v /mnt/other rw - ext4 /dev/b rw
26 21 0:5 / /proc rw - proc proc rw
";

    #[test]
    fn a_directory_is_found_wherever_its_file_system_is_mounted() {
        let mounts = parse(TABLE.as_bytes());
        assert_eq!(mounts.len(), 6);
        let found = places_of(&mounts, &mounts[1], Path::new("/home/u/.interlock"));
        let expected = ["/home/u/.interlock", "/mnt/again/.interlock", "/srv/a b"];
        assert_eq!(found, expected.map(PathBuf::from).into_iter().collect());
    }

    #[test]
    fn a_directory_that_is_a_mount_point_itself_is_its_own_place() {
        let mounts = parse(TABLE.as_bytes());
        let found = places_of(&mounts, &mounts[2], Path::new("/mnt/again"));
        let expected = ["/home/u", "/mnt/again", "/srv/a b"];
        assert_eq!(found, expected.map(PathBuf::from).into_iter().collect());
    }
}
