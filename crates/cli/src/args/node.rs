//! The node host.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Run commands for a gateway, under the policy of this machine, in the foreground
    #[command(after_help = "\
Example:
  interlock node run --host 127.0.0.1 --port 18789

The token of the gateway comes from INTERLOCK_GATEWAY_TOKEN, or from the file that
gateway.remote.tokenFile names; later the token that the gateway gave to this device is used.
Ends with 78 if the gateway refuses this node for good.")]
    Run(NodeRunArguments),
    /// Say whether a node runs for this state directory, and how it stands
    #[command(after_help = "Example:\n  interlock node status --json")]
    Status(NodeStatusArguments),
}

#[derive(Debug, Args)]
pub struct NodeRunArguments {
    /// The name or address of the gateway
    #[arg(long, value_name = "HOST")]
    pub host: String,
    /// The port of the gateway
    #[arg(long, value_name = "PORT", default_value_t = 18789)]
    pub port: u16,
    /// Talk TLS; needed beyond this machine, private networks and tailnets
    #[arg(long)]
    pub tls: bool,
    /// The SHA-256 of the gateway's certificate [default: gateway.remote.tlsFingerprint]
    #[arg(long, value_name = "SHA256", requires = "tls")]
    pub tls_fingerprint: Option<String>,
    /// How the gateway shows this node [default: the name of the machine]
    #[arg(long, value_name = "NAME")]
    pub display_name: Option<String>,
    /// The name of this installation, chosen at the first start otherwise
    #[arg(long, value_name = "ID")]
    pub node_id: Option<String>,
}

#[derive(Debug, Args)]
pub struct NodeStatusArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl NodeCommand {
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Run(_) => false,
            Self::Status(status) => status.json,
        }
    }
}
