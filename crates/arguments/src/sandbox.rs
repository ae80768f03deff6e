//! `interlock sandbox`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum SandboxCommand {
    /// Show whether runs of a conversation are sandboxed, why, and what they see
    #[command(after_help = "\
Examples:
  interlock sandbox explain
  interlock sandbox explain --agent ops --session agent:ops:chat --verify

With --verify a probe runs inside. The exit code is 1 if a promise of the sandbox does not hold.")]
    Explain(SandboxExplainArguments),
    /// Make a path of the host visible to the runs of a conversation, or hide it again
    #[command(after_help = "\
Examples:
  interlock sandbox bind --session agent:main:chat /srv/data:ro
  interlock sandbox bind --session agent:main:chat --remove /srv/data:ro

From the next run on, the path is visible where it is on the host. The rules of agents.*.sandbox.binds apply. The
conversation then has its own scope, with empty directories.")]
    Bind(SandboxBindArguments),
    /// List the scopes that have their own directories, and runs with uncommitted changes
    #[command(after_help = "Example:\n  interlock sandbox list")]
    List(SandboxListArguments),
    /// Remove scopes, so that the next run starts with empty directories
    #[command(after_help = "\
Examples:
  interlock sandbox recreate --agent ops
  interlock sandbox recreate --all

A scope with an active run stays.")]
    Recreate(SandboxRecreateArguments),
    /// Remove idle and old scopes, as agents.defaults.sandbox.prune sets
    #[command(after_help = "Example:\n  interlock sandbox prune")]
    Prune(SandboxPruneArguments),
    /// Show the uncommitted changes of a run
    #[command(after_help = "\
Example:
  interlock sandbox diff 1b9d6bcd

`interlock sandbox list` shows the runs with uncommitted changes.")]
    Diff(SandboxLayerArguments),
    /// Commit the changes of a run to its workspace, including protected paths
    #[command(after_help = "\
Example:
  interlock sandbox commit 1b9d6bcd

All changes are committed, or none. If the workspace has changed meanwhile, the commit is refused (EFFECT_DRIFT).")]
    Commit(SandboxLayerArguments),
    /// Discard the uncommitted changes of a run
    #[command(after_help = "Example:\n  interlock sandbox discard 1b9d6bcd")]
    Discard(SandboxLayerArguments),
    /// Let Interlock make user namespaces if AppArmor restricts them (as root)
    #[command(after_help = "\
Examples:
  interlock sandbox setup --print
  sudo interlock sandbox setup

Writes and loads an AppArmor profile for the Interlock program. It changes no setting of the system, and does nothing if
AppArmor restricts nothing.")]
    Setup(SandboxSetupArguments),
    /// Show which hosts sandboxed runs reached, and which were blocked
    #[command(after_help = "\
Examples:
  interlock sandbox net
  interlock sandbox net --follow --json

The same connections are in the audit: interlock audit log --kind connection")]
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
    /// Run a probe inside, and fail if a promise of the sandbox does not hold
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
    /// Hide the path again
    #[arg(long)]
    pub remove: bool,
    /// The path, read-only (ro) or writable (rw)
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
    /// Keep printing new connections
    #[arg(long)]
    pub follow: bool,
    /// Start with this many connections, the newest ones
    #[arg(long, default_value_t = 100, value_name = "COUNT", value_parser = crate::decisions::at_least_one)]
    pub limit: usize,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}
