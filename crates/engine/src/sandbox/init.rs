//! The init of a sandbox: process 1 of its PID namespace. It enters the namespaces that the runs of
//! its scope share, makes those of this run, builds the view of the run, and hands all of them to
//! the run's process. After that it collects ended processes. When it ends, the kernel ends
//! everything inside.
//!
//! ```text
//! shim ─┬─► maker        opened sources, the scope's namespaces, its own; starts the init and is over
//!       ├─► init         process 1: the view, then waiting
//!       ├─► entrant      enters the namespaces, starts the program, is over
//!       └─► program      a child of the shim, inside the sandbox
//! ```
//!
//! The maker is this binary, executed anew: it has one thread, and none of the memory of the
//! process that starts runs. If any step fails, the run does not start.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use interlock_plan::{MountOwner, SandboxPlan, SandboxUser};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use rustix::process::{DumpableBehavior, Pid, Resource, WaitOptions};
use rustix::thread::UnshareFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::executables::execution_rules;
use super::image::ImageEntry;
use super::keeper::{KeeperOrder, ScopeNamespaces};
use super::link;
use super::mounts::{self, PreparedTrees, SharedTrees};
use super::sockets::HostSockets;
use super::unsafe_confine::{self, exit, give_up_capabilities, separate, watch_children};

/// The message that the sandbox is ready. Any other message gives the reason of a failure.
pub(super) const MADE: &[u8] = b"made";

/// Asks process 1 whether a view that is made now would equal this one. The answer is [`FRESH`] or
/// [`STALE`].
pub(super) const CHECK: &[u8] = b"check";
pub(super) const FRESH: &[u8] = b"fresh";
pub(super) const STALE: &[u8] = b"stale";

/// The message that the run has started as many processes as it may have at one time.
pub(super) const FULL: &[u8] = b"full";

/// How often the processes that a run has started are counted, if their number is limited.
const COUNTING_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// Prefix of the number of process 1, as the run's process knows it.
pub(super) const NUMBER: &str = "init ";

/// The order that the maker receives.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct InitOrder {
    pub sandbox: SandboxPlan,
    /// The directory of the run's layer, if the plan has one.
    #[serde(default)]
    pub layer: Option<std::path::PathBuf>,
    /// Whether the run has a terminal, which the sandbox makes itself.
    pub has_terminal: bool,
}

/// The step that failed, and why.
#[derive(Debug)]
pub(super) struct InitFailure(pub(super) String);

impl InitFailure {
    pub fn new(message: String) -> Self {
        Self(message)
    }
}

/// Adds the name of the failed step to an error.
pub(super) trait Step<T> {
    fn step(self, name: impl FnOnce() -> String) -> Result<T, InitFailure>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, name: impl FnOnce() -> String) -> Result<T, InitFailure> {
        self.map_err(|error| InitFailure(format!("{}: {}", name(), error.into())))
    }
}

/// Runs the maker and init of a sandbox until it ends. Its standard input is the link to the run's
/// process, and its standard output is the order, as a file in memory. Only
/// [`super::RunSandbox::make`] starts it.
pub fn become_sandbox_init() -> i32 {
    let (link, order) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    let Err(InitFailure(why)) = make(link, order) else {
        return 0;
    };
    let _ = link::send(link, why.as_bytes(), &[]);
    1
}

