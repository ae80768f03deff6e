//! `system.which`: returns the paths of programs as runs would find them.

use interlock_host::NO_CALLER_CONTEXT;
use interlock_policy::AgentId;
use interlock_programs::{Lookup, Resolver as _};
use interlock_wire::WireError;
use interlock_wire::node::{NodeInvokeRequest, SystemWhich, SystemWhichResult};

use crate::serve::NodeService;

/// The texts of `read` for missing or malformed parameters.
const NO_PARAMETERS: [&str; 2] = ["paramsJSON", "malformed JSON"];

pub(crate) fn which(
    service: &NodeService,
    request: &NodeInvokeRequest,
) -> Result<SystemWhichResult, WireError> {
    let which: SystemWhich = request.read().map_err(|error| {
        if NO_PARAMETERS
            .iter()
            .any(|text| error.message.contains(text))
        {
            return error;
        }
        WireError::invalid("Error: INVALID_REQUEST: bins required")
    })?;
    let agent = AgentId::default();
    let scope = service.host.scope(&agent);
    let scope = scope.map_err(|error| WireError::unavailable(error.to_string()))?;
    let resolver = scope.resolver(&NO_CALLER_CONTEXT);
    let mut result = SystemWhichResult::default();
    for name in which.bins {
        let bare = name.trim();
        if bare.is_empty() || bare.contains('/') {
            continue;
        }
        if let Lookup::Found(executable) = resolver.executable(bare, "/") {
            result.bins.insert(bare.to_owned(), executable.found);
        }
    }
    Ok(result)
}
