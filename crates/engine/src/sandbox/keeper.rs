//! The keeper of a scope: a process that only holds what the runs of a scope share. These are the
//! user, network, IPC and UTS namespaces, the in-memory file systems at `/tmp` and similar paths,
//! and the layers over caches of the owner.
//!
//! ```text
//! supervisor ─┬─► keeper      namespaces and file systems of the scope, then waiting
//!             ├─► shim ──► run of the scope: own processes, own view, the keeper's network and /tmp
//!             └─► shim ──► another run of the scope
//! ```
//!
//! The keeper is a copy of the supervisor, which has one thread and reads no plan, or, if it holds
//! a container, a connection or the namespaces of `bwrap`, this binary executed anew. It sees an
//! empty root, has no capability, is filtered like a run, and cannot be traced. It ends when the
//! process that started it closes the link.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use interlock_plan::{SandboxBackend, SandboxMount, SandboxPlan, SandboxUser, UnixSockets};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Pid, Resource, WaitOptions};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use super::bwrap::enter_bubblewrap_namespaces;
use super::caches::{CacheLayers, KeptCache, open_caches};
use super::far_side::{OpenConnection, SshOrder, keep_connection};
use super::image::{
    ContainerNamespaces, ContainerOrder, HeldContainer, ImageEntry, ReadyContainer,
};
use super::init::{
    self, InitFailure, Step as _, enter_own_user_namespace, enter_user_namespace, id_map,
    separate_mounts,
};
use super::netd_link::ServedScope;
use super::network::ScopeSockets;
use super::unsafe_confine::{
    self, SeparatedPart, enter, exit, give_up_capabilities, install_filter, set_host_name,
    switch_loopback_on,
};
use super::{link, mounts};
use crate::mark::mark_this_process;
use crate::unsafe_spawn::UMASK;
use interlock_syscalls::MemoryFiles;

/// The argument that turns the binary into the keeper of a scope.
pub const KEEPER_COMMAND: &str = "sandbox-keeper";

/// How long a keeper may take to be made.
pub const KEEPER_PATIENCE: Duration = Duration::from_secs(20);

/// How long an engine may take to make a container.
const CONTAINER_PATIENCE: Duration = Duration::from_mins(1);

/// How long the owner's `setupCommand` may take.
pub const SETUP_PATIENCE: Duration = Duration::from_mins(10);

/// The host name inside.
const HOST_NAME: &str = "sandbox";

/// Prefix of the namespaces that the process of a run hands to the maker of its sandbox.
const SCOPE: &[u8] = b"scope";

/// The message that the keeper is ready, and that it also holds a container.
const MADE_WITH_CONTAINER: &[u8] = b"made with container";

/// The order from which a keeper is made. Two runs with equal orders share one keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeeperOrder {
    /// The name of the scope's directory.
    pub scope_id: String,
    /// The backend that makes the namespaces.
    pub(super) backend: SandboxBackend,
    pub(super) user: SandboxUser,
    pub(super) tmp_bytes: u64,
    /// The in-memory file systems: the path at which a run sees each, and its mode.
    pub(super) memory: BTreeMap<String, u32>,
    /// The caches of the owner over which the scope has layers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) caches: Vec<KeptCache>,
    /// The scope's directory on the host, which contains the layers.
    pub(super) scope_directory: String,
    /// The network that `interlock netd` serves. Without it, there is only a loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<ServedScope>,
    /// The container whose root file system the runs see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerOrder>,
    /// The machine on which the runs execute. The keeper then holds the connection, and nothing
    /// else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<SshOrder>,
}

/// The drivers that reach the parts of a scope outside this kernel.
#[derive(Debug, Clone, Copy)]
pub struct ScopeDrivers {
    pub ready_container: ReadyContainer,
    pub open_connection: OpenConnection,
}

impl KeeperOrder {
    /// Returns how long the keeper may take to be made, which may include the owner's own command.
    pub fn patience(&self) -> Duration {
        let setup = self.container.as_ref().map(|own| &own.plan.setup_command);
        match setup {
            Some(Some(_)) => SETUP_PATIENCE,
            Some(None) => CONTAINER_PATIENCE,
            // The workspace may have to be copied.
            None if self.ssh.is_some() => SETUP_PATIENCE,
            None => KEEPER_PATIENCE,
        }
    }

