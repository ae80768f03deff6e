//! `interlock config`: read and change the config, comments kept.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use interlock_approvals::record_config_write;
use interlock_config::{ConfigFile, Json5Text, KeyPath, StateDir};
use interlock_host::{Author, HostError};
use serde_json::{Value, json};

use super::{CommandOutcome, open_options, outside_runs};
use crate::args::{ConfigCommand, StateArguments};
use crate::failure::Failure;
use crate::output;
use crate::remote_gateway::RemoteGateway;

pub fn run(state: &StateArguments, command: ConfigCommand) -> CommandOutcome {
    let path = config_path(state)?;
    match command {
        ConfigCommand::Path(arguments) => {
            let shown = path.display().to_string();
            if arguments.json {
                output::print_json(&json!({ "path": shown }));
            } else {
                output::print(&(shown + "\n"));
            }
        }
        ConfigCommand::Get(arguments) => {
            let file = load(&path)?;
            let value = match &arguments.key {
                None => file.text().value(),
                Some(key) => file
                    .text()
                    .get(&key_path(key)?)
                    .ok_or_else(|| not_set(key))?,
            };
            match value {
                Value::String(text) if !arguments.json => output::print(&(text + "\n")),
                value => output::print_json(&value),
            }
        }
        ConfigCommand::Set(arguments) => {
            set(state, &arguments.key, &read_value(&arguments.value))?;
            done("set", &arguments.key, arguments.json);
        }
        ConfigCommand::Unset(arguments) => {
            let key = key_path(&arguments.key)?;
            let state_dir = writable(state)?;
            let mut was_set = false;
            edit(&path, |text| {
                was_set = text.unset(&key)?;
                Ok(())
            })?;
            if !was_set {
                return Err(not_set(&arguments.key));
            }
            record_config_write(&state_dir, &path, &[&arguments.key], &Author::default())?;
            done("unset", &arguments.key, arguments.json);
        }
        ConfigCommand::Validate(arguments) => {
            let path = arguments.file.unwrap_or(path);
            load(&path)?;
            if arguments.json {
                output::print_json(&json!({ "valid": true, "path": path.display().to_string() }));
            } else {
                output::print(&format!("{}: valid\n", path.display()));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sets one key and records that.
pub fn set(state: &StateArguments, key: &str, value: &Value) -> Result<(), Failure> {
    let path = config_path(state)?;
    let parsed = key_path(key)?;
    let state_dir = writable(state)?;
    edit(&path, |text| text.set(&parsed, value))?;
    record_config_write(&state_dir, &path, &[key], &Author::default())?;
    Ok(())
}

/// The gateway elsewhere that client commands follow, as far as the config and its secret can be read. It
/// opens no state.
pub(super) fn remote_gateway(state: &StateArguments) -> Option<RemoteGateway> {
    let options = open_options(state);
    let directory = StateDir::open(options.state_dir.as_deref(), &options.environment).ok()?;
    if state.local || interlock_gateway::running(directory.path()).is_some() {
        return None;
    }
    let file = load(&config_path(state).ok()?).ok()?;
    let remote = &file.config().gateway.remote;
    RemoteGateway::of_config(remote.url.as_deref()?, remote).ok()?
}

/// Where the config lies or would lie. A state directory that could not be trusted is refused
/// before anything in it is read.
fn config_path(state: &StateArguments) -> Result<PathBuf, Failure> {
    if let Some(path) = &state.config {
        return Ok(path.clone());
    }
    let options = open_options(state);
    let directory = StateDir::open(options.state_dir.as_deref(), &options.environment)
        .map_err(HostError::from)?;
    Ok(directory.config_path())
}

/// The state directory, where its owner and not a run wants to change the config.
fn writable(state: &StateArguments) -> Result<PathBuf, Failure> {
    let options = open_options(state);
    let directory = StateDir::open(options.state_dir.as_deref(), &options.environment)
        .map_err(HostError::from)?;
    outside_runs(directory.path())?;
    Ok(directory.path().to_owned())
}

fn load(path: &Path) -> Result<ConfigFile, Failure> {
    Ok(ConfigFile::load(path).map_err(HostError::from)?)
}

fn edit(
    path: &Path,
    change: impl FnOnce(&mut Json5Text) -> Result<(), interlock_config::EditError>,
) -> Result<(), Failure> {
    ConfigFile::edit(path, change).map_err(HostError::from)?;
    Ok(())
}

fn key_path(key: &str) -> Result<KeyPath, Failure> {
    KeyPath::parse(key).map_err(|error| Failure::usage(error.code(), error.to_string()))
}

/// JSON5 if it is some, else the text itself: `allowlist` needs no quotes.
fn read_value(text: &str) -> Value {
    match Json5Text::parse("value", text) {
        Ok(json5) => json5.value(),
        Err(_) => Value::String(text.to_owned()),
    }
}

fn not_set(key: &str) -> Failure {
    Failure::refused("CONFIG_KEY_NOT_SET", format!("`{key}` is not set"))
        .with_hint("see what is set: interlock config get")
}

fn done(word: &str, key: &str, json: bool) {
    if json {
        output::print_json(&json!({ word: key }));
    } else {
        output::print(&format!("{word} {key}\n"));
    }
}
