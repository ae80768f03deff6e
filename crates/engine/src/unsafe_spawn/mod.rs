//! The system calls that have no safe form: the steps of a child before it executes its program,
//! and waiting for a child with its resource usage. All `unsafe` code of process starts is here.
//! This module makes no decisions.

#![allow(unsafe_code)]

pub(super) mod attempt;
pub(super) mod namespace;

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use interlock_plan::PlanAccount;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Gid, Pid, Resource, Rlimit, Uid};

use super::streams::Streams;
use super::{Exit, Usage};
use crate::sandbox::{HostTree, RestrictedRun, RunSandbox};
use crate::shield::RunShield;
use namespace::Namespace;

/// Files of a run are readable by others and writable by their owner, regardless of the umask of
/// the process that starts it.
pub(crate) const UMASK: u32 = 0o022;

/// The highest signal number of Linux.
const LAST_SIGNAL: c_int = 64;

/// Selects the signal that is sent for a descriptor. The number is the same on all architectures.
const F_SETSIG: c_int = 10;

/// Everything that one child needs, prepared before the child exists.
pub(super) struct Launch {
    pub program: ChildProgram,
    pub argv: CStrings,
    pub envp: Rc<CStrings>,
    pub cwd: Arc<OwnedFd>,
    /// The run's own view of the file system.
    pub view: Option<Arc<Namespace>>,
    pub shield: Option<Arc<RunShield>>,
    pub sandbox: Option<Arc<RunSandbox>>,
    /// The restrictions that the program puts on itself if no namespaces confine it.
    pub restricted: Option<Arc<RestrictedRun>>,
    /// The restrictions that the program puts on itself if the programs of a run on the host are
    /// limited.
    pub tree: Option<Arc<HostTree>>,
    /// The user of the program, if that is not the user of this process.
    pub account: Option<Arc<LaunchAccount>>,
    /// The path of the working directory, for a child with another view of the file system.
    pub directory: CString,
    pub streams: Streams,
    pub place: ChildPlace,
    /// Soft limit of open files, if the engine's own process has raised its limit.
    pub open_files: Option<u64>,
    /// If memory runs out, the kernel should end this child before the engine's own process.
    pub first_without_memory: bool,
}

/// A user, in the form that the system calls take.
#[derive(Debug)]
pub(super) struct LaunchAccount {
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
}

impl LaunchAccount {
    pub fn new(account: &PlanAccount) -> Self {
        Self {
            user: Uid::from_raw(account.uid),
            group: Gid::from_raw(account.gid),
            groups: account.groups.iter().copied().map(Gid::from_raw).collect(),
        }
    }

    /// Called in a child. The thread that started the child may have the file access rights of the
    /// account, but entering namespaces needs those of root. This allocates nothing.
    fn regain_root() -> io::Result<()> {
        rustix::thread::set_thread_res_uid(None::<Uid>, Some(Uid::ROOT), None::<Uid>)?;
        Ok(())
    }

    /// Called in the child that becomes the program: from here on, the child is this user for good.
    /// This allocates nothing.
    fn become_user(&self) -> io::Result<()> {
        Self::regain_root()?;
        rustix::thread::set_thread_groups(&self.groups)?;
        let group = Some(self.group);
        rustix::thread::set_thread_res_gid(group, group, group)?;
        let user = Some(self.user);
        rustix::thread::set_thread_res_uid(user, user, user)?;
        Ok(())
    }
}

/// The program that the child executes.
pub(super) enum ChildProgram {
    /// The file that was opened and checked. No path is looked up again.
    Descriptor(Arc<OwnedFd>),
    /// The file that the run's sandbox shows at this path, if it is the one that was opened and
    /// checked.
    Inside { path: CString, file: Arc<OwnedFd> },
    /// A path relative to the working directory.
    Path(CString),
}

/// The child's session, group and terminal.
#[derive(Clone)]
pub(super) enum ChildPlace {
    /// The child leads a new session without a terminal.
    Session,
    /// The child leads a new session with this terminal.
    SessionWithTerminal(Arc<OwnedFd>),
    /// The child joins the session of this process, which has this terminal, in the foreground: in
    /// the group of `leader`, or as leader of a new group.
    Foreground {
        terminal: Arc<OwnedFd>,
        leader: Option<Pid>,
    },
}

