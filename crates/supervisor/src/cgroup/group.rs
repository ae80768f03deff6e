//! The control group of one run.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::hierarchies::{Controller, GroupPlace};
use super::limits::{CgroupVersion, NotLimited, RunLimit, RunLimits};
use super::name::{self, GroupName};
use super::{GroupError, Hierarchies, Unavailable, files};

/// How many rounds to look for members that arrived while others were moved.
const ROUNDS: usize = 64;

/// A directory of the same name in version 2 and, once a limit needs it, in trees of version 1.
///
/// This is only a handle: every question is put to the system, so that the supervisor and the shim
/// can each hold one (handed over by serde), and dropping it changes nothing.
///
/// A system without version 2 has nothing in which to keep an unlimited run together. Its group
/// exists only once a limit is applied; until then, every question about it is answered by `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    name: GroupName,
    hierarchies: Hierarchies,
}

impl Group {
    /// Creates a new group. Fails if a group of this name exists.
    pub fn create(hierarchies: &Hierarchies, name: &str) -> Result<Self, GroupError> {
        let group = Self::open(hierarchies, name)?;
        if let Some(path) = group.v2_directory() {
            fs::create_dir(&path).map_err(GroupError::file("cannot make the group", &path))?;
        } else if hierarchies.v1().is_empty()
            && let Err(reason) = hierarchies.groups()
        {
            return Err(reason.clone().into());
        }
        Ok(group)
    }

    /// Makes a handle of a group that may exist.
    pub fn open(hierarchies: &Hierarchies, name: &str) -> Result<Self, GroupError> {
        Ok(Self {
            name: GroupName::try_from(name.to_owned())?,
            hierarchies: hierarchies.clone(),
        })
    }

    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns the directories of the group that exist, version 2 first.
    pub fn directories(&self) -> Vec<PathBuf> {
        let present = self.places().into_iter().map(|place| self.within(place));
        present.filter(|path| path.is_dir()).collect()
    }

    /// Moves the calling process, with all its threads, into the group.
    pub fn join_self(&self) -> Result<(), GroupError> {
        self.move_in("0")
    }

    /// Moves a process, with all its threads, into the group.
    pub fn join(&self, pid: i32) -> Result<(), GroupError> {
        self.move_in(&pid.to_string())
    }

    /// Prepares joining for a process that can do little more than write, such as between fork and
    /// exec. This must be called after limits are applied, because they can add directories.
    pub fn joiner(&self) -> Result<Joiner, GroupError> {
        let paths = self.directories().into_iter();
        let open = |directory: PathBuf| {
            let path = directory.join("cgroup.procs");
            files::open(&path).map_err(GroupError::file("cannot open", &path))
        };
        Ok(Joiner(paths.map(open).collect::<Result<_, _>>()?))
    }

    /// Moves the calling process out of the group, to the supervisor's group.
    pub fn leave_self(&self) -> Result<(), GroupError> {
        for place in self.places() {
            if self.within(place).is_dir() {
                files::write(&place.home, "cgroup.procs", "0")?;
            }
        }
        Ok(())
    }

    /// Sets limits for the processes that are in the group now or later. Present processes also
    /// move to the version 1 directories that this call makes.
    ///
    /// An error names all requested limits that are not in force; all others are.
    pub fn apply(&self, limits: &RunLimits) -> Result<(), NotLimited> {
        let refused = limits.asked().filter_map(|limit| {
            let reason = match self.hierarchies.controller(limit) {
                Ok(controller) => match self.apply_one(limits, limit, controller) {
                    Ok(()) => return None,
                    Err(error) => Unavailable::new(error.to_string()),
                },
                Err(reason) => reason.clone(),
            };
            Some((limit, reason))
        });
        NotLimited::unless_empty(refused.collect())
    }

