//! The shield: the namespaces of one agent, in which Interlock's state directory, sockets and
//! processes do not exist. The account's files, network and tools stay as they are.
//!
//! ```text
//! supervisor ─┬─► init                      process 1 of the agent's PID namespace
//!             └─► shim ─┬─► entrant         enters the namespaces, starts the program, is over
//!                       └─► program         a child of the shim, inside the namespaces
//! ```
//!
//! The namespaces are made once per agent and entered by every run of it, so that an agent sees and
//! can end what it started in an earlier call. Those of an ordinary user belong to a user namespace
//! in which no run has a capability. Root gets only mount and PID namespaces, and can undo them.
//!
//! The kernel gives orphans inside a PID namespace to its process 1 and not to the shim. Every
//! shim's runs are therefore also in a namespace of that shim: a user namespace below the agent's,
//! which a process can leave only downwards, or a UTS namespace for root. See [`RunShield`].
//!
//! The supervisor makes the namespaces (its `agent_init`). This module enters them.

mod ancestry;
mod probe;
mod unsafe_namespaces;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::process::Pid;

use crate::process_table;

pub use ancestry::{RunNamespace, stable_children_of};
pub use probe::{ShieldKind, ShieldUnavailable, probe_shield};
use unsafe_namespaces::{NamespaceKind, drop_capabilities, enter};

/// The namespaces that the runs of one shim are started in.
#[derive(Debug)]
pub struct RunShield {
    /// `None` for root.
    user: Option<OwnedFd>,
    mounts: OwnedFd,
    processes: OwnedFd,
    /// The namespace that contains only this shim's runs.
    own: OwnedFd,
    own_name: RunNamespace,
    init: Pid,
    /// The start time of process 1. Together with its number, it identifies the process.
    init_started: u64,
}

impl RunShield {
    /// Makes the shield from the descriptors that the supervisor hands over: the mount and PID
    /// namespaces, the shim's own namespace and, for an ordinary user, the agent's user namespace.
    pub fn from_descriptors(descriptors: Vec<OwnedFd>, init: i32) -> io::Result<Self> {
        let mut descriptors = descriptors.into_iter();
        let (Some(mounts), Some(processes), Some(own), Some(init)) = (
            descriptors.next(),
            descriptors.next(),
            descriptors.next(),
            Pid::from_raw(init),
        ) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let user = descriptors.next();
        let row = process_table::row(init.as_raw_pid());
        Ok(Self {
            init_started: row.ok_or(io::ErrorKind::NotFound)?.started,
            own_name: RunNamespace::of_descriptor(&own, user.is_some())?,
            user,
            mounts,
            processes,
            own,
            init,
        })
    }

    /// Whether runs can still be started in the namespaces.
    pub fn is_alive(&self) -> bool {
        process_table::is_same(self.init.as_raw_pid(), self.init_started)
    }

    /// Enters the namespaces in a child without threads. From then on, the child sees the agent's
    /// view of the file system, or `mounts`, which was derived from that view, and whatever it
    /// starts is in the agent's PID namespace. This allocates nothing.
    pub(crate) fn enter(&self, mounts: Option<&OwnedFd>) -> io::Result<()> {
        self.enter_mounts(mounts.unwrap_or(&self.mounts))?;
        enter(self.processes.as_fd(), NamespaceKind::Processes)
    }

    /// Does the same as [`Self::enter`], except for the PID namespace.
    pub(crate) fn enter_mounts(&self, mounts: &OwnedFd) -> io::Result<()> {
        if let Some(user) = &self.user {
            enter(user.as_fd(), NamespaceKind::User)?;
        }
        enter(mounts.as_fd(), NamespaceKind::Mounts)
    }

    pub(crate) fn agent_mounts(&self) -> &OwnedFd {
        &self.mounts
    }

    /// Enters the namespace of this shim's runs and gives up every right that an ordinary user has
    /// in it. The child calls this as its last step before it becomes the program. This allocates
    /// nothing.
    pub(crate) fn become_run(&self) -> io::Result<()> {
        if self.user.is_some() {
            enter(self.own.as_fd(), NamespaceKind::User)?;
            drop_capabilities()
        } else {
            enter(self.own.as_fd(), NamespaceKind::HostName)
        }
    }

    /// Returns the orphans that belong to this shim's runs, by their numbers outside.
    pub(crate) fn orphans(&self) -> Vec<i32> {
        // Without its process 1, nothing in the namespace lives, and the number may belong to
        // another process.
        if !self.is_alive() {
            return Vec::new();
        }
        let mut children = stable_children_of(self.init);
        children.retain(|pid| self.own_name.has(*pid, self.init));
        children
    }
}
