//! The life of a node: connect, serve, reconnect.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interlock_config::RemoteDocument;
use interlock_host::{HostError, LocalHost, NO_CALLER_CONTEXT, OpenOptions, now_ms};
use interlock_policy::AgentId;
use interlock_supervisor::{SupervisorClient, memory};
use interlock_wire::event::{NODE_PAIR_REQUESTED, NODE_PAIR_RESOLVED};
use interlock_wire::identity::DeviceIdentity;
use interlock_wire::{Event, Secret, WireError};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::connection::{
    ConnectError, ConnectionEnd, GatewayConnection, GatewayRefusal, wants_device_token,
};
use crate::introduction::{
    By, Introduction, PASSWORD_VARIABLES, SharedCredentials, TOKEN_VARIABLES,
};
use crate::serve::{GatewayPeer, NodeService};
use crate::state::{self, DeviceTokens, NodeFile, NodeInfo, NodeLock, NodeStanding};
use crate::target::GatewayTarget;
use crate::uplink::Uplink;

/// Ids of requests are much shorter than this.
const MAX_SHOWN_ID: usize = 64;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The longest pause while an operator is about to approve the pairing.
const LONGEST_PAIRING_PAUSE: Duration = Duration::from_secs(5);
/// How often the node looks for ended runs.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often old records are deleted.
const FORGET_EVERY: Duration = Duration::from_hours(1);

/// The options of a node's start.
#[derive(Debug)]
pub struct NodeOptions {
    pub host: OpenOptions,
    /// Reaches the supervisor, and starts it if needed.
    pub supervisor: SupervisorClient,
    pub target: GatewayTarget,
    /// Replaces the name of the machine.
    pub display_name: Option<String>,
    /// Replaces the id that was chosen at the first start.
    pub node_id: Option<String>,
    /// The environment that runs inherit.
    pub environment: BTreeMap<String, String>,
    /// A new token from the gateway, which replaces the stored one.
    pub device_token: Option<Secret>,
    pub version: &'static str,
}

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("a node runs for this state directory already{}", .0.map_or(String::new(), |pid| format!(" (pid {pid})")))]
    AlreadyRuns(Option<u32>),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: {problem}", path.display())]
    Identity { path: PathBuf, problem: String },
    #[error("the gateway refuses this node: {}", .0.message)]
    Refused(Box<WireError>),
    #[error("another node with this identity has taken the place of this one")]
    TakenOver,
    #[error("all places for work are taken and nothing was finished for minutes")]
    Stuck,
}

impl NodeError {
    pub(crate) fn file(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        |source| Self::File {
            path: path.to_owned(),
            source,
        }
    }

    pub fn code(&self) -> &'static str {
        match self {
            Self::Host(error) => error.code(),
            Self::AlreadyRuns(_) => "NODE_RUNS_ALREADY",
            Self::File { .. } => "NODE_FILE_UNUSABLE",
            Self::Identity { .. } => "NODE_IDENTITY_INVALID",
            Self::Refused(_) => "GATEWAY_REFUSED",
            Self::TakenOver => "NODE_TAKEN_OVER",
            Self::Stuck => "NODE_STUCK",
        }
    }

    pub fn remedy(&self) -> Option<String> {
        let words = match self {
            Self::Host(error) => return error.remedy(),
            Self::AlreadyRuns(_) => "see it, then end it: interlock node status",
            Self::File { .. } => return None,
            Self::Identity { .. } => {
                "restore the file, or remove it: a new device is made, which must be paired anew"
            }
            Self::TakenOver => {
                "two machines must not share a state directory: remove identity/device.json on one of them"
            }
            Self::Stuck => {
                "start it again, as the installed service does; if it comes back, look for a file system or a disk that does not answer"
            }
            Self::Refused(error) => match error.detail_code() {
                Some("AUTH_TOKEN_MISSING" | "AUTH_TOKEN_MISMATCH") => {
                    "set INTERLOCK_GATEWAY_TOKEN, or gateway.remote.tokenFile in the config, to the token of the gateway"
                }
                Some("AUTH_PASSWORD_MISSING" | "AUTH_PASSWORD_MISMATCH") => {
                    "set INTERLOCK_GATEWAY_PASSWORD, or gateway.remote.passwordFile in the config, to the password of the gateway"
                }
                Some("AUTH_DEVICE_TOKEN_MISMATCH") => {
                    "the token of this device was changed or revoked: start once with INTERLOCK_GATEWAY_TOKEN, or with --device-token-file and what `interlock devices rotate` printed"
                }
                Some("PROTOCOL_MISMATCH") => "one of the two is too old: update it",
                _ => "look into the log of the gateway",
            },
        };
        Some(words.to_owned())
    }

    /// Whether another start would fail in the same way, so that services should not retry.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::TakenOver)
    }
}

