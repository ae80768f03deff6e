//! What all connections share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use interlock_approvals::{ApprovalRefusal, OutsideRuns};
use interlock_config::{Config, ConfigFile};
use interlock_host::{ConfigInWorkspace, HostError, LocalHost, OpenOptions, now_ms};
use interlock_policy::AgentId;
use interlock_supervisor::SupervisorClient;
use interlock_tls::IdentityError;
use interlock_wire::hello::TICK_INTERVAL_MS;
use interlock_wire::{Secret, StateVersion};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::SecretAccess;
use crate::access::token::{self, SecretFile, TokenError};
use crate::approvals::ApprovalFeed;
use crate::events::Events;
use crate::limit::Writes;
use crate::logs::LogLines;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::once::Once;
use crate::serve::limits::GatewayLimits;
use crate::sessions::SeenSessions;
use crate::ui::ControlUi;
use crate::ws::hub::Hub;
use crate::ws::subscriptions::Subscriptions;

/// What a gateway is started with.
#[derive(Debug)]
pub struct GatewayOptions {
    pub host: OpenOptions,
    /// Reaches the supervisor, and starts it when it is needed.
    pub supervisor: SupervisorClient,
    /// Instead of the config's; 0 is any free one.
    pub port: Option<u16>,
    /// Between two ticks, instead of the usual time.
    pub tick_ms: Option<u64>,
    /// The environment that runs inherit.
    pub environment: BTreeMap<String, String>,
    pub version: &'static str,
    /// Where the log goes, for operators who read it from afar.
    pub logs: LogLines,
}

#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Approval(#[from] ApprovalRefusal),
    #[error(transparent)]
    ConfigInWorkspace(#[from] ConfigInWorkspace),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("a gateway runs for this state directory already{}", .0.map_or(String::new(), |pid| format!(" (pid {pid})")))]
    AlreadyRuns(Option<u32>),
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: String,
        source: std::io::Error,
    },
    #[error("{path}: {source}")]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{0}")]
    Tls(#[from] IdentityError),
    #[error("gateway.tls.{set} is set, and gateway.tls.{missing} is not")]
    HalfOfTls {
        set: &'static str,
        missing: &'static str,
    },
    #[error("gateway.tls is enabled, names no certificate, and forbids to make one")]
    NoCertificate,
    #[error("gateway.bind goes beyond this machine, and gateway.auth.mode is `none`")]
    Open,
    #[error("{0}")]
    Config(String),
}

impl GatewayError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Host(error) => error.code(),
            Self::Approval(error) => error.code(),
            Self::ConfigInWorkspace(_) => ConfigInWorkspace::CODE,
            Self::Token(_) => "TOKEN_UNUSABLE",
            Self::AlreadyRuns(_) => "GATEWAY_ALREADY_RUNS",
            Self::Listen { .. } => "LISTEN_FAILED",
            Self::File { .. } => "STATE_UNUSABLE",
            Self::Tls(_) | Self::HalfOfTls { .. } | Self::NoCertificate => "TLS_UNUSABLE",
            Self::Open => "BIND_WITHOUT_AUTH",
            Self::Config(_) => "CONFIG_INVALID",
        }
    }

    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Host(error) => error.remedy(),
            Self::Approval(error) => error.remedy(),
            Self::ConfigInWorkspace(_) => Some(ConfigInWorkspace::remedy().to_owned()),
            Self::Token(error) => Some(error.remedy()),
            Self::AlreadyRuns(_) => {
                Some("see it: interlock gateway status; end it: interlock gateway stop".to_owned())
            }
            Self::Listen { .. } => Some(
                "choose another port: interlock gateway run --port 0, or gateway.port".to_owned(),
            ),
            Self::File { .. } => None,
            Self::Tls(error) => Some(error.remedy()),
            Self::HalfOfTls { missing, .. } => {
                Some(format!("interlock config set gateway.tls.{missing} FILE"))
            }
            Self::NoCertificate => Some(
                "name gateway.tls.certPath and gateway.tls.keyPath, or interlock config unset gateway.tls.autoGenerate"
                    .to_owned(),
            ),
            Self::Open => Some("interlock config set gateway.auth.mode token".to_owned()),
            Self::Config(_) => Some("interlock config validate".to_owned()),
        }
    }
}

