//! The server, and who may call it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ServiceArguments, ServiceInstallArguments};

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum GatewayCommand {
    /// Serve in the foreground
    #[command(
        after_help = "Example:\n  interlock gateway run\n\nPrints where it is, how to watch and decide, how to connect an agent, how to mint tokens, and the policy."
    )]
    Run(GatewayRunArguments),
    /// Say whether a gateway runs for this state directory
    #[command(after_help = "Example:\n  interlock gateway status --json")]
    Status(GatewayStatusArguments),
    /// End the gateway of this state directory; runs go on
    #[command(after_help = "Example:\n  interlock gateway stop")]
    Stop(ServiceArguments),
    /// Keep a gateway running as a service of the system: systemd or launchd
    #[command(after_help = "\
Examples:
  interlock gateway install
  sudo interlock gateway install --run-as ada
  interlock gateway install --print > interlock-gateway.service

For root a service of the machine, for other accounts one of the user. Runs go on when it is stopped
or started again. A gateway that runs already for this state directory is ended first.")]
    Install(GatewayInstallArguments),
    /// Stop the service and remove what `install` wrote
    #[command(after_help = "Example:\n  interlock gateway uninstall")]
    Uninstall(ServiceArguments),
    /// Start the service
    #[command(after_help = "Example:\n  interlock gateway start")]
    Start(ServiceArguments),
    /// Stop the service and start it again; runs go on
    #[command(after_help = "Example:\n  interlock gateway restart")]
    Restart(ServiceArguments),
    /// List, mint and revoke operator tokens
    #[command(after_help = "\
Examples:
  interlock gateway token --new
  interlock gateway token
  interlock gateway token --revoke 0b9f3c1e-7d57-4f0e-9d62-3c4e1d6a8b11

A new token is printed once; only its hash is kept. Earlier tokens stay valid until they are revoked.
Connections that came with a revoked token end. Commands of this machine need no token.")]
    Token(GatewayTokenArguments),
}

#[derive(Debug, Args)]
pub struct GatewayRunArguments {
    /// The port, 0 for any free one [default: gateway.port or 18789]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Between two signs of life, for tests
    #[arg(long, value_name = "MS", hide = true, value_parser = clap::value_parser!(u64).range(50..))]
    pub tick_ms: Option<u64>,
    /// Print the ready line as JSON
    #[arg(long)]
    pub json: bool,
    /// Leave the terminal, for those who start a gateway in the background
    #[arg(long, hide = true)]
    pub detach: bool,
}

#[derive(Debug, Args)]
pub struct GatewayTokenArguments {
    /// Mint a token and print it once
    #[arg(long, group = "act")]
    pub new: bool,
    /// Take over the token in this file, which only its owner can read; the file stays
    #[arg(long, value_name = "FILE", group = "act")]
    pub import: Option<PathBuf>,
    /// Make a token worthless, by its id
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
    /// Keep the state under this account (root) and start commands as USER
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

Commands start in the client's workspace (its roots), else in the directory that the client starts this in, and
find programs by the client's PATH. Each client is a conversation of its own. A gateway is started in the
background if none runs. Where gateway.remote names a gateway on another machine, the client is connected with that one: by
its operator's or an agent's token, and without directories and PATH of this machine.")]
pub struct McpArguments {
    /// The agent that the client is
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Let the client show approvals to the person in front of it, and let that answer count
    #[arg(long)]
    pub elicitation: bool,
    /// The conversation that the client takes part in, by its name or whole key; otherwise it has its own
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
    /// Make a token that may call exec, process and apply_patch as this agent, and nothing else
    #[command(
        after_help = "Example:\n  interlock agents token main\n\nThe token is printed once and kept nowhere. An agent never needs an operator's token."
    )]
    Token(AgentsTokenArguments),
    /// Make a token useless
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
    /// Its client program shows approval prompts to a person: let the answers count
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
