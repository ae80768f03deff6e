//! Invocations. Each is handled independently, and its answer goes to the connection that exists
//! when the answer is ready.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use interlock_config::RemoteDocument;
use interlock_host::{HostError, LocalHost, RecoveredRun};
use interlock_supervisor::{RunConversation, SupervisorClient};
use interlock_wire::node::extension::{
    INTERLOCK_END, INTERLOCK_EXPLAIN, INTERLOCK_POLICY, INTERLOCK_PROCESS, INTERLOCK_READ,
    INTERLOCK_RUN, INTERLOCK_RUN_ENDED, RunHasEnded,
};
use interlock_wire::node::{
    NodeInvokeRequest, SYSTEM_EXEC_APPROVALS_GET, SYSTEM_EXEC_APPROVALS_SET, SYSTEM_RUN,
    SYSTEM_RUN_PREPARE, SYSTEM_WHICH, command_not_supported,
};
use interlock_wire::params::{NodeError, NodeEvent, NodeInvokeResult};

use interlock_wire::{Event, PeerRelease, WireError};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::commands::{self, NodeRunEnd, PreparedCommands, WaitedRun};
use crate::connection::GatewayHello;
use crate::permits::CommandPermits;
use crate::uplink::{Notice, Uplink};

/// How many invocations are handled at once. Others wait.
const MAX_AT_ONCE: usize = 256;
/// A separate limit for reads of runs: they wait for events and must not block other invocations.
const MAX_LOOKS: usize = 128;

/// The service that answers invocations.
#[derive(Debug)]
pub(crate) struct NodeService {
    pub(crate) host: LocalHost,
    pub(crate) supervisor: SupervisorClient,
    /// The environment that runs inherit.
    pub(crate) environment: BTreeMap<String, String>,
    device_id: String,
    uplink: Arc<Uplink>,
    pub(crate) places: Arc<CommandPermits>,
    looks: Arc<CommandPermits>,
    /// The program at the other end of the connection.
    gateway: Mutex<GatewayPeer>,
    /// The commands that a foreign gateway had prepared.
    pub(crate) prepared: PreparedCommands,
}

/// The program of the connected gateway, according to its welcome.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GatewayPeer {
    pub(crate) is_interlock: bool,
    /// The release of a foreign gateway.
    pub(crate) release: PeerRelease,
}

impl GatewayPeer {
    pub(crate) fn of_hello(hello: &GatewayHello) -> Self {
        let is_interlock = hello.is_interlock();
        let release = PeerRelease::of_version(&hello.server.version);
        Self {
            is_interlock,
            release: if is_interlock {
                PeerRelease::default()
            } else {
                release
            },
        }
    }
}

/// The answer to a command.
pub(crate) struct CommandAnswer {
    /// The event for its session.
    notice: Option<Notice>,
    /// JSON as text.
    outcome: Result<String, WireError>,
    /// The end of the run. It is recorded after the answer was sent, because the caller does not
    /// wait for the record.
    end: Option<NodeRunEnd>,
    /// The run whose transcript is needed until the gateway has received the answer.
    conversation: Option<RunConversation>,
}

impl CommandAnswer {
    pub(crate) fn of(outcome: Result<impl Serialize, WireError>) -> Self {
        let text = outcome.and_then(|payload| {
            let text = serde_json::to_string(&payload);
            text.map_err(|error| WireError::unavailable(error.to_string()))
        });
        Self {
            notice: None,
            outcome: text,
            end: None,
            conversation: None,
        }
    }

    /// Records the end of a run. The answer contains all of its output, so its transcript is not
    /// needed afterwards.
    #[must_use]
    pub(crate) fn ending(mut self, over: WaitedRun) -> Self {
        let (end, conversation) = over.split();
        self.end = Some(end);
        self.conversation = conversation;
        self
    }

    /// Also notifies the session with this event.
    #[must_use]
    pub(crate) fn telling(self, name: &str, payload: &impl Serialize) -> Self {
        self.noticed(name, payload, false)
    }

    /// Also notifies the session with an event that the result implies.
    #[must_use]
    pub(crate) fn telling_the_same(self, name: &str, payload: &impl Serialize) -> Self {
        self.noticed(name, payload, true)
    }

    fn noticed(mut self, name: &str, payload: &impl Serialize, is_implied: bool) -> Self {
        let event = NodeEvent {
            event: name.to_owned(),
            payload: None,
            // The payload must be text; Interlock's own values always serialize.
            payload_json: Some(serde_json::to_string(payload).unwrap_or_default()),
        };
        self.notice = Some(Notice { event, is_implied });
        self
    }
}

impl NodeService {
    pub(crate) fn new(
        host: LocalHost,
        supervisor: SupervisorClient,
        environment: BTreeMap<String, String>,
        device_id: String,
        uplink: Arc<Uplink>,
    ) -> Self {
        Self {
            host,
            supervisor,
            environment,
            device_id,
            uplink,
            places: CommandPermits::new(MAX_AT_ONCE),
            looks: CommandPermits::new(MAX_LOOKS),
            gateway: Mutex::default(),
            prepared: PreparedCommands::default(),
        }
    }

    /// Accepts an invocation. Its answer is sent later.
    pub(crate) fn invoke(service: &Arc<Self>, event: &Event) {
        let Some(request) = event.payload.as_deref().and_then(|raw| read(raw.get())) else {
            tracing::warn!("an invocation could not be read");
            return;
        };
        let service = Arc::clone(service);
        tokio::spawn(async move { service.work(request).await });
    }

