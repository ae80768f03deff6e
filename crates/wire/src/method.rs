//! The methods, and who may call them.

use schemars::JsonSchema;

use crate::contract::MethodContract;
use crate::error::WireError;
use crate::params::{self, Params};
use crate::scope::{OperatorScope, Role, Scopes};

/// Who may call a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MethodAccess {
    /// Any role, no scope.
    Anyone,
    Operator(OperatorScope),
    Node,
}

/// A method: its name, who may call it, its parameters and its result.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    pub name: &'static str,
    pub access: MethodAccess,
    pub contract: MethodContract,
}

impl Method {
    const fn new<P: Params + JsonSchema>(access: MethodAccess) -> Self {
        Self {
            name: P::METHOD,
            access,
            contract: MethodContract::of::<P>(),
        }
    }
}

const fn anyone<P: Params + JsonSchema>() -> Method {
    Method::new::<P>(MethodAccess::Anyone)
}

const fn node<P: Params + JsonSchema>() -> Method {
    Method::new::<P>(MethodAccess::Node)
}

const fn operator<P: Params + JsonSchema>(scope: OperatorScope) -> Method {
    Method::new::<P>(MethodAccess::Operator(scope))
}

/// Every method but `connect`, which is only the first request.
pub const METHODS: &[Method] = &[
    // Only reports that the gateway is alive.
    anyone::<params::Health>(),
    operator::<params::Status>(OperatorScope::Read),
    operator::<params::AgentsList>(OperatorScope::Read),
    operator::<params::ConfigGet>(OperatorScope::Read),
    operator::<params::LogsTail>(OperatorScope::Read),
    operator::<params::NodeDescribe>(OperatorScope::Read),
    operator::<params::NodeList>(OperatorScope::Read),
    operator::<params::NodePolicy>(OperatorScope::Read),
    operator::<params::ProcessList>(OperatorScope::Read),
    operator::<params::ProcessLog>(OperatorScope::Read),
    operator::<params::ProcessPoll>(OperatorScope::Read),
    operator::<params::ProcessSubscribe>(OperatorScope::Read),
    operator::<params::ProcessUnsubscribe>(OperatorScope::Read),
    operator::<params::SessionsList>(OperatorScope::Read),
    operator::<params::SystemPresence>(OperatorScope::Read),
    operator::<params::TasksGet>(OperatorScope::Read),
    operator::<params::TasksList>(OperatorScope::Read),
    operator::<params::ToolsCatalog>(OperatorScope::Read),
    operator::<params::ToolsEffective>(OperatorScope::Read),
    // Each page also requires the scopes of what it shows.
    operator::<params::UiClose>(OperatorScope::Read),
    operator::<params::UiOpen>(OperatorScope::Read),
    // These methods describe the chain but reveal nothing of its content.
    operator::<params::AuditHead>(OperatorScope::Read),
    operator::<params::AuditVerify>(OperatorScope::Read),
    // Searches for files of the node.
    operator::<params::NodeExplain>(OperatorScope::Write),
    operator::<params::NodeInvoke>(OperatorScope::Write),
    operator::<params::ProcessKill>(OperatorScope::Write),
    operator::<params::ProcessPerform>(OperatorScope::Write),
    operator::<params::ProcessWrite>(OperatorScope::Write),
    // Searches for files, and makes the directories of a scope.
    operator::<params::SandboxExplain>(OperatorScope::Write),
    // Shows the values of a session. Changing them requires the scopes of `sessions.patch`.
    operator::<params::SessionsDirective>(OperatorScope::Write),
    operator::<params::TasksCancel>(OperatorScope::Write),
    operator::<params::ToolsInvoke>(OperatorScope::Write),
    operator::<params::UiScreen>(OperatorScope::Write),
    operator::<params::ApprovalGet>(OperatorScope::Approvals),
    operator::<params::ApprovalHistory>(OperatorScope::Approvals),
    operator::<params::ApprovalResolve>(OperatorScope::Approvals),
    operator::<params::DeliveriesList>(OperatorScope::Approvals),
    operator::<params::ExecApprovalAskAgain>(OperatorScope::Approvals),
    operator::<params::ExecApprovalGet>(OperatorScope::Approvals),
    operator::<params::ExecApprovalGrantsList>(OperatorScope::Approvals),
    operator::<params::ExecApprovalGrantsRevoke>(OperatorScope::Approvals),
    operator::<params::ExecApprovalList>(OperatorScope::Approvals),
    operator::<params::ExecApprovalPage>(OperatorScope::Approvals),
    operator::<params::ExecApprovalRequest>(OperatorScope::Approvals),
    operator::<params::ExecApprovalResolve>(OperatorScope::Approvals),
    operator::<params::ExecApprovalResolveMany>(OperatorScope::Approvals),
    operator::<params::ExecApprovalWaitDecision>(OperatorScope::Approvals),
    // These methods concern the caller's own device.
    operator::<params::PushKey>(OperatorScope::Approvals),
    operator::<params::PushSubscribe>(OperatorScope::Approvals),
    operator::<params::PushTest>(OperatorScope::Approvals),
    operator::<params::PushUnsubscribe>(OperatorScope::Approvals),
    // Always empty here.
    operator::<params::OpenclawApprovalList>(OperatorScope::Approvals),
    operator::<params::PluginApprovalList>(OperatorScope::Approvals),
    // Approving a node requires further scopes, depending on its commands: see `pairing_scopes`.
    operator::<params::DevicePairApprove>(OperatorScope::Pairing),
    operator::<params::DevicePairList>(OperatorScope::Pairing),
    operator::<params::DevicePairReject>(OperatorScope::Pairing),
    operator::<params::DevicePairRemove>(OperatorScope::Pairing),
    operator::<params::DevicePairRename>(OperatorScope::Pairing),
    operator::<params::DeviceTokenRevoke>(OperatorScope::Pairing),
    operator::<params::DeviceTokenRotate>(OperatorScope::Pairing),
    operator::<params::NodePairApprove>(OperatorScope::Pairing),
    operator::<params::NodePairList>(OperatorScope::Pairing),
    operator::<params::NodePairReject>(OperatorScope::Pairing),
    operator::<params::NodePairRemove>(OperatorScope::Pairing),
    operator::<params::NodePairRequest>(OperatorScope::Pairing),
    operator::<params::NodePairVerify>(OperatorScope::Pairing),
    operator::<params::NodeRename>(OperatorScope::Pairing),
    // Also requires the scopes that the phone gets.
    operator::<params::UiPhone>(OperatorScope::Pairing),
    // Contains the text of commands of every agent.
    operator::<params::AuditList>(OperatorScope::Admin),
    operator::<params::ConfigPatch>(OperatorScope::Admin),
    operator::<params::ConfigSchema>(OperatorScope::Admin),
    operator::<params::ConfigSet>(OperatorScope::Admin),
    operator::<params::ExecApprovalsGet>(OperatorScope::Admin),
    operator::<params::ExecApprovalsNodeGet>(OperatorScope::Admin),
    operator::<params::ExecApprovalsNodeSet>(OperatorScope::Admin),
    operator::<params::ExecApprovalsSet>(OperatorScope::Admin),
    operator::<params::PolicyReplay>(OperatorScope::Admin),
    // Removes files of agents.
    operator::<params::SandboxPrune>(OperatorScope::Admin),
    operator::<params::SandboxRecreate>(OperatorScope::Admin),
    operator::<params::SessionsPatch>(OperatorScope::Admin),
    operator::<params::SystemEvent>(OperatorScope::Admin),
    // Gives a browser access.
    operator::<params::UiCode>(OperatorScope::Admin),
    // Reveals the names of accounts and rooms, and writes to them.
    operator::<params::ChannelsList>(OperatorScope::Admin),
    operator::<params::ChannelsTest>(OperatorScope::Admin),
    node::<params::NodeEvent>(),
    node::<params::NodeInvokeResult>(),
    node::<params::SkillsBins>(),
];

