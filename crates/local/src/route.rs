//! Decides where a command runs: on this host, in its sandbox, on a node, or nowhere. Every
//! transport must call this before it does anything else with a command, and the judge of this host
//! calls it again.

use interlock_config::Host;
use interlock_config::types::ExecConfig;
use interlock_plan::Elevation;
use interlock_sandbox::SandboxStanding;

use crate::elevation::{ElevationFacts, ElevationRefusal};

/// Where a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// On the host of the gateway, which is this one.
    Gateway,
    /// On this host, in the sandbox of the conversation.
    Sandbox,
    /// On a node, which the gateway chooses.
    Node,
}

/// Why a command may not run anywhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteRefusal {
    #[error(
        "no sandbox is active for this session, and what asks for one does not run on the host"
    )]
    NoSandbox,
    #[error("exec host not allowed (requested {}; configured host is {})", .asked.as_str(), .configured.as_str())]
    NotAllowed { asked: Host, configured: Host },
    #[error("exec host not allowed (requested {}; the conversation is sandboxed)", .asked.as_str())]
    Sandboxed { asked: Host },
    #[error("exec host not allowed (/exec host={}; the conversation is sandboxed)", .session.as_str())]
    SessionLeaves { session: Host },
    #[error(
        "exec host not allowed (configured host is {}; agents.*.sandbox.required is true)",
        .configured.as_str()
    )]
    Required { configured: Host },
    #[error(
        "exec host not allowed (requested {}; an elevated call goes to {})",
        .asked.as_str(),
        .target.as_str()
    )]
    ElevatedElsewhere { asked: Host, target: Host },
    #[error(transparent)]
    Elevation(#[from] ElevationRefusal),
}

/// Where a call runs, and at which level it leaves its sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutedCall {
    pub route: Route,
    pub elevation: Elevation,
}

impl RouteRefusal {
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoSandbox => "SANDBOX_UNAVAILABLE",
            Self::NotAllowed { .. }
            | Self::Sandboxed { .. }
            | Self::SessionLeaves { .. }
            | Self::ElevatedElsewhere { .. }
            | Self::Required { .. } => "HOST_NOT_ALLOWED",
            Self::Elevation(_) => ElevationRefusal::CODE,
        }
    }

    pub fn remedy(&self) -> String {
        match self {
            Self::Elevation(refusal) => return refusal.remedy(),
            Self::ElevatedElsewhere { .. } => {
                "leave out `host`: an elevated call goes to the configured host"
            }
            Self::NoSandbox => "leave out `host`, or have the owner set up a sandbox",
            Self::NotAllowed { .. } => {
                "leave out `host`, or have the owner set tools.exec.host to auto"
            }
            Self::Sandboxed { asked: Host::Node } => {
                "leave out `host`, or have the owner set tools.exec.nodeFromSandbox to true"
            }
            Self::Sandboxed { .. } => {
                "leave out `host`, or have the owner set tools.exec.host to gateway"
            }
            Self::SessionLeaves { .. } => {
                "/exec host=default; only an elevated call leaves the sandbox (tools.elevated)"
            }
            Self::Required { .. } => {
                "have the owner set tools.exec.host to auto, or agents.*.sandbox.required to false"
            }
        }
        .to_owned()
    }
}

/// The facts that decide where a call runs.
#[derive(Debug, Clone, Copy)]
pub struct RouteFacts<'a> {
    /// The host that the call names.
    pub asked: Option<Host>,
    /// The host that `/exec` set for the conversation.
    pub session: Option<Host>,
    /// The settings of the agent.
    pub exec: &'a ExecConfig,
    pub sandbox: &'a SandboxStanding,
}

/// Decides where a call runs. A call must not choose another host than the one that the owner
/// chose. With `auto` the call may choose, but it must not choose to leave a sandbox.
pub fn route(facts: RouteFacts<'_>) -> Result<Route, RouteRefusal> {
    let asked = facts.asked.unwrap_or(Host::Auto);
    let configured = facts.session.or(facts.exec.host).unwrap_or(Host::Auto);
    if !facts.sandbox.is_active() {
        return route_without_sandbox(asked, configured);
    }
    let is_required = facts.sandbox.is_required();
    if let Some(session @ (Host::Gateway | Host::Node)) = facts.session {
        return Err(RouteRefusal::SessionLeaves { session });
    }
    match (configured, asked) {
        (Host::Auto | Host::Sandbox, Host::Auto | Host::Sandbox) => Ok(Route::Sandbox),
        (Host::Auto, Host::Node) if facts.exec.node_from_sandbox == Some(true) && !is_required => {
            Ok(Route::Node)
        }
        (Host::Auto, Host::Gateway | Host::Node) => Err(RouteRefusal::Sandboxed { asked }),
        (Host::Gateway | Host::Node, _) if is_required => {
            Err(RouteRefusal::Required { configured })
        }
        (Host::Sandbox, Host::Gateway | Host::Node)
        | (Host::Gateway | Host::Node, Host::Sandbox) => {
            Err(RouteRefusal::NotAllowed { asked, configured })
        }
        (Host::Gateway | Host::Node, _) => route_without_sandbox(asked, configured),
    }
}

