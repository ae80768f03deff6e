//! `interlock channels`: chats that show approvals.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use interlock_arguments::{
    ChannelsCommand, ChannelsListArguments, ChannelsLoginArguments, ChannelsTestArguments,
    StateArguments,
};
use interlock_client::config_file::set;
use interlock_client::{CallFailure, GatewayClient, open, outside_runs};
use interlock_console::{CommandOutcome, Failure, output};
use interlock_wire::params::{ChannelsList, ChannelsTest};
use serde_json::{Value, json};

/// The longest token that is accepted.
const MOST_BYTES: u64 = 16 * 1024;

pub fn run(state: &StateArguments, command: &ChannelsCommand) -> CommandOutcome {
    match command {
        ChannelsCommand::List(arguments) => list(state, arguments),
        ChannelsCommand::Test(arguments) => test(state, arguments),
        ChannelsCommand::Login(arguments) => login(state, arguments),
    }
}

fn list(state: &StateArguments, arguments: &ChannelsListArguments) -> CommandOutcome {
    let host = open(state)?;
    let mut gateway = GatewayClient::connect(state, &host)?;
    let listed = gateway.request(&ChannelsList::default())?;
    if arguments.json {
        output::print_json(&listed);
        return Ok(ExitCode::SUCCESS);
    }
    let rows = listed.targets.iter().map(|row| {
        let after = match row.after_ms {
            0 => String::new(),
            ms => format!("after {} s", ms / 1000),
        };
        vec![
            output::visible(&row.target),
            format!(
                "{} queued, {} sent, {} failed",
                row.queued, row.sent, row.failed
            ),
            after,
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        let next = if !listed.problems.is_empty() {
            "this is why:"
        } else if listed.accounts.is_empty() {
            "log in to one: interlock channels login --help"
        } else {
            "an account is there, but no approver: see execApprovals.approvers in docs/channels"
        };
        output::note(&format!("interlock: approvals go to no chat; {next}"));
    }
    output::print(&output::table(&rows, ""));
    for problem in &listed.problems {
        let (key, why) = (output::visible(&problem.key), output::visible(&problem.why));
        output::note(&format!("interlock: {key} {why}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn test(state: &StateArguments, arguments: &ChannelsTestArguments) -> CommandOutcome {
    let host = open(state)?;
    outside_runs(host.state_dir())?;
    let mut gateway = GatewayClient::connect(state, &host)?;
    let asked = ChannelsTest {
        target: arguments.target.clone(),
    };
    let tested = gateway
        .request(&asked)
        .map_err(CallFailure::into_reported)?;
    let has_failed = tested.targets.iter().any(|one| one.problem.is_some());
    if arguments.json {
        output::print_json(&tested);
    } else {
        let rows = tested.targets.iter().map(|one| {
            let became = match &one.problem {
                None => format!("works, as {}", output::visible(&one.account)),
                Some(why) => format!("failed: {}", output::visible(why)),
            };
            vec![output::visible(&one.target), became]
        });
        output::print(&output::table(&rows.collect::<Vec<_>>(), ""));
        if tested.targets.is_empty() {
            output::note("interlock: approvals go to no chat; see `interlock channels list`");
        }
    }
    Ok(if has_failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn login(state: &StateArguments, arguments: &ChannelsLoginArguments) -> CommandOutcome {
    let host = open(state)?;
    outside_runs(host.state_dir())?;
    let channel = arguments.channel.as_str();
    if channel != "matrix" && (arguments.homeserver.is_some() || arguments.user_id.is_some()) {
        let message = "--homeserver and --user-id are for matrix";
        return Err(Failure::refused("CHANNEL_OPTION", message));
    }
    let mut token = String::new();
    let read = std::io::stdin().take(MOST_BYTES).read_to_string(&mut token);
    let token = token.trim();
    if read.is_err() || token.is_empty() || token.chars().any(char::is_whitespace) {
        let message = "standard input holds no token: one word is expected";
        return Err(Failure::refused("TOKEN_MISSING", message)
            .with_hint(format!("interlock channels login {channel} < token.txt")));
    }
    let (file, key) = match channel {
        "slack" => slack_token(token)?,
        channel => (format!("channel-{channel}.token"), "tokenFile"),
    };
    let path = host.state_dir().join(file);
    write_token(&path, token).map_err(|error| {
        let message = format!("{} cannot be written: {error}", path.display());
        Failure::refused("TOKEN_UNWRITABLE", message)
    })?;
    if let Some(homeserver) = &arguments.homeserver {
        set(state, "channels.matrix.homeserver", &json!(homeserver))?;
    }
    if let Some(user_id) = &arguments.user_id {
        set(state, "channels.matrix.userId", &json!(user_id))?;
    }
    let named = Value::String(path.display().to_string());
    set(state, &format!("channels.{channel}.{key}"), &named)?;
    if arguments.json {
        output::print_json(&json!({ "channel": channel, key: named }));
    } else {
        let next = state.in_command("interlock channels list");
        output::note(&format!(
            "interlock: kept in {}; see it: {next}",
            path.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The file of a Slack token and the config key that names the file. The prefix of the token tells
/// which of the two tokens it is.
fn slack_token(token: &str) -> Result<(String, &'static str), Failure> {
    if token.starts_with("xoxb-") {
        Ok(("channel-slack.token".to_owned(), "tokenFile"))
    } else if token.starts_with("xapp-") {
        Ok(("channel-slack-app.token".to_owned(), "appTokenFile"))
    } else {
        let message = "the token is neither a bot's (xoxb-) nor an app's (xapp-)";
        let hint =
            "OAuth & Permissions shows the bot's; Basic Information, App-Level Tokens, the app's";
        Err(Failure::refused("TOKEN_UNKNOWN", message).with_hint(hint))
    }
}

/// Writes a new file and renames it, so that the gateway never reads half a token.
fn write_token(path: &Path, token: &str) -> std::io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let aside = PathBuf::from(aside);
    let _ = std::fs::remove_file(&aside);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&aside)?;
    file.write_all(token.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&aside, path)
}
