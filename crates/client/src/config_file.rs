//! Reads and changes the config file of this machine.

use std::path::{Path, PathBuf};

use interlock_arguments::StateArguments;
use interlock_config::{ConfigFile, Json5Text, KeyPath, StateDir};
use interlock_console::Failure;
use interlock_host::{Author, HostError};
use interlock_rules::record_config_write;
use serde_json::Value;

use crate::remote_gateway::RemoteGateway;
use crate::state::{open_options, outside_runs};

/// Sets one key and records the change in the audit.
pub fn set(state: &StateArguments, key: &str, value: &Value) -> Result<(), Failure> {
    let path = config_path(state)?;
    let parsed = key_path(key)?;
    let state_dir = writable(state)?;
    edit(&path, |text| text.set(&parsed, value))?;
    record_config_write(&state_dir, &path, &[key], &Author::default())?;
    Ok(())
}

/// The remote gateway that client commands follow, or `None` if the config or its secret cannot be
/// read. It does not open the state.
pub fn remote_gateway(state: &StateArguments) -> Option<RemoteGateway> {
    let options = open_options(state);
    let directory = StateDir::open(options.state_dir.as_deref(), &options.environment).ok()?;
    if state.local || interlock_gateway::running(directory.path()).is_some() {
        return None;
    }
    let file = load(&config_path(state).ok()?).ok()?;
    let remote = &file.config().gateway.remote;
    RemoteGateway::of_config(remote.url.as_deref()?, remote).ok()?
}

/// The path of the config file, which may not exist yet. A state directory that cannot be trusted
/// is refused before anything in it is read.
pub fn config_path(state: &StateArguments) -> Result<PathBuf, Failure> {
    if let Some(path) = &state.config {
        return Ok(path.clone());
    }
    let options = open_options(state);
    let directory = StateDir::open(options.state_dir.as_deref(), &options.environment)
        .map_err(HostError::from)?;
    Ok(directory.config_path())
}

/// The state directory, if this process may change the config. A process of a run may not.
pub fn writable(state: &StateArguments) -> Result<PathBuf, Failure> {
    let options = open_options(state);
    let directory = StateDir::open(options.state_dir.as_deref(), &options.environment)
        .map_err(HostError::from)?;
    outside_runs(directory.path())?;
    Ok(directory.path().to_owned())
}

pub fn load(path: &Path) -> Result<ConfigFile, Failure> {
    Ok(ConfigFile::load(path).map_err(HostError::from)?)
}

pub fn edit(
    path: &Path,
    change: impl FnOnce(&mut Json5Text) -> Result<(), interlock_config::EditError>,
) -> Result<(), Failure> {
    ConfigFile::edit(path, change).map_err(HostError::from)?;
    Ok(())
}

pub fn key_path(key: &str) -> Result<KeyPath, Failure> {
    KeyPath::parse(key).map_err(|error| Failure::usage(error.code(), error.to_string()))
}
