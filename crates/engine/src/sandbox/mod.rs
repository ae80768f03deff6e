//! The sandbox of a run: namespaces of its own, in which only what the plan lists exists, without a
//! network, without capabilities, and with a system call filter.
//!
//! `ahead` makes a sandbox before its run exists. Read [`keeper`] (what runs of a scope share),
//! `bwrap` (an alternative maker of the scope's namespaces), `image` (what a container shows),
//! `far_side` (a run on another machine), `restricted` (a run without namespaces), `host_tree`
//! (which programs a run on the host starts), [`init`] (who makes the rest and in which order),
//! `mounts` (what a run sees), `interlock_syscalls` (what a run may ask of the kernel), `network`
//! and `netd_link` (what a run reaches, and who serves that). This module starts, enters and ends
//! the sandbox.

mod ahead;
mod attributes;
mod bwrap;
mod caches;
mod executables;
mod far_side;
mod host_tree;
mod image;
mod init;
mod keeper;
mod link;
mod mounts;
mod netd_files;
mod netd_link;
mod network;
mod network_question;
mod overlay;
mod program_log;
mod restricted;
mod sockets;
mod space;
#[cfg(debug_assertions)]
mod test_hook;
mod trial;
mod unsafe_confine;
mod unsafe_notify;

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interlock_plan::{RunPlan, SandboxPlan, SandboxUser, StartedPrograms};
use rustix::fs::{FlockOperation, MemfdFlags, Mode, OFlags};
use rustix::net::RecvFlags;
use rustix::process::{
    Gid, Pid, PidfdFlags, Resource, Rlimit, Signal, Uid, WaitId, WaitIdOptions, WaitOptions,
};

use crate::error::StartError;
use crate::streams::{Null, Streams, above_standard};
use crate::unsafe_spawn::{self, CStrings, ChildPlace, ChildProgram, Launch, LaunchAccount};
use interlock_syscalls::{FilterInstruction, MemoryFiles};
use overlay::RunLayer;
use program_log::ProgramLog;
use unsafe_confine::{SeparatedPart, enter, give_up_capabilities, install_filter, restrict_self};
use unsafe_notify::install_listener;

pub use ahead::SpareSandbox;
pub(crate) use far_side::FarSide;
pub use far_side::{OpenConnection, OpenedConnection, SshOrder};
pub(crate) use host_tree::HostTree;
pub use host_tree::probe_execution_rules;
pub use image::{ContainerOrder, ReadyContainer};
pub use init::become_sandbox_init;
pub use keeper::{
    KEEPER_COMMAND, KeeperOrder, SETUP_PATIENCE, ScopeDrivers, ScopeNamespaces, StartedKeeper,
    become_scope_keeper, keep_scope,
};
pub use netd_link::{
    NETD_COMMAND, NetdMessage, NetdOrder, ServedNetwork, ServedScope, StartedNetd, begin_netd,
};
pub use network::{CONNECT_PORT, MOST_PORTS, SOCKS_PORT, ScopeSockets};
pub use network_question::{MOST_QUESTION_BYTES, NetworkAnswer, NetworkQuestion};
pub use restricted::RestrictedRun;
pub use space::{RunSpace, SpaceLook};
pub use trial::{try_backend, try_sandbox};

/// The argument that turns the binary into the init of a sandbox.
pub const INIT_COMMAND: &str = "sandbox-init";

/// How long a sandbox may take to be made.
const PATIENCE: Duration = Duration::from_secs(20);

/// Prevents both a core file and a core handler. The kernel starts a handler as root of the host
/// even under a limit of 0, but not under a limit of 1. The filter keeps the run from lowering the
/// limit.
const NO_CORE_HANDLER: Rlimit = Rlimit {
    current: Some(1),
    maximum: Some(1),
};