/// Serves a gateway until `stop`, and reconnects whenever the connection is lost. Returns only
/// errors that another attempt would repeat.
pub async fn run(options: NodeOptions, stop: CancellationToken) -> Result<(), NodeError> {
    let NodeOptions {
        host,
        supervisor,
        target,
        display_name,
        node_id,
        mut environment,
        device_token,
        version,
    } = options;
    let (host, _) = LocalHost::open(host)?;
    let state_dir = host.state_dir().to_owned();
    let lock = NodeLock::take(&state_dir)?;
    let identity = state::identity(&state_dir)?;
    let shared = SharedCredentials::of(&host, &environment)?;
    for name in TOKEN_VARIABLES.iter().chain(&PASSWORD_VARIABLES) {
        environment.remove(*name);
    }
    let file = NodeFile::of(&state_dir, &target, display_name, node_id);
    file.write(&state_dir)?;
    // Runs that an earlier process left unfinished are known by their sessions, or not at all.
    host.recover(&supervisor)?;
    supervisor.prepare();
    let introduction = Introduction::new(
        &file,
        version,
        host.scope(&AgentId::default())?.path(&NO_CALLER_CONTEXT),
        shared,
        DeviceTokens::new(&state_dir, &identity.device_id(), target.key()),
    );
    if let Some(token) = device_token {
        introduction.tokens.keep(&token, &[])?;
    }
    let info = NodeInfo {
        pid: std::process::id(),
        version: version.to_owned(),
        started_at_ms: now_ms(),
        device_id: identity.device_id(),
        gateway: target.url(),
        standing: NodeStanding::Connecting,
        since_ms: now_ms(),
        pairing_request: None,
        commands_request: None,
    };
    let uplink = Arc::new(Uplink::new());
    let service = Arc::new(NodeService::new(
        host,
        supervisor,
        environment,
        identity.device_id(),
        Arc::clone(&uplink),
    ));
    let forgetting = tokio::spawn(forget(Arc::clone(&service)));
    let telling = tokio::spawn(tell_ends(Arc::clone(&service)));
    let resting = tokio::spawn(rest(Arc::clone(&service)));
    let learning = tokio::spawn(learn_skills(Arc::clone(&service), Arc::clone(&uplink)));
    let node = NodeHost {
        target,
        identity,
        introduction,
        uplink,
        service: Arc::clone(&service),
        lock,
        stop,
    };
    let served = tokio::select! {
        served = node.serve(info) => served,
        () = service.stuck() => Err(NodeError::Stuck),
        error = state_removed(&service) => Err(NodeError::Host(error)),
    };
    forgetting.abort();
    telling.abort();
    resting.abort();
    learning.abort();
    // Whatever is stuck could block the flush too.
    if !matches!(served, Err(NodeError::Stuck)) {
        service.host.store().flush();
    }
    served
}

/// Returns when the database was missing from its place at two checks in a row: a node without its
/// state can judge and record nothing.
async fn state_removed(service: &Arc<NodeService>) -> HostError {
    let mut missing = 0;
    loop {
        tokio::time::sleep(STATE_LOOK).await;
        let reader = Arc::clone(service);
        let looked = tokio::task::spawn_blocking(move || reader.host.store().check_in_place());
        match looked.await {
            Ok(Err(error)) if missing > 0 => return error.into(),
            Ok(Err(_)) => missing += 1,
            _ => missing = 0,
        }
    }
}

/// How often a node checks that its state exists.
const STATE_LOOK: Duration = Duration::from_secs(1);

/// Asks the gateway which programs belong to skills. Whether they are allowed is decided by the
/// document of this machine.
async fn learn_skills(service: Arc<NodeService>, uplink: Arc<Uplink>) {
    loop {
        let reader = Arc::clone(&service);
        let asked = tokio::task::spawn_blocking(move || {
            // A gateway that may not loosen the policy may not name programs either.
            let may_loosen = reader.remote_document()? == RemoteDocument::Write;
            Ok::<_, HostError>(may_loosen && reader.host.allows_skills()?)
        });
        let is_wanted = asked.await.is_ok_and(Result::unwrap_or_default);
        if !is_wanted {
            service.host.set_skills(Vec::new());
        }
        uplink
            .ask_skills(is_wanted, |bins| service.host.set_skills(bins))
            .await;
    }
}

