//! The supervisor itself: one thread that accepts connections, hands them to shims, and ensures
//! that nothing of a run outlives its shim.

mod admission;
mod agents;
mod keepers;
mod networks;
mod stopped;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use interlock_engine::{process_table, tree};
use interlock_transcript::now_ms;
use rustix::event::{Timespec, epoll};
use rustix::fs::{FlockOperation, inotify};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit};

use super::handover::{self, Note};
use super::message::ShimReport;
use super::paths::{SupervisorPaths, aside};
use super::peer::Outsiders;
use super::pool::{Need, Parent, Shim};
use super::retention::{self, KeptSessions};
use super::unsafe_process;
use crate::cgroup::{self, Group, Hierarchies, RunLimits};
use admission::{HELLO_TIME, NewConnection};
use agents::Agents;
use keepers::Keepers;
use networks::Networks;

/// The supervisor ends after this long without a running session. A shim that waits for its
/// client's next run counts as a session for ten seconds, so that all processes are gone one minute
/// after the last run.
pub(super) const IDLE_TIME: Duration = Duration::from_secs(45);

/// Most bytes of all transcripts of a state directory together.
const TOTAL_SPOOL_BYTES: u64 = 10 << 30;

/// Shortest and longest pause between searches for strays. The pause grows if strays stay.
const STRAY_PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Strays that exist for longer than this are left to the guard.
const STRAYS_TIME: Duration = Duration::from_secs(5);

/// A run usually starts within this time of its order.
const START_TIME: Duration = Duration::from_millis(5);

const LISTENER: u64 = 0;
const GUARD: u64 = 1;
const DIRECTORY: u64 = 2;
const CHILDREN: u64 = 3;
const FIRST_FREE: u64 = 4;

/// The values that a supervisor is started with.
#[derive(Debug)]
pub(super) struct Setup {
    pub place: SupervisorPaths,
    pub version: String,
    pub instance: String,
    pub listener: UnixListener,
    /// A descriptor whose other end closes when the guard dies.
    pub guard: OwnedFd,
    /// The lock that is shared with the guard. It is released when this supervisor takes no further
    /// runs.
    pub lock: OwnedFd,
    pub idle_time: Duration,
}

#[derive(Debug)]
struct Supervisor {
    setup: Setup,
    parent: Parent,
    events: OwnedFd,
    directory: OwnedFd,
    /// Becomes readable when a child has stopped or ended.
    children: OwnedFd,
    next_token: u64,
    hellos: HashMap<u64, NewConnection>,
    outsiders: Outsiders,
    shims: HashMap<u64, Shim>,
    /// The shims that wait for an order. New shims, and those that have waited longest, are in
    /// front. Shims that just had a run are at the back, because they can take only runs of the
    /// same agent.
    idle: VecDeque<u64>,
    /// The shims of running sessions, by session name.
    sessions: HashMap<String, u64>,
    need: Need,
    kept: KeptSessions,
    draining: bool,
    /// A shim died without reporting that nothing of its run is left.
    strays: bool,
    /// Processes that runs left behind and that may stay. Their parent is this process now.
    left_alone: Vec<Pid>,
    /// Groups of ended shims, which are to be removed.
    groups: Vec<Group>,
    agents: Agents,
    keepers: Keepers,
    networks: Networks,
    /// When the last shim ended.
    last_burial: Instant,
    /// When groups were last checked for being frozen.
    last_look: Instant,
    quota: u64,
    started_ms: u64,
    idle_since: Instant,
    /// When a shim last received an order.
    last_start: Instant,
}

/// Serves until the supervisor is no longer needed.
pub(super) fn run(setup: Setup) -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    unsafe_process::use_one_heap();
    let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let directory = watch_directory(&setup.place)?;
    let children = unsafe_process::watch_children()?;
    for (descriptor, token) in [
        (setup.listener.as_fd(), LISTENER),
        (setup.guard.as_fd(), GUARD),
        (directory.as_fd(), DIRECTORY),
        (children.as_fd(), CHILDREN),
    ] {
        add(&events, descriptor, token)?;
    }
    setup.listener.set_nonblocking(true)?;
    let parent = Parent {
        place: setup.place.clone(),
        instance: setup.instance.clone(),
        open_files: raise_open_files(),
        hierarchies: Hierarchies::probe(),
        limits: RunLimits::default(),
    };
    // Groups that earlier supervisors left behind are removed.
    cgroup::sweep(&parent.hierarchies, "", |name| {
        let pid = name.split('-').next().unwrap_or_default();
        std::path::Path::new("/proc").join(pid).exists()
    });
    let mut supervisor = Supervisor {
        kept: KeptSessions::load(&setup.place),
        setup,
        parent,
        events,
        directory,
        children,
        next_token: FIRST_FREE,
        hellos: HashMap::new(),
        outsiders: Outsiders::default(),
        shims: HashMap::new(),
        idle: VecDeque::new(),
        sessions: HashMap::new(),
        need: Need::new(),
        draining: false,
        strays: false,
        left_alone: Vec::new(),
        groups: Vec::new(),
        agents: Agents::default(),
        keepers: Keepers::default(),
        networks: Networks::default(),
        last_burial: Instant::now(),
        last_look: Instant::now(),
        quota: u64::MAX,
        started_ms: now_ms(),
        idle_since: Instant::now(),
        last_start: Instant::now(),
    };
    unsafe_process::trim_memory();
    while supervisor.idle.len() < supervisor.need.wanted() {
        supervisor.bear()?;
    }
    supervisor.serve()
}

