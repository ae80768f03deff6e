//! The events and their receivers.

use crate::scope::{OperatorScope, Role, Scopes};

/// The receivers of a broadcast event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventGuard {
    /// Operators and nodes.
    Everyone,
    /// Every operator, regardless of scopes.
    Operators,
    Scope(OperatorScope),
    /// Never broadcast: sent only to the connection that it is for.
    Targeted,
}

/// An event by its name. A name that ends in a dot is a family of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRow {
    pub name: &'static str,
    pub guard: EventGuard,
}

const fn row(name: &'static str, guard: EventGuard) -> EventRow {
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
/// A session gets an event: the outcome of a run, or an operator's note. An Interlock extension.
pub const SESSION_EVENT: &str = "session.event";
/// Output of a background session, for connections that subscribed to it. An Interlock extension.
pub const PROCESS_OUTPUT: &str = "process.output";
/// The end of a background session, for connections that subscribed to it. An Interlock extension.
pub const PROCESS_ENDED: &str = "process.ended";
/// A page of the Control UI changed, for the connection that opened it. An Interlock extension.
pub const UI_PATCH: &str = "ui.patch";

/// Every event that is sent, and the families of session events.
pub const EVENTS: &[EventRow] = &[
    row(CONNECT_CHALLENGE, EventGuard::Targeted),
    row(TICK, EventGuard::Everyone),
    row(HEALTH, EventGuard::Everyone),
    row(PRESENCE, EventGuard::Everyone),
    row(SHUTDOWN, EventGuard::Everyone),
    row("heartbeat", EventGuard::Operators),
    row("update.available", EventGuard::Operators),
    row(
        EXEC_APPROVAL_REQUESTED,
        EventGuard::Scope(OperatorScope::Approvals),
    ),
    row(
        EXEC_APPROVAL_RESOLVED,
        EventGuard::Scope(OperatorScope::Approvals),
    ),
    row(
        DEVICE_PAIR_REQUESTED,
        EventGuard::Scope(OperatorScope::Pairing),
    ),
    row(
        DEVICE_PAIR_RESOLVED,
        EventGuard::Scope(OperatorScope::Pairing),
    ),
    row(
        NODE_PAIR_REQUESTED,
        EventGuard::Scope(OperatorScope::Pairing),
    ),
    row(
        NODE_PAIR_RESOLVED,
        EventGuard::Scope(OperatorScope::Pairing),
    ),
    row(NODE_INVOKE_REQUEST, EventGuard::Targeted),
    row(NODE_TAKEN_OVER, EventGuard::Targeted),
    row("agent", EventGuard::Scope(OperatorScope::Read)),
    row("chat", EventGuard::Scope(OperatorScope::Read)),
    row("sessions.changed", EventGuard::Scope(OperatorScope::Read)),
    row(SESSION_EVENT, EventGuard::Scope(OperatorScope::Read)),
    row("session.", EventGuard::Scope(OperatorScope::Read)),
    row(PROCESS_OUTPUT, EventGuard::Targeted),
    row(PROCESS_ENDED, EventGuard::Targeted),
    row(UI_PATCH, EventGuard::Targeted),
    row("process.", EventGuard::Scope(OperatorScope::Read)),
    row("task.", EventGuard::Scope(OperatorScope::Read)),
];

/// The guard of an event. An unknown event has none and is never sent.
pub fn guard(name: &str) -> Option<EventGuard> {
    let matches = |row: &&EventRow| match row.name {
        family if family.ends_with('.') => name.starts_with(family),
        exact => name == exact,
    };
    EVENTS.iter().find(matches).map(|row| row.guard)
}

/// Whether a broadcast event is sent to a connection with this role and these scopes.
pub fn is_heard_by(name: &str, role: Role, scopes: &Scopes) -> bool {
    match (guard(name), role) {
        (Some(EventGuard::Everyone), _) | (Some(EventGuard::Operators), Role::Operator) => true,
        (Some(EventGuard::Scope(scope)), Role::Operator) => scopes.allow(scope),
        _ => false,
    }
}

/// The names for `hello-ok.features.events`.
pub fn names() -> Vec<String> {
    let exact = EVENTS.iter().filter(|row| !row.name.ends_with('.'));
    exact.map(|row| row.name.to_owned()).collect()
}
