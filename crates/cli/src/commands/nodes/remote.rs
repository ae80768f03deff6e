//! The approvals document of a node, or of the gateway that `gateway.remote` names, changed in place and
//! only where it has to be: a node may be another program, which writes more into it than is known here.

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

/// The document that a command names, where it is not this machine's.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum DocumentAsked<'a> {
    Node(&'a str),
    /// The gateway elsewhere that commands follow.
    Gateway,
}

impl<'a> DocumentAsked<'a> {
    /// None where it is the document of this machine.
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

/// Whose document it is.
#[derive(Debug, Clone)]
pub(in super::super) enum DocumentOwner {
    Node(NamedNode),
    /// By its address.
    Gateway(String),
}

impl DocumentOwner {
    pub(in super::super) fn shown(&self) -> String {
        match self {
            Self::Node(node) => format!("the node {}", node.shown()),
            Self::Gateway(url) => format!("the gateway {}", line(url)),
        }
    }

    /// For programs: beside what was done.
    pub(in super::super) fn add_to(&self, told: &mut Value) {
        let Value::Object(told) = told else { return };
        match self {
            Self::Node(node) => {
                told.insert("nodeId".to_owned(), node.id.as_str().into());
                told.insert("node".to_owned(), node.name.as_deref().into());
            }
            Self::Gateway(url) => {
                told.insert("gateway".to_owned(), url.as_str().into());
            }
        }
    }

    /// The flag by which a command means this document.
    pub(super) fn flag(&self) -> String {
        match self {
            Self::Node(node) => format!("--node {}", quote(&node.id)),
            Self::Gateway(_) => "--gateway".to_owned(),
        }
    }

    /// The document as it is there.
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

/// A document, and whose it is.
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

    /// Writes it back, if it is still the one that was read. Returns what is there then.
    pub(super) fn write(&mut self) -> Result<Document, Failure> {
        let written = self.replace()?.file;
        known(if written.is_null() {
            &self.file
        } else {
            &written
        })
    }

    /// Writes it back and returns what is there then, as far as the owner says it.
    pub(super) fn replace(&mut self) -> Result<ApprovalsDocument, Failure> {
        let (file, hash) = (self.file.clone(), self.hash.clone());
        self.owner.write(&mut self.gateway, file, hash)
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