/// Strings in the form that `exec` takes: pointers that end with a null pointer.
pub(super) struct CStrings {
    // The pointers lead into these strings, which never change after `new`.
    _strings: Vec<CString>,
    pub(crate) pointers: Vec<*const c_char>,
}

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

/// Stack size of a child. The child borrows the memory of its parent until it executes its program,
/// so it needs a stack of its own. It needs little, because it only makes system calls with
/// prepared values.
const STACK: usize = 64 * 1024;

/// The values that parent and child share while the parent is suspended.
struct Borrowed<'a> {
    launch: &'a Launch,
    /// The error that kept the child from executing its program, or 0.
    error: AtomicI32,
    /// The stack of the child that the entrant starts, and the number of that child, or 0.
    inner_stack: *mut c_void,
    inner: AtomicI32,
    /// Set if the error occurred while a child entered the shield or the sandbox.
    is_shields: AtomicBool,
    /// Set if the error occurred while the programs that the child starts were being limited.
    is_trees: AtomicBool,
}

/// Why the child did not run its program.
#[derive(Debug)]
pub(super) enum SpawnError {
    /// The shield could not be entered.
    Shield(io::Error),
    /// The sandbox could not be entered.
    Sandbox(io::Error),
    /// The programs that the run starts could not be limited or logged.
    Tree(io::Error),
    Execute(io::Error),
}

impl From<io::Error> for SpawnError {
    fn from(error: io::Error) -> Self {
        Self::Execute(error)
    }
}

/// Starts the child and returns once it runs its own program. An error means that nothing runs.
///
/// This works like `posix_spawn`, so that its cost does not grow with the memory of this process.
/// `posix_spawn` itself supports neither sessions with a terminal nor execution by descriptor.
pub(super) fn spawn(launch: &Launch) -> Result<Pid, SpawnError> {
    let mut stack: Vec<MaybeUninit<u128>> = Vec::new();
    if launch.is_confined() {
        stack.reserve_exact(STACK / size_of::<u128>());
    }
    let borrowed = Borrowed {
        launch,
        error: AtomicI32::new(0),
        // SAFETY: this is the end of the allocation, from which the stack grows down.
        inner_stack: unsafe { stack.as_mut_ptr().add(stack.capacity()) }.cast(),
        inner: AtomicI32::new(0),
        is_shields: AtomicBool::new(false),
        is_trees: AtomicBool::new(false),
    };
    let first = if launch.is_confined() { entrant } else { child };
    let before = SignalMask::block_all()?;
    // SAFETY: both functions take a pointer to `borrowed`, which lives until the children have
    // ended.
    let pid = unsafe { start_child(first, (&raw const borrowed).cast_mut().cast(), 0) };
    before.restore();
    let mut pid = pid?;
    if launch.is_confined() {
        // The entrant has ended; the program is its sibling.
        let _ = reap(pid);
        pid = match Pid::from_raw(borrowed.inner.load(Ordering::Relaxed)) {
            Some(inner) => inner,
            None => return Err(borrowed.failure()),
        };
    }
    if borrowed.error.load(Ordering::Relaxed) == 0 {
        if launch.first_without_memory {
            prefer_when_memory_runs_out(pid);
        }
        return Ok(pid);
    }
    // The child has ended, and no other part of this process knows of it.
    let _ = reap(pid);
    Err(borrowed.failure())
}

impl Borrowed<'_> {
    /// Records the error. Called in the child.
    fn note(&self, error: &io::Error) {
        let number = error.raw_os_error().unwrap_or(libc::EINVAL);
        self.error.store(number, Ordering::Relaxed);
    }

    /// Records whether the error came from a step of the shield. Called in the child.
    fn shielding(&self, step: io::Result<()>) -> io::Result<()> {
        self.is_shields.store(step.is_err(), Ordering::Relaxed);
        step
    }

    /// Returns the recorded error. Called in the parent.
    fn failure(&self) -> SpawnError {
        let error = match self.error.load(Ordering::Relaxed) {
            0 => io::ErrorKind::Interrupted.into(),
            number => io::Error::from_raw_os_error(number),
        };
        let launch = self.launch;
        let is_sandbox = launch.sandbox.is_some() || launch.restricted.is_some();
        if self.is_trees.load(Ordering::Relaxed) {
            SpawnError::Tree(error)
        } else if self.is_shields.load(Ordering::Relaxed) && is_sandbox {
            SpawnError::Sandbox(error)
        } else if self.is_shields.load(Ordering::Relaxed) {
            SpawnError::Shield(error)
        } else {
            SpawnError::Execute(error)
        }
    }
}

