//! The command line: all commands with their flags and help, and where each command acts.
//!
//! Each command has a file with its flags and its help. `reach` has a row for every command that
//! says whether the command goes to the remote gateway that the owner follows or stays on this
//! machine. `reference` makes the reference pages from both. This crate parses the arguments of the
//! process and carries out nothing. Start reading at [`CliCommand`].

#![forbid(unsafe_code)]

mod approvals;
mod channels;
mod companion;
mod config;
mod dashboard;
mod decisions;
mod deny;
mod gateway;
mod health;
mod node;
mod nodes;
mod policy;
mod process;
pub mod reach;
pub mod reference;
mod sandbox;
mod service;
mod setup;
mod tools;

pub use approvals::*;
pub use channels::*;
pub use companion::*;
pub use config::*;
pub use dashboard::*;
pub use deny::*;
pub use gateway::*;
pub use health::*;
pub use node::*;
pub use nodes::*;
pub use policy::*;
pub use process::*;
pub use sandbox::*;
pub use service::*;
pub use setup::*;
pub use tools::*;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use interlock_config::Host;
use interlock_policy::quote;

use crate::reach::CommandReach;

pub use decisions::{
    ApprovalsApproveArguments, ApprovalsDenyArguments, ApprovalsGrantsArguments,
    ApprovalsPendingArguments, ApprovalsRevokeArguments, ApprovalsSocketArguments,
    ApprovalsWatchArguments, AuditArchiveArguments, AuditCommand, AuditLogArguments,
    AuditVerifyArguments, DoctorArguments, EventsArguments, PolicyReplayArguments,
};

#[derive(Debug, Parser)]
#[command(
    name = "interlock",
    version,
    about = "Lets AI agents run commands on real machines while the owners stay in control.",
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  interlock setup claude-code --only-interlock
  interlock approvals watch
  interlock explain -- 'cargo test | tail -20'"
)]
pub struct Arguments {
    #[command(flatten)]
    pub state: StateArguments,
    #[command(subcommand)]
    pub command: CliCommand,
}

/// The flags of every command, which select the state and the gateway.
#[derive(Debug, Clone, Args)]
pub struct StateArguments {
    /// The state directory [default: $INTERLOCK_STATE_DIR, $XDG_STATE_HOME/interlock or
    /// ~/.interlock]
    #[arg(long, global = true, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The config file [default: interlock.json in the state directory]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Fail if a gateway is needed and none runs, instead of starting one in the background
    #[arg(long, global = true)]
    pub no_spawn: bool,
    /// Act on this machine even if gateway.remote names a gateway on another one
    #[arg(long, global = true)]
    pub local: bool,
    /// Where the command acts if gateway.remote names a remote gateway
    #[arg(skip)]
    pub reach: CommandReach,
    /// What the command acts on if it acts on this machine
    #[arg(skip = "this machine")]
    pub acts_on: &'static str,
    /// Whether the command names a node
    #[arg(skip)]
    pub names_node: bool,
}

impl StateArguments {
    /// Adds the flags that select the same state to a command that the user can paste.
    pub fn in_command(&self, command: &str) -> String {
        match command.strip_prefix("interlock ") {
            Some(rest) => format!("{}{rest}", self.program()),
            None => command.to_owned(),
        }
    }

    /// Adds the flags to every command of this machine in a hint from a layer that does not know
    /// them. A hint that contains output of [`Self::in_command`] stays unchanged: it may quote text
    /// of an agent, in which `interlock` is not a command.
    pub fn in_hint(&self, hint: &str) -> String {
        let program = self.program();
        if program == PROGRAM || hint.contains(&program) {
            return hint.to_owned();
        }
        let commands = Arguments::command();
        let is_local_command = |rest: &str| {
            let word = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            let word = word.into_iter().next().unwrap_or_default();
            // `interlock node` is for another machine, where these flags would be wrong.
            word != "node" && commands.find_subcommand(word).is_some()
        };
        let mut pieces = hint.split(PROGRAM);
        let mut out = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            out += if is_local_command(piece) {
                &program
            } else {
                PROGRAM
            };
            out += piece;
        }
        out
    }

    /// The command line for the same state up to the name of the command.
    fn program(&self) -> String {
        let flags = [("--state-dir", &self.state_dir), ("--config", &self.config)];
        let mut program = PROGRAM.to_owned();
        for (flag, path) in flags {
            if let Some(path) = path {
                program += &format!("{flag} {} ", quote(&path.to_string_lossy()));
            }
        }
        if self.local {
            program += "--local ";
        }
        program
    }
}

