//! What can be asked on the command line, and where each command acts.
//!
//! One file per command holds its flags and its help; `reach` has a row for every command that says
//! whether it goes to the gateway that the owner follows or stays on this machine; `reference` makes
//! the pages of the documentation from both. It reads the words of this process and does nothing with
//! them. Start reading at [`CliCommand`].

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

/// Where the state lies.
#[derive(Debug, Clone, Args)]
pub struct StateArguments {
    /// The state directory [default: $INTERLOCK_STATE_DIR, $XDG_STATE_HOME/interlock or ~/.interlock]
    #[arg(long, global = true, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The config file [default: interlock.json in the state directory]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Fail where a gateway is needed and none runs, instead of starting one in the background
    #[arg(long, global = true)]
    pub no_spawn: bool,
    /// Act on this machine, also where gateway.remote names a gateway on another one
    #[arg(long, global = true)]
    pub local: bool,
    /// Where the command acts when gateway.remote names a gateway elsewhere
    #[arg(skip)]
    pub reach: CommandReach,
    /// What it acts on, where that is this machine
    #[arg(skip = "this machine")]
    pub acts_on: &'static str,
    /// The command names a node
    #[arg(skip)]
    pub names_node: bool,
}

impl StateArguments {
    /// A command to paste: with the flags that lead to the same state.
    pub fn in_command(&self, command: &str) -> String {
        match command.strip_prefix("interlock ") {
            Some(rest) => format!("{}{rest}", self.program()),
            None => command.to_owned(),
        }
    }

    /// A hint from a layer that knows no flags: each command of this machine in it can be pasted.
    /// What was made by [`Self::in_command`] can be already, and may hold words of others.
    pub fn in_hint(&self, hint: &str) -> String {
        let program = self.program();
        if program == PROGRAM || hint.contains(&program) {
            return hint.to_owned();
        }
        let commands = Arguments::command();
        let is_ours = |rest: &str| {
            let word = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            let word = word.into_iter().next().unwrap_or_default();
            // Nodes are other machines.
            word != "node" && commands.find_subcommand(word).is_some()
        };
        let mut pieces = hint.split(PROGRAM);
        let mut out = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            out += if is_ours(piece) { &program } else { PROGRAM };
            out += piece;
        }
        out
    }

    /// How this program is called for the same state, up to the name of the command.
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
    /// Say whether a command may run, and why
    Explain(ExplainArguments),
    /// Run a command if the policy allows it
    Exec(ExecArguments),
    /// Handle background sessions
    #[command(subcommand, after_help = "Example:\n  interlock process list")]
    Process(ProcessCommand),
    /// Test policies, try them on the past, and start from templates and suggestions
    #[command(
        subcommand,
        after_help = "Example:\n  interlock policy template apply project"
    )]
    Policy(PolicyCommand),
    /// Show and change approvals documents, of this host or a node, and decide what waits
    #[command(subcommand, after_help = "Example:\n  interlock approvals watch")]
    Approvals(ApprovalsCommand),
    /// Rules for what never runs, whatever else allows it
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
    /// Read and check the record of everything that was asked, decided and run
    #[command(subcommand, after_help = "Example:\n  interlock audit log --since 8h")]
    Audit(AuditCommand),
    /// Look for what weakens the policy
    #[command(subcommand, after_help = "Example:\n  interlock security audit")]
    Security(SecurityCommand),
    /// Show where runs are confined, and remove what they left there
    #[command(subcommand, after_help = "Example:\n  interlock sandbox explain")]
    Sandbox(SandboxCommand),
    /// Say what separates runs from Interlock, check the state and repair it
    Doctor(DoctorArguments),
    /// Take over the policy of another program
    #[command(
        subcommand,
        after_help = "Example:\n  interlock import openclaw --dry-run"
    )]
    Import(ImportCommand),
    /// Show the events that a session gets about its runs
    Events(EventsArguments),
    /// Apply a multi-file patch, all or nothing
    ApplyPatch(ApplyPatchArguments),
    /// The server that agents and operators talk to
    #[command(subcommand, after_help = "Example:\n  interlock gateway run")]
    Gateway(GatewayCommand),
    /// Serve an MCP client on standard input and output
    Mcp(McpArguments),
    /// Lead an agent program through Interlock by its own settings, or take that back
    Setup(SetupArguments),
    /// Judge a command that an agent program is about to run in its own shell
    Hook(HookArguments),
    /// Run commands for a gateway on another machine
    #[command(
        subcommand,
        after_help = "Example:\n  interlock node run --host 192.168.1.10"
    )]
    Node(NodeCommand),
    /// Agents, and tokens that let their holders call tools as one
    #[command(subcommand, after_help = "Example:\n  interlock agents token main")]
    Agents(AgentsCommand),
    /// Machines and programs that may connect to the gateway
    #[command(subcommand, after_help = "Example:\n  interlock devices list")]
    Devices(DevicesCommand),
    /// Machines that run commands for the gateway
    #[command(subcommand, after_help = "Example:\n  interlock nodes list")]
    Nodes(NodesCommand),
    /// Chats that show approvals and take decisions
    #[command(subcommand, after_help = "Example:\n  interlock channels list")]
    Channels(ChannelsCommand),
    /// Show on one screen what runs, what waits and what holds
    Status(StatusArguments),
    /// Open the pages of the gateway in a browser
    Dashboard(DashboardArguments),
    /// Show approvals as notifications of the desktop
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
    /// What the command line asks for. Wrong usage ends the process.
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

