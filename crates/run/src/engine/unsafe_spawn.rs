//! The system calls that have no safe form: what a child does between fork and exec, and waiting
//! with resource usage. All `unsafe` code of this crate is here; nothing here decides anything.

#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::process::{Pid, Resource, Rlimit};

use super::streams::Streams;
use super::{Exit, Usage};

/// Files of a run are readable by others and writable by their owner, whatever the umask of the
/// process that starts it.
const UMASK: u32 = 0o022;

/// Highest signal number of Linux.
const LAST_SIGNAL: c_int = 64;

/// Everything that one child needs, made ready before the fork.
pub(super) struct Launch {
    pub program: Program,
    pub argv: CStrings,
    pub envp: Arc<CStrings>,
    pub cwd: Arc<OwnedFd>,
    pub streams: Streams,
    pub place: Place,
    /// Soft limit of open files, where the engine's own process has raised its.
    pub open_files: Option<u64>,
}

/// What is executed.
pub(super) enum Program {
    /// The file that was opened and checked: no path is looked up again.
    Descriptor(Arc<OwnedFd>),
    /// Relative to the working directory.
    Path(CString),
}

/// Where among sessions, groups and terminals the child stands.
#[derive(Clone)]
pub(super) enum Place {
    /// Leader of a new session without a terminal.
    Session,
    /// Leader of a new session whose terminal this is.
    SessionWithTerminal(Arc<OwnedFd>),
    /// In the session of this process, whose terminal this is, in the foreground: in the group of
    /// `leader`, or as leader of a new one.
    Foreground {
        terminal: Arc<OwnedFd>,
        leader: Option<Pid>,
    },
}

/// Strings in the form that exec wants: pointers, and a null pointer at the end.
pub(super) struct CStrings {
    // The pointers lead into these; never changed after `new`.
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers lead into heap memory that is owned by the same value, is never written
// again, and does not move when the value does.
unsafe impl Send for CStrings {}
// SAFETY: as above; there is no way to change either field through a shared reference.
unsafe impl Sync for CStrings {}

impl CStrings {
    pub fn new(strings: Vec<CString>) -> Self {
        let pointers = strings
            .iter()
            .map(|string| string.as_ptr())
            .chain([ptr::null()])
            .collect();
        Self {
            _strings: strings,
            pointers,
        }
    }
}

/// Starts the child and returns once it runs its own program. An error means that nothing runs.
pub(super) fn spawn(launch: Launch) -> io::Result<Pid> {
    // `Command` forks, carries the error of the closure over, and reaps a child that failed. The
    // closure never lets it come to its own exec.
    let mut command = Command::new("");
    command
        .stdin(Stdio::inherit())
        .stdout(Stdio::inherit())
        .stderr(Stdio::inherit());
    // SAFETY: the closure runs in the child after fork, where only async-signal-safe work is
    // sound. It makes system calls on values that were made ready before; it allocates nothing,
    // takes no lock, and creates errors only from numbers.
    unsafe {
        command.pre_exec(move || become_program(&launch));
    }
    let child = command.spawn()?;
    // Dropping `Child` neither waits nor ends anything: the pid is now the registry's.
    Ok(Pid::from_child(&child))
}

/// In the child. Comes back only with an error.
fn become_program(launch: &Launch) -> io::Result<()> {
    match &launch.place {
        Place::Session => {
            rustix::process::setsid()?;
        }
        Place::SessionWithTerminal(terminal) => {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(terminal)?;
        }
        Place::Foreground { terminal, leader } => {
            rustix::process::setpgid(None, *leader)?;
            // SIGTTOU is still ignored here: a dedicated process ignores it.
            rustix::termios::tcsetpgrp(terminal, rustix::process::getpgrp())?;
        }
    }
    rustix::process::fchdir(&launch.cwd)?;
    rustix::process::umask(Mode::from_raw_mode(UMASK));
    if let Some(current) = launch.open_files {
        let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
        let current = Some(current.min(maximum.unwrap_or(current)));
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current, maximum })?;
    }
    // Sources are above 2, so that no step overwrites the source of a later one.
    rustix::stdio::dup2_stdin(&launch.streams.stdin)?;
    rustix::stdio::dup2_stdout(&launch.streams.stdout)?;
    rustix::stdio::dup2_stderr(&launch.streams.stderr)?;
    close_others_on_exec()?;
    reset_signals()?;

    let (descriptor, path, flags) = match &launch.program {
        Program::Descriptor(file) => (file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH),
        Program::Path(path) => (libc::AT_FDCWD, path.as_ptr(), 0),
    };
    // SAFETY: `path` is a C string, and both arrays hold pointers to C strings and end in null;
    // all of them outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            descriptor,
            path,
            launch.argv.pointers.as_ptr(),
            launch.envp.pointers.as_ptr(),
            flags,
        );
    }
    Err(io::Error::last_os_error())
}

/// Also closes what this process itself inherited without meaning to.
fn close_others_on_exec() -> io::Result<()> {
    const FIRST: u32 = 3;
    // SAFETY: marks descriptors close-on-exec; touches no memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if result == 0 {
        return Ok(());
    }
    // A kernel before 5.11: one by one.
    let limit = rustix::process::getrlimit(Resource::Nofile).current;
    let end = c_int::try_from(limit.unwrap_or(u64::MAX)).unwrap_or(1 << 20);
    for descriptor in 3..end {
        // SAFETY: as above; a number that is not open gives an error, which is right.
        unsafe {
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
    Ok(())
}

/// Nothing ignored, nothing blocked: a program relies on that, `head` in a pipeline above all.
fn reset_signals() -> io::Result<()> {
    // SAFETY: an all-zero `sigaction` is the default disposition with an empty mask; the kernel
    // copies it, and refuses the signals that cannot be set.
    unsafe {
        let default: libc::sigaction = MaybeUninit::zeroed().assume_init();
        for signal in 1..=LAST_SIGNAL {
            libc::sigaction(signal, &raw const default, ptr::null_mut());
        }
        let mut none = MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        if libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Collects an ended child of this process: how it ended and what it used, together with its own
/// children. Waits if it has not ended yet.
pub(super) fn reap(pid: Pid) -> io::Result<(Exit, Usage)> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are valid for writing.
        let result =
            unsafe { libc::wait4(pid.as_raw_pid(), &raw mut status, 0, usage.as_mut_ptr()) };
        if result > 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: zeroed above, and all fields are integers.
    let usage = unsafe { usage.assume_init() };
    let exit = if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    };
    Ok((
        exit,
        Usage {
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
        },
    ))
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let microseconds = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(microseconds)
}

/// For a process that stands in the background of a terminal which others may set up as they
/// like: neither reading, writing nor arranging it may stop this process.
pub(super) fn ignore_terminal_stops() {
    for signal in [libc::SIGTTOU, libc::SIGTTIN] {
        // SAFETY: sets a disposition that runs no code.
        unsafe {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}
