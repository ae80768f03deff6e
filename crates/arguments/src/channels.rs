//! `interlock channels`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ChannelsCommand {
    /// Show accounts, targets, how their messages fare, and what of the config is not used
    #[command(after_help = "Example:\n  interlock channels list")]
    List(ChannelsListArguments),
    /// Send a message to every target, or to one, to see whether it arrives
    #[command(after_help = "\
Example:
  interlock channels test
  interlock channels test 'matrix:!room:example.org'

The exit code is 1 if a platform did not take it.")]
    Test(ChannelsTestArguments),
    /// Keep the token of an account in the state directory, where runs do not see it
    #[command(after_help = "\
Example:
  interlock channels login telegram < token.txt
  interlock channels login slack < bot-token.txt
  interlock channels login slack < app-token.txt
  interlock channels login matrix --homeserver https://matrix.example.org --user-id @interlock:example.org < token.txt

Reads the token from standard input, never from an argument, writes it to a file of mode 0600, and names that file
in the config. Slack has two tokens: what begins with xoxb- is the bot's, and what begins with xapp- the app's.")]
    Login(ChannelsLoginArguments),
}

impl ChannelsCommand {
    pub(super) fn wants_json(&self) -> bool {
        match self {
            Self::List(list) => list.json,
            Self::Test(test) => test.json,
            Self::Login(login) => login.json,
        }
    }
}

#[derive(Debug, Args)]
pub struct ChannelsListArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ChannelsTestArguments {
    /// One target, as `interlock channels list` names it
    pub target: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ChannelsLoginArguments {
    /// The channel
    #[arg(value_parser = ["matrix", "telegram", "slack", "discord", "ntfy"])]
    pub channel: String,
    /// The server of a Matrix account
    #[arg(long, value_name = "URL")]
    pub homeserver: Option<String>,
    /// The Matrix account of the token: @name:server
    #[arg(long, value_name = "ID")]
    pub user_id: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