/// Continues the parent process, which nothing has a reason to stop. A run without the shield could
/// stop it. The process above the parent, which would continue it, may be stopped as well.
pub(super) fn continue_parent() {
    if let Some(parent) = rustix::process::getppid() {
        let _ = rustix::process::kill_process(parent, rustix::process::Signal::CONT);
    }
}

/// Watches for the removal of the socket, or of the whole state directory.
fn watch_directory(place: &SupervisorPaths) -> io::Result<OwnedFd> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let gone = inotify::WatchFlags::DELETE | inotify::WatchFlags::DELETE_SELF;
    inotify::add_watch(&watch, place.supervisors(), gone)?;
    Ok(watch)
}

/// Raises the limit of open files, because each session needs descriptors here. Returns the limit
/// that runs are to have.
fn raise_open_files() -> Option<u64> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    rustix::process::setrlimit(Resource::Nofile, raised).ok()?;
    limit.current
}

fn add(events: &OwnedFd, descriptor: impl AsFd, token: u64) -> io::Result<()> {
    let data = epoll::EventData::new_u64(token);
    Ok(epoll::add(events, descriptor, data, epoll::EventFlags::IN)?)
}

impl Supervisor {
    fn serve(&mut self) -> io::Result<()> {
        let mut ready = Vec::with_capacity(1024);
        loop {
            let pause = self.pause();
            let pause = Timespec {
                tv_sec: i64::try_from(pause.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(pause.subsec_nanos()),
            };
            ready.clear();
            let spare = rustix::buffer::spare_capacity(&mut ready);
            match epoll::wait(&self.events, spare, Some(&pause)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            // The listener comes last, because a new client may ask for a session that was just
            // announced.
            let mut tokens: Vec<u64> = ready.iter().map(|event| event.data.u64()).collect();
            tokens.sort_unstable_by(|a, b| b.cmp(a));
            for token in tokens {
                self.handle(token);
            }
            self.tidy_up();
            if self.is_done() {
                self.keepers.end_all();
                self.networks.end_all();
                continue_parent();
                // A client that connected before the socket was moved must learn that the
                // supervisor closes.
                self.accept();
                // The guard also removes the socket, if it is still there.
                let socket = aside(&self.setup.version, rustix::process::getpid().as_raw_pid());
                self.setup.place.remove_socket(&socket);
                if self.strays {
                    // The strays cannot be ended from here. The guard then ends the rest, and
                    // reports processes that it cannot end.
                    return Err(io::Error::other("something of a run is left"));
                }
                return Ok(());
            }
            // The pool is refilled last, once every client has its answer.
            if (ready.is_empty() || self.idle.is_empty()) && self.until_refill().is_zero() {
                self.refill();
            }
        }
    }

    fn handle(&mut self, token: u64) {
        match token {
            LISTENER => self.accept(),
            GUARD => {
                // Nothing watches over this supervisor anymore. Current runs may continue, but new
                // runs go to another supervisor.
                let _ = epoll::delete(&self.events, &self.setup.guard);
                self.drain();
            }
            DIRECTORY => {
                let _ = rustix::io::read(&self.directory, &mut [0; 4096]);
                if !self.draining && !self.setup.place.has_socket(&self.setup.version) {
                    self.drain();
                }
            }
            CHILDREN => self.look_after_stopped(),
            token if self.shims.contains_key(&token) => self.hear(token),
            token if self.is_keeper(token) => self.hear_keeper(token),
            token if self.networks.is_netd(token) => self.hear_netd(),
            token => self.read_hello(token),
        }
    }

    /// Handles reports of a shim, or its end.
    fn hear(&mut self, token: u64) {
        loop {
            let Some(shim) = self.shims.get_mut(&token) else {
                return;
            };
            match handover::receive_report(&shim.control) {
                Ok(None) => return,
                Ok(Some(ShimReport::Limits { limits })) => self.parent.limits = limits,
                Ok(Some(ShimReport::Shield { agent })) => self.shield_shim(token, agent),
                Ok(Some(ShimReport::Scope {
                    order,
                    is_authorized,
                })) => self.join_scope(token, *order, is_authorized),
                Ok(Some(ShimReport::ScopeLeft)) => self.keepers.leave_scope(token),
                Ok(Some(ShimReport::Begun { name })) => {
                    shim.name = Some(name.clone());
                    self.sessions.insert(name, token);
                    self.share_quota(Some(token));
                }
                Ok(Some(ShimReport::Over {
                    kept,
                    survivors,
                    left_alone,
                    waits_for,
                })) => {
                    let waits = waits_for.is_some();
                    shim.over = survivors == 0 && !waits;
                    shim.agent = waits_for;
                    self.agents.run_is_over(token, !left_alone.is_empty());
                    self.left_alone
                        .extend(left_alone.into_iter().filter_map(Pid::from_raw));
                    let name = shim.name.take();
                    if let Some(name) = kept {
                        self.kept.ended(&self.setup.place, name);
                    }
                    if let Some(name) = name {
                        self.sessions.remove(&name);
                        self.share_quota(None);
                    }
                    if waits {
                        self.take_back(token);
                    }
                }
                Err(_) => return self.bury(token),
            }
        }
    }

    /// Takes back a shim that has had its run. It is the first choice for its agent's next run,
    /// because it is warm.
    fn take_back(&mut self, token: u64) {
        self.idle.push_back(token);
        if self.draining {
            self.retire();
        }
    }

    /// Buries a shim that has ended. If it could not report that nothing is left of its run, the
    /// rest is ended here.
    fn bury(&mut self, token: u64) {
        self.idle.retain(|other| *other != token);
        let Some(shim) = self.shims.remove(&token) else {
            return;
        };
        let _ = epoll::delete(&self.events, &shim.control);
        self.last_burial = Instant::now();
        continue_parent();
        let group = Group::open(&self.parent.hierarchies, &shim.group).ok();
        if !shim.over {
            self.strays = true;
            let _ = rustix::process::kill_process(shim.pid, rustix::process::Signal::KILL);
            // If the run has a group, none of its processes can escape by forking.
            let _ = group.as_ref().map(Group::kill);
        }
        self.groups.extend(group);
        // The shim has closed its end, so this takes only microseconds.
        let _ = rustix::process::waitpid(Some(shim.pid), rustix::process::WaitOptions::empty());
        self.agents.shim_is_gone(token);
        self.keepers.leave_scope(token);
        if let Some(name) = shim.name
            && !shim.over
        {
            self.sessions.remove(&name);
            retention::mark_session_lost(&self.setup.place, &name);
            self.kept.ended(&self.setup.place, name);
        }
    }

    /// Ends every process that became a child of this one, unless it is a shim or may stay.
    fn end_strays(&mut self) {
        let mut kept = self.shim_pids();
        kept.extend(&self.left_alone);
        kept.extend(self.agents.inits());
        kept.extend(self.keepers.pids());
        kept.extend(self.networks.pids());
        self.strays = tree::kill_children_except(&kept);
        self.strays |= self.agents.kill_strays();
    }

    /// Collects those processes that were left alone and have ended.
    fn collect_left_alone(&mut self) {
        tree::collect_adopted(&self.shim_pids());
        self.left_alone
            .retain(|pid| process_table::row(pid.as_raw_pid()).is_some());
    }

    fn shim_pids(&self) -> Vec<Pid> {
        self.shims.values().map(|shim| shim.pid).collect()
    }

    fn tidy_up(&mut self) {
        if self.strays {
            self.end_strays();
        }
        if !self.left_alone.is_empty() {
            self.collect_left_alone();
        }
        self.groups
            .retain(|group| group.remove(Duration::ZERO).is_err());
        self.look_after_frozen();
        self.agents.tidy_up();
        self.keepers.tidy_up();
        self.end_networks();
        self.networks.tidy_up();
        let now = Instant::now();
        self.hellos.retain(|_, visitor| visitor.until > now);
        let most = TOTAL_SPOOL_BYTES / 2;
        self.kept.remove_due(&self.setup.place, most);
        // Ended sessions need no supervisor: the next supervisor, a gateway or a node removes them.
        if self.shims.len() > self.idle.len() || !self.hellos.is_empty() {
            self.idle_since = now;
        }
    }

    fn is_done(&mut self) -> bool {
        if self.idle_since.elapsed() >= self.setup.idle_time {
            self.drain();
        }
        let is_tidy = !self.strays || self.last_burial.elapsed() >= STRAYS_TIME;
        self.draining && self.shims.is_empty() && is_tidy
    }

    /// Takes no further runs, and makes room for the supervisor that will. Clients with a session
    /// here can still reach it.
    fn drain(&mut self) {
        if self.draining {
            return;
        }
        self.draining = true;
        let me = rustix::process::getpid().as_raw_pid();
        let _ = self.setup.place.step_aside(&self.setup.version, me);
        let _ = rustix::fs::flock(&self.setup.lock, FlockOperation::Unlock);
        while self.retire() {}
        // Some shims wait for another run of a client that connected before.
        for shim in self.shims.values() {
            let _ = handover::send_note(&shim.control, &Note::Drain);
        }
    }

    /// Dismisses a waiting shim: closing its control makes it end.
    fn retire(&mut self) -> bool {
        let Some(token) = self.idle.pop_front() else {
            return false;
        };
        if let Some(shim) = self.shims.get_mut(&token) {
            shim.over = true;
            let _ = rustix::net::shutdown(&shim.control, rustix::net::Shutdown::Both);
        }
        true
    }

    /// Divides the half of the space that finished sessions do not take equally among the running
    /// sessions. Their number is rounded to a power of two, so that not every start changes the
    /// quota of every session.
    fn share_quota(&mut self, newest: Option<u64>) {
        let running = self.sessions.len().next_power_of_two().max(1) as u64;
        let free = TOTAL_SPOOL_BYTES - self.kept.bytes().min(TOTAL_SPOOL_BYTES / 2);
        let quota = (free / running).next_power_of_two() / 2;
        let affected: Vec<u64> = if quota == self.quota {
            newest.into_iter().collect()
        } else {
            self.sessions.values().copied().collect()
        };
        self.quota = quota;
        for token in affected {
            if let Some(shim) = self.shims.get(&token) {
                let _ = handover::send_note(&shim.control, &Note::Quota(quota));
            }
        }
    }

    fn refill(&mut self) {
        if self.draining {
            return;
        }
        // One shim is forked at a time, because a client may need something in between.
        if self.idle.len() < self.need.fewest() {
            let _ = self.bear();
        } else if self.idle.len() > self.need.most() {
            self.retire();
        }
    }

    fn is_pool_right(&self) -> bool {
        (self.need.fewest()..=self.need.most()).contains(&self.idle.len())
    }

    /// Returns how long the pool may stay as it is. Moving a new shim into its group blocks every
    /// fork for a moment, even that of a run that was just ordered. Most runs are short and soon
    /// return their shim.
    fn until_refill(&self) -> Duration {
        if self.idle.len() * 4 < self.need.wanted() {
            return Duration::ZERO;
        }
        START_TIME.saturating_sub(self.last_start.elapsed())
    }

    fn bear(&mut self) -> io::Result<u64> {
        let token = self.token();
        let shim = self.parent.bear(token)?;
        add(&self.events, &shim.control, token)?;
        self.shims.insert(token, shim);
        self.idle.push_front(token);
        Ok(token)
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Returns how long to wait for the next event.
    fn pause(&mut self) -> Duration {
        let calm = self.need.calm_down();
        let mut pause = self
            .setup
            .idle_time
            .saturating_sub(self.idle_since.elapsed());
        if !self.draining && !self.is_pool_right() {
            let until_refill = self.until_refill();
            if until_refill.is_zero() {
                return Duration::ZERO;
            }
            pause = pause.min(until_refill);
        }
        if let Some(calm) = calm {
            pause = pause.min(calm);
        }
        if self.strays || !self.groups.is_empty() || !self.left_alone.is_empty() {
            let (shortest, longest) = STRAY_PAUSES;
            pause = pause.min((self.last_burial.elapsed() / 4).clamp(shortest, longest));
        }
        let dues = [self.agents.next_due(), self.keepers.next_due()];
        for due in dues.into_iter().flatten() {
            pause = pause.min(due);
        }
        if let Some(due) = self.kept.next_due() {
            pause = pause.min(due);
        }
        if let Some(look) = self.until_look() {
            pause = pause.min(look);
        }
        if !self.hellos.is_empty() {
            pause = pause.min(HELLO_TIME);
        }
        // The pause is rounded up, so that it does not end just too early.
        pause + Duration::from_millis(1)
    }
}
