//! `interlock channels`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ChannelsCommand {
    /// Show accounts and targets, whether messages arrive, and which parts of the config are unused
    #[command(after_help = "Example:\n  interlock channels list")]
    List(ChannelsListArguments),
    /// Send a test message to every target, or to one, and wait until the platform has changed it
    #[command(after_help = "\
Example:
  interlock channels test
  interlock channels test 'matrix:!room:example.org'

A message of Matrix, Telegram, Slack and Discord is changed after it arrived, as that of an approval which ended.
The exit code is 1 if a platform did not accept the message, or could not change it.")]
    Test(ChannelsTestArguments),
    /// Store the token of an account in the state directory, where runs cannot see it
    #[command(after_help = "\
Example:
  interlock channels login telegram < token.txt
  interlock channels login slack < bot-token.txt
  interlock channels login slack < app-token.txt
  interlock channels login matrix --homeserver https://matrix.example.org --user-id @interlock:example.org < token.txt

Reads the token from standard input, never from an argument, writes it to a file of mode 0600, and names that file
in the config. Slack has two tokens: the token of the bot begins with xoxb-, the token of the app with xapp-.")]
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
    /// The Matrix account that the token belongs to: @name:server
    #[arg(long, value_name = "ID")]
    pub user_id: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
