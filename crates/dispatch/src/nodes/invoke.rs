//! Sends a command to a node and receives its answer.

use std::time::Duration;

use interlock_wire::node::{DEFAULT_INVOKE_TIMEOUT_MS, NodeCommandParams, NodeInvokeRequest};
use interlock_wire::params::NodeInvokeResult;
use interlock_wire::{Event, WireError, event, refusal};
use serde_json::Value;
use tokio::sync::oneshot;

use super::registry::{Node, Nodes, NodesState};
use interlock_connections::Client;

/// How many invocations of one connection may wait for their answers.
const MAX_WAITING: usize = 1024;

/// A command for a node.
#[derive(Debug)]
pub struct NodeInvocation<'a> {
    pub command: &'a str,
    /// `None` is sent as null.
    pub params: Option<Value>,
    /// How long the answer may take; `None` means as long as the node is connected.
    pub timeout: Option<Duration>,
    /// The limit that is sent to the node.
    pub node_timeout_ms: Option<u64>,
    pub idempotency_key: Option<String>,
}

impl NodeInvocation<'static> {
    /// A command whose answer may take this long. It is carried out once, even if it is sent again.
    pub fn of<P: NodeCommandParams>(params: &P, timeout: Duration) -> Result<Self, WireError> {
        let params = serde_json::to_value(params);
        let params = params.map_err(|error| WireError::unavailable(error.to_string()))?;
        Ok(Self {
            command: P::COMMAND,
            params: Some(params),
            timeout: Some(timeout),
            node_timeout_ms: None,
            idempotency_key: Some(uuid::Uuid::new_v4().to_string()),
        })
    }
}

/// A caller that waits for the answer to one invocation.
#[derive(Debug)]
pub(super) struct InvocationWaiter {
    command: String,
    answer: oneshot::Sender<Result<(NodeInvokeResult, Unthanked), WireError>>,
}

/// An answer that the node keeps until it is told that the answer was received. Dropping this value
/// tells it.
#[derive(Debug)]
pub struct Unthanked(#[expect(dead_code, reason = "its end says it")] oneshot::Sender<()>);

/// Removes an invocation whose caller has its answer, or no longer waits.
struct Forget<'a> {
    nodes: &'a Nodes,
    connection: &'a str,
    id: &'a str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.nodes.lock().take_waiting(self.connection, self.id);
    }
}

impl NodesState {
    /// Removes the invocation with this id, if it waits for this connection and not for another
    /// one.
    fn take_waiting(&mut self, connection: &str, id: &str) -> Option<InvocationWaiter> {
        let owed = self.waiting.get_mut(connection)?;
        let waiting = owed.remove(id);
        if owed.is_empty() {
            self.waiting.remove(connection);
        }
        waiting
    }
}

impl Nodes {
    /// Sends a command to a node and waits for its answer: the payload, and its text if the node
    /// sent one. Does not check whether the command may be used.
    pub async fn invoke(
        &self,
        node: &Node,
        invocation: NodeInvocation<'_>,
    ) -> Result<(Value, Option<String>), WireError> {
        self.invoke_unthanked(node, invocation).await.0
    }

    /// Like [`Self::invoke`], for a command with a typed answer. An inner `Err` means that the
    /// answer cannot be read.
    pub async fn invoke_typed<P: NodeCommandParams>(
        &self,
        node: &Node,
        params: &P,
    ) -> Result<serde_json::Result<P::Answer>, WireError> {
        let usual = Duration::from_millis(DEFAULT_INVOKE_TIMEOUT_MS);
        let (payload, _) = self
            .invoke(node, NodeInvocation::of(params, usual)?)
            .await?;
        Ok(serde_json::from_value(payload))
    }

    /// Like [`Self::invoke`], but the node keeps its answer until the returned [`Unthanked`] is
    /// dropped.
    pub async fn invoke_unthanked(
        &self,
        node: &Node,
        invocation: NodeInvocation<'_>,
    ) -> (
        Result<(Value, Option<String>), WireError>,
        Option<Unthanked>,
    ) {
        match self.ask(node, invocation).await {
            Ok((result, unthanked)) if result.ok => (Ok(result.into_payload()), Some(unthanked)),
            Ok((result, unthanked)) => {
                let error = result.error.unwrap_or_default();
                let error = WireError::node_failed(error.code.as_deref(), error.message.as_deref());
                (Err(error), Some(unthanked))
            }
            Err(error) => (Err(error), None),
        }
    }

    async fn ask(
        &self,
        node: &Node,
        invocation: NodeInvocation<'_>,
    ) -> Result<(NodeInvokeResult, Unthanked), WireError> {
        let id = uuid::Uuid::new_v4().to_string();
        let request = NodeInvokeRequest {
            id: id.clone(),
            node_id: node.id.clone(),
            command: invocation.command.to_owned(),
            params_json: invocation.params.map(|params| params.to_string()),
            timeout_ms: invocation.node_timeout_ms,
            idempotency_key: invocation.idempotency_key,
        };
        let event = Event::new(event::NODE_INVOKE_REQUEST, &request)
            .map_err(|error| WireError::unavailable(error.to_string()))?;
        let (answer, answered) = oneshot::channel();
        {
            let mut state = self.lock();
            let is_routed =
                |other: &std::sync::Arc<Node>| other.client.connection == node.client.connection;
            if !state.nodes.get(&node.id).is_some_and(is_routed) {
                return Err(refusal::NOT_CONNECTED.error());
            }
            let connection = &node.client.connection;
            let owed = state.waiting.entry(connection.clone()).or_default();
            if owed.len() >= MAX_WAITING {
                return Err(
                    WireError::unavailable("the node has too much to do").with("code", "NODE_BUSY")
                );
            }
            let waiting = InvocationWaiter {
                command: invocation.command.to_owned(),
                answer,
            };
            owed.insert(id.clone(), waiting);
        }
        let _forget = Forget {
            nodes: self,
            connection: &node.client.connection,
            id: &id,
        };
        node.client.tell_now(&event);
        let answered = async {
            let gone = || WireError::node_disconnected(invocation.command);
            answered.await.unwrap_or_else(|_| Err(gone()))
        };
        match invocation.timeout {
            Some(time) => tokio::time::timeout(time, answered)
                .await
                .unwrap_or_else(|_| Err(WireError::node_timeout())),
            None => answered.await,
        }
    }

    /// Passes an answer to its waiting caller, and returns when it was received. Returns whether
    /// there was a caller: late answers, and answers of other nodes, have none.
    pub async fn answered(&self, client: &Client, result: NodeInvokeResult) -> bool {
        let (unthanked, taken) = oneshot::channel();
        if !self.hand_over(client, result, Unthanked(unthanked)) {
            return false;
        }
        // Nothing is sent: the channel closes.
        let _ = taken.await;
        true
    }

    fn hand_over(&self, client: &Client, result: NodeInvokeResult, unthanked: Unthanked) -> bool {
        let connection = &client.connection;
        let waiting = self.lock().take_waiting(connection, &result.id);
        waiting.is_some_and(|waiting| waiting.answer.send(Ok((result, unthanked))).is_ok())
    }

    /// Fails all answers that a lost connection owes.
    pub(super) fn fail_waiting(&self, connection: &str) {
        let lost = self.lock().waiting.remove(connection);
        for waiting in lost.unwrap_or_default().into_values() {
            let error = WireError::node_disconnected(&waiting.command);
            let _ = waiting.answer.send(Err(error));
        }
    }
}