/// The namespaces of one run, with their process 1.
#[derive(Debug)]
pub struct RunSandbox {
    namespaces: SandboxNamespaces,
    user: SandboxUser,
    /// Whether this process is root and has to become another user, the user of the run.
    becomes_user: bool,
    is_root: bool,
    init: Pid,
    /// Refers to exactly this process, even if its number is reused.
    init_process: OwnedFd,
    /// The link to the init, which ends when the link is closed.
    link: OwnedFd,
    /// The engine's side of the run's terminal, until it is taken.
    terminal: Mutex<Option<OwnedFd>>,
    filter: Vec<FilterInstruction>,
    /// Most processes at one time. They are counted in this namespace alone, so that the limit also
    /// holds if the system has no control group for it.
    most_processes: Option<u64>,
    /// Restricts what the programs of the run may execute, if that is limited.
    execution_rules: Option<OwnedFd>,
    /// The log of the programs that the run starts, and the filter that queries it.
    program_log: Option<(ProgramLog, Vec<FilterInstruction>)>,
    /// The layer that receives the run's changes, if the run does not change its workspace
    /// directly.
    layer: Option<RunLayer>,
    /// The file systems that the run writes to.
    space: Arc<RunSpace>,
    /// Keeps the directory of the scope from being removed, once the sandbox has a run.
    scope: Option<OwnedFd>,
}

#[derive(Debug)]
struct SandboxNamespaces {
    user: OwnedFd,
    mounts: OwnedFd,
    processes: OwnedFd,
    network: OwnedFd,
    communication: OwnedFd,
    host_name: OwnedFd,
}

impl RunSandbox {
    /// Makes the sandbox of a plan within the namespaces that the keeper of its scope holds, or
    /// takes the sandbox that was made ahead. This runs nothing of the plan. All children of the
    /// calling process must belong to the run.
    pub(crate) fn make(
        plan: &RunPlan,
        sandbox: &SandboxPlan,
        (scope, spare): (&ScopeNamespaces, Option<SpareSandbox>),
        run_id: Option<&str>,
    ) -> Result<Arc<Self>, StartError> {
        if plan.account.is_some() {
            return Err(StartError::Sandbox(
                "tools.exec.runAs and a sandbox exclude each other in this version".to_owned(),
            ));
        }
        let spare = spare.filter(|_| plan.pty.is_none());
        if let Some(made) = spare.and_then(|spare| spare.take(sandbox, scope)) {
            return Ok(Arc::new(made));
        }
        let layer = RunLayer::make(plan, run_id).map_err(|error| {
            StartError::Sandbox(format!("making the layer of the run: {error}"))
        })?;
        let directory = layer.as_ref().map(|layer| layer.directory().to_owned());
        let made = Self::start(sandbox, layer, plan.pty.is_some(), scope);
        if let (Err(_), Some(directory)) = (&made, directory) {
            // Nothing ran in the directory.
            let _ = std::fs::remove_dir_all(directory);
        }
        made.map(Arc::new).map_err(StartError::Sandbox)
    }

    fn start(
        sandbox: &SandboxPlan,
        layer: Option<RunLayer>,
        has_terminal: bool,
        shared: &ScopeNamespaces,
    ) -> Result<Self, String> {
        let files = match &sandbox.executables {
            Some(_) => MemoryFiles::NeverExecuted,
            None => MemoryFiles::Executable,
        };
        let filter = interlock_syscalls::program(sandbox.unix_sockets, files)
            .ok_or("there is no table of system calls for this architecture")?;
        let words = |error: io::Error| error.to_string();
        let program_log = match &sandbox.program_log {
            Some(rules) => {
                let log = ProgramLog::start(rules)
                    .map_err(|error| format!("starting the log of programs: {error}"))?;
                let filter = interlock_syscalls::program_about_execution();
                Some((log, filter.ok_or("there is no table of system calls")?))
            }
            None => None,
        };
        let scope = hold_scope(&sandbox.scope_directory)
            .map_err(|error| format!("{}: {error}", sandbox.scope_directory))?;
        let (link, of_maker) = link::pair().map_err(words)?;
        shared.send(&link).map_err(words)?;
        #[cfg(debug_assertions)]
        let shown = test_hook::without_mask(sandbox.clone());
        #[cfg(not(debug_assertions))]
        let shown = sandbox.clone();
        let order = init::InitOrder {
            sandbox: shown,
            layer: layer.as_ref().map(|layer| layer.directory().to_owned()),
            has_terminal,
        };
        let maker = start_maker(&order, of_maker)
            .map_err(|error| format!("starting its first process: {error}"))?;
        let received = receive(&link);
        // The maker's only work is done. Its child becomes a child of this process, which is a
        // subreaper.
        let _ = rustix::process::waitpid(Some(maker), WaitOptions::empty());
        let (init, descriptors) = received?;
        let init_process = rustix::process::pidfd_open(init, PidfdFlags::empty())
            .map_err(|error| format!("its process 1 is gone: {error}"))?;
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or("a namespace is missing");
        let namespaces = SandboxNamespaces {
            user: next()?,
            mounts: next()?,
            processes: next()?,
            network: next()?,
            communication: next()?,
            host_name: next()?,
        };
        let terminal = if has_terminal {
            Some(above_standard(next()?).map_err(words)?)
        } else {
            None
        };
        let execution_rules = match &sandbox.executables {
            Some(_) => Some(next()?),
            None => None,
        };
        let memory: io::Result<Vec<OwnedFd>> = descriptors.map(above_standard).collect();
        let space = RunSpace::new(sandbox, memory.map_err(words)?);
        if let Some(layer) = &layer {
            layer.wait_for_later_file_times();
        }
        let own = rustix::process::geteuid();
        Ok(Self {
            namespaces,
            user: sandbox.user,
            becomes_user: own.as_raw() != sandbox.user.host_uid,
            is_root: own.is_root(),
            init,
            init_process,
            link,
            terminal: Mutex::new(terminal),
            filter,
            // Process 1 and the scope's keeper count too. If a control group also counts, it
            // refuses first, and records that it did.
            most_processes: sandbox.limits.pids.map(|pids| pids.saturating_add(2)),
            execution_rules,
            program_log,
            layer,
            space: Arc::new(space),
            scope: Some(scope),
        })
    }

