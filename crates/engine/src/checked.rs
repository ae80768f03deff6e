//! The last check before anything starts. The working directory and every pinned file are opened
//! once, and compared with the plan through that descriptor. What runs later is what was opened
//! here.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlock_plan::{
    Drift, HashLimitReached, PinnedDirectory, PinnedFile, PlanBinding, RaceRisk, RunPlan, Writers,
    is_young, known_content, read_content, read_sha256,
};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};

use super::error::StartError;
use super::seal::{ByPath, Execution, SealedFiles};
use super::streams::above_standard;
use super::unsafe_spawn::namespace::Namespace;
use super::unsafe_spawn::{has_lease, return_lease, take_lease};
use crate::shield::RunShield;

/// The opened files of a plan, all of which match the plan.
#[derive(Debug)]
pub(super) struct Checked {
    /// The working directory first, then the directories that a `cd` of the line enters.
    directories: Vec<OpenedDirectory>,
    executables: Vec<Opened>,
    sealed: SealedFiles,
    binding: PlanBinding,
    /// The search path of the run.
    path: String,
}

/// A directory that was opened once. Commands enter it by this descriptor, never by its path.
#[derive(Debug)]
struct OpenedDirectory {
    pinned: PinnedDirectory,
    file: Arc<OwnedFd>,
}

/// An executable that was opened and found unchanged.
#[derive(Debug)]
pub(super) struct Opened {
    pub pinned: PinnedFile,
    pub file: Arc<OwnedFd>,
    pub form: Form,
    hold: Hold,
    /// The times of the file reveal every write, once they are old enough.
    times_tell: bool,
}

/// Whether the content of an opened file can be protected from changes until it runs. The
/// descriptor alone does not protect it, because a file can be written to in place.
#[derive(Debug)]
enum Hold {
    /// The running user cannot write to the file, or it is read by path in any case.
    NotNeeded,
    /// A lease protects the content. Only one command of the plan may hold it at a time.
    Lease(Mutex<()>),
    /// The file system has no leases, or grants none to this user.
    Impossible,
}

/// While this value lives, no process writes to the file.
#[derive(Debug)]
pub(super) struct HeldFile<'a> {
    opened: &'a Opened,
    turn: Option<MutexGuard<'a, ()>>,
}

/// The property of a file that decides how it is executed. This differs from its kind in a
/// judgment: it matters here only whether the kernel can execute the file from a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Executed by descriptor: nothing can be swapped between check and start.
    Native,
    /// A script that its interpreter opens by path.
    Script,
    /// Text without `#!`, which a shell runs with `sh`.
    Text,
    /// A format that at most a kernel handler recognizes.
    Binary,
}

impl Checked {
    pub fn open(plan: &RunPlan, shield: Option<&RunShield>) -> Result<Self, StartError> {
        // A file that the run's user could not open is not opened for the run.
        let _as_the_run = plan.assume_account()?;
        let directories = open_directories(plan)?;
        let mut executables: Vec<Opened> = Vec::new();
        let path = plan.env.get("PATH").cloned().unwrap_or_default();
        plan.binding.check(&path)?;
        for pinned in plan.passed_on() {
            pinned.check()?;
        }
        for pinned in plan.executables() {
            if !executables.iter().any(|opened| opened.pinned == *pinned) {
                executables.push(Opened::open(pinned)?);
            }
        }
        for library in &plan.libraries {
            library.check_again()?;
        }
        let executions = executables.iter().map(|opened| Execution {
            pinned: &opened.pinned,
            form: opened.form,
            keeps_content: opened.keeps_content(),
        });
        let sealed = ByPath::of(plan, executions).seal(shield)?;
        Ok(Self {
            directories,
            executables,
            sealed,
            binding: plan.binding.clone(),
            path,
        })
    }

    /// Checks once more, right before the first command, that the paths still lead to the opened
    /// directories. Later commands enter the opened directories, whatever happens to the paths
    /// meanwhile.
    pub fn check_directories_again(&self) -> Result<(), Drift> {
        self.directories
            .iter()
            .try_for_each(|directory| directory.pinned.check())
    }

