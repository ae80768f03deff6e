//! Who speaks, and what that proves.
//!
//! `token` holds the operator's secrets, `limiter` slows those who guess, `headers` keeps browsers
//! of other sites out.

pub(crate) mod cidr;
pub(crate) mod headers;
pub(crate) mod limiter;
pub(crate) mod token;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Instant;

use hmac::{Hmac, KeyInit as _, Mac as _};
use interlock_config::{Config, GatewayAuthMode};
use interlock_policy::AgentId;
use interlock_run::session::Record;
use interlock_run::supervisor::Origin;
use sha2::Sha256;

use self::limiter::{Limiter, Tried};
use interlock_wire::Secret;

use self::token::{OperatorSecret, TokenError};

/// Shorter tokens were chosen by somebody; those of this program have 43 characters.
const UNGUESSABLE_BYTES: usize = 32;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Network(SocketAddr),
    /// A process of this user, by the Unix socket.
    Local(Origin),
}

impl Peer {
    pub(crate) fn address(self) -> IpAddr {
        match self {
            Self::Network(address) => address.ip().to_canonical(),
            Self::Local(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }
}

/// Who speaks, as proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Who {
    /// A person who may do everything, or a program that holds that person's secret.
    Operator,
    /// May call tools as this agent, and nothing else.
    Agent(AgentId),
    /// Inside a run: may call tools as the agent and in the session of that run, and nothing else.
    Run(RunOf),
}

/// Whose run a caller is inside of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunOf {
    pub(crate) agent: AgentId,
    pub(crate) session_key: String,
}

impl RunOf {
    /// What the session's record says. Runs that a gateway elsewhere ordered have agents of that
    /// one, who are nobody here.
    pub(crate) fn new(session: Record) -> Option<Self> {
        let agent = AgentId::new(&session.agent_id).ok()?;
        let usual = || interlock_host::usual_session_key(agent.as_str());
        let session_key = session.session_key.unwrap_or_else(usual);
        session
            .owner
            .is_none()
            .then_some(Self { agent, session_key })
    }
}

/// Why somebody was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Missing,
    Wrong,
    /// Inside a run of which nobody knows whose it is.
    UnknownRun,
    /// Too many wrong tries; again after so many seconds.
    Limited(u64),
}

/// What proves somebody an operator.
#[derive(Debug)]
pub(crate) struct Access {
    mode: GatewayAuthMode,
    token: Secret,
    password: Option<Secret>,
    pub(crate) source: OperatorSecret,
    pub(crate) limiter: Limiter,
}

impl Access {
    /// Reads the secrets; the token is made if there is none yet.
    pub(crate) fn open(
        state_dir: &Path,
        config: &Config,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, TokenError> {
        let auth = &config.gateway.auth;
        let source = OperatorSecret::of(state_dir, config, environment)?;
        Ok(Self {
            source,
            mode: auth.mode.unwrap_or(GatewayAuthMode::Token),
            token: token::operator_token(state_dir, auth.token_file.as_deref(), environment)?,
            password: token::password(auth.password_file.as_deref(), environment)?,
            limiter: Limiter::default(),
        })
    }

    pub(crate) fn mode(&self) -> GatewayAuthMode {
        self.mode
    }

    /// Signs wake calls. Who holds the operator token can make it; from it, the token cannot be made.
    pub(crate) fn wake_key(&self) -> Option<[u8; 32]> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.token.expose().as_bytes()).ok()?;
        mac.update(b"interlock wake v1");
        Some(mac.finalize().into_bytes().into())
    }

    pub(crate) fn asks_for_proof(&self) -> bool {
        self.mode != GatewayAuthMode::None
    }

    /// Whether this is the operator's shared secret, whichever of them is asked for. The error is
    /// [`Refused::Wrong`] or [`Refused::Limited`]; whoever proves nothing else then
    /// [`failed`](Self::failed).
    pub(crate) fn prove_operator(
        &self,
        presented: &str,
        address: IpAddr,
        now: Instant,
    ) -> Result<(), Refused> {
        let who = (address, Tried::Shared);
        let limited = self.limiter.wait(who, now).map(Refused::Limited);
        let (secret, can_be_guessed) = match self.mode {
            GatewayAuthMode::Password => (self.password.as_ref(), true),
            _ => (
                Some(&self.token),
                self.token.expose().len() < UNGUESSABLE_BYTES,
            ),
        };
        if let (Some(limited), true) = (limited, can_be_guessed) {
            return Err(limited);
        }
        if secret.is_some_and(|secret| secret.matches(presented)) {
            self.limiter.succeeded(who);
            return Ok(());
        }
        Err(limited.unwrap_or(Refused::Wrong))
    }

    /// Somebody could prove nothing at all. Tries during a pause make it no longer.
    pub(crate) fn failed(&self, refused: Refused, who: (IpAddr, Tried), now: Instant) {
        if refused == Refused::Wrong {
            self.limiter.failed(who, now);
        }
    }
}
