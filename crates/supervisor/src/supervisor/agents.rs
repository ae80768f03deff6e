//! The namespaces of agents: they are made when a shim first asks, handed to shims, and released
//! when no shim has had a run in them for a while.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use interlock_engine::shield::{RunNamespace, stable_children_of};
use interlock_engine::tree;
use rustix::process::{Pid, WaitOptions};

use super::Supervisor;
use crate::agent_init::{AgentInit, make_agent_init};
use crate::handover::{self, Note};

/// Without a shim for this long, the namespaces of an agent are released.
const UNUSED_TIME: Duration = Duration::from_mins(1);

/// How often to check on released namespaces.
const LOOK: Duration = Duration::from_secs(1);

/// All agents that had runs recently.
#[derive(Debug, Default)]
pub(super) struct Agents {
    by_name: HashMap<String, Agent>,
    /// Process 1 of released namespaces. Each ends when nothing is left inside.
    let_go: Vec<Pid>,
}

#[derive(Debug)]
struct Agent {
    init: AgentInit,
    /// The namespace of each shim that may start runs here.
    shims: HashMap<u64, RunNamespace>,
    /// Namespaces of ended shims whose runs left processes behind that may stay.
    kept: HashSet<RunNamespace>,
    unused_since: Instant,
}

impl Supervisor {
    /// Gives a shim the namespaces in which it starts runs of an agent, or reports why they are not
    /// available.
    pub(super) fn shield_shim(&mut self, token: u64, agent: String) {
        let hidden = self.setup.place.state_dir().to_owned();
        let note = match self.agents.hand_out(token, agent, &hidden) {
            Ok((namespaces, init)) => Note::Shield(namespaces, init),
            Err(error) => Note::ShieldFailed(error.to_string()),
        };
        if let Some(shim) = self.shims.get(&token) {
            let _ = handover::send_note(&shim.control, &note);
        }
    }
}

impl Agents {
    fn hand_out(
        &mut self,
        token: u64,
        name: String,
        hidden: &std::path::Path,
    ) -> io::Result<(Vec<OwnedFd>, i32)> {
        self.shim_is_gone(token);
        if self.by_name.get(&name).is_some_and(Agent::has_ended) {
            // Processes inside cannot end it. Everything in its namespace has ended with it.
            self.by_name.remove(&name);
        }
        let agent = match self.by_name.entry(name) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => place.insert(Agent {
                init: make_agent_init(hidden)?,
                shims: HashMap::new(),
                kept: HashSet::new(),
                unused_since: Instant::now(),
            }),
        };
        let (own, others) = agent.init.descriptors_for_shim()?;
        let namespace = RunNamespace::of_descriptor(&own, agent.init.is_of_user())?;
        let copy = |one: &BorrowedFd<'_>| one.try_clone_to_owned();
        let mut namespaces: Vec<OwnedFd> = others.iter().map(copy).collect::<io::Result<_>>()?;
        namespaces.insert(2.min(namespaces.len()), own.as_fd().try_clone_to_owned()?);
        agent.shims.insert(token, namespace);
        Ok((namespaces, agent.init.pid.as_raw_pid()))
    }

    /// Records the end of a run, which may have left processes behind that are to stay.
    pub fn run_is_over(&mut self, token: u64, leaves_some: bool) {
        if !leaves_some {
            return;
        }
        for agent in self.by_name.values_mut() {
            if let Some(namespace) = agent.shims.get(&token) {
                agent.kept.insert(*namespace);
            }
        }
    }

    pub fn shim_is_gone(&mut self, token: u64) {
        for agent in self.by_name.values_mut() {
            if agent.shims.remove(&token).is_some() {
                agent.unused_since = Instant::now();
            }
        }
    }

    /// Returns those children of the supervisor that are not strays.
    pub fn inits(&self) -> impl Iterator<Item = Pid> {
        let living = self.by_name.values().map(|agent| agent.init.pid);
        living.chain(self.let_go.iter().copied())
    }

    /// Ends every process that belongs to no living run and may not stay. Returns whether there
    /// were any.
    pub fn kill_strays(&self) -> bool {
        let strays: Vec<i32> = self.by_name.values().flat_map(Agent::strays).collect();
        if !strays.is_empty() {
            tree::kill_all(&strays);
        }
        !strays.is_empty()
    }

    /// Releases unused namespaces, and collects process 1 of namespaces that have ended.
    pub fn tidy_up(&mut self) {
        let let_go = &mut self.let_go;
        self.by_name.retain(|_, agent| {
            let is_used = !agent.shims.is_empty() || agent.unused_since.elapsed() < UNUSED_TIME;
            if !is_used {
                // Dropping the agent closes its control.
                let_go.push(agent.init.pid);
            }
            is_used
        });
        let_go.retain(|init| {
            let ended = rustix::process::waitpid(Some(*init), WaitOptions::NOHANG);
            matches!(ended, Ok(None))
        });
    }

    /// Returns the time until the next cleanup.
    pub fn next_due(&self) -> Option<Duration> {
        let unused = self.by_name.values().filter(|agent| agent.shims.is_empty());
        let due = unused.map(|agent| UNUSED_TIME.saturating_sub(agent.unused_since.elapsed()));
        let look = (!self.let_go.is_empty()).then_some(LOOK);
        due.chain(look).min()
    }
}

impl Agent {
    fn has_ended(&self) -> bool {
        let ended = rustix::process::waitpid(Some(self.init.pid), WaitOptions::NOHANG);
        !matches!(ended, Ok(None))
    }

    /// Returns the orphans under process 1 that belong to runs whose shims are gone.
    fn strays(&self) -> Vec<i32> {
        let init = self.init.pid;
        let mut children = stable_children_of(init);
        let is_living = |pid: i32| {
            let mut living = self.shims.values().chain(&self.kept);
            living.any(|namespace| namespace.has(pid, init))
        };
        // A child by which process 1 made a namespace may be among them; its work is done.
        children.retain(|pid| !is_living(*pid));
        children
    }
}
