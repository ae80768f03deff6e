//! Processes that are known to belong to no run.
//!
//! A process that belongs to no run never comes to belong to one: only what a run starts does, and a
//! process that loses its parent gets an ancestor of that one in its place. So it is found out once
//! for each process, and a look goes through the descriptors of all others: those of runs, and those
//! that are new. Of the known ones it is enough that one holds the connection.
//!
//! A process is known by its number and the number of its directory in `/proc`, which the kernel
//! makes anew for each process. The mark is looked at each time all the same.

use std::collections::{BTreeSet, HashMap};
use std::mem::MaybeUninit;

use interlock_engine::mark;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir};

use super::holders::Processes;

/// Space for entries of a directory that are read at once.
const ENTRY_BYTES: usize = 16 * 1024;

/// So many processes are asked about after one look.
const LEARNT_AT_ONCE: usize = 64;

/// So many holders are remembered, the last ones first.
const MOST_HOLDERS: usize = 16;

/// A process as one look saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SeenProcess {
    /// The number of its directory.
    directory: u64,
    knowledge: ProcessKnowledge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessKnowledge {
    /// The last look was the first one that saw it. Most processes are gone by the next one.
    New,
    /// Its belonging is to be found out.
    Stays,
    /// It belongs to no run.
    Outsider,
    /// It belongs to a run, or that is unknown. It is not asked about again.
    Other,
}

/// What earlier looks found.
#[derive(Debug, Default)]
pub(super) struct SeenProcesses {
    processes: HashMap<i32, SeenProcess>,
    /// Outsiders that held connections.
    holders: Vec<i32>,
}

impl SeenProcesses {
    /// Looks for these sockets at all processes that are not known, and at known ones until each
    /// socket has a holder. `None` where a socket has none.
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

    /// Begins with those that held connections before.
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

    /// Finds out about processes that more than one look saw.
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
            // The number meant the same process before and after it was asked about.
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

/// The number and the directory of each process.
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
        // The number of the entry can be that of a process that has ended.
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
