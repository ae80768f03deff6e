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
    /// As on the command line.
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

    /// The program's own shell tool, as its users know it.
    pub fn shell_tool(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Bash and Monitor",
            Self::Codex => "its shell tools",
            Self::Gemini => "run_shell_command",
            Self::Opencode => "bash",
            Self::Goose => "the developer extension",
        }
    }

    /// The program's own command that lists its MCP servers.
    pub fn list_command(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            Self::ClaudeCode => Some(("claude", &["mcp", "list"])),
            Self::Codex => Some(("codex", &["mcp", "list"])),
            Self::Gemini => Some(("gemini", &["mcp", "list"])),
            Self::Opencode => Some(("opencode", &["mcp", "list"])),
            // It has no such command.
            Self::Goose => None,
        }
    }

    pub fn has_hooks(self) -> bool {
        match self {
            Self::ClaudeCode | Self::Codex | Self::Gemini => true,
            // Plugins of opencode are code, and Goose has nothing of the kind.
            Self::Opencode | Self::Goose => false,
        }
    }
}

/// Which settings are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScopeArgument {
    /// The settings of the present directory
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

It adds an MCP entry for Interlock to the settings of the agent program, makes a test call with exactly that
entry, and says what it changed. Comments, order and formatting of the files stay. --undo restores each file byte
for byte; a file that was changed since loses only what setup added.")]
pub struct SetupArguments {
    /// The agent program
    #[arg(value_enum, value_name = "PROGRAM")]
    pub program: AgentProgram,
    /// Change the settings of this user, or those of the present directory
    #[arg(long, value_enum, value_name = "SCOPE", default_value = "user")]
    pub scope: ScopeArgument,
    /// Turn the shell tool of the agent program off, so that commands go through Interlock only
    #[arg(long)]
    pub only_interlock: bool,
    /// Keep the shell tool of the agent program, and have each of its commands judged by `interlock hook`
    #[arg(long, conflicts_with = "only_interlock")]
    pub hook: bool,
    /// Take back what setup changed
    #[arg(long, conflicts_with_all = ["only_interlock", "hook"])]
    pub undo: bool,
    /// The agent of Interlock that the program acts as
    #[arg(long, value_name = "ID", default_value = "main")]
    pub agent: String,
    /// Say what would change, and change nothing
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

It is started by the agent program, which `interlock setup PROGRAM --hook` tells to. It reads the description of one call from
standard input, judges its shell command as `interlock explain` does, asks in the inbox where the policy wants an approver,
and prints the decision in the form of that program. What it does not understand it denies.")]
pub struct HookArguments {
    /// The agent program: claude-code, codex or gemini
    #[arg(value_enum, value_name = "PROGRAM")]
    pub program: AgentProgram,
    /// The agent of Interlock that the program acts as
    #[arg(long, value_name = "ID", default_value = "main")]
    pub agent: String,
    /// Deny when no approver has decided after this many seconds; it must be less than the agent program waits
    #[arg(long, value_name = "SECONDS", default_value_t = 540, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub wait: u64,
}
