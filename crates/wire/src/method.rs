//! The methods, and who may call them.

use crate::error::WireError;
use crate::scope::{OperatorScope, Role, Scopes};

/// Who may call a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MethodAccess {
    /// Any role, no scope.
    Anyone,
    Operator(OperatorScope),
    Node,
}

/// A method by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    pub name: &'static str,
    pub access: MethodAccess,
}

const fn anyone(name: &'static str) -> Method {
    let access = MethodAccess::Anyone;
    Method { name, access }
}

const fn node(name: &'static str) -> Method {
    let access = MethodAccess::Node;
    Method { name, access }
}

const fn operator(scope: OperatorScope, name: &'static str) -> Method {
    let access = MethodAccess::Operator(scope);
    Method { name, access }
}

/// Every method but `connect`, which is only the first request.
pub const METHODS: &[Method] = &[
    // Says only that the gateway is alive.
    anyone("health"),
    operator(OperatorScope::Read, "status"),
    operator(OperatorScope::Read, "agents.list"),
    operator(OperatorScope::Read, "config.get"),
    operator(OperatorScope::Read, "logs.tail"),
    operator(OperatorScope::Read, "node.describe"),
    operator(OperatorScope::Read, "node.list"),
    operator(OperatorScope::Read, "node.policy"),
    operator(OperatorScope::Read, "process.list"),
    operator(OperatorScope::Read, "process.log"),
    operator(OperatorScope::Read, "process.poll"),
    operator(OperatorScope::Read, "process.subscribe"),
    operator(OperatorScope::Read, "process.unsubscribe"),
    operator(OperatorScope::Read, "sessions.list"),
    operator(OperatorScope::Read, "system-presence"),
    operator(OperatorScope::Read, "tasks.get"),
    operator(OperatorScope::Read, "tasks.list"),
    operator(OperatorScope::Read, "tools.catalog"),
    operator(OperatorScope::Read, "tools.effective"),
    // Tell about the chain, nothing of what is in it.
    operator(OperatorScope::Read, "audit.head"),
    operator(OperatorScope::Read, "audit.verify"),
    // Looks for files of the node.
    operator(OperatorScope::Write, "node.explain"),
    operator(OperatorScope::Write, "node.invoke"),
    operator(OperatorScope::Write, "process.kill"),
    operator(OperatorScope::Write, "process.perform"),
    operator(OperatorScope::Write, "process.write"),
    // Shows the values of a session; to change them takes as much as `sessions.patch`.
    operator(OperatorScope::Write, "sessions.directive"),
    operator(OperatorScope::Write, "tasks.cancel"),
    operator(OperatorScope::Write, "tools.invoke"),
    operator(OperatorScope::Approvals, "exec.approval.get"),
    operator(OperatorScope::Approvals, "exec.approval.list"),
    operator(OperatorScope::Approvals, "exec.approval.request"),
    operator(OperatorScope::Approvals, "exec.approval.resolve"),
    operator(OperatorScope::Approvals, "exec.approval.waitDecision"),
    // Approving what a node may do needs more, by what it may do then: see `pairing_scopes`.
    operator(OperatorScope::Pairing, "device.pair.approve"),
    operator(OperatorScope::Pairing, "device.pair.list"),
    operator(OperatorScope::Pairing, "device.pair.reject"),
    operator(OperatorScope::Pairing, "device.pair.remove"),
    operator(OperatorScope::Pairing, "device.pair.rename"),
    operator(OperatorScope::Pairing, "device.token.revoke"),
    operator(OperatorScope::Pairing, "device.token.rotate"),
    operator(OperatorScope::Pairing, "node.pair.approve"),
    operator(OperatorScope::Pairing, "node.pair.list"),
    operator(OperatorScope::Pairing, "node.pair.reject"),
    operator(OperatorScope::Pairing, "node.pair.remove"),
    operator(OperatorScope::Pairing, "node.pair.request"),
    operator(OperatorScope::Pairing, "node.pair.verify"),
    operator(OperatorScope::Pairing, "node.rename"),
    // Holds the text of commands of every agent.
    operator(OperatorScope::Admin, "audit.list"),
    operator(OperatorScope::Admin, "config.patch"),
    operator(OperatorScope::Admin, "config.schema"),
    operator(OperatorScope::Admin, "config.set"),
    operator(OperatorScope::Admin, "exec.approvals.get"),
    operator(OperatorScope::Admin, "exec.approvals.node.get"),
    operator(OperatorScope::Admin, "exec.approvals.node.set"),
    operator(OperatorScope::Admin, "exec.approvals.set"),
    operator(OperatorScope::Admin, "sessions.patch"),
    operator(OperatorScope::Admin, "system-event"),
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
        (Some(MethodAccess::Anyone), _) | (Some(MethodAccess::Node), Role::Node) => Ok(()),
        (Some(MethodAccess::Operator(scope)), Role::Operator) => require(scope, scopes),
        (Some(_), role) => Err(unauthorized_role(role)),
        (None, Role::Operator) => {
            require(OperatorScope::Admin, scopes).and(Err(WireError::unknown_method(name)))
        }
        // Nodes of others call what only their gateways have: nothing that they should be closed
        // for.
        (None, Role::Node) => Err(WireError::unknown_method(name)),
    }
}

/// Fails with the scope that is missing.
pub fn require(scope: OperatorScope, scopes: &Scopes) -> Result<(), WireError> {
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
pub fn pairing_scopes<T: AsRef<str>>(commands: &[T]) -> Vec<OperatorScope> {
    let mut commands = commands.iter().map(AsRef::as_ref);
    if commands.len() == 0 {
        vec![OperatorScope::Pairing]
    } else if commands.any(|command| RUNNING_COMMANDS.contains(&command)) {
        vec![OperatorScope::Pairing, OperatorScope::Admin]
    } else {
        vec![OperatorScope::Pairing, OperatorScope::Write]
    }
}
