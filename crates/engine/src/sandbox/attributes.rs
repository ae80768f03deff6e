//! Mode, owner, times and extended attributes of files, for a run without namespaces. Landlock does
//! not see the calls that change them, so a run could open the owner's keys to everyone, or lock
//! the owner out. The kernel stops every process of the run at such a call, and this thread of the
//! run's own process makes the call on its behalf if the run may write to the file.
//!
//! Nothing is looked up twice: the file is opened once, judged by where the kernel says that it is,
//! and changed through that descriptor. When this process is gone, the kernel refuses all such
//! calls.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use interlock_plan::{MountAccess, SandboxMount, SandboxPlan};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::link;
use super::program_log::read_bytes;
use super::unsafe_notify::{
    CallNotification, NotificationAnswer, answer, is_waiting, receive_call,
};

const MOST_PATH: usize = 4_096;

/// The kernel's limits for an attribute's value and name.
const MOST_VALUE: usize = 65_536;
const MOST_NAME: usize = 255;

/// The set-user-ID and set-group-ID bits.
const SET_ID: u32 = 0o6000;

/// Prefix of the only attributes that need no privilege, and that no other program obeys.
const USER_ATTRIBUTES: &[u8] = b"user.";

/// The thread that guards one run.
#[derive(Debug)]
pub(super) struct AttributeGuard {
    /// Over this socket, the children of the process hand over their listeners.
    to_thread: OwnedFd,
}

impl AttributeGuard {
    /// Starts the thread. It ends when this value is dropped and no process of the run is left.
    pub fn start(plan: &SandboxPlan) -> io::Result<Self> {
        let written = plan.mounts.iter().filter_map(|mount| match mount {
            SandboxMount::Bind {
                source,
                access: MountAccess::Rw,
                ..
            } => Some(PathBuf::from(source)),
            _ => None,
        });
        let (to_thread, incoming) = link::pair()?;
        let thread = GuardThread {
            written: written.collect(),
            incoming,
            listeners: Vec::new(),
        };
        std::thread::Builder::new()
            .name("attributes".to_owned())
            .spawn(move || thread.run())?;
        Ok(Self { to_thread })
    }

    /// Returns the socket to the thread, for children of the calling process.
    pub fn to_thread(&self) -> BorrowedFd<'_> {
        self.to_thread.as_fd()
    }
}

struct GuardThread {
    /// The directories and files that the run may write to.
    written: Vec<PathBuf>,
    incoming: OwnedFd,
    listeners: Vec<OwnedFd>,
}

impl GuardThread {
    fn run(mut self) {
        let mut is_open = true;
        while is_open || !self.listeners.is_empty() {
            let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(self.listeners.len() + 1);
            if is_open {
                polled.push(PollFd::new(&self.incoming, PollFlags::IN));
            }
            for listener in &self.listeners {
                polled.push(PollFd::new(listener, PollFlags::IN));
            }
            match rustix::event::poll(&mut polled, None) {
                Err(Errno::INTR) => continue,
                // The kernel then refuses every call that waits.
                Err(_) => return,
                Ok(_) => {}
            }
            let mut events: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
            drop(polled);
            if is_open && !events.remove(0).is_empty() {
                match link::receive(&self.incoming, std::time::Duration::ZERO) {
                    Ok((_, descriptors)) => self.listeners.extend(descriptors),
                    Err(_) => is_open = false,
                }
            }
            let mut index = 0;
            for event in events {
                if event.contains(PollFlags::IN) {
                    self.hear(index);
                } else if !event.is_empty() {
                    // The listener has no process left that it could stop.
                    self.listeners.remove(index);
                    continue;
                }
                index += 1;
            }
        }
    }

    fn hear(&self, index: usize) {
        let Some(listener) = self.listeners.get(index) else {
            return;
        };
        let Ok(asked) = receive_call(listener.as_fd()) else {
            return;
        };
        let made = self.make(listener.as_fd(), &asked);
        let made = match made {
            Ok(()) => NotificationAnswer::Done,
            Err(error) => NotificationAnswer::Refuse(error.raw_os_error()),
        };
        let _ = answer(listener.as_fd(), asked.id, made);
    }