impl Launch {
    /// Whether the program is started in namespaces.
    fn is_confined(&self) -> bool {
        self.shield.is_some() || self.sandbox.is_some()
    }
}

/// The first child of a shielded or sandboxed run. It enters the namespaces, and starts the program
/// as a child of its own parent. Two processes are needed because a process stays in the PID
/// namespace that it was born in.
extern "C" fn entrant(argument: *mut c_void) -> c_int {
    // SAFETY: `spawn` passed a pointer to this value, which lives until this function has ended.
    let borrowed = unsafe { &*argument.cast_const().cast::<Borrowed<'_>>() };
    match borrowed.shielding(enter_namespaces(borrowed.launch)) {
        Ok(()) => {
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT | libc::SIGCHLD;
            // SAFETY: the requirements of `start_child` hold: the stack is the child's own, this
            // process is suspended until the program runs or the child has ended, and all signals
            // are blocked.
            let inner = unsafe { libc::clone(child, borrowed.inner_stack, flags, argument) };
            if inner > 0 {
                borrowed.inner.store(inner, Ordering::Relaxed);
            } else {
                borrowed.note(&io::Error::last_os_error());
            }
        }
        Err(error) => borrowed.note(&error),
    }
    // SAFETY: the call ends the child at once, without running any code of the parent.
    unsafe { libc::_exit(0) }
}

/// Enters the namespaces of the run. Called in the entrant.
fn enter_namespaces(launch: &Launch) -> io::Result<()> {
    if launch.account.is_some() {
        LaunchAccount::regain_root()?;
    }
    // The group is joined here, because the leader has another number inside.
    if let ChildPlace::Foreground {
        leader: leader @ Some(_),
        ..
    } = &launch.place
    {
        rustix::process::setpgid(None, *leader)?;
    }
    match (&launch.sandbox, &launch.shield) {
        (Some(sandbox), _) => sandbox.enter()?,
        (None, Some(shield)) => shield.enter(launch.view.as_ref().map(|view| view.mounts()))?,
        (None, None) => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
    match &launch.sandbox {
        Some(sandbox) if sandbox.has_layer() => {
            namespace::enter_layered_directory(&launch.directory, &launch.cwd)
        }
        _ => namespace::enter_directory(&launch.directory, &launch.cwd),
    }
}

/// Starts a child that borrows the memory of this process, and returns once it has executed a
/// program or ended. All signals must be blocked.
///
/// # Safety
/// `function` allocates nothing, takes no lock that others hold, cannot panic and never returns;
/// `argument` is what it expects and outlives this call. `flags` contains no flag that shares
/// signal handlers, the working directory or the thread.
unsafe fn start_child(
    function: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
    flags: c_int,
) -> io::Result<Pid> {
    let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(STACK / size_of::<u128>());
    // SAFETY: CLONE_VFORK suspends this thread until the child has executed its program or ended,
    // so everything that the child borrows outlives its use. The stack is writable, aligned, grows
    // down from its end, and nothing else uses it. All signals are blocked, so that no handler of
    // this process runs in the child; the child has its own copy of dispositions, working directory
    // and umask, since neither CLONE_SIGHAND nor CLONE_FS is set.
    let pid = unsafe {
        libc::clone(
            function,
            stack.as_mut_ptr().add(stack.capacity()).cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | flags,
            argument,
        )
    };
    Pid::from_raw(pid.max(0)).ok_or_else(io::Error::last_os_error)
}

/// The first and only function of the child. It allocates nothing, takes no lock and cannot panic,
/// because the memory belongs to the parent, whose other threads continue to run.
extern "C" fn child(argument: *mut c_void) -> c_int {
    // SAFETY: `spawn` passed a pointer to this value, which lives until this function has ended.
    let borrowed = unsafe { &*argument.cast_const().cast::<Borrowed<'_>>() };
    if let Err(error) = become_program(borrowed) {
        borrowed.note(&error);
    }
    // SAFETY: the call ends the child at once, without running any code of the parent.
    unsafe { libc::_exit(127) }
}

/// The signals that were blocked in this thread before.
struct SignalMask(libc::sigset_t);

impl SignalMask {
    fn block_all() -> io::Result<Self> {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are valid for writing, and the first is filled before it is read.
        let failed = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr())
        };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: the successful call has filled this set.
        Ok(Self(unsafe { before.assume_init() }))
    }

    fn restore(self) {
        // SAFETY: the set came from the system.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut());
        }
    }
}

