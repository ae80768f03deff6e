//! Finds the processes of the machine that may hold a socket.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use interlock_engine::{mark, process_table};
use rustix::fs::{Mode, OFlags, RawDir};

use crate::SUPERVISOR_NAME;

/// Longest chain of parents. Longer ones do not occur, and a walk through a changing table must
/// end.
const MAX_ANCESTORS: usize = 4096;

/// Size of the buffer for directory entries.
const ENTRY_BYTES: usize = 4096;

/// Size of the buffer for links, which exceeds the link of any socket.
const LINK_BYTES: usize = 64;

/// The result of one look.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// The holders of each socket, by its inode.
    holders: BTreeMap<u32, BTreeSet<i32>>,
    /// Processes that do not show their descriptors.
    pub unreadable: Vec<Unreadable>,
    /// Processes of runs that show their descriptors.
    readable_of_runs: Vec<i32>,
    /// Holders that are known to belong to no run.
    outsiders: BTreeSet<i32>,
}

/// A process that does not show its descriptors to this process.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub pid: i32,
    pub name: String,
    /// Whether it carries the mark of a run. A process whose mark cannot be read counts as marked.
    pub is_marked: bool,
    /// Real, effective, saved and file system user.
    users: Vec<u32>,
}

impl Unreadable {
    pub fn has_user(&self, user: u32) -> bool {
        self.users.is_empty() || self.users.contains(&user)
    }
}

impl Processes {
    /// Looks for these sockets in all processes.
    pub fn holding(wanted: &BTreeSet<u32>) -> Self {
        let mut found = Self::default();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
                found.look_at(pid, wanted);
            }
        }
        found
    }

    /// Checks whether a process that is known to belong to no run holds one of the sockets.
    pub fn look_at_outsider(&mut self, pid: i32, wanted: &BTreeSet<u32>) {
        let table = PathBuf::from(format!("/proc/{pid}/fd"));
        for inode in sockets_in(&table, wanted).unwrap_or_default() {
            self.outsiders.insert(pid);
            self.holders.entry(inode).or_default().insert(pid);
        }
    }

    pub fn is_outsider(&self, pid: i32) -> bool {
        self.outsiders.contains(&pid)
    }

    /// Whether each of these sockets has a holder.
    pub fn hold_all(&self, wanted: &BTreeSet<u32>) -> bool {
        wanted.iter().all(|inode| self.holders.contains_key(inode))
    }

    pub fn look_at(&mut self, pid: i32, wanted: &BTreeSet<u32>) {
        let is_marked = mark::is_marked(pid);
        // Threads usually share their descriptors, but need not.
        let tables = match is_marked {
            Ok(true) => tables_of_threads(pid),
            _ => vec![PathBuf::from(format!("/proc/{pid}/fd"))],
        };
        let mut is_readable = true;
        for table in tables {
            match sockets_in(&table, wanted) {
                Ok(held) => {
                    for inode in held {
                        self.holders.entry(inode).or_default().insert(pid);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    is_readable = false;
                }
                // The process has ended.
                Err(_) => {}
            }
        }
        if is_readable && matches!(is_marked, Ok(false)) {
            return;
        }
        // Runs of another user's gateway do not have the users of this user's runs.
        if matches!(is_marked, Ok(true)) && is_of_other_user(pid) {
            return;
        }
        // A process that is ending cannot be read for a moment, and does nothing with a connection.
        let row = process_table::row(pid).filter(|row| !row.is_ending());
        let Some(row) = row else {
            return;
        };
        if !is_readable {
            self.unreadable.push(Unreadable {
                pid,
                name: row.name,
                is_marked: is_marked.unwrap_or(true),
                users: users(pid),
            });
        } else if matches!(is_marked, Ok(true)) {
            self.readable_of_runs.push(pid);
        }
    }

    pub fn holders_of(&self, inode: u32) -> Vec<i32> {
        let holders = self.holders.get(&inode).into_iter().flatten();
        holders.copied().collect()
    }

    pub fn unreadable_of_runs(&self) -> impl Iterator<Item = &Unreadable> {
        self.unreadable.iter().filter(|process| process.is_marked)
    }

    /// Returns the users that processes of runs have now, because set-user-id programs give them
    /// others.
    pub fn users_of_runs(&self) -> BTreeSet<u32> {
        let readable = self.readable_of_runs.iter().flat_map(|&pid| users(pid));
        let unreadable = self.unreadable_of_runs();
        let unreadable = unreadable.flat_map(|process| process.users.iter().copied());
        readable.chain(unreadable).collect()
    }

    /// Returns a process of a run that may hold sockets which its descriptors do not show: in a
    /// ring of asynchronous requests, or in a message that was not received yet.
    pub fn hides_descriptors(&self) -> Option<i32> {
        let hides = |pid: &&i32| {
            let mut tables = tables_of_threads(**pid).into_iter();
            tables.any(|table| holds_others(&table).unwrap_or(true))
        };
        self.readable_of_runs.iter().find(hides).copied()
    }
}

fn tables_of_threads(pid: i32) -> Vec<PathBuf> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    threads.map(|thread| thread.path().join("fd")).collect()
}

/// Returns the wanted sockets in a table of descriptors. This reads links relative to the table,
/// and into one buffer, because a machine has thousands of descriptors and each look reads all of
/// them.
fn sockets_in(table: &Path, wanted: &BTreeSet<u32>) -> io::Result<Vec<u32>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let table = rustix::fs::open(table, flags, Mode::empty())?;
    let mut entries = [MaybeUninit::uninit(); ENTRY_BYTES];
    let mut entries = RawDir::new(&table, &mut entries);
    let mut link = [0; LINK_BYTES];
    let mut held = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let Ok(length) = rustix::fs::readlinkat_raw(&table, entry.file_name(), &mut link) else {
            continue;
        };
        let number = link.get(..length).and_then(socket_number);
        held.extend(number.filter(|number| wanted.contains(number)));
    }
    Ok(held)
}

fn socket_number(link: &[u8]) -> Option<u32> {
    let number = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

fn holds_others(table: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(table)?.flatten() {
        let Ok(link) = fs::read_link(entry.path()) else {
            continue;
        };
        let link = link.to_string_lossy();
        if link.contains("io_uring") {
            return Ok(true);
        }
        if link.starts_with("socket:") {
            let information = table.with_file_name("fdinfo").join(entry.file_name());
            let text = fs::read_to_string(information).unwrap_or_default();
            let waiting = text.lines().find_map(|line| line.strip_prefix("scm_fds:"));
            if waiting.is_some_and(|count| count.trim() != "0") {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether a process of a run belongs only to supervisors of other users. A process whose
/// supervisor is gone may belong to this user.
fn is_of_other_user(pid: i32) -> bool {
    let own = rustix::process::getuid().as_raw();
    if users(pid).contains(&own) {
        return false;
    }
    let mut is_of_other = false;
    let mut next = pid;
    for _ in 0..MAX_ANCESTORS {
        let Some(row) = process_table::row(next) else {
            return false;
        };
        if row.name == SUPERVISOR_NAME {
            if users(row.pid).contains(&own) {
                return false;
            }
            is_of_other = true;
        }
        if row.parent == 0 {
            break;
        }
        next = row.parent;
    }
    is_of_other
}

/// Returns the users in the line `Uid:`, or none if it cannot be read.
fn users(pid: i32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let numbers = line.unwrap_or_default().split_ascii_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}