    /// Returns the opened directory that a command names by its canonical path.
    pub fn directory(&self, canonical: &str) -> Option<&Arc<OwnedFd>> {
        let mut directories = self.directories.iter();
        directories
            .find(|directory| directory.pinned.canonical == canonical)
            .map(|directory| &directory.file)
    }

    /// Returns the opened directory that `cd target` enters from `from`.
    pub fn entered_directory(&self, from: &str, target: &str) -> Option<&Arc<OwnedFd>> {
        let path = PinnedDirectory::path_of_entered(from, target)?;
        // The first is the working directory, which is not necessarily the target of a `cd`.
        let mut entered = self.directories.iter().skip(1);
        entered
            .find(|directory| directory.pinned.requested == path)
            .map(|directory| &directory.file)
    }

    /// Checks once more, right before a command of the line, because an earlier command may have
    /// written to a file whose content was approved.
    pub fn check_binding_again(&self) -> Result<(), Drift> {
        self.binding.check_again(&self.path)
    }

    /// Returns what was opened for a file of the plan.
    pub fn executable(&self, pinned: &PinnedFile) -> Option<&Opened> {
        self.executables
            .iter()
            .find(|opened| opened.pinned == *pinned)
    }

    /// Whether every file that runs is certain to be the file that was checked.
    pub fn is_race_free(&self) -> bool {
        self.race_risk().is_none()
    }

    /// Returns the first file that could be exchanged before it is used.
    pub fn race_risk(&self) -> Option<&RaceRisk> {
        self.sealed.risks.first()
    }

    /// The run's view of the file system, if it differs from that of other processes.
    pub fn view(&self) -> Option<&Arc<Namespace>> {
        self.sealed.view.as_ref()
    }
}

impl Opened {
    fn open(pinned: &PinnedFile) -> Result<Self, StartError> {
        let path = pinned.canonical.as_str();
        leads_to(&pinned.found, path)?;
        let common = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let read = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let (file, readable) = match rustix::fs::open(path, read | common, Mode::empty()) {
            Ok(file) => (file, true),
            // The file may be executed but not read, so only its identity was pinned.
            Err(rustix::io::Errno::ACCESS) if pinned.sha256.is_none() => {
                let file = rustix::fs::open(path, OFlags::PATH | common, Mode::empty());
                (file.map_err(|error| cannot_read(path, error))?, false)
            }
            Err(error) => return Err(cannot_read(path, error).into()),
        };
        let file = above_standard(file).map_err(|source| execute(path, source))?;
        let file = File::from(file);
        let form = if readable {
            form(&file).map_err(|error| cannot_read(path, error))?
        } else {
            Form::Native
        };
        let file = OwnedFd::from(file);
        let hold = Hold::take(&file, pinned, form).map_err(|source| execute(path, source))?;
        let file = File::from(file);
        let metadata = file.metadata().map_err(|error| cannot_read(path, error))?;
        pinned.check_metadata(&metadata)?;
        let mut times_tell = false;
        if let Some(before) = &pinned.sha256 {
            let now = match hold {
                // A lease keeps every process from writing to the file, and the file's times show
                // all earlier writes. Without a lease, the file is read.
                Hold::Lease(_) => known_content(&file, Writers::KeptAway),
                Hold::NotNeeded | Hold::Impossible => read_content(&file),
            };
            let now = now.map_err(|error| cannot_read(path, error))?;
            if now.sha256 != *before {
                return Err(Drift::Changed(path.to_owned()).into());
            }
            times_tell = now.times_tell;
        }
        rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|error| execute(path, error.into()))?;
        let file = OwnedFd::from(file);
        return_lease(&file);
        Ok(Self {
            pinned: pinned.clone(),
            file: Arc::new(file),
            form,
            hold,
            times_tell,
        })
    }

    /// Returns how the file will be executed, and whether writers can be kept away from it
    /// meanwhile. This reads only the first bytes of the file.
    pub fn outlook(pinned: &PinnedFile) -> io::Result<(Form, bool)> {
        let flags =
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&pinned.canonical, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::ACCESS) if pinned.sha256.is_none() => {
                return Ok((Form::Native, true));
            }
            Err(error) => return Err(error.into()),
        };
        let form = form(&file)?;
        let file = OwnedFd::from(file);
        let keeps_content = match Hold::take(&file, pinned, form) {
            Ok(hold) => !matches!(hold, Hold::Impossible),
            // A process is writing to the file now. As long as it does, the file does not start.
            Err(_) => true,
        };
        return_lease(&file);
        Ok((form, keeps_content))
    }

    /// Whether no process can write to the file between the last check and its start.
    pub fn keeps_content(&self) -> bool {
        !matches!(self.hold, Hold::Impossible)
    }

    /// Keeps others from writing to the file, if that is possible and matters, and checks it once
    /// more: a line may take hours to reach its last command, and an earlier command may have
    /// rebuilt this file.
    pub fn hold(&self) -> Result<HeldFile<'_>, StartError> {
        let turn = match &self.hold {
            Hold::Lease(turn) => Some(turn.lock().unwrap_or_else(PoisonError::into_inner)),
            Hold::NotNeeded | Hold::Impossible => None,
        };
        if turn.is_some() {
            take_lease(&self.file).map_err(|error| execute(&self.pinned.canonical, busy(error)))?;
        }
        let held = HeldFile { opened: self, turn };
        self.check_again()?;
        held.check_content()?;
        Ok(held)
    }

    fn check_again(&self) -> Result<(), Drift> {
        let path = self.pinned.canonical.as_str();
        leads_to(&self.pinned.found, path)?;
        let at_path = std::fs::symlink_metadata(path).map_err(|error| cannot_read(path, error))?;
        // The path must still lead to the opened file, which was compared with the same record.
        self.pinned.check_metadata(&at_path)
    }
}

