//! The events, and who hears them.

use crate::scope::{Role, Scope, Scopes};

/// Who hears an event that is broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Operators and nodes.
    Everyone,
    /// Every operator, whatever its scopes.
    Operators,
    Scope(Scope),
    /// Never broadcast: sent to the one connection that it is for.
    Targeted,
}

/// An event by its name; a name that ends in a dot is a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRow {
    pub name: &'static str,
    pub guard: Guard,
}

const fn row(name: &'static str, guard: Guard) -> EventRow {
    EventRow { name, guard }
}

pub const CONNECT_CHALLENGE: &str = "connect.challenge";
pub const TICK: &str = "tick";
pub const HEALTH: &str = "health";
pub const PRESENCE: &str = "presence";
pub const SHUTDOWN: &str = "shutdown";
pub const EXEC_APPROVAL_REQUESTED: &str = "exec.approval.requested";
pub const EXEC_APPROVAL_RESOLVED: &str = "exec.approval.resolved";
pub const DEVICE_PAIR_REQUESTED: &str = "device.pair.requested";
pub const DEVICE_PAIR_RESOLVED: &str = "device.pair.resolved";
pub const NODE_PAIR_REQUESTED: &str = "node.pair.requested";
pub const NODE_PAIR_RESOLVED: &str = "node.pair.resolved";
pub const NODE_INVOKE_REQUEST: &str = "node.invoke.request";
/// Sent to an Interlock node that another connection replaced: the node closes and does not
/// reconnect.
pub const NODE_TAKEN_OVER: &str = "node.taken-over";
/// A session gets an event: the outcome of a run, or a line of an operator. An Interlock extension.
pub const SESSION_EVENT: &str = "session.event";
/// Output of a background session, for connections that subscribed to it. An Interlock extension.
pub const PROCESS_OUTPUT: &str = "process.output";
/// The end of a background session, for connections that subscribed to it. An Interlock extension.
pub const PROCESS_ENDED: &str = "process.ended";

/// Every event that is sent, and the families of events about sessions.
pub const EVENTS: &[EventRow] = &[
    row(CONNECT_CHALLENGE, Guard::Targeted),
    row(TICK, Guard::Everyone),
    row(HEALTH, Guard::Everyone),
    row(PRESENCE, Guard::Everyone),
    row(SHUTDOWN, Guard::Everyone),
    row("heartbeat", Guard::Operators),
    row("update.available", Guard::Operators),
    row(EXEC_APPROVAL_REQUESTED, Guard::Scope(Scope::Approvals)),
    row(EXEC_APPROVAL_RESOLVED, Guard::Scope(Scope::Approvals)),
    row(DEVICE_PAIR_REQUESTED, Guard::Scope(Scope::Pairing)),
    row(DEVICE_PAIR_RESOLVED, Guard::Scope(Scope::Pairing)),
    row(NODE_PAIR_REQUESTED, Guard::Scope(Scope::Pairing)),
    row(NODE_PAIR_RESOLVED, Guard::Scope(Scope::Pairing)),
    row(NODE_INVOKE_REQUEST, Guard::Targeted),
    row(NODE_TAKEN_OVER, Guard::Targeted),
    row("agent", Guard::Scope(Scope::Read)),
    row("chat", Guard::Scope(Scope::Read)),
    row("sessions.changed", Guard::Scope(Scope::Read)),
    row(SESSION_EVENT, Guard::Scope(Scope::Read)),
    row("session.", Guard::Scope(Scope::Read)),
    row(PROCESS_OUTPUT, Guard::Targeted),
    row(PROCESS_ENDED, Guard::Targeted),
    row("process.", Guard::Scope(Scope::Read)),
    row("task.", Guard::Scope(Scope::Read)),
];

/// The guard of an event. An unknown event has none, and is never sent.
pub fn guard(name: &str) -> Option<Guard> {
    let matches = |row: &&EventRow| match row.name {
        family if family.ends_with('.') => name.starts_with(family),
        exact => name == exact,
    };
    EVENTS.iter().find(matches).map(|row| row.guard)
}

/// Whether a broadcast event goes to such a connection.
pub fn is_heard_by(name: &str, role: Role, scopes: &Scopes) -> bool {
    match (guard(name), role) {
        (Some(Guard::Everyone), _) | (Some(Guard::Operators), Role::Operator) => true,
        (Some(Guard::Scope(scope)), Role::Operator) => scopes.allow(scope),
        _ => false,
    }
}

/// The names for `hello-ok.features.events`.
pub fn names() -> Vec<String> {
    let exact = EVENTS.iter().filter(|row| !row.name.ends_with('.'));
    exact.map(|row| row.name.to_owned()).collect()
}