/// Decides where a call runs that may be elevated. Elevation matters only for a call in a sandbox:
/// a call that runs outside anyway is never elevated.
pub fn route_call(
    facts: RouteFacts<'_>,
    elevation: &ElevationFacts<'_>,
) -> Result<RoutedCall, RouteRefusal> {
    let held = route(facts);
    let placed = |route| RoutedCall {
        route,
        elevation: Elevation::Off,
    };
    let is_held = match &held {
        Ok(Route::Sandbox) => true,
        Ok(Route::Gateway | Route::Node) => false,
        Err(_) => facts.sandbox.is_active(),
    };
    // A call that names `sandbox` stays inside, whatever the level of its conversation is.
    let stays = facts.asked == Some(Host::Sandbox) && elevation.asked != Some(true);
    if !is_held || stays {
        return held.map(placed);
    }
    let level = elevation.resolve(facts.sandbox.is_required())?;
    if !level.leaves() {
        return held.map(placed);
    }
    let configured = facts.session.or(facts.exec.host);
    let (target, route) = match configured {
        Some(Host::Node) => (Host::Node, Route::Node),
        _ => (Host::Gateway, Route::Gateway),
    };
    match facts.asked {
        Some(asked) if asked != Host::Auto && asked != target => {
            Err(RouteRefusal::ElevatedElsewhere { asked, target })
        }
        _ => Ok(RoutedCall {
            route,
            elevation: level,
        }),
    }
}

fn route_without_sandbox(asked: Host, configured: Host) -> Result<Route, RouteRefusal> {
    match (configured, asked) {
        (_, Host::Sandbox) | (Host::Sandbox, _) => Err(RouteRefusal::NoSandbox),
        (Host::Auto | Host::Gateway, Host::Auto | Host::Gateway) => Ok(Route::Gateway),
        (Host::Auto, Host::Node) | (Host::Node, Host::Auto | Host::Node) => Ok(Route::Node),
        (Host::Gateway, Host::Node) | (Host::Node, Host::Gateway) => {
            Err(RouteRefusal::NotAllowed { asked, configured })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the specification, row by row.
    #[test]
    fn every_row_of_the_table_holds() {
        use Host::{Auto, Gateway, Node, Sandbox};
        let off = SandboxStanding::Off("off".to_owned());
        let active = SandboxStanding::Active(Box::default());
        let required = SandboxStanding::Active(Box::new(interlock_config::types::Sandbox {
            required: Some(true),
            ..Default::default()
        }));
        let go = |session, host, sandbox: &SandboxStanding, asked| {
            let exec = ExecConfig {
                host,
                ..Default::default()
            };
            route(RouteFacts {
                asked,
                session,
                exec: &exec,
                sandbox,
            })
            .map_err(|refused| refused.code())
        };
        let (refused, missing) = (Err("HOST_NOT_ALLOWED"), Err("SANDBOX_UNAVAILABLE"));
        for asked in [None, Some(Auto), Some(Gateway), Some(Node), Some(Sandbox)] {
            for session in [Gateway, Node] {
                assert_eq!(go(Some(session), None, &active, asked), refused);
            }
            assert_eq!(go(None, Some(Sandbox), &off, asked), missing);
            let inside = matches!(asked, None | Some(Auto | Sandbox));
            for host in [Some(Sandbox), Some(Auto), None] {
                let expected = if inside { Ok(Route::Sandbox) } else { refused };
                assert_eq!(
                    go(None, host, &active, asked),
                    expected,
                    "{host:?} {asked:?}"
                );
            }
            for host in [Gateway, Node] {
                assert_eq!(go(None, Some(host), &required, asked), refused);
                let same = asked == Some(host) || matches!(asked, None | Some(Auto));
                let there = if host == Gateway {
                    Route::Gateway
                } else {
                    Route::Node
                };
                let expected = if same { Ok(there) } else { refused };
                assert_eq!(go(None, Some(host), &active, asked), expected);
            }
        }
        for host in [None, Some(Auto), Some(Gateway), Some(Node)] {
            assert_eq!(go(None, host, &off, Some(Sandbox)), missing);
        }
        assert_eq!(go(None, None, &off, Some(Gateway)), Ok(Route::Gateway));
        assert_eq!(go(None, None, &off, Some(Node)), Ok(Route::Node));
        let exec = ExecConfig {
            node_from_sandbox: Some(true),
            ..Default::default()
        };
        let asks_node = |sandbox| RouteFacts {
            asked: Some(Node),
            session: None,
            exec: &exec,
            sandbox,
        };
        assert_eq!(route(asks_node(&active)), Ok(Route::Node));
        assert!(route(asks_node(&required)).is_err());
    }
}