fn make(link: BorrowedFd<'static>, order: BorrowedFd<'static>) -> Result<(), InitFailure> {
    let order: InitOrder = read_order(order)?;
    let plan = &order.sandbox;
    // The sockets are read before this process leaves the network namespace of the host.
    let sockets = HostSockets::read();
    let user = plan.user;
    let scope = ScopeNamespaces::receive(link).step(|| "receiving the scope".to_owned())?;
    let shared = scope.take_memory(&KeeperOrder::of(plan));
    let shared = shared.step(|| "taking the file systems of the scope".to_owned())?;
    let image = scope.take_image(plan);
    let image = image.step(|| "taking the root of the container".to_owned())?;
    let is_root = rustix::process::geteuid().is_root();
    let is_other_user = user.host_uid != rustix::process::geteuid().as_raw();
    if is_root {
        rustix::thread::set_thread_groups(&[]).step(|| "leaving all groups".to_owned())?;
    }
    let enter = |scope: &ScopeNamespaces| -> Result<(), InitFailure> {
        let entered = scope.enter_user();
        entered.step(|| "entering the user namespace of the scope".to_owned())?;
        if is_other_user {
            become_user(user).step(|| "becoming the user of the scope".to_owned())?;
        }
        separate_mounts(NAMESPACES)?;
        let entered = scope.enter_shared();
        entered.step(|| "entering the namespaces of the scope".to_owned())
    };
    let trees = if is_other_user {
        // Only the owner of a file system can map its ids, so root opens the sources.
        separate_mounts(UnshareFlags::NEWNS)?;
        let trees = PreparedTrees::open(&order, sockets, &|owner| id_map(owner, user))?;
        enter(&scope)?;
        trees
    } else {
        enter(&scope)?;
        PreparedTrees::open(&order, sockets, &|_| {
            Err(io::ErrorKind::PermissionDenied.into())
        })?
    };
    drop(scope);
    // A process stays in the PID namespace that it was born in, so process 1 must be a child.
    match unsafe_confine::fork().step(|| "starting process 1".to_owned())? {
        Some(init) => {
            let number = format!("{NUMBER}{}", init.as_raw_pid());
            link::send(link, number.as_bytes(), &[]).step(|| "naming process 1".to_owned())
        }
        None => {
            let code = match live(link, &order, trees, (shared, image)) {
                Ok(()) => 0,
                Err(InitFailure(why)) => {
                    let _ = link::send(link, why.as_bytes(), &[]);
                    1
                }
            };
            exit(code)
        }
    }
}

/// The namespaces that each run has of its own. They belong to the scope's user namespace.
const NAMESPACES: UnshareFlags = UnshareFlags::NEWNS
    .union(UnshareFlags::NEWPID)
    .union(UnshareFlags::NEWCGROUP);

pub(super) fn read_order<T: DeserializeOwned>(order: BorrowedFd<'_>) -> Result<T, InitFailure> {
    let read = || -> io::Result<T> {
        let mut text = Vec::new();
        std::fs::File::from(order.try_clone_to_owned()?).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    };
    read().step(|| "reading the order".to_owned())
}

pub(super) fn separate_mounts(flags: UnshareFlags) -> Result<(), InitFailure> {
    separate(flags).step(|| "making namespaces".to_owned())?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).step(|| "separating mounts".to_owned())
}

/// Enters a user namespace that maps only this user, to its own number.
pub(super) fn enter_own_user_namespace(user: SandboxUser) -> Result<(), InitFailure> {
    let enter = || -> io::Result<()> {
        separate(UnshareFlags::NEWUSER)?;
        // The files of a non-dumpable process belong to root.
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write(
            "/proc/self/uid_map",
            format!("{} {} 1", user.uid, user.host_uid),
        )?;
        std::fs::write(
            "/proc/self/gid_map",
            format!("{} {} 1", user.gid, user.host_gid),
        )?;
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        Ok(())
    };
    enter().step(|| "making a user namespace".to_owned())
}

/// Enters a user namespace that maps only the user of this sandbox, who owns nothing on the host.
/// The caller is root, and is that user afterwards.
pub(super) fn enter_user_namespace(user: SandboxUser) -> Result<(), InitFailure> {
    let enter = || -> io::Result<()> {
        let uids = format!("{} {} 1", user.uid, user.host_uid);
        let gids = format!("{} {} 1", user.gid, user.host_gid);
        be_mapped(&uids, &gids)?;
        become_user(user)
    };
    enter().step(|| "making a user namespace".to_owned())
}

