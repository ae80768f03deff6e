use clap::{Args, ValueEnum};

/// The agent programs that `setup` and `hook` know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AgentProgram {
    ClaudeCode,
    Codex,
    Gemini,
    Opencode,
    Goose,
}

impl AgentProgram {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Goose => "goose",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::Opencode => "opencode",
            Self::Goose => "Goose",
        }
    }

    /// The agent program's own shell tool, as its users know it.
    pub fn shell_tool(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Bash and Monitor",
            Self::Codex => "its shell tools",
            Self::Gemini => "run_shell_command",
            Self::Opencode => "bash",
            Self::Goose => "the developer extension",
        }
    }

    /// The agent program's own command that lists its MCP servers.
    pub fn list_command(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            Self::ClaudeCode => Some(("claude", &["mcp", "list"])),
            Self::Codex => Some(("codex", &["mcp", "list"])),
            Self::Gemini => Some(("gemini", &["mcp", "list"])),
            Self::Opencode => Some(("opencode", &["mcp", "list"])),
            // Goose has no such command.
            Self::Goose => None,
        }
    }

    pub fn has_hooks(self) -> bool {
        match self {
            Self::ClaudeCode | Self::Codex | Self::Gemini => true,
            // opencode has plugins, which are code, and Goose has nothing similar.
            Self::Opencode | Self::Goose => false,
        }
    }
}

/// Which settings `setup` changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScopeArgument {
    /// The settings of the current directory
    Project,
    /// The settings of this user
    User,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock setup claude-code --only-interlock
  interlock setup codex --scope project --dry-run
  interlock setup claude-code --undo

Adds an MCP entry for Interlock to the settings of the agent program, makes a test call with exactly that entry, and shows
what changed. Comments, order and formatting of the files are kept. --undo restores each file byte for byte; from a file
that was changed since, it removes only what setup added.")]
pub struct SetupArguments {
    /// The agent program
    #[arg(value_enum, value_name = "PROGRAM")]
    pub program: AgentProgram,
    /// Change the settings of this user, or those of the current directory
    #[arg(long, value_enum, value_name = "SCOPE", default_value = "user")]
    pub scope: ScopeArgument,
    /// Turn off the shell tool of the agent program, so that all commands go through Interlock
    #[arg(long)]
    pub only_interlock: bool,
    /// Keep the shell tool of the agent program, and let `interlock hook` judge each of its
    /// commands
    #[arg(long, conflicts_with = "only_interlock")]
    pub hook: bool,
    /// Undo what setup changed
    #[arg(long, conflicts_with_all = ["only_interlock", "hook"])]
    pub undo: bool,
    /// The Interlock agent that the program acts as
    #[arg(long, value_name = "ID", default_value = "main")]
    pub agent: String,
    /// Show what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock hook claude-code --agent main < call.json

The agent program starts this command after `interlock setup PROGRAM --hook`. It reads the description of one call from
standard input, judges its shell command as `interlock explain` does, asks in the inbox if the policy requires an approval,
and prints the decision in the format of that program. It denies a call that it does not understand.")]
pub struct HookArguments {
    /// The agent program: claude-code, codex or gemini
    #[arg(value_enum, value_name = "PROGRAM")]
    pub program: AgentProgram,
    /// The Interlock agent that the program acts as
    #[arg(long, value_name = "ID", default_value = "main")]
    pub agent: String,
    /// Deny if no approver has decided after this many seconds; this must be less than the agent
    /// program waits for the hook
    #[arg(long, value_name = "SECONDS", default_value_t = 540, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub wait: u64,
}
