//! The state that all calls of a gateway share, regardless of their transport.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use interlock_config::{Config, ConfigFile};
use interlock_host::{LocalHost, NetworkLinks, now_ms};
use interlock_policy::AgentId;
use interlock_sessions::{Process, ProcessCaller, ProcessError};
use interlock_supervisor::SupervisorClient;
use interlock_wire::{Secret, StateVersion};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::approvals::{ApprovalFeed, ShowApproval};
use crate::events::Events;
use crate::limits::GatewayLimits;
use crate::look::RecordChanges;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::once::Once;
use crate::sessions::SeenSessions;
use crate::work::MAX_WAITING;
use interlock_connections::Hub;

/// Carries out the calls of one gateway.
#[derive(Debug)]
pub struct Dispatcher {
    pub host: LocalHost,
    pub supervisor: SupervisorClient,
    pub approvals: ApprovalFeed,
    pub metrics: Metrics,
    pub once: Once,
    pub hub: Hub,
    pub limits: GatewayLimits,
    pub nodes: Nodes,
    pub events: Events,
    /// Notifies of the changes that other processes store.
    pub record: RecordChanges,
    pub seen: SeenSessions,
    /// The permits of calls that wait for runs.
    pub waiting: Arc<Semaphore>,
    /// Derives the tokens of devices, and identifies this gateway to nodes.
    pub device_key: Secret,
    /// Signs wake calls.
    pub wake_key: Vec<u8>,
    /// Cancelled when the gateway stops.
    pub stop: CancellationToken,
    /// The environment that runs inherit.
    pub environment: BTreeMap<String, String>,
    pub started_at_ms: u64,
    /// The connections on which this gateway is asked about hosts.
    pub(crate) network_links: Arc<NetworkLinks>,
    presence: AtomicU64,
}

/// The parts of a dispatcher.
#[derive(Debug)]
pub struct DispatcherParts {
    pub host: LocalHost,
    pub supervisor: SupervisorClient,
    pub device_key: Secret,
    pub wake_key: Vec<u8>,
    pub stop: CancellationToken,
    pub environment: BTreeMap<String, String>,
    /// Shows an approval to connected clients.
    pub show_approval: ShowApproval,
}

/// The error for a request that names an unknown agent.
#[derive(Debug, thiserror::Error)]
#[error("unknown agent `{0}`")]
pub struct UnknownAgent(pub String);

impl Dispatcher {
    /// The background sessions of a caller on this machine.
    pub fn process(&self, caller: ProcessCaller) -> Result<Process, ProcessError> {
        Process::open(&self.host, caller, self.supervisor.clone())
    }

    pub fn new(parts: DispatcherParts, config: &Config) -> Self {
        parts.supervisor.prepare();
        Self {
            host: parts.host,
            supervisor: parts.supervisor,
            approvals: ApprovalFeed::new(parts.show_approval),
            metrics: Metrics::default(),
            once: Once::default(),
            hub: Hub::default(),
            limits: GatewayLimits::of(config),
            nodes: Nodes::default(),
            events: Events::default(),
            record: RecordChanges::default(),
            seen: SeenSessions::default(),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            device_key: parts.device_key,
            wake_key: parts.wake_key,
            stop: parts.stop,
            environment: parts.environment,
            started_at_ms: now_ms(),
            network_links: Arc::default(),
            presence: AtomicU64::new(0),
        }
    }

    /// How often presence has changed.
    pub fn state_version(&self) -> StateVersion {
        StateVersion {
            presence: self.presence.load(Ordering::Relaxed),
            health: 0,
        }
    }

    pub fn presence_changed(&self) {
        self.presence.fetch_add(1, Ordering::Relaxed);
    }

    /// The agent with this name, if the config knows it or permits unknown agents.
    pub fn agent(config: &ConfigFile, name: &str) -> Result<AgentId, UnknownAgent> {
        let unknown = || UnknownAgent(name.to_owned());
        let agent = AgentId::new(name).map_err(|_| unknown())?;
        let agents = &config.config().agents;
        let is_known = agent.as_str() == AgentId::MAIN
            || config.config().agent(agent.as_str()).is_some()
            || agents.allow_unknown == Some(true);
        is_known.then_some(agent).ok_or_else(unknown)
    }

    /// The agent of a call that names none.
    pub fn default_agent(&self) -> String {
        let config = self.host.config();
        config.map_or_else(
            |_| AgentId::MAIN.to_owned(),
            |config| config.config().default_agent_id(),
        )
    }
}