/// Becomes the user, in a user namespace of the scope that the process entered from outside.
pub(super) fn become_user(user: SandboxUser) -> io::Result<()> {
    let (gid, uid) = (
        Some(rustix::process::Gid::from_raw(user.gid)),
        Some(rustix::process::Uid::from_raw(user.uid)),
    );
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// Moves the calling process, which is root, into a new user namespace. Another process writes its
/// maps, because only a process outside may do so.
fn be_mapped(uids: &str, gids: &str) -> io::Result<()> {
    let (own, of_writer) = link::pair()?;
    let target = rustix::process::getpid();
    match unsafe_confine::fork()? {
        None => {
            drop(own);
            let written =
                link::receive(&of_writer, PATIENCE).and_then(|_| write_maps(target, uids, gids));
            exit(i32::from(written.is_err()))
        }
        Some(writer) => {
            drop(of_writer);
            separate(UnshareFlags::NEWUSER)?;
            link::send(&own, b"map", &[])?;
            is_done(writer)
        }
    }
}

fn write_maps(target: Pid, uids: &str, gids: &str) -> io::Result<()> {
    let target = target.as_raw_pid();
    std::fs::write(format!("/proc/{target}/uid_map"), uids)?;
    std::fs::write(format!("/proc/{target}/gid_map"), gids)
}

const PATIENCE: Duration = Duration::from_secs(10);

fn is_done(child: Pid) -> io::Result<()> {
    match rustix::process::waitpid(Some(child), WaitOptions::empty())? {
        Some((_, status)) if status.exit_status() == Some(0) => Ok(()),
        _ => Err(io::Error::other("the ids could not be mapped")),
    }
}

/// Makes the user namespace by which a mount maps the ids of its files: on the host they belong to
/// `owner`, and inside to the user of the run.
pub(super) fn id_map(owner: MountOwner, user: SandboxUser) -> io::Result<OwnedFd> {
    let (own, of_child) = link::pair()?;
    match unsafe_confine::fork()? {
        None => {
            drop(own);
            // The child lives only until its namespace is taken.
            let separated = separate(UnshareFlags::NEWUSER);
            let word: &[u8] = if separated.is_ok() {
                b"ready"
            } else {
                b"failed"
            };
            let _ = link::send(&of_child, word, &[]);
            let _ = link::receive(&of_child, PATIENCE);
            exit(0)
        }
        Some(child) => {
            drop(of_child);
            let made = || -> io::Result<OwnedFd> {
                let (word, _) = link::receive(&own, PATIENCE)?;
                if word != b"ready" {
                    return Err(io::Error::other("no user namespace"));
                }
                let uids = format!("{} {} 1", owner.uid, user.host_uid);
                let gids = format!("{} {} 1", owner.gid, user.host_gid);
                write_maps(child, &uids, &gids)?;
                let path = format!("/proc/{}/ns/user", child.as_raw_pid());
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                Ok(rustix::fs::open(path, flags, Mode::empty())?)
            };
            let made = made();
            drop(own);
            let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
            made
        }
    }
}

/// Runs process 1 until it ends.
fn live(
    link: BorrowedFd<'static>,
    order: &InitOrder,
    trees: PreparedTrees,
    (shared, image): (SharedTrees, Vec<ImageEntry>),
) -> Result<(), InitFailure> {
    rustix::thread::set_name(c"interlock-init").step(|| "naming itself".to_owned())?;
    let passed_over = mounts::build(&order.sandbox, trees, (shared, image))?;
    let handed = namespaces(order).step(|| "opening the namespaces and rules".to_owned())?;
    rustix::process::setrlimit(Resource::Core, super::NO_CORE_HANDLER)
        .step(|| "forbidding core files".to_owned())?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let null = null.step(|| "opening /dev/null".to_owned())?;
    rustix::stdio::dup2_stdout(&null).step(|| "closing the order".to_owned())?;
    rustix::stdio::dup2_stderr(&null).step(|| "closing the order".to_owned())?;
    drop(null);
    give_up_capabilities().step(|| "giving up capabilities".to_owned())?;
    let closed = DumpableBehavior::NotDumpable;
    rustix::process::set_dumpable_behavior(closed).step(|| "closing itself".to_owned())?;
    let ended = watch_children().step(|| "watching processes".to_owned())?;
    let borrowed: Vec<BorrowedFd<'_>> = handed.iter().map(|one| one.as_fd()).collect();
    let absences = Absences::note(passed_over);
    link::send(link, MADE, &borrowed).step(|| "handing over the namespaces".to_owned())?;
    drop(handed);
    wait(link, &ended, &absences, order.sandbox.limits.pids);
    Ok(())
}

/// Returns the descriptors that the run's process gets: user, mount, PID, network, IPC and UTS
/// namespaces, the engine's side of a terminal, the execution rules, and the file systems in
/// memory.
fn namespaces(order: &InitOrder) -> io::Result<Vec<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let open =
        |kind: &&str| rustix::fs::open(format!("/proc/self/ns/{kind}"), flags, Mode::empty());
    let kinds = ["user", "mnt", "pid", "net", "ipc", "uts"];
    let mut handed: Vec<OwnedFd> = kinds.iter().map(open).collect::<Result<_, _>>()?;
    if order.has_terminal {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        handed.push(rustix::fs::open("/dev/pts/ptmx", flags, Mode::empty())?);
    }
    if let Some(listed) = &order.sandbox.executables {
        handed.push(execution_rules(listed)?);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for place in KeeperOrder::of(&order.sandbox).memory.keys() {
        handed.push(rustix::fs::open(place, flags, Mode::empty())?);
    }
    Ok(handed)
}

/// Paths that were not covered because they were unreachable when the view was made, each with the
/// reason.
struct Absences(Vec<(String, Option<Errno>)>);

impl Absences {
    fn note(paths: Vec<String>) -> Self {
        let noted = paths.into_iter().map(|path| {
            let why = mounts::obstacle(&path);
            (path, why)
        });
        Self(noted.collect())
    }

    /// Whether all of these paths are still unreachable, for the same reason. A view that is made
    /// now would cover a path that has become reachable.
    fn still_hold(&self) -> bool {
        let holds =
            |(path, why): &(String, Option<Errno>)| why.is_some() && mounts::obstacle(path) == *why;
        self.0.iter().all(holds)
    }
}

/// Waits until the run's process is gone or closes the link. Meanwhile this collects orphans, and
/// reports if the run has started as many processes as it may have at one time. If no control group
/// counts refusals, the kernel reports a refused process only to the program that asked for it.
fn wait(link: BorrowedFd<'_>, ended: &OwnedFd, absences: &Absences, mut most: Option<u64>) {
    loop {
        if most.is_some_and(|most| processes_so_far() >= most) {
            most = None;
            let _ = link::send(link, FULL, &[]);
        }
        let mut polled = [
            PollFd::new(ended, PollFlags::IN),
            PollFd::from_borrowed_fd(link, PollFlags::IN),
        ];
        let until = most.is_some().then_some(&COUNTING_INTERVAL);
        let _ = rustix::event::poll(&mut polled, until);
        if !polled[1].revents().is_empty() {
            let asked = link::receive(link, Duration::ZERO);
            let is_question = asked.is_ok_and(|(word, _)| word == CHECK);
            let answer = if absences.still_hold() { FRESH } else { STALE };
            if !is_question || link::send(link, answer, &[]).is_err() {
                return;
            }
        }
        let mut signals = [0; 1024];
        while rustix::io::read(ended, &mut signals).is_ok_and(|length| length > 0) {}
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
    }
}

/// Returns how many processes this PID namespace has had so far, since numbers are assigned
/// consecutively.
fn processes_so_far() -> u64 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let last = load.split_whitespace().next_back();
    last.and_then(|last| last.parse().ok()).unwrap_or(0)
}