/// The first request of every connection. It has no row in [`METHODS`], because no role calls it
/// later.
pub const CONNECT: MethodContract = MethodContract::of::<params::Connect>();

/// The contract of every method, `connect` included.
pub fn contracts() -> impl Iterator<Item = &'static MethodContract> {
    std::iter::once(&CONNECT).chain(METHODS.iter().map(|method| &method.contract))
}

/// The row of a method.
pub fn find(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

/// Checks whether a connection may call a method; the error is the response. A client with the
/// administration scope learns that a method does not exist. Other operators only learn that they
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
        // Foreign nodes call methods that only their own gateways have. They must not be
        // disconnected for that.
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

/// The error for a method that the role may never call.
pub fn unauthorized_role(role: Role) -> WireError {
    WireError::invalid(format!("unauthorized role: {role}"))
}

/// Whether an error counts towards closing the connection: see
/// [`crate::close::MAX_UNAUTHORIZED_CALLS`].
pub fn is_unauthorized_role(error: &WireError) -> bool {
    error.message.starts_with("unauthorized role: ")
}

/// Commands that run programs on a node. Only administrators may let a node offer them.
const RUNNING_COMMANDS: &[&str] = &["system.run", "system.run.prepare", "system.which"];

/// The scopes that are required to approve a node with these commands.
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