    fn apply_one(
        &self,
        limits: &RunLimits,
        limit: RunLimit,
        controller: &Controller,
    ) -> Result<(), GroupError> {
        let directory = self.directory_of(controller)?;
        match controller {
            Controller::V2 => limits.write(limit, CgroupVersion::V2, &directory),
            Controller::V1(_) => {
                match fs::create_dir(&directory) {
                    Ok(()) => {}
                    // Several controllers can share a directory.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(error) => {
                        return Err(GroupError::file("cannot make the group", &directory)(error));
                    }
                }
                limits.write(limit, CgroupVersion::V1, &directory)?;
                self.bring_members_to(&directory)
            }
        }
    }

    /// Moves all members to a directory. A child of a member that was already moved is where its
    /// parent is, so this ends unless the group is being flooded; then it fails.
    fn bring_members_to(&self, directory: &Path) -> Result<(), GroupError> {
        let Some(v2) = self.v2_directory() else {
            return Ok(());
        };
        let mut missing = Vec::new();
        for _ in 0..ROUNDS {
            let there = files::members(directory)?;
            missing = files::members(&v2)?;
            missing.retain(|pid| there.binary_search(pid).is_err());
            if missing.is_empty() {
                return Ok(());
            }
            for pid in &missing {
                match files::write(directory, "cgroup.procs", &pid.to_string()) {
                    Err(error) if error.errno() == Some(Errno::SRCH) => {}
                    written => written?,
                }
            }
        }
        Err(GroupError::Populated {
            path: v2,
            members: missing,
        })
    }

    /// Lets the kernel end all processes of the group if memory runs out, and not only the largest
    /// (version 2; version 1 has no such setting).
    ///
    /// This must not be used with the run's shim inside, unless the shim's `oom_score_adj` is
    /// -1000: the kernel would end the shim with the others, and no process could report how the
    /// run ended.
    pub fn let_out_of_memory_end_all(&self) -> Result<(), GroupError> {
        match self.hierarchies.controller(RunLimit::Memory) {
            Ok(controller @ Controller::V2) => {
                files::write(&self.directory_of(controller)?, "memory.oom.group", "1")
            }
            Ok(Controller::V1(_)) => {
                Err(Unavailable::new("memory is controlled by v1, which ends one process").into())
            }
            Err(reason) => Err(reason.clone().into()),
        }
    }

    /// Returns the processes of the group and of groups below it, or `None` if nothing keeps track
    /// of them.
    pub fn members(&self) -> Result<Option<Vec<i32>>, GroupError> {
        let directories = self.tracking();
        if directories.is_empty() {
            return Ok(None);
        }
        let mut all = Vec::new();
        for directory in directories {
            all.extend(files::members(&directory)?);
        }
        all.sort_unstable();
        all.dedup();
        Ok(Some(all))
    }

    /// Whether a process is in the group or in a group below it. `None` if nothing keeps track of
    /// them.
    pub fn is_populated(&self) -> Result<Option<bool>, GroupError> {
        if let Some(directory) = self.v2_directory()
            && let Some(populated) = files::number(&directory, "cgroup.events", "populated")
        {
            return Ok(Some(populated > 0));
        }
        Ok(self.members()?.map(|members| !members.is_empty()))
    }

    /// Returns how many processes were ended because memory ran out. `None` if the kernel does not
    /// count them.
    pub fn oom_kills(&self) -> Option<u64> {
        let controller = self.hierarchies.controller(RunLimit::Memory).ok()?;
        let file = match controller {
            Controller::V2 => "memory.events",
            Controller::V1(_) => "memory.oom_control",
        };
        files::number(&self.directory_of(controller).ok()?, file, "oom_kill")
    }

    /// Returns how often a process or thread was refused. `None` if the kernel does not count it.
    pub fn pids_refused(&self) -> Option<u64> {
        let controller = self.hierarchies.controller(RunLimit::Pids).ok()?;
        files::number(&self.directory_of(controller).ok()?, "pids.events", "max")
    }

    /// Returns the most memory that the group used. `None` if the kernel does not report it.
    pub fn memory_peak(&self) -> Option<u64> {
        let controller = self.hierarchies.controller(RunLimit::Memory).ok()?;
        let file = match controller {
            Controller::V2 => "memory.peak",
            Controller::V1(_) => "memory.max_usage_in_bytes",
        };
        files::single_number(&self.directory_of(controller).ok()?, file)
    }

    /// Returns the most processes and threads that the group had. `None` if the kernel does not
    /// report it.
    pub fn pids_peak(&self) -> Option<u64> {
        let controller = self.hierarchies.controller(RunLimit::Pids).ok()?;
        files::single_number(&self.directory_of(controller).ok()?, "pids.peak")
    }

    /// Returns in how many periods of 100 ms the group used up its processor time. `None` if the
    /// kernel does not count them.
    pub fn cpu_throttled(&self) -> Option<u64> {
        let controller = self.hierarchies.controller(RunLimit::Cpus).ok()?;
        let directory = self.directory_of(controller).ok()?;
        files::number(&directory, "cpu.stat", "nr_throttled")
    }

    /// Removes the group's directories, and groups that the run made below them. Waits for
    /// `patience` at most for processes that are just ending; this ends no process itself.
    pub fn remove(&self, patience: Duration) -> Result<(), GroupError> {
        const LONGEST_PAUSE: Duration = Duration::from_millis(20);
        let began = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            let mut busy = None;
            for place in self.places() {
                match files::remove_tree(&self.within(place)) {
                    Ok(()) => {}
                    Err(error) if matches!(error.errno(), Some(Errno::BUSY | Errno::NOTEMPTY)) => {
                        busy = Some(self.within(place));
                    }
                    Err(error) => return Err(error),
                }
            }
            let Some(path) = busy else {
                return Ok(());
            };
            if began.elapsed() >= patience {
                let members = files::members(&path)?;
                return Err(GroupError::Populated { path, members });
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    pub(super) fn v2_directory(&self) -> Option<PathBuf> {
        self.hierarchies.v2().map(|place| self.within(place))
    }

    /// The directories that list the members: version 2 has all of them, trees of version 1 those
    /// that are limited.
    pub(super) fn tracking(&self) -> Vec<PathBuf> {
        let mut directories = self.directories();
        if self.hierarchies.v2().is_some() {
            directories.truncate(1);
        }
        directories
    }

    /// The directory that limits the number of processes.
    pub(super) fn pids_directory(&self) -> Option<PathBuf> {
        let controller = self.hierarchies.controller(RunLimit::Pids).ok()?;
        let directory = self.directory_of(controller).ok()?;
        directory.is_dir().then_some(directory)
    }

    /// Whether the calling process is in the group.
    pub(crate) fn has_caller(&self) -> bool {
        fs::read_to_string("/proc/self/cgroup").is_ok_and(|text| name::is_within(&text, &self.name))
    }

    fn directory_of(&self, controller: &Controller) -> Result<PathBuf, Unavailable> {
        match controller {
            Controller::V1(place) => Ok(self.within(place)),
            Controller::V2 => self
                .v2_directory()
                .ok_or_else(|| Unavailable::new("control groups v2 are not to be had")),
        }
    }

    fn places(&self) -> Vec<&GroupPlace> {
        let v2 = self.hierarchies.v2().into_iter();
        v2.chain(self.hierarchies.v1()).collect()
    }

    fn within(&self, place: &GroupPlace) -> PathBuf {
        place.parent.join(self.name.directory())
    }

    fn move_in(&self, who: &str) -> Result<(), GroupError> {
        for directory in self.directories() {
            files::write(&directory, "cgroup.procs", who)?;
        }
        Ok(())
    }
}

/// Open descriptors by which a process joins a group. They are closed when a program is executed.
#[derive(Debug)]
pub struct Joiner(Vec<File>);

impl Joiner {
    /// Moves the calling process, with all its threads, into the group. This only writes: it
    /// allocates nothing and takes no lock.
    pub fn join(&self) -> io::Result<()> {
        for file in &self.0 {
            rustix::io::write(file, b"0")?;
        }
        Ok(())
    }

    /// Returns the descriptors. A process joins by writing `0` to each of them.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(AsFd::as_fd)
    }
}