    /// Whether the keeper starts no other program and reaches nothing outside this kernel, so that
    /// a copy of the starting process suffices.
    fn is_made_by_copy(&self) -> bool {
        self.backend == SandboxBackend::Native && self.container.is_none() && self.ssh.is_none()
    }

    /// Returns the order of the keeper that a run of this plan needs.
    pub fn of(sandbox: &SandboxPlan) -> Self {
        let mut memory = BTreeMap::new();
        for mount in &sandbox.mounts {
            match mount {
                SandboxMount::Memory { target, mode, .. } => {
                    memory.insert(target.clone(), *mode);
                }
                SandboxMount::Devices => {
                    memory.insert(mounts::SHARED_MEMORY.to_owned(), 0o1777);
                }
                _ => {}
            }
        }
        Self {
            scope_id: sandbox.scope_id.clone(),
            backend: sandbox.backend,
            user: sandbox.user,
            tmp_bytes: sandbox.limits.tmp_bytes,
            memory,
            caches: KeptCache::of(sandbox),
            scope_directory: sandbox.scope_directory.clone(),
            served: sandbox.network.as_ref().map(|rules| ServedScope {
                scope_id: sandbox.scope_id.clone(),
                scope: sandbox.scope.clone(),
                rules: rules.clone(),
            }),
            container: ContainerOrder::of(sandbox),
            ssh: SshOrder::of(sandbox),
        }
    }
}

/// The namespaces that a keeper holds, as descriptors. They stay usable for as long as they are
/// open, so a run that has begun does not depend on the keeper.
#[derive(Debug)]
pub struct ScopeNamespaces {
    user: OwnedFd,
    mounts: OwnedFd,
    network: OwnedFd,
    communication: OwnedFd,
    host_name: OwnedFd,
    container: Option<ContainerNamespaces>,
}

/// Identifies namespaces by device and inode.
pub(super) type NamespaceIds = Vec<(u64, u64)>;

