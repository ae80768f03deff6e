//! `interlock config`: reads and changes the config, and keeps its comments.

use std::process::ExitCode;

use interlock_arguments::{ConfigCommand, StateArguments};
use interlock_client::config_file::{config_path, edit, key_path, load, set, writable};
use interlock_client::{check_config_exists, check_named_config};
use interlock_config::{Config, Json5Text, KeyPath};
use interlock_console::{CommandOutcome, Failure, output};
use interlock_host::Author;
use interlock_policy::AgentId;
use interlock_rules::record_config_write;
use serde_json::{Value, json};

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
            check_named_config(state)?;
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
            if arguments.key.contains("sandbox") || arguments.key.contains("host") {
                note_overruled_sandbox(state, load(&path)?.config());
            }
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
            if let Some(file) = &arguments.file {
                check_config_exists(state, file)?;
            }
            let path = arguments.file.unwrap_or(path);
            let file = load(&path)?;
            let notices = interlock_sandbox::config_notices(file.config());
            for notice in &notices {
                output::note(notice);
            }
            if arguments.json {
                output::print_json(
                    &json!({ "valid": true, "notices": notices, "path": path.display().to_string() }),
                );
            } else {
                output::print(&format!("{}: valid\n", path.display()));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Warns an owner who has switched on a sandbox while another key keeps commands out of it.
fn note_overruled_sandbox(state: &StateArguments, config: &Config) {
    let listed = config.agents.list.iter().map(|agent| agent.id.as_str());
    let mut agents = listed.chain([AgentId::MAIN]);
    if let Some(overruled) = agents.find_map(|agent| config.overruled_sandbox(agent)) {
        let fix = state.in_command(&overruled.remedy());
        output::note(&format!("{}; to use it: {fix}", overruled.words()));
    }
}

/// Reads JSON5, or else takes the text as a string, so that `allowlist` needs no quotes.
fn read_value(text: &str) -> Value {
    match Json5Text::parse("value", text) {
        Ok(json5) => json5.value(),
        Err(_) => Value::String(text.to_owned()),
    }
}

/// The failure for a key without a value. For an unknown key, the hint names the nearest known one.
fn not_set(key: &str) -> Failure {
    if let Some(hint) = unknown_key_hint(key) {
        return Failure::refused("UNKNOWN_KEY", format!("unknown key `{key}`")).with_hint(hint);
    }
    Failure::refused("CONFIG_KEY_NOT_SET", format!("`{key}` is not set"))
        .with_hint("see what is set: interlock config get")
}

fn unknown_key_hint(key: &str) -> Option<String> {
    let mut text = Json5Text::parse("config", "{}").ok()?;
    text.set(&KeyPath::parse(key).ok()?, &Value::Null).ok()?;
    let problems = interlock_config::schema::check(&text);
    let unknown = problems
        .into_iter()
        .find(|problem| problem.code == "UNKNOWN_KEY")?;
    Some(
        unknown
            .hint
            .unwrap_or_else(|| "see docs/reference/config.md".to_owned()),
    )
}

fn done(word: &str, key: &str, json: bool) {
    if json {
        output::print_json(&json!({ word: key }));
    } else {
        output::print(&format!("{word} {key}\n"));
    }
}