/// Releases memory while the node is idle, until the node ends.
async fn rest(service: Arc<NodeService>) {
    let mut rest = memory::RestWatch::default();
    let mut looks = 0_u32;
    loop {
        tokio::time::sleep(memory::LOOK_EVERY).await;
        rest.look(|| service.host.store().shrink());
        if looks.is_multiple_of(SESSIONS_EVERY) {
            let supervisor = service.supervisor.clone();
            let _ = tokio::task::spawn_blocking(move || supervisor.remove_due_sessions()).await;
        }
        looks = looks.wrapping_add(1);
    }
}

/// Expired sessions are removed at every so many checks.
const SESSIONS_EVERY: u32 = 12;

/// The state that stays the same across connections.
struct NodeHost {
    target: GatewayTarget,
    identity: DeviceIdentity,
    introduction: Introduction,
    uplink: Arc<Uplink>,
    service: Arc<NodeService>,
    lock: NodeLock,
    stop: CancellationToken,
}

impl NodeHost {
    async fn serve(&self, info: NodeInfo) -> Result<(), NodeError> {
        self.lock.publish(&info)?;
        let gateway = info.gateway.clone();
        let info = Mutex::new(info);
        let mut attempt: u32 = 0;
        let mut shown_request: Option<String> = None;
        let mut by = By::Shared;
        loop {
            tracing::info!(gateway, attempt, "connecting");
            let connect = self.introduction.connect(by);
            let shows_shared = connect
                .auth
                .as_ref()
                .is_some_and(|auth| auth.device_token.is_none());
            let opening = GatewayConnection::open(&self.target, connect, &self.identity);
            let opened = tokio::select! {
                opened = opening => opened,
                () = self.stop.cancelled() => return Ok(()),
            };
            let mut longest = LONGEST_PAUSE;
            let mut at_least = None;
            let standing = match opened {
                Ok(connection) => {
                    attempt = 0;
                    shown_request = None;
                    self.keep_token(&connection)?;
                    self.stand(&info, NodeStanding::Connected, None)?;
                    match self.serve_one(connection, &info).await {
                        ConnectionEnd::Stopped => return Ok(()),
                        ConnectionEnd::TakenOver => return Err(NodeError::TakenOver),
                        ConnectionEnd::Lost(why) => tracing::warn!(why, "the gateway is lost"),
                    }
                    (NodeStanding::Connecting, None)
                }
                Err(ConnectError::Unreachable(why)) => {
                    tracing::warn!(why, "the gateway cannot be reached");
                    (NodeStanding::Connecting, None)
                }
                Err(ConnectError::Refused(error)) => match GatewayRefusal::of(&error) {
                    GatewayRefusal::Final
                        if shows_shared
                            && wants_device_token(&error)
                            && self.introduction.tokens.get().is_some() =>
                    {
                        tracing::warn!(
                            why = error.message,
                            "refused; from now on the token of this device is shown"
                        );
                        by = By::DeviceToken;
                        continue;
                    }
                    GatewayRefusal::Final => return Err(NodeError::Refused(error)),
                    GatewayRefusal::Later(after) => {
                        tracing::warn!(why = error.message, "the gateway wants us later");
                        at_least = after;
                        (NodeStanding::Connecting, None)
                    }
                    GatewayRefusal::Pairing { request_id } => {
                        let request_id = request_id.filter(|id| is_plain(id));
                        if attempt == 0 || request_id != shown_request {
                            tell_pairing(&error, request_id.as_deref());
                        }
                        shown_request.clone_from(&request_id);
                        longest = LONGEST_PAIRING_PAUSE;
                        (NodeStanding::PairingRequired, request_id)
                    }
                },
            };
            self.stand(&info, standing.0, standing.1)?;
            let pause = pause(attempt, longest, at_least);
            attempt = attempt.saturating_add(1);
            tracing::info!(milliseconds = pause.as_millis(), "next attempt");
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => return Ok(()),
            }
        }
    }

    async fn serve_one(
        &self,
        connection: GatewayConnection,
        info: &Mutex<NodeInfo>,
    ) -> ConnectionEnd {
        tracing::info!(version = connection.hello.server.version, "connected");
        self.service
            .set_gateway(GatewayPeer::of_hello(&connection.hello));
        let hear = |event: &_| self.hear(event, info);
        connection.serve(&self.uplink, &self.stop, hear).await
    }

    fn hear(&self, event: &Event, info: &Mutex<NodeInfo>) {
        match event.event.as_str() {
            NODE_PAIR_REQUESTED => {
                let request = said(event, "requestId").filter(|id| is_plain(id));
                let request = request.unwrap_or_else(|| "NODE".to_owned());
                tracing::warn!(
                    "the gateway does not use the commands of this node yet; on the gateway run: interlock nodes approve {request}"
                );
                self.wait_for_commands(info, Some(request));
            }
            NODE_PAIR_RESOLVED => {
                match said(event, "decision").as_deref() {
                    Some("approved") => tracing::info!("the commands of this node were approved"),
                    _ => tracing::warn!("the commands of this node were not approved"),
                }
                self.wait_for_commands(info, None);
            }
            _ => NodeService::invoke(&self.service, event),
        }
    }

    fn wait_for_commands(&self, info: &Mutex<NodeInfo>, request: Option<String>) {
        let mut info = info.lock().unwrap_or_else(PoisonError::into_inner);
        info.commands_request = request;
        if let Err(error) = self.lock.publish(&info) {
            tracing::warn!(%error, "the state of this node cannot be published");
        }
    }

    /// Stores the device's token, with which a node can reconnect without the gateway's token.
    fn keep_token(&self, connection: &GatewayConnection) -> Result<(), NodeError> {
        let auth = &connection.hello.auth;
        let Some(token) = &auth.device_token else {
            return Ok(());
        };
        self.introduction.tokens.keep(token, &auth.scopes)
    }

    fn stand(
        &self,
        info: &Mutex<NodeInfo>,
        standing: NodeStanding,
        pairing_request: Option<String>,
    ) -> Result<(), NodeError> {
        let mut info = info.lock().unwrap_or_else(PoisonError::into_inner);
        if info.standing != standing || info.pairing_request != pairing_request {
            info.since_ms = now_ms();
        }
        info.standing = standing;
        info.pairing_request = pairing_request;
        info.commands_request = None;
        self.lock.publish(&info)
    }
}

