//! Decides where a command from the command line runs.

use interlock_arguments::{ExecArguments, StateArguments};
use interlock_client::routed_call;
use interlock_config::Host;
use interlock_console::Failure;
use interlock_host::{CallSender, LocalHost, Route, RouteRefusal, host_named};
use interlock_policy::AgentId;

/// Where the command runs, by the same rules as a call of the gateway's `exec` tool.
pub(super) fn checked_route(
    state: &StateArguments,
    host: &LocalHost,
    all: &ExecArguments,
    (agent, sender): (&AgentId, Option<&CallSender>),
) -> Result<Route, Failure> {
    let asked = asked_host(all)?;
    if all.sandbox {
        return Ok(Route::Sandbox);
    }
    let elevated = all.elevated.then_some(true);
    let routed = match routed_call(host, agent, (asked, elevated), sender)? {
        // The judge of this host refuses the elevation again, and its refusal is recorded.
        Err(RouteRefusal::Elevation(_)) => return Ok(Route::Sandbox),
        routed => routed,
    };
    let routed = routed.map(|routed| routed.route);
    routed.map_err(|refused| {
        let look = state.in_command("interlock config get");
        let hint = format!("{}; look at it: {look}", refused.remedy());
        Failure::refused(refused.code(), refused.to_string()).with_hint(hint)
    })
}

/// The host that the command line names. `--node` implies the host `node`.
pub(super) fn asked_host(all: &ExecArguments) -> Result<Option<Host>, Failure> {
    let asked = all.host.as_deref().and_then(host_named);
    match (asked, &all.node) {
        (None | Some(Host::Node), Some(_)) => Ok(Some(Host::Node)),
        (Some(other), Some(_)) => {
            let message = format!("--node goes with --host node, not {}", other.as_str());
            Err(Failure::usage("HOST_CONFLICT", message))
        }
        (asked, None) => Ok(asked),
    }
}