impl HeldFile<'_> {
    /// Checks that the content is unchanged. A file with the same times has the content that was
    /// hashed, provided that the times are old enough (two writes within one clock tick leave the
    /// same times) and that the file system's times reveal every write. Otherwise the file is read
    /// again.
    fn check_content(&self) -> Result<(), Drift> {
        let pinned = &self.opened.pinned;
        if self.opened.times_tell && !is_young(pinned.ctime_ns) {
            return Ok(());
        }
        let Some(before) = pinned.sha256.as_ref() else {
            return Ok(());
        };
        let path = pinned.canonical.as_str();
        let now = self.file().and_then(|file| read_sha256(&file));
        if now.map_err(|error| cannot_read(path, error))? == *before {
            Ok(())
        } else {
            Err(Drift::Changed(path.to_owned()))
        }
    }

    /// Checks the file after the start, because a lease does not last forever and the start may
    /// have taken longer. From now on the system itself keeps others from writing to the running
    /// file.
    pub fn check_after_start(&self) -> Result<(), Drift> {
        if self.turn.is_none() || has_lease(&self.opened.file) {
            return Ok(());
        }
        let pinned = &self.opened.pinned;
        let metadata = self.file().and_then(|file| file.metadata());
        pinned.check_metadata(&metadata.map_err(|error| cannot_read(&pinned.canonical, error))?)?;
        self.check_content()
    }

    fn file(&self) -> io::Result<File> {
        Ok(self.opened.file.try_clone()?.into())
    }
}

impl Drop for HeldFile<'_> {
    fn drop(&mut self) {
        if self.turn.is_some() {
            return_lease(&self.opened.file);
        }
    }
}

