//! Process 1 of an agent's PID namespace: makes the namespaces, collects orphans that end in them,
//! and ends when the supervisor releases it and nothing else is left inside.
//!
//! It is a child of the supervisor. Processes inside cannot signal it, because it is process 1, and
//! cannot read or trace it, because it is non-dumpable and no run has a capability in its user
//! namespace.

mod covers;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{DumpableBehavior, Pid, WaitOptions};
use rustix::thread::UnshareFlags;

use crate::unsafe_fork::{fork_copy, fork_maker};
use crate::unsafe_process::{self, Forked, separate};

/// How long making the namespaces may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often to check whether something is left inside.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// The message that something was made. Any other message gives the reason of a failure.
const MADE: &[u8] = b"made";

/// Prefix of the number of process 1, as the supervisor sees it.
const NUMBER: &str = "init ";

/// Requests a namespace for one shim's runs.
const ANOTHER: &[u8] = b"another";

/// Longest reason of a failure.
const MOST_TEXT: usize = 512;

/// Transcripts are the agent's own files and are not checked: they are no secrets that others would
/// link to.
const TRANSCRIPTS: &str = "sessions";

/// Directory of the sandboxes, in the state directory.
const SCOPES: &str = "sandboxes";

/// The namespaces of an agent, as the supervisor holds them.
#[derive(Debug)]
pub(crate) struct AgentInit {
    pub pid: Pid,
    /// The namespaces end once this is closed and nothing is left in them.
    control: OwnedFd,
    mounts: OwnedFd,
    processes: OwnedFd,
    /// `None` for root.
    user: Option<OwnedFd>,
}

/// Makes the namespaces of an agent. The calling process must have one thread.
///
/// `hidden` is the state directory. The error says which step failed.
pub(crate) fn make_agent_init(hidden: &Path) -> io::Result<AgentInit> {
    let (control, of_init) = seqpacket_pair()?;
    let maker = fork_maker(hidden, &of_init, |hidden, control| {
        if let Err(error) = become_maker(hidden, control) {
            let _ = send(control, error.to_string().as_bytes(), &[]);
        }
    })?;
    drop(of_init);
    let made = AgentInit::received(control);
    // The maker has ended or is about to: its only work is done.
    let _ = rustix::process::waitpid(Some(maker), WaitOptions::empty());
    made
}

impl AgentInit {
    /// Receives the number of process 1 from the maker, and the namespaces from process 1.
    fn received(control: OwnedFd) -> io::Result<Self> {
        let (mut pid, mut made) = (None, None);
        loop {
            let (text, descriptors) = receive(&control)?;
            let text = String::from_utf8_lossy(&text).into_owned();
            if let Some(number) = text.strip_prefix(NUMBER) {
                pid = number.parse().ok().and_then(Pid::from_raw);
            } else if text.as_bytes() == MADE {
                let mut descriptors = descriptors.into_iter();
                let both = descriptors.next().zip(descriptors.next());
                made = both.map(|both| (both, descriptors.next()));
            } else {
                if let Some(pid) = pid {
                    let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
                }
                return Err(io::Error::other(text));
            }
            match (pid, made) {
                (Some(pid), Some(((mounts, processes), user))) => {
                    return Ok(Self {
                        pid,
                        control,
                        mounts,
                        processes,
                        user,
                    });
                }
                (_, rest) => made = rest,
            }
        }
    }

    /// Returns the descriptors that a shim needs to start runs in the namespaces, in the order of
    /// [`super::RunShield::from_descriptors`]. The third one is new.
    pub fn descriptors_for_shim(&self) -> io::Result<(OwnedFd, Vec<BorrowedFd<'_>>)> {
        send(&self.control, ANOTHER, &[])?;
        let (text, descriptors) = receive(&self.control)?;
        let own = descriptors.into_iter().next();
        let own =
            own.ok_or_else(|| io::Error::other(String::from_utf8_lossy(&text).into_owned()))?;
        let mut others = vec![self.mounts.as_fd(), self.processes.as_fd()];
        others.extend(self.user.as_ref().map(|user| user.as_fd()));
        Ok((own, others))
    }

