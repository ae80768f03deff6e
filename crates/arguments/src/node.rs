//! `interlock node`: the node host.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ServiceArguments, ServiceInstallArguments};

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum NodeCommand {
    /// Run commands for a gateway, under the policy of this machine, in the foreground
    #[command(after_help = "\
Example:
  interlock node run --host 127.0.0.1 --port 18789

The token of the gateway comes from --token-file, from INTERLOCK_GATEWAY_TOKEN, or from the file that
gateway.remote.tokenFile names. Later connections use the token that the gateway gave to this device.
If the gateway asks for a password, it comes from INTERLOCK_GATEWAY_PASSWORD, or from the file that
gateway.remote.passwordFile names.
The exit code is 78 if the gateway refuses this node for good.")]
    Run(NodeRunArguments),
    /// Show whether a node runs for this state directory, and the state of its connection
    #[command(after_help = "Example:\n  interlock node status --json")]
    Status(NodeStatusArguments),
    /// Install the node host as a service: systemd or launchd
    #[command(after_help = "\
Examples:
  INTERLOCK_GATEWAY_TOKEN=… interlock node install --host 10.0.0.5
  interlock node install --host gateway.local --token-file ~/gateway.token

A token in the environment is stored in a file of the state directory that only its owner can read; the unit contains no
token. Root gets a service of the machine, other accounts a service of the user. Runs continue when the service stops or
restarts. The service is not restarted after exit code 78.")]
    Install(NodeInstallArguments),
    /// Stop the service and remove what `install` wrote
    #[command(after_help = "Example:\n  interlock node uninstall")]
    Uninstall(ServiceArguments),
    /// Start the service
    #[command(after_help = "Example:\n  interlock node start")]
    Start(ServiceArguments),
    /// Stop the node host of this state directory; runs continue
    #[command(after_help = "Example:\n  interlock node stop")]
    Stop(ServiceArguments),
    /// Restart the service; runs continue
    #[command(after_help = "Example:\n  interlock node restart")]
    Restart(ServiceArguments),
}

#[derive(Debug, Args)]
pub struct NodeInstallArguments {
    #[command(flatten)]
    pub run: NodeRunArguments,
    #[command(flatten)]
    pub install: ServiceInstallArguments,
}

#[derive(Debug, Args)]
pub struct NodeRunArguments {
    /// The name or address of the gateway
    #[arg(long, value_name = "HOST")]
    pub host: String,
    /// The port of the gateway
    #[arg(long, value_name = "PORT", default_value_t = 18789)]
    pub port: u16,
    /// Use TLS; required beyond this machine, private networks and tailnets
    #[arg(long)]
    pub tls: bool,
    /// The SHA-256 of the gateway's certificate; implies TLS [default:
    /// gateway.remote.tlsFingerprint]
    #[arg(long, value_name = "SHA256")]
    pub tls_fingerprint: Option<String>,
    /// The name under which the gateway shows this node [default: the name of the machine]
    #[arg(long, value_name = "NAME")]
    pub display_name: Option<String>,
    /// The id of this installation [default: chosen at the first start]
    #[arg(long, value_name = "ID")]
    pub node_id: Option<String>,
    /// The file that holds the token of the gateway [default: gateway.remote.tokenFile]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The file with a new token for this device, as `interlock devices rotate` prints it; the node
    /// stores the token
    #[arg(long, value_name = "FILE")]
    pub device_token_file: Option<PathBuf>,
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
            Self::Install(install) => install.install.service.json,
            Self::Uninstall(service)
            | Self::Start(service)
            | Self::Stop(service)
            | Self::Restart(service) => service.json,
        }
    }
}