    pub(crate) fn space(&self) -> Arc<RunSpace> {
        Arc::clone(&self.space)
    }

    /// Returns process 1, by its number outside.
    pub(crate) fn init(&self) -> Pid {
        self.init
    }

    /// Whether the run once had as many processes as it may have at one time, so that it may lack
    /// some.
    pub(crate) fn may_lack_processes(&self) -> bool {
        let mut word = [0; init::FULL.len()];
        let flags = RecvFlags::DONTWAIT;
        let received = rustix::net::recv(&self.link, &mut word, flags);
        received.is_ok() && word == init::FULL
    }

    /// Returns the programs that the run has started so far, if they are logged.
    pub(crate) fn programs(&self) -> Option<StartedPrograms> {
        let (log, _) = self.program_log.as_ref()?;
        Some(log.programs())
    }

    /// Whether the run changes a layer over its workspace instead of the workspace itself.
    pub(crate) fn has_layer(&self) -> bool {
        self.layer.is_some()
    }

    /// Takes the engine's side of the terminal that was made in the sandbox. This works once.
    pub(crate) fn take_terminal(&self) -> Option<OwnedFd> {
        self.terminal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Enters the sandbox, in a child without threads. From here on, the child sees what the run
    /// sees, whatever it starts is in the sandbox, and it is the user of the run. This allocates
    /// nothing.
    pub(crate) fn enter(&self) -> io::Result<()> {
        if self.is_root {
            rustix::thread::set_thread_groups(&[])?;
        }
        let all = &self.namespaces;
        enter(all.user.as_fd(), SeparatedPart::User)?;
        enter(all.communication.as_fd(), SeparatedPart::Communication)?;
        enter(all.host_name.as_fd(), SeparatedPart::HostName)?;
        enter(all.network.as_fd(), SeparatedPart::Network)?;
        enter(all.processes.as_fd(), SeparatedPart::Processes)?;
        enter(all.mounts.as_fd(), SeparatedPart::Mounts)?;
        if self.becomes_user {
            let gid = Some(Gid::from_raw(self.user.gid));
            rustix::thread::set_thread_res_gid(gid, gid, gid)?;
            let uid = Some(Uid::from_raw(self.user.uid));
            rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        }
        Ok(())
    }

    /// Gives up everything that was needed to enter. The child calls this as its last step before
    /// it becomes the program. This allocates nothing.
    pub(crate) fn become_run(&self, path: &CStr, argv: &CStrings) -> io::Result<()> {
        rustix::process::setrlimit(Resource::Core, NO_CORE_HANDLER)?;
        if self.most_processes.is_some() {
            let limit = Rlimit {
                current: self.most_processes,
                maximum: self.most_processes,
            };
            rustix::process::setrlimit(Resource::Nproc, limit)?;
        }
        give_up_capabilities()?;
        if let Some(rules) = &self.execution_rules {
            restrict_self(rules.as_fd())?;
        }
        if let Some((log, filter)) = &self.program_log {
            install_listener(filter, log.to_thread(), path, argv)?;
        }
        install_filter(&self.filter)
    }

    /// Ends everything inside at once, and returns when it is gone: the kernel lets process 1 end
    /// only after all others.
    pub(crate) fn end(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.init_process, Signal::KILL);
        loop {
            let id = WaitId::PidFd(self.init_process.as_fd());
            match rustix::process::waitid(id, WaitIdOptions::EXITED) {
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
        if let Some(layer) = &self.layer {
            layer.mark_ended();
        }
    }
}

impl Drop for RunSandbox {
    /// Ends a sandbox that no run was started in. If it has already ended, this does nothing.
    fn drop(&mut self) {
        self.end();
    }
}

fn hold_scope(directory: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = above_standard(rustix::fs::open(directory, flags, Mode::empty())?)?;
    rustix::fs::flock(&held, FlockOperation::NonBlockingLockShared)?;
    Ok(held)
}

/// Receives the number of process 1 from the maker, and the namespaces from process 1.
fn receive(link: &OwnedFd) -> Result<(Pid, Vec<OwnedFd>), String> {
    let (mut init, mut made) = (None, None);
    loop {
        let (text, descriptors) = link::receive(link, PATIENCE)
            .map_err(|error| format!("its first process said nothing: {error}"))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        if let Some(number) = text.strip_prefix(init::NUMBER) {
            init = number.parse().ok().and_then(Pid::from_raw);
        } else if text.as_bytes() == init::MADE {
            made = Some(descriptors);
        } else {
            if let Some(init) = init {
                let _ = rustix::process::waitpid(Some(init), WaitOptions::empty());
            }
            return Err(text);
        }
        match (init, made) {
            (Some(init), Some(made)) => return Ok((init, made)),
            (_, rest) => made = rest,
        }
    }
}

/// Executes this binary anew, as [`become_sandbox_init`].
fn start_maker(order: &init::InitOrder, link: OwnedFd) -> io::Result<Pid> {
    start_self(INIT_COMMAND, order_file(order)?, link)
}

/// Executes this binary anew, with this hidden command, the link as standard input, the order as
/// standard output, and no environment.
fn start_self(command: &str, order: OwnedFd, link: OwnedFd) -> io::Result<Pid> {
    let path = OFlags::PATH | OFlags::CLOEXEC;
    let program = rustix::fs::open("/proc/self/exe", path, Mode::empty())?;
    let streams = Streams {
        stdin: Arc::new(above_standard(link)?),
        stdout: Arc::new(above_standard(order)?),
        stderr: Null::open()?.write,
    };
    let argv = CStrings::new(vec![c"interlock".to_owned(), CString::new(command)?]);
    start_program(above_standard(program)?, argv, streams, None)
}

/// Executes a program that sets up a sandbox, without an environment. This runs nothing of a plan.
fn start_program(
    program: OwnedFd,
    argv: CStrings,
    streams: Streams,
    account: Option<Arc<LaunchAccount>>,
) -> io::Result<Pid> {
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/", path, Mode::empty())?;
    let launch = Launch {
        program: ChildProgram::Descriptor(Arc::new(program)),
        argv,
        envp: Rc::new(CStrings::new(Vec::new())),
        cwd: Arc::new(above_standard(root)?),
        view: None,
        shield: None,
        sandbox: None,
        restricted: None,
        tree: None,
        account,
        directory: c"/".to_owned(),
        streams,
        place: ChildPlace::Session,
        open_files: None,
        first_without_memory: false,
    };
    unsafe_spawn::spawn(&launch).map_err(|error| match error {
        unsafe_spawn::SpawnError::Shield(error)
        | unsafe_spawn::SpawnError::Sandbox(error)
        | unsafe_spawn::SpawnError::Tree(error)
        | unsafe_spawn::SpawnError::Execute(error) => error,
    })
}

/// Writes the order to a file in memory, which is read from its start.
fn order_file(order: &impl serde::Serialize) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("interlock-sandbox", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(&serde_json::to_vec(order)?)?;
    file.rewind()?;
    Ok(file.into())
}

/// The reasons for refusing system calls inside, one per group of calls.
pub fn filter_reasons() -> Vec<&'static str> {
    interlock_syscalls::refusal_reasons()
}
