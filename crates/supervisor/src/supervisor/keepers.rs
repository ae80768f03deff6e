//! The keepers of sandbox scopes: they are started when a shim first asks, shared by the runs of
//! their scope, and released when no run has been in their scope for a while.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use interlock_engine::sandbox::{KeeperOrder, ScopeNamespaces, ServedNetwork, StartedKeeper};
use rustix::process::{Pid, Signal, WaitOptions};

use super::{Supervisor, add};
use crate::handover::{self, Note};
use crate::unsafe_fork::fork_keeper;

/// Without a run for this long, a keeper is released, and everything that the runs of its scope
/// left in `/tmp` is gone.
const UNUSED_TIME: Duration = Duration::from_mins(1);

/// How long a released keeper may take to end.
const END_TIME: Duration = Duration::from_secs(5);

/// How often to check on released keepers.
const LOOK: Duration = Duration::from_secs(1);

/// All scopes that had runs recently.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    by_token: HashMap<u64, Keeper>,
    /// Released keepers, with the time of their release. Each ends by itself.
    let_go: Vec<(Pid, Instant)>,
    /// Scopes whose networks are no longer to be served.
    unserved: Vec<String>,
}

#[derive(Debug)]
struct Keeper {
    order: KeeperOrder,
    started: StartedKeeper,
    /// `None` until the keeper reports that it is ready.
    namespaces: Option<ScopeNamespaces>,
    /// The sockets of its network, if it has one.
    sockets: Vec<OwnedFd>,
    /// The shims whose runs are in the scope, or wait for it.
    shims: HashSet<u64>,
    /// When the last run left, or the keeper was started.
    unused_since: Instant,
}

impl Keeper {
    /// Returns the note for a shim, if the keeper is ready.
    fn note(&self) -> Option<Note> {
        let namespaces = self.namespaces.as_ref()?;
        let copy = |one: BorrowedFd<'_>| one.try_clone_to_owned();
        let copies: io::Result<Vec<OwnedFd>> =
            namespaces.descriptors().into_iter().map(copy).collect();
        Some(match copies {
            Ok(copies) => Note::Scope(copies),
            Err(error) => Note::ScopeFailed(error.to_string()),
        })
    }
}

impl Keeper {
    /// Returns how much longer the keeper may take to become ready, or `None` once it is. After
    /// that time it is ended, and the runs that wait for it are refused.
    fn until_late(&self) -> Option<Duration> {
        let left = self
            .order
            .patience()
            .saturating_sub(self.unused_since.elapsed());
        self.namespaces.is_none().then_some(left)
    }
}

impl Supervisor {
    /// Gives a shim what the runs of a scope share, now or as soon as its keeper is ready. A keeper
    /// is made only for an authorized run, because making one can start a container, or a
    /// connection to another machine.
    pub(super) fn join_scope(&mut self, token: u64, order: KeeperOrder, is_authorized: bool) {
        let known = self.keepers.of_order(&order);
        if known.is_none() && !is_authorized {
            return self.answer_shim(token, &Note::ScopeAbsent);
        }
        let keeper = match known.map_or_else(|| self.start_keeper(order), Ok) {
            Ok(keeper) => keeper,
            Err(error) => {
                let why = format!("starting the keeper of its scope: {error}");
                return self.answer_shim(token, &Note::ScopeFailed(why));
            }
        };
        let Some(keeper) = self.keepers.by_token.get_mut(&keeper) else {
            return;
        };
        keeper.shims.insert(token);
        if let Some(note) = keeper.note() {
            self.answer_shim(token, &note);
        }
    }

    fn answer_shim(&self, token: u64, note: &Note) {
        if let Some(shim) = self.shims.get(&token) {
            let _ = handover::send_note(&shim.control, note);
        }
    }

    fn start_keeper(&mut self, order: KeeperOrder) -> io::Result<u64> {
        let started = StartedKeeper::start_by(&order, fork_keeper)?;
        let token = self.token();
        let watched = add(&self.events, &started.link, token);
        let keeper = Keeper {
            order,
            started,
            namespaces: None,
            sockets: Vec::new(),
            shims: HashSet::new(),
            unused_since: Instant::now(),
        };
        if let Err(error) = watched {
            self.keepers.let_go_of(keeper);
            return Err(error);
        }
        self.keepers.by_token.insert(token, keeper);
        Ok(token)
    }

    fn answer_shims(&self, token: u64) {
        let Some(keeper) = self.keepers.by_token.get(&token) else {
            return;
        };
        for shim in &keeper.shims {
            if let Some(note) = keeper.note() {
                self.answer_shim(*shim, &note);
            }
        }
    }

    /// Has the network of a keeper served, if it has one.
    pub(super) fn serve_keeper(&mut self, token: u64) -> io::Result<()> {
        let Some(keeper) = self.keepers.by_token.get_mut(&token) else {
            return Ok(());
        };
        let (Some(scope), Some(namespaces)) = (keeper.order.served.clone(), &keeper.namespaces)
        else {
            return Ok(());
        };
        let served = ServedNetwork {
            scope,
            namespace: namespaces.network_inode()?,
        };
        let sockets = std::mem::take(&mut keeper.sockets);
        // An earlier keeper of the scope is forgotten first.
        for scope in std::mem::take(&mut self.keepers.unserved) {
            self.networks.forget(&scope, false);
        }
        let serving = self.serve_network(&served, &sockets);
        if let Some(keeper) = self.keepers.by_token.get_mut(&token) {
            keeper.sockets = sockets;
        }
        serving
    }