const PROGRAM: &str = "interlock ";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum CliCommand {
    /// Show whether a command may run, and why
    Explain(ExplainArguments),
    /// Run a command if the policy allows it
    Exec(ExecArguments),
    /// List, read, write and end background sessions
    #[command(subcommand, after_help = "Example:\n  interlock process list")]
    Process(ProcessCommand),
    /// Test and replay policies, apply templates and suggestions
    #[command(
        subcommand,
        after_help = "Example:\n  interlock policy template apply project"
    )]
    Policy(PolicyCommand),
    /// Decide pending approvals, and show and change approvals documents of this host or a node
    #[command(subcommand, after_help = "Example:\n  interlock approvals watch")]
    Approvals(ApprovalsCommand),
    /// Rules for commands that never run, even if something else allows them
    #[command(
        subcommand,
        after_help = "Example:\n  interlock deny add --arg=push --arg='**' git"
    )]
    Deny(DenyCommand),
    /// Show and change the effective exec policy of this host
    #[command(subcommand, after_help = "Example:\n  interlock exec-policy show")]
    ExecPolicy(ExecPolicyCommand),
    /// Read and change the config
    #[command(
        subcommand,
        after_help = "Example:\n  interlock config set tools.exec.timeoutSec 600"
    )]
    Config(ConfigCommand),
    /// Read and check the audit: everything that was asked, decided and run
    #[command(subcommand, after_help = "Example:\n  interlock audit log --since 8h")]
    Audit(AuditCommand),
    /// Look for weaknesses in the policy
    #[command(subcommand, after_help = "Example:\n  interlock security audit")]
    Security(SecurityCommand),
    /// Show how runs are confined, and handle what they left in the sandbox
    #[command(subcommand, after_help = "Example:\n  interlock sandbox explain")]
    Sandbox(SandboxCommand),
    /// Check and repair the state, and show what separates runs from Interlock
    Doctor(DoctorArguments),
    /// Import the policy of another program
    #[command(
        subcommand,
        after_help = "Example:\n  interlock import openclaw --dry-run"
    )]
    Import(ImportCommand),
    /// Show the events that a conversation gets about its runs
    Events(EventsArguments),
    /// Apply a patch to several files, all or none of them
    ApplyPatch(ApplyPatchArguments),
    /// Run and manage the server for agents and operators
    #[command(subcommand, after_help = "Example:\n  interlock gateway run")]
    Gateway(GatewayCommand),
    /// Serve an MCP client on standard input and output
    Mcp(McpArguments),
    /// Change the settings of an agent program so that it uses Interlock, or undo that
    Setup(SetupArguments),
    /// Judge a command that an agent program is about to run in its own shell
    Hook(HookArguments),
    /// Run commands for a gateway on another machine
    #[command(
        subcommand,
        after_help = "Example:\n  interlock node run --host 192.168.1.10"
    )]
    Node(NodeCommand),
    /// List agents, and mint and revoke their tokens
    #[command(subcommand, after_help = "Example:\n  interlock agents token main")]
    Agents(AgentsCommand),
    /// Manage the machines and programs that may connect to the gateway
    #[command(subcommand, after_help = "Example:\n  interlock devices list")]
    Devices(DevicesCommand),
    /// Manage the machines that run commands for the gateway
    #[command(subcommand, after_help = "Example:\n  interlock nodes list")]
    Nodes(NodesCommand),
    /// Manage the chats that show approvals and accept decisions
    #[command(subcommand, after_help = "Example:\n  interlock channels list")]
    Channels(ChannelsCommand),
    /// Show the gateway, pending approvals, nodes and the policy on one screen
    Status(StatusArguments),
    /// Open the pages of the gateway in a browser
    Dashboard(DashboardArguments),
    /// Show approvals as desktop notifications
    Companion(CompanionArguments),
    /// Print the completions of a shell
    Completion(CompletionArguments),
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man(ManArguments),
    /// Print the version
    #[command(after_help = "Example:\n  interlock version")]
    Version,
}