impl ScopeNamespaces {
    pub(super) fn ids(&self) -> io::Result<NamespaceIds> {
        let id = |one: BorrowedFd<'_>| -> io::Result<(u64, u64)> {
            let found = rustix::fs::fstat(one)?;
            Ok((found.st_dev, found.st_ino))
        };
        self.descriptors().into_iter().map(id).collect()
    }

    /// The number of descriptors without a container.
    const COUNT: usize = 5;

    /// Makes the value from descriptors in the order of [`ScopeNamespaces::descriptors`].
    pub fn from_descriptors(mut descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let container = descriptors.split_off(Self::COUNT.min(descriptors.len()));
        let container = if container.is_empty() {
            None
        } else {
            Some(ContainerNamespaces::from_descriptors(container)?)
        };
        let all: [OwnedFd; Self::COUNT] = descriptors
            .try_into()
            .map_err(|_| io::Error::other("a namespace of the scope is missing"))?;
        let [user, mounts, network, communication, host_name] = all;
        Ok(Self {
            user,
            mounts,
            network,
            communication,
            host_name,
            container,
        })
    }

    pub fn try_clone(&self) -> io::Result<Self> {
        let copy = |one: BorrowedFd<'_>| one.try_clone_to_owned();
        let copies = self.descriptors().into_iter().map(copy);
        Self::from_descriptors(copies.collect::<io::Result<_>>()?)
    }

    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut all = vec![
            self.user.as_fd(),
            self.mounts.as_fd(),
            self.network.as_fd(),
            self.communication.as_fd(),
            self.host_name.as_fd(),
        ];
        all.extend(
            self.container
                .iter()
                .flat_map(ContainerNamespaces::descriptors),
        );
        all
    }

    /// Takes what the root of the plan's container holds.
    pub(super) fn take_image(&self, plan: &SandboxPlan) -> io::Result<Vec<ImageEntry>> {
        match (&self.container, &plan.container) {
            (Some(container), Some(_)) => container.take_root(plan),
            (None, None) => Ok(Vec::new()),
            _ => Err(io::Error::other(
                "the scope has no container, or another one",
            )),
        }
    }

    /// Returns the inode of the network namespace, which identifies the processes in it.
    pub fn network_inode(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.network)?.st_ino)
    }

    /// Hands the namespaces to the maker of a sandbox. The process of a run calls this.
    pub(super) fn send(&self, link: &OwnedFd) -> io::Result<()> {
        link::send(link, SCOPE, &self.descriptors())
    }

    pub(super) fn receive(link: BorrowedFd<'_>) -> io::Result<Self> {
        let (word, descriptors) = link::receive(link, KEEPER_PATIENCE)?;
        if word != SCOPE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::from_descriptors(descriptors)
    }

    /// Moves the calling process, which must have one thread, into the scope's user namespace.
    pub(super) fn enter_user(&self) -> io::Result<()> {
        enter(self.user.as_fd(), SeparatedPart::User)
    }

    /// Moves the calling process, which is in the user namespace, into the other shared namespaces.
    pub(super) fn enter_shared(&self) -> io::Result<()> {
        enter(self.network.as_fd(), SeparatedPart::Network)?;
        enter(self.communication.as_fd(), SeparatedPart::Communication)?;
        enter(self.host_name.as_fd(), SeparatedPart::HostName)
    }

    /// Returns the number of file systems that a keeper holds.
    fn kept_count(order: &KeeperOrder) -> usize {
        order.memory.len() + order.caches.len()
    }

    /// Takes the file systems of the scope, each as a mount that can be attached once. A child does
    /// this, because no process of an ordinary user can return from another mount namespace.
    pub(super) fn take_memory(&self, order: &KeeperOrder) -> io::Result<BTreeMap<String, OwnedFd>> {
        let (own, of_child) = link::pair()?;
        match unsafe_confine::fork()? {
            None => {
                drop(own);
                let take = || -> io::Result<Vec<OwnedFd>> {
                    self.enter_user()?;
                    enter(self.mounts.as_fd(), SeparatedPart::Mounts)?;
                    let taken = (0..Self::kept_count(order)).map(mounts::take_kept);
                    taken.collect()
                };
                let sent = take().and_then(|trees| {
                    let trees: Vec<BorrowedFd<'_>> = trees.iter().map(|one| one.as_fd()).collect();
                    link::send(&of_child, init::MADE, &trees)
                });
                exit(i32::from(sent.is_err()))
            }
            Some(child) => {
                drop(of_child);
                let received = link::receive(&own, KEEPER_PATIENCE);
                let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
                let (_, trees) = received?;
                if trees.len() != Self::kept_count(order) {
                    return Err(io::Error::other("a file system of the scope is missing"));
                }
                let caches = order.caches.iter().map(|cache| &cache.target);
                let targets = order.memory.keys().chain(caches);
                Ok(targets.cloned().zip(trees).collect())
            }
        }
    }
}

/// A started keeper, which has yet to report that it is ready.
#[derive(Debug)]
pub struct StartedKeeper {
    pub pid: Pid,
    /// Becomes readable when the keeper has a message or is gone. The keeper ends when this is
    /// closed.
    pub link: OwnedFd,
}

impl StartedKeeper {
    /// Executes this binary anew. The calling process must have one thread, or must not fork in any
    /// of its own threads.
    pub fn start(order: &KeeperOrder) -> io::Result<Self> {
        let (link, of_keeper) = link::pair()?;
        let pid = super::start_self(KEEPER_COMMAND, super::order_file(order)?, of_keeper)?;
        Ok(Self { pid, link })
    }

    /// Does the same as [`StartedKeeper::start`], but by a copy of the calling process if that
    /// suffices, because executing this binary takes most of the time that a keeper needs. `fork`
    /// must make the child call [`keep_scope`], and then end.
    pub fn start_by(
        order: &KeeperOrder,
        fork: impl FnOnce(&KeeperOrder, OwnedFd) -> io::Result<Pid>,
    ) -> io::Result<Self> {
        if !order.is_made_by_copy() {
            return Self::start(order);
        }
        let (link, of_keeper) = link::pair()?;
        let pid = fork(order, of_keeper)?;
        Ok(Self { pid, link })
    }

