//! The state that all connections share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use interlock_approvals::{ApprovalRefusal, OutsideRuns};
use interlock_config::Config;
use interlock_dispatch::{Dispatcher, DispatcherParts};
use interlock_host::{ConfigInWorkspace, HostError, LocalHost, OpenOptions};
use interlock_supervisor::SupervisorClient;
use interlock_tls::IdentityError;
use interlock_wire::Secret;
use interlock_wire::hello::{PING_INTERVAL_MS, TICK_INTERVAL_MS};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::channels::ChannelHub;
use crate::handlers::show_approval;
use crate::limit::Writes;
use crate::logs::LogLines;
use crate::push::PushService;
use crate::refused_attempts::RefusedAttempts;
use crate::subscriptions::Subscriptions;
use crate::ui::ControlUi;
use interlock_access::SecretAccess;
use interlock_access::token::{self, SecretFile, TokenError};

/// The options with which a gateway starts.
#[derive(Debug)]
pub struct GatewayOptions {
    pub host: OpenOptions,
    /// Connects to the supervisor, and starts it when it is needed.
    pub supervisor: SupervisorClient,
    /// The port to listen on instead of the config's. 0 means any free port.
    pub port: Option<u16>,
    /// The time between two ticks instead of the default.
    pub tick_ms: Option<u64>,
    /// The environment that runs inherit.
    pub environment: BTreeMap<String, String>,
    pub version: &'static str,
    /// Receives the log, for operators who read it remotely.
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

/// One gateway: a dispatcher, and the rest of what its transports need.
#[derive(Debug)]
pub struct Gateway {
    pub dispatcher: Arc<Dispatcher>,
    pub access: Arc<SecretAccess>,
    pub logs: LogLines,
    pub(crate) subscriptions: Subscriptions,
    pub ui: ControlUi,
    pub push: PushService,
    pub channels: ChannelHub,
    /// Counts and records attempts that were refused, for the audit.
    pub refused: RefusedAttempts,
    /// Counts changes of the config by their author.
    pub(crate) writes: Writes,
    /// Proves that this process is not a run. Each peer is checked by itself.
    pub outside: OutsideRuns,
    /// Upgraded connections, which outlive their HTTP request.
    pub connections: TaskTracker,
    pub tick_ms: u64,
    pub version: &'static str,
}

impl Gateway {
    pub fn open(
        options: GatewayOptions,
        stop: CancellationToken,
    ) -> Result<(Arc<Self>, Config), GatewayError> {
        let (host, _) = LocalHost::open(options.host)?;
        let config = host.config()?.config().clone();
        token::take_over_plain_token(&host, &config)?;
        host.check_wake_command(&config)?;
        let device_key = SecretFile::named(host.state_dir(), "devices.key").read_or_create()?;
        let device_key = Secret::new(device_key);
        let access = SecretAccess::open(host.state_dir(), &config, &options.environment)?;
        let outside = OutsideRuns::this_process(&options.supervisor)?;
        let parts = DispatcherParts {
            host,
            supervisor: options.supervisor,
            device_key: device_key.clone(),
            wake_key: access.wake_key.clone(),
            stop,
            environment: without_secrets(options.environment, &config),
            show_approval,
        };
        let gateway = Self {
            dispatcher: Arc::new(Dispatcher::new(parts, &config)),
            ui: ControlUi::new(&device_key)?,
            push: PushService::default(),
            channels: ChannelHub::new(&device_key),
            refused: RefusedAttempts::default(),
            access: Arc::new(access),
            logs: options.logs,
            subscriptions: Subscriptions::default(),
            writes: Writes::default(),
            outside,
            connections: TaskTracker::new(),
            tick_ms: options.tick_ms.unwrap_or(TICK_INTERVAL_MS),
            version: options.version,
        };
        Ok((Arc::new(gateway), config))
    }

    /// Returns how often each client must show that it is alive.
    pub fn ping_interval(&self) -> Duration {
        Duration::from_millis(PING_INTERVAL_MS.min(self.tick_ms))
    }

    /// Resolves a path of the config, where `~` is the user's home directory.
    pub fn path(&self, text: &str) -> PathBuf {
        let home = self.dispatcher.host.home().unwrap_or("/");
        match text.strip_prefix("~/") {
            _ if text == "~" => PathBuf::from(home),
            Some(rest) => PathBuf::from(home).join(rest),
            None => PathBuf::from(text),
        }
    }
}

/// Runs inherit the environment of the service without the variables that authenticate an operator
/// or hold the token of a chat.
fn without_secrets(
    mut environment: BTreeMap<String, String>,
    config: &Config,
) -> BTreeMap<String, String> {
    for name in token::VARIABLES {
        environment.remove(*name);
    }
    for name in interlock_channels::secret_variables(config) {
        environment.remove(&name);
    }
    environment
}
