//! The process that serves the networks of scopes. It is started with the first scope that has a
//! network, is told of every such scope, and is restarted if it dies.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use interlock_engine::sandbox::{NetdOrder, ServedNetwork, StartedNetd};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, WaitOptions};

use super::{Supervisor, add};

/// A process that dies this often within a short time is not restarted, and its scopes then have no
/// network.
const MOST_STARTS: u32 = 5;
const SHORT_TIME: Duration = Duration::from_mins(1);

/// Most processes that may answer questions: a gateway, and commands that wait for a run. The
/// oldest is dropped first.
const MOST_ASKERS: usize = 32;

/// The files that `netd` and the gateway share, below the state directory.
const JOURNAL: &str = "network.jsonl";
const GATEWAY_LOCK: &str = "gateway.lock";

/// `interlock netd`, if it runs.
#[derive(Debug, Default)]
pub(super) struct Networks {
    netd: Option<(u64, StartedNetd)>,
    /// Processes that have ended or were released.
    ended: Vec<Pid>,
    /// Connections of processes that answer questions. A copy of each is kept, so that a new `netd`
    /// gets them if the old one dies.
    askers: Vec<UnixStream>,
    starts: u32,
    first_start: Option<Instant>,
}

impl Networks {
    /// Returns those children of the supervisor that are not strays.
    pub fn pids(&self) -> impl Iterator<Item = Pid> {
        let living = self.netd.iter().map(|(_, netd)| netd.pid);
        living.chain(self.ended.iter().copied())
    }

    /// Drops the connections whose other end is closed. This consumes nothing that was sent on
    /// them.
    fn forget_closed_askers(&mut self) {
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        self.askers.retain(
            |asker| match rustix::net::recv(asker, &mut [0; 1][..], flags) {
                Ok((0, _)) => false,
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => true,
                Err(_) => false,
            },
        );
        let too_many = self.askers.len().saturating_sub(MOST_ASKERS);
        self.askers.drain(..too_many);
    }

    pub fn is_netd(&self, token: u64) -> bool {
        self.netd.as_ref().is_some_and(|(own, _)| *own == token)
    }

    /// Reports the end of a scope to `netd`, which ends if no scope is left.
    pub fn forget(&mut self, scope_id: &str, is_last: bool) {
        if is_last {
            // The process ends when its link is closed.
            self.ended
                .extend(self.netd.take().map(|(_, netd)| netd.pid));
        } else if let Some((_, netd)) = &self.netd {
            let _ = netd.forget(scope_id);
        }
    }

    /// Collects processes that have ended.
    pub fn tidy_up(&mut self) {
        self.ended.retain(|pid| {
            let ended = rustix::process::waitpid(Some(*pid), WaitOptions::NOHANG);
            matches!(ended, Ok(None))
        });
    }

    pub fn end_all(&mut self) {
        self.forget("", true);
        for pid in self.ended.drain(..) {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        }
    }
}

impl Supervisor {
    /// Has the network of a scope served.
    pub(super) fn serve_network(
        &mut self,
        network: &ServedNetwork,
        sockets: &[OwnedFd],
    ) -> io::Result<()> {
        if self.networks.netd.is_none() {
            self.start_netd()?;
        }
        let (_, netd) = self.networks.netd.as_ref().ok_or(io::ErrorKind::NotFound)?;
        netd.serve(network, sockets)
    }

    /// Adds a process that answers questions from now on.
    pub(super) fn add_asker(&mut self, connection: UnixStream) {
        // The network server waits for its answers.
        if connection.set_nonblocking(true).is_err() {
            return;
        }
        if let Some((_, netd)) = &self.networks.netd {
            let _ = netd.add_asker(&connection);
        }
        self.networks.askers.push(connection);
        self.networks.forget_closed_askers();
    }

    fn start_netd(&mut self) -> io::Result<()> {
        let networks = &mut self.networks;
        let is_long_ago = |first: Instant| first.elapsed() >= SHORT_TIME;
        if networks.first_start.is_none_or(is_long_ago) {
            networks.first_start = Some(Instant::now());
            networks.starts = 0;
        }
        networks.starts += 1;
        if networks.starts > MOST_STARTS {
            return Err(io::Error::other("netd ends as soon as it is started"));
        }
        let state_dir = self.setup.place.state_dir();
        let netd = StartedNetd::start(&NetdOrder {
            journal: state_dir.join(JOURNAL),
            gateway_lock: state_dir.join(GATEWAY_LOCK),
        })?;
        let token = self.token();
        let watched = add(&self.events, &netd.link, token);
        self.networks.forget_closed_askers();
        for asker in &self.networks.askers {
            let _ = netd.add_asker(asker);
        }
        self.networks.netd = Some((token, netd));
        watched
    }

    /// Handles the end of `netd`, which sends nothing and must therefore be gone. The scopes get a
    /// new process; their connections are lost.
    pub(super) fn hear_netd(&mut self) {
        if let Some((_, netd)) = self.networks.netd.take() {
            let _ = rustix::process::kill_process(netd.pid, Signal::KILL);
            self.networks.ended.push(netd.pid);
        }
        for token in self.keepers.served() {
            let _ = self.serve_keeper(token);
        }
    }
}
