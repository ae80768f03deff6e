//! The messages between the supervisor and `interlock netd`, and the self-confinement of that
//! process.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use interlock_plan::{SandboxNetworkRules, UnixSockets};
use rustix::process::{DumpableBehavior, Gid, Pid, Resource, Rlimit, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};

use super::netd_files::confine_to_name_files;
use super::network::ScopeSockets;
use super::unsafe_confine::install_filter;
use super::{init, link};
use interlock_syscalls::MemoryFiles;

/// The argument that turns the binary into the server of the sandboxes' networks.
pub const NETD_COMMAND: &str = "netd";

/// Prefix of a scope to serve.
const SERVE: &[u8] = b"serve";

/// Prefix of the name of a scope that has ended.
const FORGET: &str = "forget ";

/// Message with the connection of a process that answers questions.
const ASKER: &[u8] = b"asker";

/// The user that this process becomes if root started it, because it needs no rights of root.
const NO_USER: u32 = 65_534;

/// The order that `netd` receives at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetdOrder {
    /// The file that it writes its records to.
    pub journal: PathBuf,
    /// The file in which the gateway publishes its address.
    pub gateway_lock: PathBuf,
}

/// A scope whose network is to be served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServedScope {
    pub scope_id: String,
    /// The scope in words, such as `agent main`.
    pub scope: String,
    pub rules: SandboxNetworkRules,
}

/// A scope whose network is to be served, as the supervisor hands it over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServedNetwork {
    pub scope: ServedScope,
    /// The inode of the scope's network namespace. A process that answers questions uses it to find
    /// the run that a connection comes from.
    pub namespace: u64,
}

/// `interlock netd`, as the supervisor knows it.
#[derive(Debug)]
pub struct StartedNetd {
    pub pid: Pid,
    /// The link to the process, which ends when this is closed.
    pub link: OwnedFd,
}

impl StartedNetd {
    /// Executes this binary anew. The calling process must have one thread, or must not fork in any
    /// of its own threads.
    pub fn start(order: &NetdOrder) -> io::Result<Self> {
        let (link, of_netd) = link::pair()?;
        // The supervisor never waits for this process.
        rustix::io::ioctl_fionbio(&link, true)?;
        let pid = super::start_self(NETD_COMMAND, super::order_file(order)?, of_netd)?;
        Ok(Self { pid, link })
    }

    /// Hands over the sockets of a scope. `netd` keeps its own copies.
    pub fn serve(&self, network: &ServedNetwork, sockets: &[OwnedFd]) -> io::Result<()> {
        let order = super::order_file(network)?;
        let mut all = vec![order.as_fd()];
        all.extend(sockets.iter().map(AsFd::as_fd));
        link::send(&self.link, SERVE, &all)
    }

    /// Hands over the connection of a process that answers questions. `netd` keeps its own copy.
    pub fn add_asker(&self, connection: impl AsFd) -> io::Result<()> {
        link::send(&self.link, ASKER, &[connection.as_fd()])
    }

    pub fn forget(&self, scope_id: &str) -> io::Result<()> {
        link::send(&self.link, format!("{FORGET}{scope_id}").as_bytes(), &[])
    }
}

/// A message from the supervisor to `netd`.
#[derive(Debug)]
pub enum NetdMessage {
    Serve(Box<ServedNetwork>, ScopeSockets),
    Forget(String),
    /// The connection of a process that answers questions: [`NetworkQuestion`](super::NetworkQuestion).
    Asker(OwnedFd),
}

impl NetdMessage {
    /// Returns the next message, which must be available. `None` if the supervisor is gone.
    pub fn receive(link: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let (text, descriptors) = match link::receive(link, Duration::ZERO) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            received => received?,
        };
        if let Some(id) = str::from_utf8(&text)
            .ok()
            .and_then(|text| text.strip_prefix(FORGET))
        {
            return Ok(Some(Self::Forget(id.to_owned())));
        }
        let mut descriptors = descriptors.into_iter();
        if text == ASKER {
            let connection = descriptors.next().ok_or(io::ErrorKind::InvalidData)?;
            return Ok(Some(Self::Asker(connection)));
        }
        let (SERVE, Some(order)) = (text.as_slice(), descriptors.next()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut order = File::from(order);
        order.rewind()?;
        let mut text = Vec::new();
        order.read_to_end(&mut text)?;
        let sockets = ScopeSockets::from_descriptors(descriptors.collect())?;
        Ok(Some(Self::Serve(serde_json::from_slice(&text)?, sockets)))
    }
}

/// Reads the order in `netd`, before it has a second thread, and opens what it needs. From then on,
/// `netd` is no user of this machine if root started it, has no capability, can gain none, reads no
/// files except those by which names are resolved, and its system calls are filtered like those of
/// a run.
pub fn begin_netd<T>(open: impl FnOnce(&NetdOrder) -> io::Result<T>) -> Result<T, String> {
    let order: NetdOrder =
        init::read_order(rustix::stdio::stdout()).map_err(|init::InitFailure(why)| why)?;
    let begin = || -> io::Result<T> {
        rustix::thread::set_name(c"interlock-netd")?;
        let opened = open(&order)?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdout(&null)?;
        let limit = rustix::process::getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        rustix::process::setrlimit(Resource::Nofile, raised)?;
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        rustix::process::setrlimit(Resource::Core, none)?;
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_groups(&[])?;
            let group = Some(Gid::from_raw(NO_USER));
            rustix::thread::set_thread_res_gid(group, group, group)?;
            let user = Some(Uid::from_raw(NO_USER));
            rustix::thread::set_thread_res_uid(user, user, user)?;
        }
        let nothing = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, nothing)?;
        rustix::thread::set_no_new_privs(true)?;
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        confine_to_name_files()?;
        let filter = interlock_syscalls::program(UnixSockets::Own, MemoryFiles::NeverExecuted)
            .ok_or(io::ErrorKind::Unsupported)?;
        install_filter(&filter)?;
        Ok(opened)
    };
    begin().map_err(|error| error.to_string())
}
