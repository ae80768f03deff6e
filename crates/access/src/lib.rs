//! Identifies the callers of a server on this machine.
//!
//! `proven` holds the results of a proof, `token` the sources of operators' secrets. `tcp` finds
//! the process at the other end of a connection, `limiter` slows callers that guess, `headers`
//! keeps browsers on other sites out, and `http_caller` combines them for an HTTP request. Start
//! reading at [`SecretAccess::prove`].

#![forbid(unsafe_code)]

pub mod cidr;
pub mod headers;
mod http_caller;
pub mod limiter;
mod proven;
pub mod tcp;
pub mod token;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use interlock_config::{Config, GatewayAuthMode};
use interlock_host::{LocalHost, TokenRole};
use interlock_supervisor::{PeerOrigin, SupervisorPaths, served_by};
use interlock_transcript::SessionRecord;
use interlock_wire::Secret;
use tokio::task::spawn_blocking;

pub use self::http_caller::{bearer, identify, refusal, unauthorized};
use self::limiter::{Limiter, Tried};
pub use self::proven::{ProvenCaller, RunOf};
use self::token::{OperatorAccess, TokenError};

/// Shorter tokens can be guessed. Tokens of this program are longer.
const UNGUESSABLE_BYTES: usize = 32;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Network(SocketAddr),
    /// A process of this user, over the Unix socket.
    Local(PeerOrigin),
}