    pub fn is_of_user(&self) -> bool {
        self.user.is_some()
    }
}

/// Runs in a child of the supervisor: makes the namespaces, starts process 1 in them, and ends.
fn become_maker(hidden: &Path, control: &OwnedFd) -> io::Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    check_links(hidden)?;
    let elsewhere = scopes_elsewhere(hidden);
    if is_root {
        step("mount and PID namespaces", || {
            separate(UnshareFlags::NEWNS | UnshareFlags::NEWPID)
        })?;
    } else {
        step("a user namespace", make_user_namespace)?;
        step("mount and PID namespaces", || {
            separate(UnshareFlags::NEWNS | UnshareFlags::NEWPID)
        })?;
    }
    step("the cover of the state directory", || {
        covers::cover(hidden, is_root)
    })?;
    for root in elsewhere {
        step("the cover of sandboxes", || covers::cover(&root, is_root))?;
    }
    match fork_copy()? {
        Forked::Child => {
            match become_init(is_root) {
                Ok(namespaces) => {
                    if send_made(control, &namespaces).is_ok() {
                        drop(namespaces);
                        let _ = serve(control, is_root);
                    }
                }
                Err(error) => drop(send(control, error.to_string().as_bytes(), &[])),
            }
            unsafe_process::exit(0)
        }
        // Only its parent knows its number outside.
        Forked::Parent(init) => {
            let number = format!("{NUMBER}{}", init.as_raw_pid());
            send(control, number.as_bytes(), &[])
        }
    }
}

/// Runs in process 1 and returns the namespaces to hand out: mount, PID, and the user's.
fn become_init(is_root: bool) -> io::Result<Vec<OwnedFd>> {
    rustix::thread::set_name(c"interlock-init")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    step("a list of processes at /proc", || {
        Ok(rustix::mount::mount("proc", "/proc", "proc", flags, None)?)
    })?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let _ = rustix::process::setsid();
    let kinds: &[&str] = if is_root {
        &["mnt", "pid"]
    } else {
        &["mnt", "pid", "user"]
    };
    let namespaces = kinds.iter().map(|kind| open_own(kind));
    let namespaces = namespaces.collect::<io::Result<_>>()?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(namespaces)
}

fn open_own(kind: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(
        format!("/proc/self/ns/{kind}"),
        flags,
        Mode::empty(),
    )?)
}

/// Serves until the supervisor releases this process and nothing is left inside. When this process
/// ends, the kernel ends everything inside.
fn serve(control: &OwnedFd, is_root: bool) -> io::Result<()> {
    let ended = unsafe_process::watch_children()?;
    let mut is_let_go = false;
    loop {
        let mut polled = vec![PollFd::new(&ended, PollFlags::IN)];
        if !is_let_go {
            polled.push(PollFd::new(control, PollFlags::IN));
        }
        let pause = is_let_go.then_some(&LOOK);
        let _ = rustix::event::poll(&mut polled, pause);
        let is_spoken_to = polled.get(1).is_some_and(|one| !one.revents().is_empty());
        unsafe_process::clear_signals(&ended);
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        if is_spoken_to {
            match receive(control) {
                Ok((text, _)) if text == ANOTHER => hand_out_another(control, is_root)?,
                Ok(_) => {}
                Err(_) => is_let_go = true,
            }
        }
        if is_let_go && is_alone() {
            return Ok(());
        }
    }
}

/// Whether this is the only process of the namespace.
fn is_alone() -> bool {
    let Ok(list) = std::fs::read_dir("/proc") else {
        return false;
    };
    let numbers = list.flatten().filter(|entry| {
        let name = entry.file_name();
        name.to_str()
            .is_some_and(|name| name.parse::<i32>().is_ok())
    });
    numbers.count() <= 1
}

