//! Remembers processes that belong to no run.
//!
//! A process that belongs to no run never becomes part of one: only what a run starts is, and a
//! process that loses its parent gets one of the parent's ancestors instead. This is therefore
//! determined once for each process, and a look reads the descriptors of all others: those of runs,
//! and new ones. Of the known processes, it suffices that one holds the connection.
//!
//! A process is identified by its number and the inode of its directory in `/proc`, which the
//! kernel makes anew for each process. The mark is nevertheless checked each time.

use std::collections::{BTreeSet, HashMap};
use std::mem::MaybeUninit;

use interlock_engine::mark;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir};

use super::holders::Processes;

/// Size of the buffer for directory entries.
const ENTRY_BYTES: usize = 16 * 1024;

/// Most processes that are examined after one look.
const LEARNT_AT_ONCE: usize = 64;

/// Most holders that are remembered, latest first.
const MOST_HOLDERS: usize = 16;

/// A process as one look saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SeenProcess {
    /// The inode of its directory.
    directory: u64,
    knowledge: ProcessKnowledge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessKnowledge {
    /// The last look was the first to see the process. Most processes are gone by the next look.
    New,
    /// It is still to be determined whether the process belongs to a run.
    Stays,
    /// The process belongs to no run.
    Outsider,
    /// The process belongs to a run, or that is unknown. It is not examined again.
    Other,
}

/// The results of earlier looks.
#[derive(Debug, Default)]
pub(super) struct SeenProcesses {
    processes: HashMap<i32, SeenProcess>,
    /// Outsiders that held connections.
    holders: Vec<i32>,
}

impl SeenProcesses {
    /// Looks for these sockets in all unknown processes, and in known ones until each socket has a
    /// holder. `None` if a socket has none.
    pub fn holding(&mut self, wanted: &BTreeSet<u32>) -> Option<Processes> {
        let mut found = Processes::default();
        let mut outsiders = Vec::new();
        let mut seen = HashMap::with_capacity(self.processes.len() + 16);
        for (pid, directory) in all_processes().ok()? {
            let known = self.processes.get(&pid);
            let known = known.filter(|known| known.directory == directory);
            let knowledge = match known.map(|known| known.knowledge) {
                Some(ProcessKnowledge::Outsider) if !mark::got_mark(pid) => {
                    ProcessKnowledge::Outsider
                }
                Some(ProcessKnowledge::New | ProcessKnowledge::Stays) => ProcessKnowledge::Stays,
                Some(_) => ProcessKnowledge::Other,
                None => ProcessKnowledge::New,
            };
            if knowledge == ProcessKnowledge::Outsider {
                outsiders.push(pid);
            } else {
                found.look_at(pid, wanted);
            }
            let now = SeenProcess {
                directory,
                knowledge,
            };
            seen.insert(pid, now);
        }
        self.processes = seen;
        self.find_holders(&mut found, &outsiders, wanted)
            .then_some(found)
    }

    /// Looks for holders among known processes, starting with those that held connections before.
    fn find_holders(
        &mut self,
        found: &mut Processes,
        outsiders: &[i32],
        wanted: &BTreeSet<u32>,
    ) -> bool {
        let (former, others): (Vec<i32>, Vec<i32>) =
            outsiders.iter().partition(|pid| self.holders.contains(pid));
        for pid in former.into_iter().chain(others) {
            if found.hold_all(wanted) {
                break;
            }
            found.look_at_outsider(pid, wanted);
            if found.is_outsider(pid) {
                self.holders.retain(|holder| *holder != pid);
                self.holders.insert(0, pid);
                self.holders.truncate(MOST_HOLDERS);
            }
        }
        found.hold_all(wanted)
    }

    /// Examines processes that more than one look saw.
    pub fn learn(&mut self, is_outsider: impl Fn(i32) -> bool) {
        let stays = |process: &SeenProcess| process.knowledge == ProcessKnowledge::Stays;
        let asked = self.processes.iter_mut().filter(|(_, seen)| stays(seen));
        let mut asked = asked.take(LEARNT_AT_ONCE).peekable();
        if asked.peek().is_none() {
            return;
        }
        let Ok(table) = proc() else {
            return;
        };
        for (pid, seen) in asked {
            // The number referred to the same process before and after the examination.
            let is_outsider =
                is_outsider(*pid) && directory_of(&table, *pid) == Some(seen.directory);
            seen.knowledge = if is_outsider {
                ProcessKnowledge::Outsider
            } else {
                ProcessKnowledge::Other
            };
        }
    }
}

fn proc() -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open("/proc", flags, Mode::empty())
}

/// Returns the number and the directory's inode of each process.
fn all_processes() -> rustix::io::Result<Vec<(i32, u64)>> {
    let table = proc()?;
    let mut entries = vec![MaybeUninit::uninit(); ENTRY_BYTES];
    let mut entries = RawDir::new(&table, &mut entries);
    let mut found = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let number = entry.file_name().to_str().ok();
        let Some(pid) = number.and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The inode of the directory entry can be that of a process that has ended.
        found.extend(directory_of(&table, pid).map(|directory| (pid, directory)));
    }
    Ok(found)
}

fn directory_of(proc: &OwnedFd, pid: i32) -> Option<u64> {
    let status = rustix::fs::statat(proc, pid.to_string(), AtFlags::SYMLINK_NOFOLLOW);
    status.ok().map(|status| status.st_ino)
}

#[cfg(test)]
mod tests;