    /// Stops serving the networks of released keepers.
    pub(super) fn end_networks(&mut self) {
        let is_last = self.keepers.served().is_empty();
        for scope in std::mem::take(&mut self.keepers.unserved) {
            self.networks.forget(&scope, is_last);
        }
    }

    pub(super) fn is_keeper(&self, token: u64) -> bool {
        self.keepers.by_token.contains_key(&token)
    }

    /// Handles a keeper that reports that it is ready or why it failed, or that is gone. A keeper
    /// cannot be ended from inside its scope. If it is gone, the runs in its scope are ended,
    /// because further runs would share nothing with them.
    pub(super) fn hear_keeper(&mut self, token: u64) {
        let Some(keeper) = self.keepers.by_token.get_mut(&token) else {
            return;
        };
        let is_new = keeper.namespaces.is_none();
        let note = match keeper.started.receive() {
            Ok((namespaces, sockets)) if is_new => {
                keeper.namespaces = Some(namespaces);
                keeper.sockets = sockets;
                match self.serve_keeper(token) {
                    Ok(()) => return self.answer_shims(token),
                    Err(error) => Note::ScopeFailed(format!("serving its network: {error}")),
                }
            }
            Err(why) if is_new => Note::ScopeFailed(why),
            _ => Note::ScopeGone,
        };
        if let Some(keeper) = self.keepers.by_token.remove(&token) {
            for shim in &keeper.shims {
                self.answer_shim(*shim, &note);
            }
            self.keepers.let_go_of(keeper);
        }
    }
}

impl Keepers {
    fn of_order(&self, order: &KeeperOrder) -> Option<u64> {
        let mut all = self.by_token.iter();
        all.find(|(_, keeper)| keeper.order == *order)
            .map(|(token, _)| *token)
    }

    /// Releases a keeper, which ends when its link is closed.
    fn let_go_of(&mut self, keeper: Keeper) {
        let StartedKeeper { pid, link } = keeper.started;
        drop(link);
        let served = keeper.order.served;
        self.unserved.extend(served.map(|served| served.scope_id));
        self.let_go.push((pid, Instant::now()));
    }

    /// Returns the keepers whose networks are served.
    pub fn served(&self) -> Vec<u64> {
        let is_served =
            |keeper: &Keeper| keeper.order.served.is_some() && !keeper.sockets.is_empty();
        let all = self.by_token.iter().filter(|(_, keeper)| is_served(keeper));
        all.map(|(token, _)| *token).collect()
    }

    /// Records that a shim no longer has a run in any scope.
    pub fn leave_scope(&mut self, token: u64) {
        for keeper in self.by_token.values_mut() {
            if keeper.shims.remove(&token) {
                keeper.unused_since = Instant::now();
            }
        }
    }

    /// Ends the keepers of a scope that no run is in. Returns whether none is left.
    pub fn end_scope(&mut self, scope_id: &str) -> bool {
        self.let_go_if(|keeper| keeper.order.scope_id == scope_id && keeper.shims.is_empty());
        let mut rest = self.by_token.values();
        !rest.any(|keeper| keeper.order.scope_id == scope_id)
    }

    fn let_go_if(&mut self, is_over: impl Fn(&Keeper) -> bool) {
        let over: Vec<u64> = self
            .by_token
            .iter()
            .filter(|(_, keeper)| is_over(keeper))
            .map(|(token, _)| *token)
            .collect();
        for token in over {
            if let Some(keeper) = self.by_token.remove(&token) {
                self.let_go_of(keeper);
            }
        }
    }

    /// Returns those children of the supervisor that are not strays.
    pub fn pids(&self) -> impl Iterator<Item = Pid> {
        let living = self.by_token.values().map(|keeper| keeper.started.pid);
        living.chain(self.let_go.iter().map(|(pid, _)| *pid))
    }

    /// Releases unused keepers, and collects those that have ended.
    pub fn tidy_up(&mut self) {
        self.let_go_if(|keeper| {
            keeper.shims.is_empty() && keeper.unused_since.elapsed() >= UNUSED_TIME
        });
        let late = |keeper: &&Keeper| keeper.until_late().is_some_and(|left| left.is_zero());
        for keeper in self.by_token.values().filter(late) {
            // Its link closes, and the waiting shims are notified.
            let _ = rustix::process::kill_process(keeper.started.pid, Signal::KILL);
        }
        self.let_go.retain(|(pid, since)| {
            if since.elapsed() >= END_TIME {
                let _ = rustix::process::kill_process(*pid, Signal::KILL);
            }
            let ended = rustix::process::waitpid(Some(*pid), WaitOptions::NOHANG);
            matches!(ended, Ok(None))
        });
    }

    /// Ends all keepers. This is for a supervisor that ends when no run is left.
    pub fn end_all(&mut self) {
        self.let_go_if(|_| true);
        for (pid, _) in self.let_go.drain(..) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        }
    }

    /// Returns the time until the next cleanup.
    pub fn next_due(&self) -> Option<Duration> {
        let unused = self.by_token.values().filter(|one| one.shims.is_empty());
        let due = unused.map(|one| UNUSED_TIME.saturating_sub(one.unused_since.elapsed()));
        let late = self.by_token.values().filter_map(Keeper::until_late);
        let look = (!self.let_go.is_empty()).then_some(LOOK);
        due.chain(late.map(|left| left.max(LOOK))).chain(look).min()
    }
}
