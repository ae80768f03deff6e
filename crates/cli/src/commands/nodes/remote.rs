//! Changes the approvals document of a node or of the gateway that `gateway.remote` names. Only the
//! changed parts are written: a foreign node may store fields that this program does not know.

use interlock_arguments::{DocumentPlace, StateArguments};
use interlock_client::{GatewayClient, RemoteGateway, agent_id, read_relayed};
use interlock_console::Failure;
use interlock_console::output::line;
use interlock_host::LocalHost;
use interlock_policy::{Document, EVERY_AGENT, agent_path, quote};
use interlock_wire::params::{
    ExecApprovalsGet, ExecApprovalsNodeGet, ExecApprovalsNodeSet, ExecApprovalsSet,
};
use interlock_wire::results::ApprovalsDocument;
use serde_json::{Value, json};

use super::document::known;
use super::{NamedNode, resolve_named};

/// The document that a command names, if it is not that of this machine.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum DocumentAsked<'a> {
    Node(&'a str),
    /// The document of the remote gateway that commands follow.
    Gateway,
}

impl<'a> DocumentAsked<'a> {
    /// Returns `None` for the document of this machine.
    pub(in super::super) fn of(
        state: &StateArguments,
        host: &LocalHost,
        place: &'a DocumentPlace,
    ) -> Result<Option<Self>, Failure> {
        if let Some(node) = &place.node {
            return Ok(Some(Self::Node(node)));
        }
        let followed = RemoteGateway::followed(state, host)?;
        Ok(followed.map(|_| Self::Gateway))
    }
}

/// The owner of a document.
#[derive(Debug, Clone)]
pub(in super::super) enum DocumentOwner {
    Node(NamedNode),
    /// The address of the remote gateway.
    Gateway(String),
}

impl DocumentOwner {
    pub(in super::super) fn shown(&self) -> String {
        match self {
            Self::Node(node) => format!("the node {}", node.shown()),
            Self::Gateway(url) => format!("the gateway {}", line(url)),
        }
    }

    /// Adds the owner to a JSON result.
    pub(in super::super) fn add_to(&self, result: &mut Value) {
        let Value::Object(result) = result else {
            return;
        };
        match self {
            Self::Node(node) => {
                result.insert("nodeId".to_owned(), node.id.as_str().into());
                result.insert("node".to_owned(), node.name.as_deref().into());
            }
            Self::Gateway(url) => {
                result.insert("gateway".to_owned(), url.as_str().into());
            }
        }
    }

    /// The flag that selects this document.
    pub(super) fn flag(&self) -> String {
        match self {
            Self::Node(node) => format!("--node {}", quote(&node.id)),
            Self::Gateway(_) => "--gateway".to_owned(),
        }
    }

    /// Reads the current document.
    fn read(&self, gateway: &mut GatewayClient) -> Result<ApprovalsDocument, Failure> {
        let Self::Node(node) = self else {
            return Ok(gateway.request(&ExecApprovalsGet::default())?);
        };
        let node_id = node.id.clone();
        let stored = gateway.request(&ExecApprovalsNodeGet { node_id })?;
        Ok(read_relayed::<ExecApprovalsNodeGet, _>(&stored)?)
    }

    /// Replaces the document that has this hash.
    fn write(
        &self,
        gateway: &mut GatewayClient,
        file: Value,
        base_hash: Option<String>,
    ) -> Result<ApprovalsDocument, Failure> {
        let Self::Node(node) = self else {
            return Ok(gateway.request(&ExecApprovalsSet { file, base_hash })?);
        };
        let stored = gateway.request(&ExecApprovalsNodeSet {
            node_id: node.id.clone(),
            file,
            base_hash,
        })?;
        Ok(read_relayed::<ExecApprovalsNodeSet, _>(&stored)?)
    }
}

/// A document that was read, and its owner.
pub(super) struct Remote {
    pub(super) gateway: GatewayClient,
    pub(super) owner: DocumentOwner,
    pub(super) hash: Option<String>,
    pub(super) file: Value,
}

impl Remote {
    pub(super) fn read(
        state: &StateArguments,
        host: &LocalHost,
        asked: DocumentAsked<'_>,
    ) -> Result<Self, Failure> {
        let mut gateway = GatewayClient::connect(state, host)?;
        let owner = match asked {
            DocumentAsked::Node(node) => DocumentOwner::Node(resolve_named(&mut gateway, node)?),
            DocumentAsked::Gateway => {
                let url = gateway.remote_url().unwrap_or_default();
                DocumentOwner::Gateway(url.to_owned())
            }
        };
        let stored = owner.read(&mut gateway)?;
        Ok(Self {
            gateway,
            owner,
            hash: stored.hash,
            file: stored.file,
        })
    }

    /// Writes the document back if it has not been changed meanwhile. Returns the stored document.
    pub(super) fn write(&mut self) -> Result<Document, Failure> {
        let written = self.replace()?.file;
        known(if written.is_null() {
            &self.file
        } else {
            &written
        })
    }

    /// Writes the document back, and returns the answer of the owner.
    pub(super) fn replace(&mut self) -> Result<ApprovalsDocument, Failure> {
        let (file, hash) = (self.file.clone(), self.hash.clone());
        self.owner.write(&mut self.gateway, file, hash)
    }

    /// A list in an agent's scope, such as `allowlist`, created if it is missing.
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

/// A list in the defaults, which apply to every agent, if there is one.
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