    async fn work(self: Arc<Self>, request: NodeInvokeRequest) {
        let places = match request.command.as_str() {
            INTERLOCK_READ | INTERLOCK_PROCESS => &self.looks,
            _ => &self.places,
        };
        let Some(place) = places.take().await else {
            return;
        };
        tracing::info!(invoke = request.id, command = request.command, "invoked");
        let (service, id) = (Arc::clone(&self), request.id.clone());
        let (tell, answered) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let mut answer = service.answer(&request);
            let end = answer.end.take();
            let _ = tell.send(answer);
            if let Some(end) = end {
                end.record_later(&service);
            }
            drop(place);
        });
        let answer = answered.await.unwrap_or_else(|_| {
            let problem = "the command could not be worked on";
            CommandAnswer::of(Err::<(), _>(WireError::unavailable(problem)))
        });
        let result = self.result(id, answer.outcome);
        if self.uplink.deliver(answer.notice, result).await
            && let Some(conversation) = answer.conversation
        {
            let _ = conversation.taken();
        }
    }

    /// Returns when invocations are no longer handled, although this node is connected.
    pub(crate) async fn stuck(&self) {
        tokio::select! {
            () = self.places.stuck() => {}
            () = self.looks.stuck() => {}
        }
    }

    fn answer(&self, request: &NodeInvokeRequest) -> CommandAnswer {
        match request.command.as_str() {
            SYSTEM_WHICH => CommandAnswer::of(commands::which(self, request)),
            SYSTEM_RUN_PREPARE => CommandAnswer::of(commands::prepare(self, request)),
            SYSTEM_RUN => commands::run(self, request),
            SYSTEM_EXEC_APPROVALS_GET => CommandAnswer::of(commands::approvals_get(self)),
            SYSTEM_EXEC_APPROVALS_SET => CommandAnswer::of(commands::approvals_set(self, request)),
            command if self.gateway_is_interlock() => match command {
                INTERLOCK_RUN => commands::order(self, request),
                INTERLOCK_READ => CommandAnswer::of(commands::read(self, request)),
                INTERLOCK_END => CommandAnswer::of(commands::end(self, request)),
                INTERLOCK_PROCESS => CommandAnswer::of(commands::process(self, request)),
                INTERLOCK_POLICY => CommandAnswer::of(commands::policy(self, request)),
                INTERLOCK_EXPLAIN => CommandAnswer::of(commands::explain(self, request)),
                _ => CommandAnswer::of(Err::<(), _>(command_not_supported())),
            },
            _ => CommandAnswer::of(Err::<(), _>(command_not_supported())),
        }
    }

    pub(crate) fn gateway(&self) -> GatewayPeer {
        *self.gateway.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the connected gateway is an Interlock gateway. Foreign gateways are not offered the
    /// extension.
    pub(crate) fn gateway_is_interlock(&self) -> bool {
        self.gateway().is_interlock
    }

    pub(crate) fn set_gateway(&self, peer: GatewayPeer) {
        *self.gateway.lock().unwrap_or_else(PoisonError::into_inner) = peer;
    }

    /// A gateway's rights to the document of this machine, as its owner configured them.
    pub(crate) fn remote_document(&self) -> Result<RemoteDocument, HostError> {
        let config = self.host.config()?;
        let said = config.config().node.remote_document;
        Ok(said.unwrap_or(RemoteDocument::Write))
    }

    /// Records the ends of runs, and returns the ids of a gateway's ended runs, as the gateway
    /// chose them.
    pub(crate) fn ended_runs(&self) -> Result<Vec<String>, HostError> {
        let recovered = self.host.recover(&self.supervisor)?;
        let forwarded = recovered.iter().filter_map(RecoveredRun::forwarded_run);
        Ok(forwarded.map(str::to_owned).collect())
    }

    pub(crate) async fn tell_ended(&self, run_id: String) {
        if !self.gateway_is_interlock() {
            return;
        }
        let payload = serde_json::to_string(&RunHasEnded { run_id }).unwrap_or_default();
        let event = NodeEvent {
            event: INTERLOCK_RUN_ENDED.to_owned(),
            payload: None,
            payload_json: Some(payload),
        };
        self.uplink.tell(&event).await;
    }

    /// The result with exactly the properties that every gateway knows. Gateways refuse others.
    fn result(&self, id: String, outcome: Result<String, WireError>) -> NodeInvokeResult {
        let mut result = NodeInvokeResult {
            id,
            node_id: self.device_id.clone(),
            ok: outcome.is_ok(),
            ..NodeInvokeResult::default()
        };
        match outcome {
            Ok(text) => result.payload_json = Some(Value::String(text)),
            Err(error) => {
                result.error = Some(NodeError {
                    code: Some(error.code.as_str().to_owned()),
                    message: Some(error.message),
                });
            }
        }
        result
    }

    pub(crate) fn forget_old(&self) -> Result<(), HostError> {
        self.host.forget_old()
    }
}

/// Reads an invocation. Its parameters are text or null; an object is converted to its text.
fn read(payload: &str) -> Option<NodeInvokeRequest> {
    let mut value: Value = serde_json::from_str(payload).ok()?;
    if let Some(params) = value.get_mut("paramsJSON")
        && params.is_object()
    {
        *params = Value::String(params.to_string());
    }
    serde_json::from_value(value).ok()
}