    /// Makes the call that a process waits for.
    fn make(&self, listener: BorrowedFd<'_>, asked: &CallNotification) -> Result<(), Errno> {
        let memory = File::open(format!("/proc/{}/mem", asked.pid)).map_err(|_| Errno::PERM)?;
        let call = AttributeCall::read(asked, &memory)?;
        let file = call.open(asked.pid)?;
        // If the process no longer waits, another process's memory may have been read and its file
        // opened.
        if !is_waiting(listener, asked.id) {
            return Err(Errno::INTR);
        }
        self.check(&file)?;
        call.change.apply(&file)
    }

    /// Allows only files that the run may write to and that belong to its own user, because the
    /// calling process may be root, with capabilities that the run does not have.
    fn check(&self, file: &OwnedFd) -> Result<(), Errno> {
        let place = std::fs::read_link(by_descriptor(file)).map_err(|_| Errno::PERM)?;
        let found = rustix::fs::fstat(file)?;
        let is_own = found.st_uid == rustix::process::geteuid().as_raw();
        let is_written = self.written.iter().any(|root| place.starts_with(root));
        if is_written && is_own {
            Ok(())
        } else {
            Err(Errno::PERM)
        }
    }
}

/// One call, as the process meant it.
#[derive(Debug)]
struct AttributeCall {
    /// The descriptor of a directory, or of the file itself.
    descriptor: i32,
    /// `None` if the file is the descriptor's own.
    path: Option<OsString>,
    follows_links: bool,
    change: AttributeChange,
}

#[derive(Debug)]
enum AttributeChange {
    Mode(u32),
    Owner(u32, u32),
    Times(Timestamps),
    Set {
        name: CString,
        value: Vec<u8>,
        flags: u32,
    },
    Remove(CString),
}