One word behind `--` is shell text, several are an exact argument vector. With --node the node itself judges
it, and --cwd is a directory there.")]
pub struct ExplainArguments {
    #[command(flatten)]
    pub request: RequestArguments,
    /// Ask this node for its verdict: id, name, address or the beginning of the id
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Judge it as a run on a terminal
    #[arg(long)]
    pub pty: bool,
    /// Judge it with this standard input: empty, or a pipe that the caller can write to
    #[arg(long, value_enum, value_name = "STDIN", default_value = "null")]
    pub stdin: StdinArgument,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock exec -- 'cargo test 2>&1 | tail -20'

One word behind `--` is shell text, several are an exact argument vector. The exit code is that of
the command; 3 if it did not run because nothing allows it (the policy or an approver said no, or with
--no-wait no approver has decided yet), 1 if it was refused otherwise, 124 if its time was over. With
--pty, a person at the terminal is connected to it; Ctrl-] detaches and leaves it running. Ctrl-C withdraws
an approval that is waited for.

A pipe or a file at standard input is passed to the command (`cat x | interlock exec -- wc -l`), on a node too, and the
policy judges that its caller can write into it: an entry admits that with --interactive. In a loop that reads
its own input, use --input none.

Where the policy wants a person to decide, it asks at the terminal, or says how to approve and waits.

It runs where tools.exec.host, the agent's own or --host say. On a node it goes through the gateway, under
the policy of that node: --cwd is a directory there, several words are quoted for its shell, the command has no connection
to a terminal, and what goes on in the background is for the agent's process tool, or for `interlock process`
on the node. Where gateway.remote names a gateway on another machine, it runs there in the same way, unless
--local says otherwise.")]
pub struct ExecArguments {
    #[command(flatten)]
    pub request: RequestArguments,
    /// Where to run it: auto, gateway (its machine), node or sandbox [default: tools.exec.host]
    #[arg(long, value_name = "HOST", value_parser = Host::WORDS.to_vec())]
    pub host: Option<String>,
    /// The node to run it on: id, name, address or the beginning of the id; means --host node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Run it in a sandbox, also where the config has none: this directory copy-on-write, no network
    #[arg(long, conflicts_with_all = ["host", "node"])]
    pub sandbox: bool,
    /// Leave the sandbox of the agent, if every gate of tools.elevated lets it; ignored without a sandbox
    #[arg(long, conflicts_with = "sandbox")]
    pub elevated: bool,
    /// Run a command outside that the sandbox denied something to, in this run of the same command
    #[arg(long, value_name = "RUN", requires_all = ["elevated", "justification"])]
    pub retry_of: Option<String>,
    /// Why it has to run outside, for the approver
    #[arg(long, value_name = "TEXT", requires = "retry_of")]
    pub justification: Option<String>,
    /// Run it once on a copy of the workspace, and decide about its changes; or for real, where
    /// tools.exec.effects wants previews [default: tools.exec.effects]
    #[arg(long, value_enum, value_name = "EFFECTS")]
    #[arg(conflicts_with_all = ["node", "elevated", "background"])]
    pub effects: Option<EffectsArgument>,
    /// End the command after this many seconds, 0 for never [default: tools.exec.timeoutSec]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// Run it on a terminal of its own
    #[arg(long)]
    pub pty: bool,
    /// Keep its standard input open for `interlock process write`
    #[arg(long)]
    pub stdin: bool,
    /// Whether it gets the standard input of this command: what is in a pipe or a file, always, or never
    #[arg(long, value_enum, value_name = "INPUT", default_value = "auto")]
    #[arg(conflicts_with_all = ["pty", "stdin", "background", "yield_ms"])]
    pub input: InputArgument,
    /// Do not wait for it: go on at once, and leave it to `interlock process`
    #[arg(long)]
    pub background: bool,
    /// Leave it to `interlock process` when it has not ended after this many milliseconds
    #[arg(long, value_name = "MILLISECONDS", conflicts_with = "background")]
    pub yield_ms: Option<u64>,
    /// Where a person has to decide, do not wait: print the id of the approval and go
    #[arg(long)]
    pub no_wait: bool,
    /// Run what was approved under this id; the command must be the one that was asked about
    #[arg(long, value_name = "ID", conflicts_with = "no_wait")]
    pub approval: Option<String>,
}

// A command and how it is called.
#[derive(Debug, Args)]
pub struct RequestArguments {
    /// The agent that runs it
    #[arg(long, default_value = "main", value_name = "AGENT")]
    pub agent: String,
    /// The working directory [default: the present one]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// The `ask` of the call; it can only harden
    #[arg(long, value_enum, value_name = "MODE")]
    pub ask: Option<AskArgument>,
    /// An environment override of the call
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

A patch of protected files (hooks, shell start-up files, CI files and the like) needs an approval that shows the
difference: it is asked for at the terminal, or it says how to approve and waits. The exit code is 3 if the
policy or an approver said no, or with --no-wait no approver has decided yet.")]
pub struct ApplyPatchArguments {
    /// The agent whose tool policy applies
    #[arg(long, default_value = "main", value_name = "AGENT")]
    pub agent: String,
    /// The workspace [default: the present directory]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// The model behind the agent, for tools.exec.applyPatch.allowModels
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Say what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Where an approver has to decide, do not wait: print the id of the approval and go
    #[arg(long)]
    pub no_wait: bool,
    /// Apply what was approved under this id; the patch must be the same
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

/// What of the standard input of `exec` reaches the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InputArgument {
    Auto,
    Pass,
    None,
}

/// What becomes of the changes that a command makes.
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
    /// Accepted so that the answer can say where a node's policy is set
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