/// One gateway.
#[derive(Debug)]
pub struct Gateway {
    pub(crate) host: LocalHost,
    pub(crate) supervisor: SupervisorClient,
    pub(crate) access: SecretAccess,
    pub(crate) approvals: ApprovalFeed,
    pub(crate) metrics: Metrics,
    pub(crate) once: Once,
    pub(crate) hub: Hub,
    pub(crate) limits: GatewayLimits,
    pub(crate) nodes: Nodes,
    pub(crate) events: Events,
    pub(crate) logs: LogLines,
    pub(crate) seen: SeenSessions,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) ui: ControlUi,
    /// Places for calls that wait for runs.
    pub(crate) waiting: Arc<Semaphore>,
    /// Changes of the config, by who makes them.
    pub(crate) writes: Writes,
    /// This process is no run; its peers are looked at one by one.
    pub(crate) outside: OutsideRuns,
    /// Makes the tokens of devices.
    pub(crate) device_key: Secret,
    /// Connections that were upgraded: they outlive their HTTP request.
    pub(crate) connections: TaskTracker,
    /// The gateway ends.
    pub(crate) stop: CancellationToken,
    pub(crate) tick_ms: u64,
    presence: AtomicU64,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) version: &'static str,
    pub(crate) started_at_ms: u64,
}

/// A request that names an agent which is not there.
#[derive(Debug, thiserror::Error)]
#[error("unknown agent `{0}`")]
pub(crate) struct UnknownAgent(pub(crate) String);

impl Gateway {
    pub(crate) fn open(
        options: GatewayOptions,
        stop: CancellationToken,
    ) -> Result<(Arc<Self>, Config), GatewayError> {
        let (host, _) = LocalHost::open(options.host)?;
        let config = host.config()?.config().clone();
        token::take_over_plain_token(&host, &config)?;
        host.check_wake_command(&config)?;
        let device_key = SecretFile::named(host.state_dir(), "devices.key").read_or_create()?;
        let device_key = Secret::new(device_key);
        let gateway = Self {
            ui: ControlUi::new(&device_key)?,
            access: SecretAccess::open(host.state_dir(), &config, &options.environment)?,
            approvals: ApprovalFeed::default(),
            metrics: Metrics::default(),
            once: Once::default(),
            hub: Hub::default(),
            limits: GatewayLimits::of(&config),
            nodes: Nodes::default(),
            events: Events::default(),
            logs: options.logs,
            seen: SeenSessions::default(),
            subscriptions: Subscriptions::default(),
            waiting: Arc::new(Semaphore::new(crate::work::MAX_WAITING)),
            writes: Writes::default(),
            outside: OutsideRuns::this_process(&options.supervisor)?,
            device_key,
            connections: TaskTracker::new(),
            stop,
            tick_ms: options.tick_ms.unwrap_or(TICK_INTERVAL_MS),
            presence: AtomicU64::new(0),
            environment: without_secrets(options.environment),
            supervisor: options.supervisor,
            version: options.version,
            started_at_ms: now_ms(),
            host,
        };
        gateway.supervisor.prepare();
        Ok((Arc::new(gateway), config))
    }

    /// How often presence has changed.
    pub(crate) fn state_version(&self) -> StateVersion {
        StateVersion {
            presence: self.presence.load(Ordering::Relaxed),
            health: 0,
        }
    }

    pub(crate) fn presence_changed(&self) {
        self.presence.fetch_add(1, Ordering::Relaxed);
    }

    /// The agent of this name, if the config knows it or lets in those that it does not know.
    pub(crate) fn agent(config: &ConfigFile, name: &str) -> Result<AgentId, UnknownAgent> {
        let unknown = || UnknownAgent(name.to_owned());
        let agent = AgentId::new(name).map_err(|_| unknown())?;
        let agents = &config.config().agents;
        let is_known = agent.as_str() == AgentId::MAIN
            || config.config().agent(agent.as_str()).is_some()
            || agents.allow_unknown == Some(true);
        is_known.then_some(agent).ok_or_else(unknown)
    }

    /// The agent that is meant when none is named.
    pub(crate) fn default_agent(&self) -> String {
        let config = self.host.config();
        config.map_or_else(
            |_| AgentId::MAIN.to_owned(),
            |config| config.config().default_agent_id(),
        )
    }

    /// A path of the config, where `~` is the user's home directory.
    pub(crate) fn path(&self, text: &str) -> PathBuf {
        let home = self.host.home().unwrap_or("/");
        match text.strip_prefix("~/") {
            _ if text == "~" => PathBuf::from(home),
            Some(rest) => PathBuf::from(home).join(rest),
            None => PathBuf::from(text),
        }
    }
}

/// Runs get the environment of the service, without the variables that prove an operator.
fn without_secrets(mut environment: BTreeMap<String, String>) -> BTreeMap<String, String> {
    for name in token::VARIABLES {
        environment.remove(*name);
    }
    environment
}
