//! `interlock netd`: the process that serves the networks of all scopes of a state directory. The
//! supervisor starts it with the first scope that has a network, hands it the sockets of each
//! scope, and ends it. It outlives a gateway.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use interlock_engine::sandbox::{NetdMessage, begin_netd};
use serde::Deserialize;
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use crate::askers::Askers;
use crate::journal::ConnectionJournal;
use crate::scope::{NetdParts, ScopeServer};

/// Runs the process until it ends. Only the supervisor starts it; it reads no config and no policy.
pub fn become_netd() -> i32 {
    let begun = begin_netd(|order| {
        let journal = ConnectionJournal::open(&order.journal)?;
        let own_ports = OwnPorts::open(&order.gateway_lock)?;
        Ok((journal, own_ports))
    });
    let Ok((journal, own_ports)) = begun else {
        return 1;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let served = runtime.and_then(|runtime| runtime.block_on(serve(journal, own_ports)));
    i32::from(served.is_err())
}

/// Serves until the supervisor is gone.
async fn serve(journal: ConnectionJournal, own_ports: OwnPorts) -> io::Result<()> {
    // A socket that preserves message boundaries is awaited like a datagram socket.
    let link = std::os::unix::net::UnixDatagram::from(rustix::stdio::stdin().try_clone_to_owned()?);
    link.set_nonblocking(true)?;
    let link = UnixDatagram::from_std(link)?;
    let askers = Askers::new()?;
    let mut scopes: HashMap<String, ScopeServer> = HashMap::new();
    loop {
        link.readable().await?;
        let received = link.try_io(Interest::READABLE, || {
            NetdMessage::receive(link.as_fd()).map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => io::ErrorKind::WouldBlock.into(),
                _ => error,
            })
        });
        match received {
            Ok(Some(NetdMessage::Serve(network, sockets))) => {
                let id = network.scope.scope_id.clone();
                // An earlier server of the scope has other sockets, or the same rules as this one.
                scopes.remove(&id);
                let shared = NetdParts {
                    journal: journal.clone(),
                    own_ports: own_ports.clone(),
                    askers: askers.clone(),
                };
                let server = ScopeServer::start(*network, sockets, shared)?;
                scopes.insert(id, server);
            }
            Ok(Some(NetdMessage::Forget(id))) => drop(scopes.remove(&id)),
            // Dropping closes a connection that cannot be used.
            Ok(Some(NetdMessage::Asker(connection))) => drop(askers.add(connection)),
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// The port on which the gateway of this state directory listens, according to its lock file. No
/// entry opens this port.
#[derive(Debug, Clone)]
pub(crate) struct OwnPorts {
    gateway_lock: Arc<File>,
}

/// The part of the lock file that is read.
#[derive(Deserialize)]
struct ListeningGateway {
    address: SocketAddr,
}

impl OwnPorts {
    /// Opens the file once, as the user that owns it. A gateway that starts later writes to the
    /// same file.
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            gateway_lock: Arc::new(file),
        })
    }

    pub fn is_own(&self, port: u16) -> bool {
        let mut text = [0; 4096];
        let length = self.gateway_lock.read_at(&mut text, 0).unwrap_or_default();
        let text = text.get(..length).unwrap_or_default();
        serde_json::from_slice::<ListeningGateway>(text)
            .is_ok_and(|gateway| gateway.address.port() == port)
    }
}
