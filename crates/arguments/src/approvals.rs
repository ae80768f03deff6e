//! `interlock approvals`: the approvals document, pending approvals and grants.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{
    ApprovalsApproveArguments, ApprovalsDenyArguments, ApprovalsGrantsArguments,
    ApprovalsPendingArguments, ApprovalsRevokeArguments, ApprovalsSocketArguments,
    ApprovalsWatchArguments,
};

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ApprovalsCommand {
    /// Show requested, host and effective policy, and the document
    #[command(after_help = "Example:\n  interlock approvals get --agent main")]
    Get(ApprovalsGetArguments),
    /// Replace the document (JSON5, schema version 1)
    #[command(after_help = "Example:\n  interlock approvals set --file approvals.json5")]
    Set(ApprovalsSetArguments),
    /// Show and change the allowlist of an agent
    #[command(
        subcommand,
        after_help = "Example:\n  interlock approvals allowlist add --agent main rg"
    )]
    Allowlist(AllowlistCommand),
    /// List pending approvals
    #[command(
        after_help = "Examples:\n  interlock approvals pending\n  interlock approvals pending kmnpz"
    )]
    Pending(ApprovalsPendingArguments),
    /// Allow a pending approval
    #[command(after_help = "\
Examples:
  interlock approvals approve kmnpz
  interlock approvals approve kmnpz --always
  interlock approvals approve kmnpz --always=leading:1
  interlock approvals approve kmnpz --for 30m --uses 3")]
    Approve(ApprovalsApproveArguments),
    /// Deny a pending approval
    #[command(after_help = "Example:\n  interlock approvals deny kmnpz")]
    Deny(ApprovalsDenyArguments),
    /// Show pending approvals as they arrive, and decide them
    #[command(after_help = "\
Example:
  interlock approvals watch

Keys: o allows once, s for the session, a always, A always in a wider form, l for a time, d denies, D denies with a reason,
e includes all approvals that ask for the same, r reveals secrets, / filters, arrows or j and k move, PgUp and PgDn scroll,
q quits.

Without a terminal, decisions are read as lines: `approve kmnpz`, `approve kmnpz always`,
`approve kmnpz always leading:1`, `approve kmnpz session`, `approve kmnpz for 30m`, `deny kmnpz`,
`deny kmnpz REASON`, `approve-equal kmnpz` and `deny-equal kmnpz` for all that ask for the same, `reveal kmnpz`, `quit`.")]
    Watch(ApprovalsWatchArguments),
    /// Show the approval socket, and the token for companion programs
    #[command(after_help = "Example:\n  interlock approvals socket --token")]
    Socket(ApprovalsSocketArguments),
    /// List grants: what earlier decisions still allow, for a session or for a time
    #[command(after_help = "Example:\n  interlock approvals grants")]
    Grants(ApprovalsGrantsArguments),
    /// Revoke a grant
    #[command(after_help = "Example:\n  interlock approvals revoke 3f2a")]
    Revoke(ApprovalsRevokeArguments),
}

impl ApprovalsCommand {
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Get(get) => get.json,
            Self::Set(set) => set.json,
            Self::Allowlist(AllowlistCommand::Add(add)) => add.json,
            Self::Allowlist(AllowlistCommand::Remove(remove)) => remove.json,
            Self::Allowlist(AllowlistCommand::List(list)) => list.json,
            Self::Pending(pending) => pending.json,
            Self::Approve(approve) => approve.json,
            Self::Deny(deny) => deny.json,
            Self::Watch(watch) => watch.json,
            Self::Socket(socket) => socket.json,
            Self::Grants(grants) => grants.json,
            Self::Revoke(revoke) => revoke.json,
        }
    }
}

// The document that a command acts on.
#[derive(Debug, Args)]
pub struct DocumentPlace {
    /// The document of the gateway, which is the default
    #[arg(long, conflicts_with = "node")]
    pub gateway: bool,
    /// The document of a node, read from the node: its id, name, address or the beginning of its id
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
}