/// A text property of an event's payload.
fn said(event: &Event, name: &str) -> Option<String> {
    let payload: Value = serde_json::from_str(event.payload.as_deref()?.get()).ok()?;
    payload[name].as_str().map(str::to_owned)
}

/// Whether an id is safe in a command that people copy.
fn is_plain(id: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    !id.is_empty() && id.len() <= MAX_SHOWN_ID && id.chars().all(is_plain)
}

fn tell_pairing(error: &WireError, request_id: Option<&str>) {
    let request = request_id.unwrap_or("REQUEST");
    tracing::warn!(
        "{}; on the gateway run: interlock devices approve {request}",
        error.message
    );
}

/// The pause before the next attempt: 1 s, doubling, or the gateway's request if that is longer,
/// within limits. It varies by up to a fifth, so that many nodes do not reconnect at once.
fn pause(attempt: u32, longest: Duration, at_least: Option<Duration>) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << attempt.min(8)).min(longest);
    let doubled = doubled.max(at_least.unwrap_or_default().min(LONGEST_PAUSE));
    let mut random = [0; 2];
    // Without random numbers all nodes reconnect at once, which is acceptable.
    let _ = getrandom::fill(&mut random);
    let part = u32::from(u16::from_le_bytes(random)) % 401;
    doubled.saturating_mul(800 + part) / 1000
}

/// Records the ends of background runs, and reports the gateway's own runs to it.
async fn tell_ends(service: Arc<NodeService>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let looking = Arc::clone(&service);
        match tokio::task::spawn_blocking(move || looking.ended_runs()).await {
            Ok(Ok(runs)) => {
                for run in runs {
                    service.tell_ended(run).await;
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "ends of runs could not be recorded"),
            Err(_) => return,
        }
    }
}

async fn forget(service: Arc<NodeService>) {
    loop {
        let service = Arc::clone(&service);
        let forgotten = tokio::task::spawn_blocking(move || service.forget_old()).await;
        if let Ok(Err(error)) = forgotten {
            tracing::warn!(%error, "old records could not be forgotten");
        }
        tokio::time::sleep(FORGET_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit_and_differ_a_little() {
        for (attempt, about) in [
            (0, 1000),
            (1, 2000),
            (4, 16_000),
            (5, 30_000),
            (900, 30_000),
        ] {
            let pause = pause(attempt, LONGEST_PAUSE, None).as_millis();
            assert!(
                (about * 4 / 5..=about * 6 / 5).contains(&pause),
                "{attempt}: {pause}"
            );
        }
    }

    #[test]
    fn a_gateway_cannot_send_a_node_away_for_long() {
        for (wanted, about) in [(10, 1000), (5_000, 5_000), (86_400_000_000, 30_000)] {
            let wanted = Some(Duration::from_millis(wanted));
            let pause = pause(0, LONGEST_PAUSE, wanted).as_millis();
            assert!(
                (about * 4 / 5..=about * 6 / 5).contains(&pause),
                "{wanted:?}: {pause}"
            );
        }
    }
}
