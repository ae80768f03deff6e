//! `interlock status`, and the commands that write completions and man pages.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  interlock status

Shows the gateway, the agents, pending approvals, the nodes, the shield and the policy in force, and what to do next. It
starts nothing. If gateway.remote names a gateway on another machine, it shows that one.")]
pub struct StatusArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  interlock completion bash > ~/.local/share/bash-completion/completions/interlock
  interlock completion zsh > ~/.zfunc/_interlock
  interlock completion fish > ~/.config/fish/completions/interlock.fish")]
pub struct CompletionArguments {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  interlock man /usr/share/man/man1")]
pub struct ManArguments {
    /// The directory for the pages; it is created if it is missing
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}