    /// Returns what the keeper holds, once it is ready, and the sockets of its network, in the
    /// order of [`ScopeSockets::from_descriptors`]. The error says which step failed.
    pub fn receive(&self) -> Result<(ScopeNamespaces, Vec<OwnedFd>), String> {
        let (text, descriptors) = link::receive(&self.link, SETUP_PATIENCE)
            .map_err(|error| format!("the keeper of its scope said nothing: {error}"))?;
        let count = match text.as_slice() {
            init::MADE => ScopeNamespaces::COUNT,
            MADE_WITH_CONTAINER => ScopeNamespaces::COUNT + ContainerNamespaces::COUNT,
            _ => return Err(String::from_utf8_lossy(&text).into_owned()),
        };
        let mut namespaces = descriptors;
        let sockets = namespaces.split_off(count.min(namespaces.len()));
        let namespaces = ScopeNamespaces::from_descriptors(namespaces);
        Ok((namespaces.map_err(|error| error.to_string())?, sockets))
    }
}

/// Runs the keeper until it ends. Its standard input is the link to the process that started it,
/// and its standard output the order, as a file in memory. Only [`StartedKeeper::start`] starts it.
pub fn become_scope_keeper(drivers: ScopeDrivers) -> i32 {
    let link = rustix::stdio::stdin();
    let Err(InitFailure(why)) = keep(link, drivers) else {
        return 0;
    };
    let _ = link::send(link, why.as_bytes(), &[]);
    1
}

/// Does the same in a child of the process that started it, which has one thread and only the
/// standard streams, of which the first is the link.
pub fn keep_scope(order: &KeeperOrder) -> i32 {
    let link = rustix::stdio::stdin();
    let begin = || -> io::Result<()> {
        mark_this_process()?;
        rustix::process::setsid()?;
        rustix::process::chdir("/")?;
        rustix::process::umask(Mode::from_raw_mode(UMASK));
        Ok(rustix::thread::set_name(c"interlock-keep")?)
    };
    let kept = begin().step(|| "leaving its parent".to_owned());
    let Err(InitFailure(why)) = kept.and_then(|()| hold(link, order, None)) else {
        return 0;
    };
    let _ = link::send(link, why.as_bytes(), &[]);
    1
}

fn keep(link: BorrowedFd<'static>, drivers: ScopeDrivers) -> Result<(), InitFailure> {
    let order: KeeperOrder = init::read_order(rustix::stdio::stdout())?;
    rustix::thread::set_name(c"interlock-keep").step(|| "naming itself".to_owned())?;
    if let Some(far) = &order.ssh {
        return keep_connection(link, far, drivers.open_connection);
    }
    let container = match &order.container {
        Some(container) => {
            Some(HeldContainer::hold(container, drivers.ready_container).map_err(InitFailure)?)
        }
        None => None,
    };
    hold(link, &order, container)
}

