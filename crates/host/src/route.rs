//! Where a command goes: to this host, to a node, or nowhere. Every transport asks here before
//! anything else is done with a command.

use interlock_config::Host;

/// Where a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The host of the gateway: this one.
    Gateway,
    /// A node; the gateway chooses which one.
    Node,
}

/// Why it runs nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RouteRefusal {
    #[error(
        "no sandbox is active for this session, and what asks for one does not run on the host"
    )]
    NoSandbox,
    #[error("exec host not allowed (requested {}; configured host is {})", .asked.as_str(), .configured.as_str())]
    NotAllowed { asked: Host, configured: Host },
}

impl RouteRefusal {
    pub fn code(self) -> &'static str {
        match self {
            Self::NoSandbox => "SANDBOX_UNAVAILABLE",
            Self::NotAllowed { .. } => "HOST_NOT_ALLOWED",
        }
    }

    pub fn remedy(self) -> &'static str {
        match self {
            Self::NoSandbox => "leave out `host`, or have the owner set up a sandbox",
            Self::NotAllowed { .. } => {
                "leave out `host`, or have the owner set tools.exec.host to auto"
            }
        }
    }
}

/// Where a call goes that asks for a host, by what session or config say. A host that the owner chose
/// is not left for another one; `auto` leaves the choice to the call.
pub fn route(asked: Option<Host>, configured: Option<Host>) -> Result<Route, RouteRefusal> {
    let (asked, configured) = (
        asked.unwrap_or(Host::Auto),
        configured.unwrap_or(Host::Auto),
    );
    match (configured, asked) {
        (_, Host::Sandbox) | (Host::Sandbox, _) => Err(RouteRefusal::NoSandbox),
        (Host::Auto | Host::Gateway, Host::Auto | Host::Gateway) => Ok(Route::Gateway),
        (Host::Auto, Host::Node) | (Host::Node, Host::Auto | Host::Node) => Ok(Route::Node),
        (Host::Gateway, Host::Node) | (Host::Node, Host::Gateway) => {
            Err(RouteRefusal::NotAllowed { asked, configured })
        }
    }
}
