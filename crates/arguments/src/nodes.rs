//! `interlock devices` and `interlock nodes`: which machines may connect, and how the gateway uses
//! them.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum DevicesCommand {
    /// List the devices that may connect, and pending requests
    #[command(after_help = "Example:\n  interlock devices list")]
    List(DevicesListArguments),
    /// Let a device connect
    #[command(after_help = "Example:\n  interlock devices approve 6f1c")]
    Approve(DevicesApproveArguments),
    /// Reject the request of a device
    #[command(after_help = "Example:\n  interlock devices reject 6f1c")]
    Reject(DevicesRejectArguments),
    /// Forget a device; its connections end
    #[command(after_help = "Example:\n  interlock devices remove 3a9d0c")]
    Remove(DevicesRemoveArguments),
    /// Give a device a new token; the old one becomes invalid
    #[command(after_help = "Example:\n  interlock devices rotate 3a9d0c --role node")]
    Rotate(DevicesTokenArguments),
    /// Revoke the token of a device
    #[command(after_help = "Example:\n  interlock devices revoke 3a9d0c --role node")]
    Revoke(DevicesTokenArguments),
}

#[derive(Debug, Args)]
pub struct DevicesListArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DevicesApproveArguments {
    /// The id of the request or of the device, or its beginning
    #[arg(value_name = "ID")]
    pub id: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DevicesRejectArguments {
    /// The id of the request or of the device, or its beginning
    #[arg(value_name = "ID")]
    pub id: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DevicesRemoveArguments {
    /// The device, its name, or the beginning of its id
    #[arg(value_name = "DEVICE")]
    pub device: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DevicesTokenArguments {
    /// The device, its name, or the beginning of its id
    #[arg(value_name = "DEVICE")]
    pub device: String,
    /// The role of the token
    #[arg(long, default_value = "node", value_parser = ["node", "operator"])]
    pub role: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl DevicesCommand {
    pub fn wants_json(&self) -> bool {
        match self {
            Self::List(list) => list.json,
            Self::Approve(approve) => approve.json,
            Self::Reject(reject) => reject.json,
            Self::Remove(remove) => remove.json,
            Self::Rotate(token) | Self::Revoke(token) => token.json,
        }
    }
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum NodesCommand {
    /// List nodes
    #[command(after_help = "\
Examples:
  interlock nodes list
  interlock nodes list --connected --limit 50

Nodes are listed by name. If there are more than the limit, the last line is the command that lists the next ones.")]
    List(NodesListArguments),
    /// Show which nodes are connected, and which requests wait for an operator
    #[command(after_help = "\
Example:
  interlock nodes status

Nodes are listed by name. If there are more than the limit, the last line is the command that lists the next ones.")]
    Status(NodesListArguments),
    /// Show one node
    #[command(after_help = "Example:\n  interlock nodes describe lab")]
    Describe(NodesNodeArguments),
    /// Rename a node
    #[command(after_help = "Example:\n  interlock nodes rename 3a9d0c lab")]
    Rename(NodesRenameArguments),
    /// Withdraw the approval of a node
    #[command(after_help = "Example:\n  interlock nodes remove lab")]
    Remove(NodesNodeArguments),
    /// Approve the commands of a node
    #[command(
        after_help = "Example:\n  interlock nodes approve lab\n\nShows the commands. If system.run is among them, the node runs what its own policy allows."
    )]
    Approve(NodesApproveArguments),
    /// Reject the commands of a node
    #[command(after_help = "Example:\n  interlock nodes reject lab")]
    Reject(NodesApproveArguments),
    /// List, mint and revoke the tokens with which nodes join
    #[command(after_help = "\
Examples:
  interlock nodes enroll
  interlock nodes enroll --list
  interlock nodes enroll --revoke 0b9f3c1e-7d57-4f0e-9d62-3c4e1d6a8b11

The token is printed once; only its hash is kept. It lets its holder connect as a node and do nothing else: no tools, no
decisions. The commands of the node still need an approval (nodes approve).")]
    Enroll(NodesEnrollArguments),
    /// Call one command of a node; to run programs use exec
    #[command(
        after_help = "Example:\n  interlock nodes invoke lab system.which --params '{\"bins\":[\"git\"]}'"
    )]
    Invoke(NodesInvokeArguments),
}

#[derive(Debug, Args)]
pub struct NodesListArguments {
    /// List at most this many nodes
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub limit: u64,
    /// Continue where an earlier list ended
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
    /// List only nodes that are connected
    #[arg(long)]
    pub connected: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct NodesNodeArguments {
    /// The node: its id, its name, its address, or the beginning of its id
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct NodesRenameArguments {
    /// The node: its id, its name, its address, or the beginning of its id
    #[arg(value_name = "NODE")]
    pub node: String,
    /// The new name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct NodesApproveArguments {
    /// The request, the node or its name, or the beginning of an id
    #[arg(value_name = "ID")]
    pub id: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct NodesEnrollArguments {
    /// List the tokens instead
    #[arg(long, group = "act")]
    pub list: bool,
    /// Revoke a token by its id
    #[arg(long, value_name = "ID", group = "act")]
    pub revoke: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct NodesInvokeArguments {
    /// The node: its id, its name, its address, or the beginning of its id
    #[arg(value_name = "NODE")]
    pub node: String,
    /// The command, as `nodes describe` shows it
    #[arg(value_name = "COMMAND")]
    pub command: String,
    /// The parameters of the command, as a JSON object
    #[arg(long, value_name = "JSON")]
    pub params: Option<String>,
    /// How long the answer may take [default: 30000]
    #[arg(long, value_name = "MILLISECONDS")]
    pub timeout_ms: Option<u64>,
    /// Print the whole answer as JSON
    #[arg(long)]
    pub json: bool,
}

impl NodesCommand {
    pub fn wants_json(&self) -> bool {
        match self {
            Self::List(list) | Self::Status(list) => list.json,
            Self::Describe(node) | Self::Remove(node) => node.json,
            Self::Rename(rename) => rename.json,
            Self::Approve(approve) | Self::Reject(approve) => approve.json,
            Self::Enroll(enroll) => enroll.json,
            Self::Invoke(invoke) => invoke.json,
        }
    }
}