#[derive(Debug, Args)]
pub struct ApprovalsGetArguments {
    /// Show the policy of one agent [default: every agent of the document]
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    #[command(flatten)]
    pub place: DocumentPlace,
    /// Print JSON: the document, its hash and the effective policy
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("source").required(true))]
pub struct ApprovalsSetArguments {
    /// Read the document from a file
    #[arg(long, group = "source", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Read the document from standard input
    #[arg(long, group = "source")]
    pub stdin: bool,
    /// The document comes from OpenClaw: leave out what cannot be read, and list it
    #[arg(long, conflicts_with = "node")]
    pub import: bool,
    #[command(flatten)]
    pub place: DocumentPlace,
    /// Replace the document only if the one in force still has this hash
    #[arg(long, value_name = "HASH")]
    pub base_hash: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum AllowlistCommand {
    /// Add an entry
    #[command(after_help = "\
Examples:
  interlock approvals allowlist add --agent main rg
  interlock approvals allowlist add '/opt/tools/**'
  interlock approvals allowlist add --node lab /usr/bin/uptime
  interlock approvals allowlist add --arg=status --arg='**' git
  interlock approvals allowlist add --path '${workspace}/**' rg
  interlock approvals allowlist add --env FEATURES --env 'STAGE=dev*' make")]
    Add(AllowlistAddArguments),
    /// Remove entries by pattern or id
    #[command(after_help = "Example:\n  interlock approvals allowlist remove --agent main rg")]
    Remove(AllowlistRemoveArguments),
    /// List the entries with what they trust, who wrote them and their last use
    #[command(after_help = "Example:\n  interlock approvals allowlist list --agent main")]
    List(AllowlistListArguments),
}

#[derive(Debug, Args)]
pub struct AllowlistListArguments {
    /// Only the entries that apply to this agent [default: all entries]
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    #[command(flatten)]
    pub place: DocumentPlace,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AllowlistAddArguments {
    /// The agent, or `*` for all agents
    #[arg(long, default_value = "*", value_name = "AGENT")]
    pub agent: String,
    #[command(flatten)]
    pub place: DocumentPlace,
    /// A pattern for one argument, in order; `*` matches any text, `**` any number of arguments
    #[arg(
        long = "arg",
        value_name = "PATTERN",
        conflicts_with = "arg_pattern",
        allow_hyphen_values = true
    )]
    pub args: Vec<String>,
    /// A regular expression for the arguments, joined by single spaces
    #[arg(long, value_name = "REGEX")]
    pub arg_pattern: Option<String>,
    /// Only in working directories that match this path pattern
    #[arg(long, value_name = "PATTERN")]
    pub cwd: Option<String>,
    /// Only if every file that the arguments name lies beneath this pattern; `${workspace}` is the
    /// workspace of the call; may be repeated
    #[arg(long = "path", value_name = "PATTERN")]
    pub paths: Vec<String>,
    /// An environment variable that the entry allows besides the harmless ones: NAME for any value,
    /// or NAME=PATTERN; may be repeated
    #[arg(long = "env", value_name = "NAME[=PATTERN]")]
    pub env: Vec<String>,
    /// Trust the program even if the caller can type into it: on a terminal, or through an open
    /// stdin
    #[arg(long)]
    pub interactive: bool,
    /// `off`: trust the program even without the shield
    #[arg(long, value_enum, value_name = "SHIELD")]
    pub shield: Option<ShieldArgument>,
    /// Stop trusting the program after this time, such as 30m, 8h or 7d
    #[arg(long, value_name = "DURATION")]
    pub expires_in: Option<String>,
    /// Why the program is trusted
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A program name (through PATH) or a path pattern
    #[arg(value_name = "PATTERN")]
    pub pattern: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ShieldArgument {
    Off,
}

#[derive(Debug, Args)]
pub struct AllowlistRemoveArguments {
    /// The agent, or `*` for all agents
    #[arg(long, default_value = "*", value_name = "AGENT")]
    pub agent: String,
    #[command(flatten)]
    pub place: DocumentPlace,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The pattern or the id of the entry
    #[arg(value_name = "PATTERN")]
    pub pattern: String,
}
