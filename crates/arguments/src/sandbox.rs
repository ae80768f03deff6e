//! `interlock sandbox`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum SandboxCommand {
    /// Say whether runs of a conversation are sandboxed, why, and what they see
    #[command(after_help = "\
Examples:
  interlock sandbox explain
  interlock sandbox explain --agent ops --session agent:ops:chat --verify

With --verify a probe runs inside and fails (exit code 1) if a promise does not hold.")]
    Explain(SandboxExplainArguments),
    /// Show one more path to the runs of a conversation, or no longer
    #[command(after_help = "\
Examples:
  interlock sandbox bind --session agent:main:chat /srv/data:ro
  interlock sandbox bind --session agent:main:chat --remove /srv/data:ro

The path is shown where it is on the host, from the next run on. The rules of agents.*.sandbox.binds hold. The
conversation has a scope of its own from then on, with empty directories.")]
    Bind(SandboxBindArguments),
    /// List the scopes that have directories of their own
    #[command(after_help = "Example:\n  interlock sandbox list")]
    List(SandboxListArguments),
    /// Remove scopes, so that the next run starts with empty directories
    #[command(after_help = "\
Examples:
  interlock sandbox recreate --agent ops
  interlock sandbox recreate --all

A scope in which something runs stays.")]
    Recreate(SandboxRecreateArguments),
    /// Remove scopes that are idle or old, as agents.defaults.sandbox.prune says
    #[command(after_help = "Example:\n  interlock sandbox prune")]
    Prune(SandboxPruneArguments),
    /// Show what a run changed that is not committed yet
    #[command(after_help = "\
Example:
  interlock sandbox diff 1b9d6bcd

`interlock sandbox list` names the runs whose changes are kept.")]
    Diff(SandboxLayerArguments),
    /// Commit the kept changes of a run to its workspace, protected paths included
    #[command(after_help = "\
Example:
  interlock sandbox commit 1b9d6bcd

All or nothing: where the workspace changed meanwhile, it is refused (EFFECT_DRIFT).")]
    Commit(SandboxLayerArguments),
    /// Throw the kept changes of a run away
    #[command(after_help = "Example:\n  interlock sandbox discard 1b9d6bcd")]
    Discard(SandboxLayerArguments),
    /// Let Interlock make user namespaces where AppArmor restricts them (as root)
    #[command(after_help = "\
Examples:
  interlock sandbox setup --print
  sudo interlock sandbox setup

It writes and loads an AppArmor profile for the program of Interlock. It changes no setting of the system, and where AppArmor restricts nothing it does nothing.")]
    Setup(SandboxSetupArguments),
    /// Show which hosts sandboxed runs reached, and which they were kept from
    #[command(after_help = "\
Examples:
  interlock sandbox net
  interlock sandbox net --follow --json

These are audit records too: interlock audit log --kind connection")]
    Net(SandboxNetArguments),
}

impl SandboxCommand {
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Explain(explain) => explain.json,
            Self::List(list) => list.json,
            Self::Diff(layer) | Self::Commit(layer) | Self::Discard(layer) => layer.json,
            Self::Net(net) => net.json,
            Self::Bind(_) | Self::Recreate(_) | Self::Prune(_) | Self::Setup(_) => false,
        }
    }
}

#[derive(Debug, Args)]
pub struct SandboxExplainArguments {
    /// The agent
    #[arg(long, default_value = "main", value_name = "AGENT")]
    pub agent: String,
    /// The conversation [default: agent:AGENT:main]
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// Run a probe inside, and fail if a promise does not hold
    #[arg(long)]
    pub verify: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SandboxBindArguments {
    /// The agent
    #[arg(long, default_value = "main", value_name = "AGENT")]
    pub agent: String,
    /// The conversation [default: agent:AGENT:main]
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// Show it no longer
    #[arg(long)]
    pub remove: bool,
    /// The path, and whether it can be written
    #[arg(value_name = "PATH[:ro|rw]")]
    pub path: String,
}

#[derive(Debug, Args)]
pub struct SandboxListArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct SandboxRecreateArguments {
    /// Every scope
    #[arg(long)]
    pub all: bool,
    /// The scopes of this agent
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// The scope of this conversation
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
}

#[derive(Debug, Args)]
pub struct SandboxPruneArguments {}

#[derive(Debug, Args)]
pub struct SandboxLayerArguments {
    /// The run, or the first characters of its id
    #[arg(value_name = "ID")]
    pub id: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SandboxSetupArguments {
    /// Print the profile, and change nothing
    #[arg(long)]
    pub print: bool,
}

#[derive(Debug, Args)]
pub struct SandboxNetArguments {
    /// Go on with new ones until it is stopped
    #[arg(long)]
    pub follow: bool,
    /// So many at first, the newest
    #[arg(long, default_value_t = 100, value_name = "COUNT", value_parser = crate::decisions::at_least_one)]
    pub limit: usize,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}