/// Turns the child into its program. Returns only with an error.
fn become_program(borrowed: &Borrowed<'_>) -> io::Result<()> {
    let launch = borrowed.launch;
    match &launch.place {
        ChildPlace::Session => {
            rustix::process::setsid()?;
        }
        ChildPlace::SessionWithTerminal(terminal) => {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(terminal)?;
        }
        ChildPlace::Foreground { terminal, leader } => {
            // The entrant has already joined the group of a leader.
            if !launch.is_confined() || leader.is_none() {
                rustix::process::setpgid(None, *leader)?;
            }
            // SIGTTOU is still ignored here, because a dedicated process ignores it.
            rustix::termios::tcsetpgrp(terminal, rustix::process::getpgrp())?;
        }
    }
    match (launch.is_confined(), &launch.view) {
        // The entrant has already entered the directory.
        (true, _) => {}
        (false, Some(view)) => view.enter(&launch.directory, &launch.cwd)?,
        (false, None) => rustix::process::fchdir(&launch.cwd)?,
    }
    rustix::process::umask(Mode::from_raw_mode(UMASK));
    if let Some(current) = launch.open_files {
        let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
        let current = Some(current.min(maximum.unwrap_or(current)));
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current, maximum })?;
    }
    crate::mark::mark_this_process()?;
    // All sources are above 2, so that no step overwrites the source of a later step.
    rustix::stdio::dup2_stdin(&launch.streams.stdin)?;
    rustix::stdio::dup2_stdout(&launch.streams.stdout)?;
    rustix::stdio::dup2_stderr(&launch.streams.stderr)?;
    close_others_on_exec();
    reset_signals()?;
    if let Some(shield) = &launch.shield {
        borrowed.shielding(shield.become_run())?;
    }
    if let Some(account) = &launch.account {
        account.become_user()?;
    }
    let shown;
    let program = match &launch.program {
        ChildProgram::Inside { path, file } => {
            shown = open_shown(path, file)?;
            Some(&shown)
        }
        ChildProgram::Descriptor(file) => Some(&**file),
        ChildProgram::Path(_) => None,
    };
    if let Some(sandbox) = &launch.sandbox {
        let path = match &launch.program {
            ChildProgram::Inside { path, .. } | ChildProgram::Path(path) => path.as_c_str(),
            ChildProgram::Descriptor(_) => c"",
        };
        borrowed.shielding(sandbox.become_run(path, &launch.argv))?;
    }
    if let Some(restricted) = &launch.restricted {
        borrowed.shielding(restricted.become_run(c"", &launch.argv))?;
    }
    if let Some(tree) = &launch.tree {
        let path = match &launch.program {
            ChildProgram::Inside { path, .. } | ChildProgram::Path(path) => path.as_c_str(),
            ChildProgram::Descriptor(_) => c"",
        };
        let held = tree.become_run(path, &launch.argv);
        borrowed.is_trees.store(held.is_err(), Ordering::Relaxed);
        held?;
    }

    let (descriptor, path, flags) = match (&launch.program, program) {
        (_, Some(file)) => (file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH),
        (ChildProgram::Path(path), None) => (libc::AT_FDCWD, path.as_ptr(), 0),
        (_, None) => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
    };
    // SAFETY: `path` is a C string, and both arrays hold pointers to C strings and end in null. All
    // of them outlive the call.
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