/// Makes what the runs of the scope share, hands it over, and holds it until the link is closed or
/// the container is gone.
fn hold(
    link: BorrowedFd<'_>,
    order: &KeeperOrder,
    container: Option<HeldContainer>,
) -> Result<(), InitFailure> {
    let own = rustix::process::geteuid();
    if own.is_root() {
        rustix::thread::set_thread_groups(&[]).step(|| "leaving all groups".to_owned())?;
    }
    let is_other_user = order.user.host_uid != own.as_raw();
    let layers = match order.caches.as_slice() {
        [] => None,
        caches => {
            let scope = Path::new(&order.scope_directory);
            let layers = CacheLayers::take(scope, caches, order.user);
            Some(layers.step(|| "making the layers of caches".to_owned())?)
        }
    };
    let open = |map_ids: mounts::MapIds<'_>| match &layers {
        Some(layers) => open_caches(&order.caches, layers, map_ids),
        None => Ok(Vec::new()),
    };
    let mut caches = Vec::new();
    if is_other_user && layers.is_some() {
        // Only the owner of a file system can map its ids, so root opens the sources.
        separate_mounts(UnshareFlags::NEWNS)?;
        caches = open(&|owner| id_map(owner, order.user))?;
    }
    match order.backend {
        SandboxBackend::Native | SandboxBackend::Docker | SandboxBackend::Podman => {
            if order.user.host_uid == own.as_raw() {
                enter_own_user_namespace(order.user)?;
            } else {
                enter_user_namespace(order.user)?;
            }
            let shared = UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
            separate_mounts(UnshareFlags::NEWNS | shared)?;
        }
        SandboxBackend::Bwrap => enter_bubblewrap_namespaces(order.user)?,
        SandboxBackend::Ssh | SandboxBackend::Landlock => {
            let why = "the plan names no machine, and no namespaces".to_owned();
            return Err(InitFailure::new(why));
        }
    }
    set_host_name(HOST_NAME).step(|| "naming the machine".to_owned())?;
    switch_on_loopback().step(|| "switching the loopback on".to_owned())?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let null = null.step(|| "opening /dev/null".to_owned())?;
    let mut handed = open_namespaces().step(|| "opening the namespaces".to_owned())?;
    let (word, ended) = match container {
        Some(held) => {
            let copies = held.namespaces.into_descriptors();
            handed.extend(copies);
            (MADE_WITH_CONTAINER, Some(held.process))
        }
        None => (init::MADE, None),
    };
    if let Some(served) = &order.served {
        let sockets = ScopeSockets::make(&served.rules.ports());
        let sockets = sockets.step(|| "making the sockets of its network".to_owned())?;
        handed.extend(sockets.into_descriptors());
    }
    if !is_other_user {
        caches = open(&|_| Err(io::ErrorKind::PermissionDenied.into()))?;
    }
    let modes: Vec<u32> = order.memory.values().copied().collect();
    mounts::build_kept(&modes, order.tmp_bytes, caches)?;
    rustix::stdio::dup2_stdout(&null).step(|| "closing the order".to_owned())?;
    rustix::stdio::dup2_stderr(&null).step(|| "closing the order".to_owned())?;
    drop(null);
    rustix::process::setrlimit(Resource::Core, super::NO_CORE_HANDLER)
        .step(|| "forbidding core files".to_owned())?;
    give_up_capabilities().step(|| "giving up capabilities".to_owned())?;
    let closed = DumpableBehavior::NotDumpable;
    rustix::process::set_dumpable_behavior(closed).step(|| "closing itself".to_owned())?;
    let filter = interlock_syscalls::program(UnixSockets::None, MemoryFiles::NeverExecuted)
        .ok_or(io::ErrorKind::Unsupported)
        .step(|| "the table of system calls".to_owned())?;
    install_filter(&filter).step(|| "filtering its system calls".to_owned())?;
    let borrowed: Vec<BorrowedFd<'_>> = handed.iter().map(|one| one.as_fd()).collect();
    link::send(link, word, &borrowed).step(|| "handing over the namespaces".to_owned())?;
    drop(handed);
    // The keeper receives no messages: the only events are that the other end or the container is
    // gone.
    loop {
        let mut polled = vec![PollFd::from_borrowed_fd(link, PollFlags::IN)];
        polled.extend(ended.iter().map(|ended| PollFd::new(ended, PollFlags::IN)));
        let _ = rustix::event::poll(&mut polled, None);
        if polled.iter().any(|one| !one.revents().is_empty()) {
            return Ok(());
        }
    }
}

fn switch_on_loopback() -> io::Result<()> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    switch_loopback_on(socket.as_fd())
}

/// Opens the namespaces in the order of [`ScopeNamespaces::descriptors`].
pub(super) fn open_namespaces() -> io::Result<Vec<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let open = |kind| rustix::fs::open(format!("/proc/self/ns/{kind}"), flags, Mode::empty());
    let kinds = ["user", "mnt", "net", "ipc", "uts"];
    Ok(kinds.into_iter().map(open).collect::<Result<_, _>>()?)
}