impl Peer {
    pub fn address(self) -> IpAddr {
        match self {
            Self::Network(address) => address.ip().to_canonical(),
            Self::Local(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }
}

/// How long a run may take to appear in its session's record. It does so some moments after its
/// start, later on a busy machine.
const RUN_TOLD: Duration = Duration::from_secs(3);

/// The interval at which the record is checked.
const RUN_LOOK: Duration = Duration::from_millis(15);

/// The record of the run that a shim serves.
pub async fn record_of(place: &SupervisorPaths, shim: i32) -> Option<SessionRecord> {
    let until = Instant::now() + RUN_TOLD;
    loop {
        let place = place.clone();
        match spawn_blocking(move || served_by(&place, shim)).await.ok()? {
            Some(record) => return Some(record),
            None if Instant::now() >= until => return None,
            None => tokio::time::sleep(RUN_LOOK).await,
        }
    }
}

/// Why a caller was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusedCaller {
    Missing,
    Wrong,
    /// The caller is inside a run whose agent is unknown.
    UnknownRun,
    /// A run holds the connection, and the proof is not that run's own.
    InRun,
    /// It is not certain that no run holds the connection. Carries the reason.
    Unidentified(String),
    /// The token is only for a node's connection.
    NodeToken,
    /// Too many wrong tries. Carries the number of seconds to wait.
    Limited(u64),
}

/// The code of the refusal of a request that a run must not make.
pub const PEER_IN_RUN: &str = "PEER_IN_RUN";

/// The code of the refusal of a caller on this machine whose process is unknown.
pub const PEER_UNIDENTIFIED: &str = "PEER_UNIDENTIFIED";

/// The code of the refusal of a node's token for anything but a node's connection.
pub const TOKEN_ROLE: &str = "TOKEN_ROLE";

/// The message of the refusal of a request that a run must not make, at every transport.
pub const IN_RUN: &str = "a run may only call tools as its own agent (POST /tools/invoke or /mcp); decide outside of the run";

/// The message of the refusal of a caller whose process is unknown.
pub fn unidentified(why: &str) -> String {
    format!("the process of this connection is not known ({why}); use the gateway's Unix socket")
}

/// A secret that a caller presents.
#[derive(Debug, Clone, Copy)]
pub enum Presented<'a> {
    Token(&'a str),
    Password(&'a str),
}

/// What a presented secret proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenRole {
    pub role: TokenRole,
    /// The id of the stored token. Revoking the token ends the connections that were made with it.
    pub token_id: Option<String>,
}

/// Checks presented secrets: stored tokens in every mode, the token of the gateway's environment,
/// and the password if the config requires one.
#[derive(Debug)]
pub struct SecretAccess {
    mode: GatewayAuthMode,
    token: Option<Secret>,
    password: Option<Secret>,
    /// The key that signs wake calls.
    pub wake_key: Vec<u8>,
    pub source: OperatorAccess,
    pub limiter: Limiter,
}

impl SecretAccess {
    pub fn open(
        state_dir: &Path,
        config: &Config,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, TokenError> {
        let auth = &config.gateway.auth;
        let token = token::token_of_environment(environment);
        Ok(Self {
            source: OperatorAccess::configured(config, environment)?,
            mode: auth.mode.unwrap_or(GatewayAuthMode::Token),
            wake_key: token::wake_key(state_dir, token.as_ref())?,
            token,
            password: token::password(auth.password_file.as_deref(), environment)?,
            limiter: Limiter::default(),
        })
    }

    pub fn mode(&self) -> GatewayAuthMode {
        self.mode
    }

    pub fn asks_for_proof(&self) -> bool {
        self.mode != GatewayAuthMode::None
    }

    /// Checks a presented secret. The error is [`RefusedCaller::Wrong`] or
    /// [`RefusedCaller::Limited`]; if the caller proves nothing else, [`failed`](Self::failed) must
    /// count the try.
    ///
    /// Reads the store, so it must not run on the network's thread.
    pub fn prove(
        &self,
        host: &LocalHost,
        presented: Presented<'_>,
        address: IpAddr,
        now: Instant,
    ) -> Result<ProvenRole, RefusedCaller> {
        let who = (address, Tried::Shared);
        let limited = self.limiter.wait(who, now).map(RefusedCaller::Limited);
        let (Presented::Token(text) | Presented::Password(text)) = presented;
        let is_password = matches!(presented, Presented::Password(_));
        let can_be_guessed = is_password || text.len() < UNGUESSABLE_BYTES;
        if let (Some(limited), true) = (&limited, can_be_guessed) {
            return Err(limited.clone());
        }
        let found = match presented {
            Presented::Token(text) => self.role_of_token(host, text),
            Presented::Password(text) => self.role_of_password(text),
        };
        match found {
            Some(proven) => {
                // A node's token proves nothing about the operator's secret, so its holder is not
                // forgiven wrong guesses of that secret.
                if proven.role == TokenRole::Operator {
                    self.limiter.succeeded(who);
                }
                Ok(proven)
            }
            None => Err(limited.unwrap_or(RefusedCaller::Wrong)),
        }
    }

    /// Whether the secret of a bearer header is a token or a password.
    pub fn bearer<'a>(&self, text: &'a str) -> Presented<'a> {
        let is_password = self.mode == GatewayAuthMode::Password
            && self
                .password
                .as_ref()
                .is_some_and(|password| password.matches(text));
        if is_password || (self.mode == GatewayAuthMode::Password && text.len() < UNGUESSABLE_BYTES)
        {
            Presented::Password(text)
        } else {
            Presented::Token(text)
        }
    }

    fn role_of_token(&self, host: &LocalHost, text: &str) -> Option<ProvenRole> {
        let of_environment = self.mode != GatewayAuthMode::Password
            && self.token.as_ref().is_some_and(|token| token.matches(text));
        if of_environment {
            return Some(ProvenRole {
                role: TokenRole::Operator,
                token_id: None,
            });
        }
        // An unreadable store proves nothing.
        let stored = host.find_role_token(text).ok().flatten()?;
        Some(ProvenRole {
            role: stored.role,
            token_id: Some(stored.id),
        })
    }

    fn role_of_password(&self, text: &str) -> Option<ProvenRole> {
        let is_asked = self.mode == GatewayAuthMode::Password;
        let is_right = self
            .password
            .as_ref()
            .is_some_and(|password| password.matches(text));
        (is_asked && is_right).then_some(ProvenRole {
            role: TokenRole::Operator,
            token_id: None,
        })
    }

    /// Counts a caller that proved nothing at all. Tries during a pause do not extend it.
    pub fn failed(&self, refused: &RefusedCaller, who: (IpAddr, Tried), now: Instant) {
        if *refused == RefusedCaller::Wrong {
            self.limiter.failed(who, now);
        }
    }
}