/// Opens the file that the child's view shows at a path, which must be the file that was checked.
/// Called in the child.
fn open_shown(path: &CString, checked: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let shown = rustix::fs::open(path.as_c_str(), flags, Mode::empty())?;
    let (now, before) = (rustix::fs::fstat(&shown)?, rustix::fs::fstat(checked)?);
    if (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino) {
        Ok(shown)
    } else {
        Err(io::Error::from_raw_os_error(libc::ESTALE))
    }
}

/// Lets the kernel prefer this child when memory runs out. Raising the score needs no privilege. If
/// it fails, the choice stays with the kernel.
///
/// The parent does this once the child executes its program: until then the child is as
/// non-dumpable as its parent, and the file belongs to root.
fn prefer_when_memory_runs_out(child: Pid) {
    let path = format!("/proc/{}/oom_score_adj", child.as_raw_pid());
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) {
        let _ = rustix::io::write(&file, b"500");
    }
}

/// Ensures that every program which this process starts from now on gets its three standard
/// descriptors and no other. This also covers descriptors that this process itself inherited by
/// accident.
pub fn close_others_on_exec() {
    const FIRST: u32 = 3;
    // SAFETY: the call marks descriptors close-on-exec, and touches no memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if result == 0 {
        return;
    }
    // Kernels before 5.11 need one call per descriptor.
    let limit = rustix::process::getrlimit(Resource::Nofile).current;
    let end = c_int::try_from(limit.unwrap_or(u64::MAX)).unwrap_or(1 << 20);
    for descriptor in 3..end {
        // SAFETY: as above. A number that is not open gives an error, which is harmless.
        unsafe {
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// Resets all signals: nothing is ignored and nothing is blocked. Programs rely on that, above all
/// `head` in a pipeline. This calls the kernel directly, because C libraries hide the signals that
/// they use.
fn reset_signals() -> io::Result<()> {
    /// The default disposition and the empty mask are all zeros, and no longer than this.
    static ZEROS: [u64; 8] = [0; 8];
    const MASK_BYTES: usize = 8;
    for signal in 1..=LAST_SIGNAL {
        // SAFETY: the kernel reads a disposition from the zeros, and refuses the two signals whose
        // disposition cannot be set.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                ZEROS.as_ptr(),
                ptr::null_mut::<c_void>(),
                MASK_BYTES,
            );
        }
    }
    // SAFETY: the kernel reads a mask from the zeros.
    let result = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            ZEROS.as_ptr(),
            ptr::null_mut::<c_void>(),
            MASK_BYTES,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Collects an ended child of this process, and returns how it ended and what it and its own
/// children used. Waits if it has not ended yet.
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
    // SAFETY: the value was zeroed above, and all of its fields are integers.
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

/// Takes a read lease: until it is returned, a process that opens the file for writing waits, for
/// as long as the system lets leases last (45 seconds, unless the owner of the machine says
/// otherwise). Fails with EAGAIN if any process has the file open for writing.
pub(super) fn take_lease(file: &OwnedFd) -> io::Result<()> {
    // The default signal for a waiting writer would end this process. SIGURG is ignored by default.
    set(file, F_SETSIG, libc::SIGURG)?;
    set(file, libc::F_SETLEASE, libc::F_RDLCK)
}

/// Returns a lease. Without a lease, this does nothing.
pub(super) fn return_lease(file: &OwnedFd) {
    let _ = set(file, libc::F_SETLEASE, libc::F_UNLCK);
}

/// Whether the lease still holds, which means that no process has asked to write to the file.
pub(super) fn has_lease(file: &OwnedFd) -> bool {
    // SAFETY: the call takes no further argument and touches no memory of this process.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) == libc::F_RDLCK }
}

fn set(file: &OwnedFd, what: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: both commands take a number and touch no memory of this process.
    match unsafe { libc::fcntl(file.as_raw_fd(), what, value) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ignores terminal signals, for a process that leads the session of a run's terminal and is in its
/// background: neither writing to the terminal, however others configured it, nor setting it up or
/// closing it may stop or end this process.
pub(super) fn ignore_terminal_signals() {
    for signal in [libc::SIGTTOU, libc::SIGTTIN, libc::SIGHUP] {
        // SAFETY: the call sets a disposition that runs no code.
        unsafe {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}