impl AttributeCall {
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // as the kernel reads them
    fn read(asked: &CallNotification, memory: &File) -> Result<Self, Errno> {
        let arguments = asked.arguments;
        let number = |index: usize| arguments[index] as u32;
        let path = |index: usize| read_path(memory, arguments[index]);
        let by_path = |index, follows_links, change| -> Result<Self, Errno> {
            Ok(Self {
                descriptor: libc::AT_FDCWD,
                path: Some(path(index)?),
                follows_links,
                change,
            })
        };
        let by_descriptor = |change| Self {
            descriptor: arguments[0] as i32,
            path: None,
            follows_links: true,
            change,
        };
        // The path is relative to a directory, and the flags say how to resolve it.
        let at = |flags: u32, change| -> Result<Self, Errno> {
            let known = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
            if flags & !known.cast_unsigned() != 0 {
                return Err(Errno::INVAL);
            }
            let flags = flags.cast_signed();
            let path = path(1)?;
            let is_itself = path.is_empty() && flags & libc::AT_EMPTY_PATH != 0;
            Ok(Self {
                descriptor: arguments[0] as i32,
                path: (!is_itself).then_some(path),
                follows_links: flags & libc::AT_SYMLINK_NOFOLLOW == 0,
                change,
            })
        };
        let owner = |first| AttributeChange::Owner(number(first), number(first + 1));
        match asked.number {
            libc::SYS_fchmod => Ok(by_descriptor(AttributeChange::Mode(number(1)))),
            libc::SYS_fchmodat => at(0, AttributeChange::Mode(number(2))),
            FCHMODAT2 => at(number(3), AttributeChange::Mode(number(2))),
            libc::SYS_fchown => Ok(by_descriptor(owner(1))),
            libc::SYS_fchownat => at(number(4), owner(2)),
            libc::SYS_utimensat => {
                let times = read_times(memory, arguments[2], TimeForm::Nanoseconds)?;
                let change = AttributeChange::Times(times);
                if arguments[1] == 0 {
                    return Ok(by_descriptor(change));
                }
                at(number(3), change)
            }
            libc::SYS_setxattr => by_path(0, true, read_set(memory, arguments)?),
            libc::SYS_lsetxattr => by_path(0, false, read_set(memory, arguments)?),
            libc::SYS_fsetxattr => Ok(by_descriptor(read_set(memory, arguments)?)),
            libc::SYS_removexattr => by_path(0, true, read_remove(memory, arguments)?),
            libc::SYS_lremovexattr => by_path(0, false, read_remove(memory, arguments)?),
            libc::SYS_fremovexattr => Ok(by_descriptor(read_remove(memory, arguments)?)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => by_path(0, true, AttributeChange::Mode(number(1))),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chown => by_path(0, true, owner(1)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lchown => by_path(0, false, owner(1)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utime => {
                let times = read_times(memory, arguments[1], TimeForm::Seconds)?;
                by_path(0, true, AttributeChange::Times(times))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utimes => {
                let times = read_times(memory, arguments[1], TimeForm::Microseconds)?;
                by_path(0, true, AttributeChange::Times(times))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_futimesat => {
                let times = read_times(memory, arguments[2], TimeForm::Microseconds)?;
                let change = AttributeChange::Times(times);
                if arguments[1] == 0 {
                    return Ok(by_descriptor(change));
                }
                at(0, change)
            }
            _ => Err(Errno::NOSYS),
        }
    }

    /// Opens the file that the process means. Links of `/proc` are not followed, because they would
    /// lead to this process's own files.
    fn open(&self, pid: u32) -> Result<OwnedFd, Errno> {
        let own = |rest: &str| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            rustix::fs::open(format!("/proc/{pid}/{rest}"), flags, Mode::empty())
        };
        let Some(path) = &self.path else {
            return own(&format!("fd/{}", self.descriptor)).map_err(|error| match error {
                Errno::NOENT => Errno::BADF,
                other => other,
            });
        };
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let base = if Path::new(path).is_absolute() || self.descriptor == libc::AT_FDCWD {
            own("cwd")?
        } else {
            own(&format!("fd/{}", self.descriptor))?
        };
        let mut flags = OFlags::PATH | OFlags::CLOEXEC;
        if !self.follows_links {
            flags |= OFlags::NOFOLLOW;
        }
        let resolve = ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&base, Path::new(path), flags, Mode::empty(), resolve)
    }
}

/// Available since Linux 6.6, with the same number on all architectures.
const FCHMODAT2: i64 = 452;

impl AttributeChange {
    fn apply(&self, file: &OwnedFd) -> Result<(), Errno> {
        let is_link = || -> Result<bool, Errno> {
            let found = rustix::fs::fstat(file)?;
            Ok(FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
        };
        match self {
            Self::Mode(mode) if mode & SET_ID != 0 => Err(Errno::PERM),
            Self::Mode(_) | Self::Set { .. } | Self::Remove(_) if is_link()? => {
                Err(Errno::OPNOTSUPP)
            }
            Self::Mode(mode) => rustix::fs::chmod(by_descriptor(file), Mode::from_raw_mode(*mode)),
            Self::Owner(uid, gid) => {
                let found = rustix::fs::fstat(file)?;
                let is_same = |asked: u32, own: u32| asked == u32::MAX || asked == own;
                let is_root = rustix::process::geteuid().is_root();
                let may_be =
                    is_same(*uid, found.st_uid) && (is_same(*gid, found.st_gid) || !is_root);
                if !may_be {
                    return Err(Errno::PERM);
                }
                let gid = (*gid != u32::MAX).then(|| Gid::from_raw(*gid));
                rustix::fs::chownat(file, "", None::<Uid>, gid, AtFlags::EMPTY_PATH)
            }
            Self::Times(times) => rustix::fs::utimensat(file, "", times, AtFlags::EMPTY_PATH),
            Self::Set { name, value, flags } => {
                let flags = XattrFlags::from_bits(*flags).ok_or(Errno::INVAL)?;
                rustix::fs::setxattr(by_descriptor(file), name.as_c_str(), value, flags)
            }
            Self::Remove(name) => rustix::fs::removexattr(by_descriptor(file), name.as_c_str()),
        }
    }
}

/// Returns a path that leads to exactly the opened file.
fn by_descriptor(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn read_path(memory: &File, address: u64) -> Result<OsString, Errno> {
    match read_bytes(memory, address, MOST_PATH) {
        Ok(text) if text.len() >= MOST_PATH => Err(Errno::NAMETOOLONG),
        Ok(text) => Ok(OsString::from_vec(text)),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(Errno::NAMETOOLONG),
        Err(_) => Err(Errno::FAULT),
    }
}

fn read_name(memory: &File, address: u64) -> Result<CString, Errno> {
    let name = read_bytes(memory, address, MOST_NAME).map_err(|_| Errno::FAULT)?;
    if name.len() > MOST_NAME {
        return Err(Errno::RANGE);
    }
    if !name.starts_with(USER_ATTRIBUTES) {
        // Programs that copy files take this error to mean that the file system has no such
        // attributes.
        return Err(Errno::OPNOTSUPP);
    }
    CString::new(name).map_err(|_| Errno::INVAL)
}

#[allow(clippy::cast_possible_truncation)] // as the kernel reads them
fn read_set(memory: &File, arguments: [u64; 6]) -> Result<AttributeChange, Errno> {
    let length = usize::try_from(arguments[3]).map_err(|_| Errno::TOOBIG)?;
    if length > MOST_VALUE {
        return Err(Errno::TOOBIG);
    }
    let mut value = vec![0; length];
    memory
        .read_exact_at(&mut value, arguments[2])
        .map_err(|_| Errno::FAULT)?;
    Ok(AttributeChange::Set {
        name: read_name(memory, arguments[1])?,
        value,
        flags: arguments[4] as u32,
    })
}

fn read_remove(memory: &File, arguments: [u64; 6]) -> Result<AttributeChange, Errno> {
    read_name(memory, arguments[1]).map(AttributeChange::Remove)
}

/// The form in which a process passes two times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeForm {
    #[cfg(target_arch = "x86_64")]
    Seconds,
    #[cfg(target_arch = "x86_64")]
    Microseconds,
    Nanoseconds,
}

/// Reads the times of the last access and the last change. A null address means the present time.
fn read_times(memory: &File, address: u64, form: TimeForm) -> Result<Timestamps, Errno> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: libc::UTIME_NOW,
    };
    if address == 0 {
        return Ok(Timestamps {
            last_access: now,
            last_modification: now,
        });
    }
    let number = |index: u64| -> Result<i64, Errno> {
        let mut bytes = [0; 8];
        let at = address.wrapping_add(index * 8);
        memory
            .read_exact_at(&mut bytes, at)
            .map_err(|_| Errno::FAULT)?;
        Ok(i64::from_le_bytes(bytes))
    };
    let time = |index: u64| -> Result<Timespec, Errno> {
        let (seconds, rest) = match form {
            #[cfg(target_arch = "x86_64")]
            TimeForm::Seconds => (number(index)?, 0),
            #[cfg(target_arch = "x86_64")]
            TimeForm::Microseconds => {
                let micro = number(index * 2 + 1)?;
                if !(0..1_000_000).contains(&micro) {
                    return Err(Errno::INVAL);
                }
                (number(index * 2)?, micro * 1_000)
            }
            TimeForm::Nanoseconds => (number(index * 2)?, number(index * 2 + 1)?),
        };
        Ok(Timespec {
            tv_sec: seconds,
            tv_nsec: rest,
        })
    };
    Ok(Timestamps {
        last_access: time(0)?,
        last_modification: time(1)?,
    })
}
