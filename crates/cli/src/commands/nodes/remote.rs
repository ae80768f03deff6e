//! The approvals document of a node, changed in place and only where it has to be: a node may be
//! another program, which writes more into it than is known here.

use interlock_host::LocalHost;
use interlock_policy::{Document, EVERY_AGENT, agent_path};
use serde_json::{Value, json};

use super::document::known;
use super::{NamedNode, resolve_named};
use crate::args::StateArguments;
use crate::commands::agent_id;
use crate::failure::Failure;
use crate::gateway_client::GatewayClient;

/// A document, and the node that it was read from.
pub(super) struct Remote {
    gateway: GatewayClient,
    pub(super) node: NamedNode,
    hash: Value,
    pub(super) file: Value,
}

impl Remote {
    pub(super) fn read(
        state: &StateArguments,
        host: &LocalHost,
        node: &str,
    ) -> Result<Self, Failure> {
        let mut gateway = GatewayClient::connect(state, host)?;
        let node = resolve_named(&mut gateway, node)?;
        let params = json!({ "nodeId": node.id });
        let mut answer = gateway.call("exec.approvals.node.get", &params)?;
        Ok(Self {
            gateway,
            node,
            hash: answer["hash"].take(),
            file: answer["file"].take(),
        })
    }

    /// Writes it back, if it is still the one that was read. Returns what is there then.
    pub(super) fn write(&mut self) -> Result<Document, Failure> {
        let params = json!({ "nodeId": self.node.id, "file": self.file, "baseHash": self.hash });
        let mut answer = self.gateway.call("exec.approvals.node.set", &params)?;
        let file = answer["file"].take();
        known(if file.is_null() { &self.file } else { &file })
    }

    /// A list of an agent's scope, such as `allowlist`; made if it is not there.
    pub(super) fn list(
        &mut self,
        agent: &str,
        name: &'static str,
    ) -> Result<&mut Vec<Value>, Failure> {
        let invalid = |what: String| Failure::refused("DOCUMENT_INVALID", what);
        let path = agent_path(agent);
        let mut at = &mut self.file;
        for key in ["agents", agent] {
            let object = at.as_object_mut();
            let object = object.ok_or_else(|| invalid(format!("{path} is not an object")))?;
            at = object.entry(key).or_insert_with(|| json!({}));
        }
        let scope = at.as_object_mut();
        let scope = scope.ok_or_else(|| invalid(format!("{path} is not an object")))?;
        let list = scope.entry(name).or_insert_with(|| json!([]));
        let list = list.as_array_mut();
        list.ok_or_else(|| invalid(format!("{path}.{name} is not an array")))
    }
}

/// A list of the scope that holds for every agent, if it is there.
pub(super) fn defaults_list<'a>(file: &'a mut Value, name: &str) -> Option<&'a mut Vec<Value>> {
    file.get_mut("defaults")?.get_mut(name)?.as_array_mut()
}

/// The key of an agent in the document, or `*`.
pub(super) fn scope(agent: &str) -> Result<String, Failure> {
    if agent == EVERY_AGENT {
        return Ok(agent.to_owned());
    }
    Ok(agent_id(agent)?.as_str().to_owned())
}