/// A command that is judged or run stands behind `--`, which a newcomer does not know.
fn with_command_tip(mut error: clap::Error, subcommand: &str) -> clap::Error {
    let is_word = matches!(
        error.get(ContextKind::InvalidArg),
        Some(ContextValue::String(word)) if !word.starts_with('-')
    );
    if matches!(subcommand, "exec" | "explain") && is_word {
        let tip = format!("put the command behind `--`: interlock {subcommand} -- 'git status'");
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

impl Arguments {
    /// Parses the command line. Wrong usage ends the process.
    pub fn read() -> Self {
        let matches = Self::command().try_get_matches().unwrap_or_else(|error| {
            let first = std::env::args().skip(1).find(|word| !word.starts_with('-'));
            with_command_tip(error, first.as_deref().unwrap_or_default()).exit()
        });
        let mut arguments = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        if let Some(row) = reach::of_matches(&matches) {
            arguments.state.reach = row.reach;
            arguments.state.acts_on = row.acts_on;
        }
        arguments.state.names_node = reach::names_node(&matches);
        arguments
    }

    pub fn wants_json(&self) -> bool {
        match &self.command {
            CliCommand::Explain(explain) => explain.request.json,
            CliCommand::Exec(exec) => exec.request.json,
            CliCommand::Process(process) => process.wants_json(),
            CliCommand::Policy(policy) => policy.wants_json(),
            CliCommand::Approvals(approvals) => approvals.wants_json(),
            CliCommand::Deny(deny) => deny.wants_json(),
            CliCommand::ExecPolicy(policy) => policy.wants_json(),
            CliCommand::Config(config) => config.wants_json(),
            CliCommand::Audit(audit) => audit.wants_json(),
            CliCommand::Security(security) => security.wants_json(),
            CliCommand::Sandbox(sandbox) => sandbox.wants_json(),
            CliCommand::Doctor(doctor) => doctor.json,
            CliCommand::Import(import) => import.wants_json(),
            CliCommand::Events(events) => events.json,
            CliCommand::ApplyPatch(patch) => patch.json,
            CliCommand::Gateway(gateway) => gateway.wants_json(),
            CliCommand::Node(node) => node.wants_json(),
            CliCommand::Agents(agents) => agents.wants_json(),
            CliCommand::Devices(devices) => devices.wants_json(),
            CliCommand::Nodes(nodes) => nodes.wants_json(),
            CliCommand::Channels(channels) => channels.wants_json(),
            CliCommand::Setup(setup) => setup.json,
            CliCommand::Status(status) => status.json,
            CliCommand::Dashboard(dashboard) => dashboard.json,
            CliCommand::Companion(companion) => companion.wants_json(),
            CliCommand::Mcp(_)
            | CliCommand::Hook(_)
            | CliCommand::Completion(_)
            | CliCommand::Man(_)
            | CliCommand::Version => false,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock explain -- 'rg -n TODO | head -5'
  interlock explain --env RUST_LOG=debug --pty -- cargo test
  interlock explain --node lab -- uptime

One word after `--` is shell text; several words are an exact argument vector. With --node the node itself judges the
command, and --cwd is a directory there.")]
pub struct ExplainArguments {
    #[command(flatten)]
    pub request: RequestArguments,
    /// Ask this node for its verdict: id, name, address or the beginning of the id
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Judge the command as a run on a terminal
    #[arg(long)]
    pub pty: bool,
    /// Judge the command with this standard input: empty, or a pipe that the caller can write to
    #[arg(long, value_enum, value_name = "STDIN", default_value = "null")]
    pub stdin: StdinArgument,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock exec -- 'cargo test 2>&1 | tail -20'

One word after `--` is shell text; several words are an exact argument vector. The exit code is that of the command. It is
3 if the command is not allowed (the policy or an approver said no, or with --no-wait no approver has decided yet), 1 if it
was refused for another reason, and 124 if its time was over. With --pty, your terminal is connected to the command; Ctrl-]
detaches and leaves it running. Ctrl-C withdraws a pending approval.

A pipe or a file at standard input is passed to the command (`cat x | interlock exec -- wc -l`), also on a node. The policy
then judges the command as one that its caller can write to: an entry allows that with --interactive. In a loop that
reads its own input, use --input none.

If the policy requires an approval, exec asks at the terminal; without a terminal, it prints how to approve and waits.

The command runs on the host that --host, the settings of the agent or tools.exec.host name. A command for a node goes
through the gateway and is judged by the policy of that node: --cwd is a directory there, several words are quoted for its
shell, and the command is not connected to a terminal. A run that continues in the background there is handled by the
agent's process tool, or by `interlock process` on the node. If gateway.remote names a gateway on another machine, the
command runs there in the same way, unless --local is given.")]
pub struct ExecArguments {
    #[command(flatten)]
    pub request: RequestArguments,
    /// Where to run the command: auto, gateway (its machine), node or sandbox [default:
    /// tools.exec.host]
    #[arg(long, value_name = "HOST", value_parser = Host::WORDS.to_vec())]
    pub host: Option<String>,
    /// The node to run the command on: id, name, address or the beginning of the id; implies --host
    /// node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Run the command in a sandbox even if the config has none: this directory copy-on-write, no
    /// network
    #[arg(long, conflicts_with_all = ["host", "node"])]
    pub sandbox: bool,
    /// Leave the sandbox of the agent, if every gate of tools.elevated allows it; ignored without a
    /// sandbox
    #[arg(long, conflicts_with = "sandbox")]
    pub elevated: bool,
    /// Repeat this run outside the sandbox, which denied something to it; the command must be the
    /// same
    #[arg(long, value_name = "RUN", requires_all = ["elevated", "justification"])]
    pub retry_of: Option<String>,
    /// Why the command has to run outside the sandbox, for the approver
    #[arg(long, value_name = "TEXT", requires = "retry_of")]
    pub justification: Option<String>,
    /// `preview` runs the command on a copy of the workspace and asks about its changes, `direct`
    /// runs it for real [default: tools.exec.effects]
    #[arg(long, value_enum, value_name = "EFFECTS")]
    #[arg(conflicts_with_all = ["node", "elevated", "background"])]
    pub effects: Option<EffectsArgument>,
    /// End the command after this many seconds, 0 for never [default: tools.exec.timeoutSec]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// Run the command on its own terminal
    #[arg(long)]
    pub pty: bool,
    /// Keep its standard input open for `interlock process write`
    #[arg(long)]
    pub stdin: bool,
    /// Whether the command gets the standard input of exec: if it is a file or a pipe with data
    /// (auto), always (pass) or never (none)
    #[arg(long, value_enum, value_name = "INPUT", default_value = "auto")]
    #[arg(conflicts_with_all = ["pty", "stdin", "background", "yield_ms"])]
    pub input: InputArgument,
    /// Do not wait: leave the run to `interlock process` at once
    #[arg(long)]
    pub background: bool,
    /// Leave the run to `interlock process` if it has not ended after this many milliseconds
    #[arg(long, value_name = "MILLISECONDS", conflicts_with = "background")]
    pub yield_ms: Option<u64>,
    /// Do not wait for an approver: print the id of the approval and exit
    #[arg(long)]
    pub no_wait: bool,
    /// Run the command that was approved under this id; the command must be the same
    #[arg(long, value_name = "ID", conflicts_with = "no_wait")]
    pub approval: Option<String>,
}

// A command, and the call that asks for it.
#[derive(Debug, Args)]
pub struct RequestArguments {
    /// The agent that runs it
    #[arg(long, default_value = "main", value_name = "AGENT")]
    pub agent: String,
    /// The working directory [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// The `ask` level of the call; it can only make the policy stricter
    #[arg(long, value_enum, value_name = "MODE")]
    pub ask: Option<AskArgument>,
    /// An environment variable for the command; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Take the words as an argument vector even if there is only one
    #[arg(long)]
    pub argv: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock apply-patch --dry-run changes.patch

A patch of protected files (hooks, shell start-up files, CI files and the like) needs an approval that shows the diff:
apply-patch asks at the terminal, or prints how to approve and waits. The exit code is 3 if the policy or an approver said
no, or with --no-wait no approver has decided yet.")]
pub struct ApplyPatchArguments {
    /// The agent whose tool policy applies
    #[arg(long, default_value = "main", value_name = "AGENT")]
    pub agent: String,
    /// The workspace [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// The model behind the agent, for tools.exec.applyPatch.allowModels
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Show what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not wait for an approver: print the id of the approval and exit
    #[arg(long)]
    pub no_wait: bool,
    /// Apply the patch that was approved under this id; the patch must be the same
    #[arg(long, value_name = "ID", conflicts_with_all = ["no_wait", "dry_run"])]
    pub approval: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The patch; `-` reads standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StdinArgument {
    Null,
    Pipe,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum AskArgument {
    Off,
    OnMiss,
    Always,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum SecurityArgument {
    Deny,
    Allowlist,
    Full,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum FallbackArgument {
    Deny,
    Allowlist,
    Full,
}

/// Whether a command gets the standard input of `exec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InputArgument {
    Auto,
    Pass,
    None,
}

/// Whether the file changes of a command are previewed or made directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EffectsArgument {
    Preview,
    Direct,
}

impl EffectsArgument {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preview => "preview",
            Self::Direct => "direct",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HostArgument {
    Auto,
    Sandbox,
    Gateway,
    /// Accepted only so that the error can say where the policy of a node is set
    #[value(hide = true)]
    Node,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum PresetArgument {
    Yolo,
    Cautious,
    DenyAll,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_command_without_dashes_is_told_where_it_belongs() {
        let told = |words: &[&str]| {
            let error = Arguments::command()
                .try_get_matches_from(words)
                .unwrap_err();
            let subcommand = words.get(1).copied().unwrap_or_default();
            with_command_tip(error, subcommand).to_string()
        };
        let tip = "tip: put the command behind `--`: interlock explain -- 'git status'";
        assert!(told(&["interlock", "explain", "git status"]).contains(tip));
        assert!(told(&["interlock", "exec", "ls", "-la"]).contains("interlock exec -- "));
        assert!(!told(&["interlock", "exec", "--agnt", "a", "--", "ls"]).contains("behind"));
        assert!(!told(&["interlock", "status", "x"]).contains("behind"));
    }
}
