//! How many clients a gateway accepts: as many as the config says, but no more than the system has
//! file descriptors for.

use std::sync::{Arc, Mutex, PoisonError};

use interlock_config::Config;
use rustix::process::{Resource, getrlimit};
use tokio::sync::OwnedSemaphorePermit;

/// The number of connections if `gateway.maxConnections` is not set.
const CONNECTIONS: u64 = 4096;

/// File descriptors that network connections must not use: for the database, runs of this machine
/// and files. Half of them are for the Unix socket.
const RESERVED: u64 = 1024;

/// How many pairing requests are kept at least.
const PAIRING_REQUESTS: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatewayLimits {
    /// How many network connections may exist at once. Further callers wait.
    pub connections: usize,
    /// The limit for the Unix socket: nodes that take all other places must not lock out the owner.
    pub local_connections: usize,
    /// How many pairing requests may wait, the newest first. Every client that may connect can have
    /// one.
    pub pairing_requests: usize,
}

impl GatewayLimits {
    pub fn of(config: &Config) -> Self {
        let configured = config.gateway.max_connections;
        let descriptors = getrlimit(Resource::Nofile).current;
        let limits = Self::within(configured, descriptors);
        if let (Some(configured), Some(descriptors)) = (configured, descriptors)
            && u64::try_from(limits.connections).is_ok_and(|most| most < configured)
        {
            tracing::warn!(
                "gateway.maxConnections is {configured}, but {descriptors} open files allow {} \
                 connections; raise the limit: LimitNOFILE= in the unit, or ulimit -n",
                limits.connections
            );
        }
        limits
    }

    /// The limits for a number of `descriptors`; `None` means no limit.
    fn within(configured: Option<u64>, descriptors: Option<u64>) -> Self {
        let wanted = configured.unwrap_or(CONNECTIONS);
        let reserved = descriptors.map_or(RESERVED, |all| RESERVED.min(all / 2));
        let room = descriptors.map(|all| all - reserved);
        let connections = room.map_or(wanted, |room| wanted.min(room)).max(1);
        let connections = usize::try_from(connections).unwrap_or(usize::MAX);
        // A semaphore cannot have more permits.
        let connections = connections.min(tokio::sync::Semaphore::MAX_PERMITS);
        Self {
            connections,
            local_connections: usize::try_from(reserved / 2).unwrap_or(usize::MAX).max(1),
            pairing_requests: connections.max(PAIRING_REQUESTS),
        }
    }
}

/// The place of one connection. A WebSocket outlives the request that opened it, and takes over the
/// place; otherwise the place is free again when the connection ends.
#[derive(Debug, Clone)]
pub struct ConnectionPlace(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl ConnectionPlace {
    pub fn new(permit: OwnedSemaphorePermit) -> Self {
        Self(Arc::new(Mutex::new(Some(permit))))
    }

    /// Takes over the place until the permit is dropped. `None` if it was already taken over.
    pub fn take(&self) -> Option<OwnedSemaphorePermit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_as_configured_within_the_descriptors_of_the_system() {
        for (configured, descriptors, connections, local_connections, requests) in [
            (None, None, 4096, 512, 4096),
            (None, Some(524_288), 4096, 512, 4096),
            (None, Some(4096), 3072, 512, 3072),
            (None, Some(1024), 512, 256, 1000),
            (Some(20_000), Some(524_288), 20_000, 512, 20_000),
            (Some(20_000), Some(16_384), 15_360, 512, 15_360),
            (Some(64), Some(524_288), 64, 512, 1000),
            (Some(64), Some(1), 1, 1, 1000),
        ] {
            let expected = GatewayLimits {
                connections,
                local_connections,
                pairing_requests: requests,
            };
            let limits = GatewayLimits::within(configured, descriptors);
            assert_eq!(limits, expected, "{configured:?} {descriptors:?}");
        }
    }
}
