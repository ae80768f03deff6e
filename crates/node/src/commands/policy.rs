//! `interlock.policy`: returns this machine's policy for an agent, with every layer that decides.

use interlock_wire::WireError;
use interlock_wire::node::NodeInvokeRequest;
use interlock_wire::node::extension::PolicyAsked;
use serde_json::{Value, json};

use super::call;
use crate::serve::NodeService;

/// Joins config and document of this machine as for a run.
pub(crate) fn policy(
    service: &NodeService,
    request: &NodeInvokeRequest,
) -> Result<Value, WireError> {
    let asked: PolicyAsked = request.read()?;
    let unavailable = |error: interlock_host::HostError| WireError::unavailable(error.to_string());
    let agent = call::agent(asked.agent_id.as_deref())?;
    let levels = service.host.levels(&agent, None).map_err(unavailable)?;
    let (_, stored) = service.host.document().map_err(unavailable)?;
    Ok(json!({
        "agentId": agent,
        "documentHash": stored.hash,
        "policy": levels,
        "version": env!("CARGO_PKG_VERSION"),
    }))
}
