//! Sockets of the host that have a path. A read-only mount does not keep a run from connecting to a
//! socket, so sockets that a mount would show are covered. They are looked up when the run starts
//! instead of when it was planned, because an approver may have taken half an hour.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use interlock_plan::MountTable;

/// Number of columns before the path in the table of sockets: address, references, protocol, flags,
/// type, state, inode.
const COLUMNS: usize = 7;

/// Canonical paths of the sockets that processes of this network namespace have made.
#[derive(Debug, Default)]
pub(super) struct HostSockets(Vec<PathBuf>);

/// The names of these sockets, as they were bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SocketNames(BTreeSet<PathBuf>);

impl SocketNames {
    /// Reads the names. The process must be in the network namespace of the host.
    pub fn read() -> Self {
        let table = std::fs::read("/proc/net/unix").unwrap_or_default();
        Self(names(&table).into_iter().collect())
    }

    /// Returns the sockets that did not exist before.
    pub fn new_since(&self, earlier: &Self) -> HostSockets {
        HostSockets::named(self.0.difference(&earlier.0).cloned().collect())
    }
}

impl HostSockets {
    /// Reads the sockets. The process must still be in the network namespace of the host.
    pub fn read() -> Self {
        Self::named(names(&std::fs::read("/proc/net/unix").unwrap_or_default()))
    }

    fn named(names: Vec<PathBuf>) -> Self {
        if names.is_empty() {
            return Self::default();
        }
        let (absolute, relative): (Vec<PathBuf>, Vec<PathBuf>) =
            names.into_iter().partition(|name| name.is_absolute());
        let mut found: Vec<PathBuf> = absolute
            .into_iter()
            .chain(from_working_directories(&relative))
            .filter_map(|path| std::fs::canonicalize(path).ok())
            .collect();
        let mounts = MountTable::read();
        let others: Vec<PathBuf> = found
            .iter()
            .flat_map(|path| mounts.other_paths(path))
            .collect();
        found.extend(others);
        found.sort();
        found.dedup();
        Self(found)
    }

    /// Returns the paths of the sockets below a directory, relative to it.
    pub fn below<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = &'a Path> {
        self.0
            .iter()
            .filter_map(move |path| path.strip_prefix(directory).ok())
    }
}

/// Parses the names from a table that the kernel wrote. A name may contain a line break; abstract
/// names begin with `@` and are not paths.
fn names(table: &[u8]) -> Vec<PathBuf> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut is_path = false;
    for line in table.split(|byte| *byte == b'\n').skip(1) {
        if is_row(line) {
            let name = name_of(line);
            is_path = name.is_some_and(|name| !name.starts_with(b"@"));
            if let Some(name) = name.filter(|_| is_path) {
                names.push(name.to_vec());
            }
        } else if let Some(last) = names.last_mut().filter(|_| is_path && !line.is_empty()) {
            last.push(b'\n');
            last.extend(line);
        }
    }
    let path = |name| PathBuf::from(OsString::from_vec(name));
    names.into_iter().map(path).collect()
}

fn is_row(line: &[u8]) -> bool {
    let head = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    head.len() > 8
        && head
            .strip_suffix(b":")
            .is_some_and(|address| address.iter().all(u8::is_ascii_hexdigit))
}

/// Returns the text after the columns, with its own spaces.
fn name_of(line: &[u8]) -> Option<&[u8]> {
    let mut rest = line;
    for _ in 0..COLUMNS {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|byte| *byte == b' ')?;
        rest = &rest[end..];
    }
    rest.strip_prefix(b" ").filter(|name| !name.is_empty())
}

/// Finds sockets that servers bound by a relative path, which the table repeats. They are looked
/// for in the working directories of all processes.
fn from_working_directories(names: &[PathBuf]) -> Vec<PathBuf> {
    if names.is_empty() {
        return Vec::new();
    }
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut directories: Vec<PathBuf> = processes
        .filter(|entry| {
            entry
                .file_name()
                .as_bytes()
                .first()
                .is_some_and(u8::is_ascii_digit)
        })
        .filter_map(|entry| std::fs::read_link(entry.path().join("cwd")).ok())
        .collect();
    directories.sort();
    directories.dedup();
    let is_socket =
        |path: &PathBuf| std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
    directories
        .iter()
        .flat_map(|directory| names.iter().map(move |name| directory.join(name)))
        .filter(is_socket)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_spaces_and_line_ends_are_paths_and_abstract_ones_are_not() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 20001 /run/a b\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 20002 @/tmp/abstract\n\
            more of it\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 20003\n\
            ffff888000000000: 00000002 00000000 00010000 0001 01   204 rel/x\n\
            y: z\n";
        let expected = ["/run/a b", "rel/x\ny: z"].map(PathBuf::from);
        assert_eq!(names(table), expected);
        let sockets = HostSockets(vec![PathBuf::from("/run/a b"), PathBuf::from("/w/s")]);
        let below: Vec<&Path> = sockets.below(Path::new("/w")).collect();
        assert_eq!(below, [Path::new("s")]);
    }
}
