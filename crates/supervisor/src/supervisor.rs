//! The supervisor itself: one thread that accepts connections, hands them to shims, and sees to it
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

/// Without any running session for so long, it ends. A shim that waits for the next run of its client
/// counts as one for ten seconds, so that all are gone one minute after the last run.
pub(super) const IDLE_TIME: Duration = Duration::from_secs(45);

/// All transcripts of a state directory together.
const TOTAL_SPOOL_BYTES: u64 = 10 << 30;

/// How often strays are looked for while there are any: often at first, and less often when they
/// stay.
const STRAY_PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Strays that are there for longer are left to the guard.
const STRAYS_TIME: Duration = Duration::from_secs(5);

/// What was ordered is started within this, as a rule.
const START_TIME: Duration = Duration::from_millis(5);

const LISTENER: u64 = 0;
const GUARD: u64 = 1;
const DIRECTORY: u64 = 2;
const CHILDREN: u64 = 3;
const FIRST_FREE: u64 = 4;

/// What one is started with.
#[derive(Debug)]
pub(super) struct Setup {
    pub place: SupervisorPaths,
    pub version: String,
    pub instance: String,
    pub listener: UnixListener,
    /// Its other end closes when the guard dies.
    pub guard: OwnedFd,
    /// Shared with the guard; given up when this one takes no further runs.
    pub lock: OwnedFd,
    pub idle_time: Duration,
}

#[derive(Debug)]
struct Supervisor {
    setup: Setup,
    parent: Parent,
    events: OwnedFd,
    directory: OwnedFd,
    /// Tells when a child has stopped or ended.
    children: OwnedFd,
    next_token: u64,
    hellos: HashMap<u64, NewConnection>,
    outsiders: Outsiders,
    shims: HashMap<u64, Shim>,
    /// Those that wait for an order. Who was born or has waited for the longest time stands in
    /// front, who had a run a moment ago at the back: it waits for runs of the same agent only.
    idle: VecDeque<u64>,
    /// By name: the shims of sessions that run.
    sessions: HashMap<String, u64>,
    need: Need,
    kept: KeptSessions,
    draining: bool,
    /// A shim died without saying that all is well.
    strays: bool,
    /// What runs left behind and may keep. Their parent is this process now.
    left_alone: Vec<Pid>,
    /// Groups of shims that are gone, to be removed.
    groups: Vec<Group>,
    agents: Agents,
    keepers: Keepers,
    networks: Networks,
    /// When the last shim went.
    last_burial: Instant,
    /// When it was last looked whether a group is frozen.
    last_look: Instant,
    quota: u64,
    started_ms: u64,
    idle_since: Instant,
    /// When a shim was last given an order.
    last_start: Instant,
}

/// Serves until it is not needed any more.
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
    // What supervisors left that are gone.
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

/// There is no reason to stop the process above this one. A run without the shield can do it, and the
/// one above that continues it may be stopped as well.
pub(super) fn continue_parent() {
    if let Some(parent) = rustix::process::getppid() {
        let _ = rustix::process::kill_process(parent, rustix::process::Signal::CONT);
    }
}

/// Tells when the socket is taken away, with the whole state directory perhaps.
fn watch_directory(place: &SupervisorPaths) -> io::Result<OwnedFd> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let gone = inotify::WatchFlags::DELETE | inotify::WatchFlags::DELETE_SELF;
    inotify::add_watch(&watch, place.supervisors(), gone)?;
    Ok(watch)
}

/// A session takes descriptors here. Returns the limit that runs are to have.
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
            // The listener comes last: a new client may ask for a session that was just announced.
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
                // A client that connected before the socket was moved learns that the supervisor
                // closes.
                self.accept();
                // The guard would do it, if it is there.
                let socket = aside(&self.setup.version, rustix::process::getpid().as_raw_pid());
                self.setup.place.remove_socket(&socket);
                if self.strays {
                    // They cannot be ended from here. The guard ends what is left then, and says
                    // what it cannot end.
                    return Err(io::Error::other("something of a run is left"));
                }
                return Ok(());
            }
            // Last, when every client has its answer.
            if (ready.is_empty() || self.idle.is_empty()) && self.until_refill().is_zero() {
                self.refill();
            }
        }
    }

    fn handle(&mut self, token: u64) {
        match token {
            LISTENER => self.accept(),
            GUARD => {
                // Nothing is looked after any more: what runs may go on, new runs go elsewhere.
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

    /// A shim has something to say, or is gone.
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

    /// It has had its run and takes the next of its agent: the first to be given one, since it is
    /// warm.
    fn take_back(&mut self, token: u64) {
        self.idle.push_back(token);
        if self.draining {
            self.retire();
        }
    }

    /// The shim is gone. If it could not say that nothing is left of its run, that is seen to.
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
            // Where there is a group, nothing of it gets away by forking.
            let _ = group.as_ref().map(Group::kill);
        }
        self.groups.extend(group);
        // It has closed its end, so that this is a matter of microseconds.
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

    /// Ends whatever became a child of this process although it is no shim, and may not stay.
    fn end_strays(&mut self) {
        let mut kept = self.shim_pids();
        kept.extend(&self.left_alone);
        kept.extend(self.agents.inits());
        kept.extend(self.keepers.pids());
        kept.extend(self.networks.pids());
        self.strays = tree::kill_children_except(&kept);
        self.strays |= self.agents.kill_strays();
    }

    /// Collects those of them that have ended.
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
        // Sessions that have ended need no supervisor: the next one, a gateway or a node removes them.
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

    /// Takes no further runs, and makes room for the supervisor that takes them. Clients with a
    /// session here still find it.
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

    /// Sends a waiting shim away: its control closes, and it ends.
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

    /// Every running session may take an equal part of the half that finished ones do not have.
    /// Counted in powers of two, so that not every start changes the quota of every session.
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
        // One at a time: between two of them a client may want something.
        if self.idle.len() < self.need.fewest() {
            let _ = self.bear();
        } else if self.idle.len() > self.need.most() {
            self.retire();
        }
    }

    fn is_pool_right(&self) -> bool {
        (self.need.fewest()..=self.need.most()).contains(&self.idle.len())
    }

    /// How long the pool may stay as it is. A new shim is moved into its group, and while the
    /// system does that, whatever forks waits: the run that was ordered a moment ago, too. Most
    /// runs are short, and give their shim back.
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

    /// How long to wait for anything to happen.
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
        // Rounded up, so that it does not wake just before.
        pause + Duration::from_millis(1)
    }
}