impl Hold {
    /// Takes the lease before the content is read: a process that already has the file open for
    /// writing could otherwise change it later without a trace in its times.
    fn take(file: &OwnedFd, pinned: &PinnedFile, form: Form) -> io::Result<Self> {
        if pinned.sha256.is_none() || form != Form::Native {
            return Ok(Self::NotNeeded);
        }
        match take_lease(file) {
            Ok(()) => Ok(Self::Lease(Mutex::default())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(busy(error)),
            Err(_) => Ok(Self::Impossible),
        }
    }
}

/// Returns the error that the system reports if a file that is being written to is executed.
fn busy(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::from_raw_os_error(libc::ETXTBSY),
        _ => error,
    }
}

fn open_directories(plan: &RunPlan) -> Result<Vec<OpenedDirectory>, StartError> {
    let cwd = open_directory(&plan.cwd)?;
    if let Err(source) = may_enter(&cwd) {
        let path = plan.cwd.requested.clone();
        return Err(StartError::WorkingDirectory { path, source });
    }
    let mut directories = vec![OpenedDirectory {
        pinned: plan.cwd.clone(),
        file: Arc::new(cwd),
    }];
    // The `cd` itself finds out whether the user may enter them.
    for pinned in &plan.directories {
        directories.push(OpenedDirectory {
            pinned: pinned.clone(),
            file: Arc::new(open_directory(pinned)?),
        });
    }
    Ok(directories)
}

/// Opens a directory and checks that the path as requested still leads to it.
fn open_directory(pinned: &PinnedDirectory) -> Result<OwnedFd, StartError> {
    let path = pinned.requested.as_str();
    let trouble = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => StartError::Drift(Drift::Gone(path.to_owned())),
        _ => StartError::WorkingDirectory {
            path: path.to_owned(),
            source,
        },
    };
    let directory = open_path(path).map_err(trouble)?;
    leads_to(path, &pinned.canonical)?;
    let metadata = File::from(directory.try_clone().map_err(trouble)?)
        .metadata()
        .map_err(trouble)?;
    if (metadata.dev(), metadata.ino()) != (pinned.device, pinned.inode) {
        return Err(Drift::Replaced(path.to_owned()).into());
    }
    Ok(directory)
}

/// Opens a directory to start in, without read access to it.
fn open_path(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    above_standard(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Whether the effective user may make this directory the working directory.
pub(super) fn may_enter(directory: &OwnedFd) -> io::Result<()> {
    rustix::fs::accessat(directory, ".", Access::EXEC_OK, AtFlags::EACCESS)?;
    Ok(())
}

fn leads_to(found: &str, canonical: &str) -> Result<(), Drift> {
    let now = std::fs::canonicalize(found).map_err(|error| cannot_read(found, error))?;
    if now.to_str() == Some(canonical) {
        return Ok(());
    }
    Err(Drift::Moved {
        path: found.to_owned(),
        before: canonical.to_owned(),
        now: now.display().to_string(),
    })
}

pub(super) fn cannot_read(path: &str, error: impl Into<io::Error>) -> Drift {
    let error = error.into();
    match error.kind() {
        _ if HashLimitReached::is_cause_of(&error) => Drift::TooLarge(path.to_owned()),
        io::ErrorKind::NotFound => Drift::Gone(path.to_owned()),
        _ => Drift::Unreadable {
            path: path.to_owned(),
            reason: super::error::words(&error),
        },
    }
}

fn execute(path: &str, source: io::Error) -> StartError {
    StartError::Execute {
        path: path.to_owned(),
        source,
    }
}

/// Determines the form from the first bytes. Text is recognized as shells recognize it: by the
/// absence of a NUL in the first line.
fn form(file: &File) -> io::Result<Form> {
    let mut head = [0; 256];
    let length = file.read_at(&mut head, 0)?;
    let head = &head[..length];
    Ok(if head.starts_with(b"\x7fELF") {
        Form::Native
    } else if head.starts_with(b"#!") {
        Form::Script
    } else {
        let line = head.split(|byte| *byte == b'\n').next().unwrap_or(head);
        if line.contains(&0) {
            Form::Binary
        } else {
            Form::Text
        }
    })
}
