//! `interlock gateway`, and `interlock mcp`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ServiceArguments, ServiceInstallArguments};

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum GatewayCommand {
    /// Serve in the foreground
    #[command(
        after_help = "Example:\n  interlock gateway run\n\nPrints its address, how to watch and decide, how to connect an agent, how to mint tokens, and the policy."
    )]
    Run(GatewayRunArguments),
    /// Show whether a gateway runs for this state directory
    #[command(after_help = "Example:\n  interlock gateway status --json")]
    Status(GatewayStatusArguments),
    /// Stop the gateway of this state directory; runs continue
    #[command(after_help = "Example:\n  interlock gateway stop")]
    Stop(ServiceArguments),
    /// Install the gateway as a service: systemd or launchd
    #[command(after_help = "\
Examples:
  interlock gateway install
  sudo interlock gateway install --run-as ada
  interlock gateway install --print > interlock-gateway.service

Root gets a service of the machine, other accounts a service of the user. Runs continue when the service stops or
restarts. A gateway that already runs for this state directory is stopped first.")]
    Install(GatewayInstallArguments),
    /// Stop the service and remove what `install` wrote
    #[command(after_help = "Example:\n  interlock gateway uninstall")]
    Uninstall(ServiceArguments),
    /// Start the service
    #[command(after_help = "Example:\n  interlock gateway start")]
    Start(ServiceArguments),
    /// Restart the service, or the gateway that runs without one; runs continue
    #[command(after_help = "Example:\n  interlock gateway restart")]
    Restart(ServiceArguments),
    /// List, mint and revoke operator tokens
    #[command(after_help = "\
Examples:
  interlock gateway token --new
  interlock gateway token
  interlock gateway token --revoke 0b9f3c1e-7d57-4f0e-9d62-3c4e1d6a8b11

A new token is printed once; only its hash is kept. Earlier tokens stay valid until they are revoked.
Connections that use a revoked token end. Commands on this machine need no token.")]
    Token(GatewayTokenArguments),
}

#[derive(Debug, Args)]
pub struct GatewayRunArguments {
    /// The port, 0 for any free one [default: gateway.port or 18789]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// How often the gateway sends a tick, for tests
    #[arg(long, value_name = "MS", hide = true, value_parser = clap::value_parser!(u64).range(50..))]
    pub tick_ms: Option<u64>,
    /// Print the ready line as JSON
    #[arg(long)]
    pub json: bool,
    /// Leave the terminal; commands that start a gateway in the background use this
    #[arg(long, hide = true)]
    pub detach: bool,
}

#[derive(Debug, Args)]
pub struct GatewayTokenArguments {
    /// Mint a token and print it once
    #[arg(long, group = "act")]
    pub new: bool,
    /// Accept the token in this file, which only its owner can read; the file stays
    #[arg(long, value_name = "FILE", group = "act")]
    pub import: Option<PathBuf>,
    /// Revoke a token by its id
    #[arg(long, value_name = "ID", group = "act")]
    pub revoke: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct GatewayInstallArguments {
    /// The port, 0 for any free one [default: gateway.port or 18789]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Keep the state under this account (root), and run commands as USER
    #[arg(long, value_name = "USER")]
    pub run_as: Option<String>,
    #[command(flatten)]
    pub install: ServiceInstallArguments,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock mcp --agent main

As an entry of an MCP client's settings:
  { \"mcpServers\": { \"interlock\": { \"command\": \"interlock\", \"args\": [\"mcp\"] } } }

Commands start in the client's workspace (its roots), or else in the directory in which the client starts this program,
and find programs by the client's PATH. Each client is a separate conversation. A gateway is started in the background if
none runs. If gateway.remote names a gateway on another machine, the client is connected to that one, with the token of
its operator or of an agent, and the directories and the PATH of this machine are not used.")]
pub struct McpArguments {
    /// The agent that the client acts as
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Let the client show approvals to its user, and accept the user's decisions
    #[arg(long)]
    pub elicitation: bool,
    /// The conversation to join, by its name or full key [default: a new conversation]
    #[arg(long, value_name = "KEY")]
    pub session_key: Option<String>,
}

#[derive(Debug, Args)]
pub struct GatewayStatusArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl GatewayCommand {
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Run(run) => run.json,
            Self::Status(status) => status.json,
            Self::Install(install) => install.install.service.json,
            Self::Stop(service)
            | Self::Uninstall(service)
            | Self::Start(service)
            | Self::Restart(service) => service.json,
            Self::Token(token) => token.json,
        }
    }
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum AgentsCommand {
    /// Show agents and their tokens
    #[command(after_help = "Example:\n  interlock agents list")]
    List(AgentsListArguments),
    /// Mint a token that may call exec, process and apply_patch as this agent, and nothing else
    #[command(
        after_help = "Example:\n  interlock agents token main\n\nThe token is printed once and not stored. An agent never needs an operator's token."
    )]
    Token(AgentsTokenArguments),
    /// Revoke a token
    #[command(after_help = "Example:\n  interlock agents revoke 0b1f3c1e-…")]
    Revoke(AgentsRevokeArguments),
}

#[derive(Debug, Args)]
pub struct AgentsListArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AgentsTokenArguments {
    /// The agent
    #[arg(value_name = "AGENT")]
    pub agent: String,
    /// The client program shows approval prompts to its user: accept the user's decisions
    #[arg(long)]
    pub elicitation: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AgentsRevokeArguments {
    /// The id of the token, as `agents list` shows it
    #[arg(value_name = "ID")]
    pub id: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl AgentsCommand {
    pub fn wants_json(&self) -> bool {
        match self {
            Self::List(list) => list.json,
            Self::Token(token) => token.json,
            Self::Revoke(revoke) => revoke.json,
        }
    }
}
