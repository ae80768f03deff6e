//! The methods, and who may call them.

use crate::error::WireError;
use crate::scope::{Role, Scope, Scopes};

/// Who may call a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Any role, no scope.
    Anyone,
    Operator(Scope),
    Node,
}

/// A method by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    pub name: &'static str,
    pub access: Access,
}

const fn anyone(name: &'static str) -> Method {
    let access = Access::Anyone;
    Method { name, access }
}

const fn node(name: &'static str) -> Method {
    let access = Access::Node;
    Method { name, access }
}

const fn operator(scope: Scope, name: &'static str) -> Method {
    let access = Access::Operator(scope);
    Method { name, access }
}

/// Every method but `connect`, which is only the first request.
pub const METHODS: &[Method] = &[
    // Says only that the gateway is alive.
    anyone("health"),
    operator(Scope::Read, "status"),
    operator(Scope::Read, "agents.list"),
    operator(Scope::Read, "config.get"),
    operator(Scope::Read, "logs.tail"),
    operator(Scope::Read, "node.describe"),
    operator(Scope::Read, "node.list"),
    operator(Scope::Read, "node.policy"),
    operator(Scope::Read, "process.list"),
    operator(Scope::Read, "process.log"),
    operator(Scope::Read, "process.poll"),
    operator(Scope::Read, "process.subscribe"),
    operator(Scope::Read, "process.unsubscribe"),
    operator(Scope::Read, "sessions.list"),
    operator(Scope::Read, "system-presence"),
    operator(Scope::Read, "tasks.get"),
    operator(Scope::Read, "tasks.list"),
    operator(Scope::Read, "tools.catalog"),
    operator(Scope::Read, "tools.effective"),
    // Tell about the chain, nothing of what is in it.
    operator(Scope::Read, "audit.head"),
    operator(Scope::Read, "audit.verify"),
    // Looks for files of the node.
    operator(Scope::Write, "node.explain"),
    operator(Scope::Write, "node.invoke"),
    operator(Scope::Write, "process.kill"),
    operator(Scope::Write, "process.perform"),
    operator(Scope::Write, "process.write"),
    // Shows the values of a session; to change them takes as much as `sessions.patch`.
    operator(Scope::Write, "sessions.directive"),
    operator(Scope::Write, "tasks.cancel"),
    operator(Scope::Write, "tools.invoke"),
    operator(Scope::Approvals, "exec.approval.get"),
    operator(Scope::Approvals, "exec.approval.list"),
    operator(Scope::Approvals, "exec.approval.request"),
    operator(Scope::Approvals, "exec.approval.resolve"),
    operator(Scope::Approvals, "exec.approval.waitDecision"),
    // Approving what a node may do needs more, by what it may do then: see `pairing_scopes`.
    operator(Scope::Pairing, "device.pair.approve"),
    operator(Scope::Pairing, "device.pair.list"),
    operator(Scope::Pairing, "device.pair.reject"),
    operator(Scope::Pairing, "device.pair.remove"),
    operator(Scope::Pairing, "device.pair.rename"),
    operator(Scope::Pairing, "device.token.revoke"),
    operator(Scope::Pairing, "device.token.rotate"),
    operator(Scope::Pairing, "node.pair.approve"),
    operator(Scope::Pairing, "node.pair.list"),
    operator(Scope::Pairing, "node.pair.reject"),
    operator(Scope::Pairing, "node.pair.remove"),
    operator(Scope::Pairing, "node.pair.request"),
    operator(Scope::Pairing, "node.pair.verify"),
    operator(Scope::Pairing, "node.rename"),
    // Holds the text of commands of every agent.
    operator(Scope::Admin, "audit.list"),
    operator(Scope::Admin, "config.patch"),
    operator(Scope::Admin, "config.schema"),
    operator(Scope::Admin, "config.set"),
    operator(Scope::Admin, "exec.approvals.get"),
    operator(Scope::Admin, "exec.approvals.node.get"),
    operator(Scope::Admin, "exec.approvals.node.set"),
    operator(Scope::Admin, "exec.approvals.set"),
    operator(Scope::Admin, "sessions.patch"),
    operator(Scope::Admin, "system-event"),
    node("node.event"),
    node("node.invoke.result"),
    node("skills.bins"),
];

/// The row of a method.
pub fn find(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

/// Says whether a connection may call a method; the error is the response. A client with the
/// administration scope learns that a method does not exist. Other operators learn only that they
/// may not call it.
pub fn authorize(name: &str, role: Role, scopes: &Scopes) -> Result<(), WireError> {
    if name == "connect" {
        return Err(crate::refusal::CONNECT_AGAIN.error());
    }
    let access = find(name).map(|method| method.access);
    match (access, role) {
        (Some(Access::Anyone), _) | (Some(Access::Node), Role::Node) => Ok(()),
        (Some(Access::Operator(scope)), Role::Operator) => require(scope, scopes),
        (Some(_), role) => Err(unauthorized_role(role)),
        (None, Role::Operator) => {
            require(Scope::Admin, scopes).and(Err(WireError::unknown_method(name)))
        }
        // Nodes of others call what only their gateways have: nothing that they should be closed for.
        (None, Role::Node) => Err(WireError::unknown_method(name)),
    }
}

/// Fails with the scope that is missing.
pub fn require(scope: Scope, scopes: &Scopes) -> Result<(), WireError> {
    if scopes.allow(scope) {
        return Ok(());
    }
    Err(WireError::invalid(format!("missing scope: {scope}"))
        .with("code", "MISSING_SCOPE")
        .with("missingScope", scope.as_str())
        .with("requiredScopes", vec![scope.as_str()]))
}

/// The role may not call this at all.
pub fn unauthorized_role(role: Role) -> WireError {
    WireError::invalid(format!("unauthorized role: {role}"))
}

/// Whether an error is one of those that end a connection when they go on: see
/// [`crate::close::MAX_UNAUTHORIZED_CALLS`].
pub fn is_unauthorized_role(error: &WireError) -> bool {
    error.message.starts_with("unauthorized role: ")
}

/// Commands that run programs on a node: to let a node offer them is a matter for administrators.
const RUNNING_COMMANDS: &[&str] = &["system.run", "system.run.prepare", "system.which"];

/// What it takes to approve a node that offers these commands.
pub fn pairing_scopes<T: AsRef<str>>(commands: &[T]) -> Vec<Scope> {
    let mut commands = commands.iter().map(AsRef::as_ref);
    if commands.len() == 0 {
        vec![Scope::Pairing]
    } else if commands.any(|command| RUNNING_COMMANDS.contains(&command)) {
        vec![Scope::Pairing, Scope::Admin]
    } else {
        vec![Scope::Pairing, Scope::Write]
    }
}