/// Makes a namespace for the runs of one shim, in a child, because a process cannot return from it.
///
/// The child is in that namespace too. It hands the namespace to this process, which passes it on
/// only once the child has ended: otherwise a brief run could end first, and the child would be
/// mistaken for a process that the run left behind.
fn hand_out_another(control: &OwnedFd, is_root: bool) -> io::Result<()> {
    let (received, of_child) = seqpacket_pair()?;
    match fork_copy()? {
        Forked::Child => {
            let make = || {
                let kind = if is_root {
                    separate(UnshareFlags::NEWUTS)?;
                    "uts"
                } else {
                    make_user_namespace()?;
                    "user"
                };
                send_made(&of_child, &[open_own(kind)?])
            };
            unsafe_process::exit(i32::from(make().is_err()))
        }
        Forked::Parent(child) => {
            drop(of_child);
            let made = receive(&received);
            let _ = rustix::process::waitpid(Some(child), WaitOptions::empty())?;
            match made {
                Ok((_, namespaces)) if !namespaces.is_empty() => send_made(control, &namespaces),
                _ => send(control, b"cannot make a namespace for the run", &[]),
            }
        }
    }
}

/// Makes two ends that preserve message boundaries and detect when the other end is gone.
fn seqpacket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

fn send_made(control: &OwnedFd, namespaces: &[OwnedFd]) -> io::Result<()> {
    let borrowed: Vec<BorrowedFd<'_>> = namespaces.iter().map(|one| one.as_fd()).collect();
    send(control, MADE, &borrowed)
}

/// Returns the directories outside the state directory that contain sandbox scopes. The state
/// directory has a link to each scope.
fn scopes_elsewhere(hidden: &Path) -> Vec<PathBuf> {
    let scopes = std::fs::read_dir(hidden.join(SCOPES)).into_iter().flatten();
    let targets = scopes
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let mut roots: Vec<PathBuf> = targets
        .filter_map(|target| target.parent().map(Path::to_owned))
        .filter(|root| root.is_dir())
        .collect();
    roots.sort();
    roots.dedup();
    roots
}

/// Checks that the files of the state directory have no other hard links, because a cover hides
/// paths, not files.
fn check_links(hidden: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(hidden)?.flatten() {
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            if entry.file_name() != TRANSCRIPTS {
                for below in std::fs::read_dir(entry.path())?.flatten() {
                    // A file that disappears meanwhile has no other name.
                    if below.metadata().is_ok_and(|file| is_linked(&file)) {
                        return Err(linked(&below.path()));
                    }
                }
            }
        } else if is_linked(&metadata) {
            return Err(linked(&entry.path()));
        }
    }
    Ok(())
}

fn is_linked(metadata: &std::fs::Metadata) -> bool {
    !metadata.is_dir() && metadata.nlink() > 1
}

fn linked(path: &Path) -> io::Error {
    io::Error::other(format!(
        "{} has another name (a hard link), by which a run could reach it; remove that name",
        path.display()
    ))
}

/// Adds the failed step to an error.
fn step<T>(what: &str, take: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    take().map_err(|error| io::Error::other(format!("cannot make {what}: {error}")))
}

/// Makes a user namespace that maps only this user and its group, to themselves.
fn make_user_namespace() -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    separate(UnshareFlags::NEWUSER)?;
    // The files of a non-dumpable process belong to root.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Sends a message with at most three descriptors.
fn send(control: &OwnedFd, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let text = text.get(..MOST_TEXT).unwrap_or(text);
    let flags = SendFlags::NOSIGNAL;
    rustix::net::sendmsg(control, &[IoSlice::new(text)], &mut ancillary, flags)?;
    Ok(())
}

/// Returns the next message. Fails if the other side is gone or silent for too long.
fn receive(control: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let patience = Timespec {
        tv_sec: PATIENCE.as_secs().cast_signed(),
        tv_nsec: 0,
    };
    let mut polled = [PollFd::new(control, PollFlags::IN)];
    if rustix::event::poll(&mut polled, Some(&patience))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut text = vec![0; MOST_TEXT];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        control,
        &mut [IoSliceMut::new(&mut text)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    text.truncate(received.bytes);
    let mut descriptors = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            descriptors.extend(received);
        }
    }
    Ok((text, descriptors))
}
