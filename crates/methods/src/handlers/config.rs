//! `config.*`: reads and writes the config remotely. Comments are preserved, errors have a line and
//! a column, and secrets are never shown.

use std::time::Instant;

use interlock_config::{
    Config, ConfigError, ConfigFile, Diagnostics, EditError, Json5Text, KeyPath, schema as keys,
};
use interlock_host::now_ms;
use interlock_rules::record_config_write;
use interlock_store::Author;
use interlock_wire::params;
use interlock_wire::results::{
    ConfigIssue, ConfigIssuePlace, ConfigKeys, ConfigSnapshot, ConfigWritten,
};
use interlock_wire::{WireError, refusal};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{Context, store_failed, unavailable, work};
use crate::config_secrets::{self, NothingBehind};
use crate::gateway::Gateway;
use crate::limit;

/// The most keys that one audit record names.
const MOST_KEYS: usize = 100;

/// Keys whose changes take effect only when the gateway starts again.
const AT_START: &[&str] = &[
    "gateway.port",
    "gateway.bind",
    "gateway.customBindHost",
    "gateway.maxConnections",
    "gateway.auth",
    "gateway.tls",
];

/// `config.get`.
pub(crate) async fn get(
    context: Context<'_>,
    _params: params::ConfigGet,
) -> Result<ConfigSnapshot, WireError> {
    work(context, |gateway| {
        let path = gateway.dispatcher.host.config_path();
        let snapshot = ConfigSnapshot {
            path: path.display().to_string(),
            exists: path.exists(),
            ..ConfigSnapshot::default()
        };
        match ConfigFile::load(path) {
            Ok(file) => {
                let shown = config_secrets::hidden(file.text());
                Ok(ConfigSnapshot {
                    valid: true,
                    raw: Some(shown.text().to_owned()),
                    parsed: Some(shown.value()),
                    config: shown.value(),
                    hash: Some(hash(file.text().text())),
                    ..snapshot
                })
            }
            // A config that cannot be parsed cannot be searched for secrets either, so its text is
            // not shown. The last valid config is in force.
            Err(error) => {
                let in_force = gateway
                    .dispatcher
                    .host
                    .config()
                    .map_err(|error| unavailable(&error))?;
                Ok(ConfigSnapshot {
                    config: config_secrets::hidden(in_force.text()).value(),
                    hash: std::fs::read(path).ok().map(hash),
                    issues: issues(&error),
                    ..snapshot
                })
            }
        }
    })
    .await
}

/// `config.set`: replaces the whole text.
pub(super) async fn set(
    context: Context<'_>,
    asked: params::ConfigSet,
) -> Result<ConfigWritten, WireError> {
    limited(context, "config.set")?;
    write(context, asked.base_hash, move |before| {
        let new = Json5Text::parse("interlock.json", &asked.raw).map_err(Diagnostics::from)?;
        let new = config_secrets::restored(new, before)?;
        let keys = different(&before.value(), &new.value());
        Ok((new, keys))
    })
    .await
}

/// `config.patch`: sets values, removes those that are null, and merges objects.
pub(super) async fn patch(
    context: Context<'_>,
    asked: params::ConfigPatch,
) -> Result<ConfigWritten, WireError> {
    limited(context, "config.patch")?;
    let replaced = asked.replace_paths.unwrap_or_default();
    write(context, asked.base_hash, move |before| {
        let patch = Json5Text::parse("patch", &asked.raw).map_err(Diagnostics::from)?;
        let Value::Object(patch) = patch.value() else {
            return Err(ConfigFailure::NotObject);
        };
        let mut new = before.clone();
        let mut keys = Vec::new();
        merge(&mut new, &KeyPath::root(), &patch, &replaced, &mut keys)?;
        Ok((config_secrets::restored(new, before)?, keys))
    })
    .await
}

/// `config.schema`.
pub(super) fn schema(context: Context<'_>, _params: params::ConfigSchema) -> ConfigKeys {
    ConfigKeys {
        schema: keys::json_schema(),
        ui_hints: Map::new(),
        version: context.gateway.version.to_owned(),
        generated_at: now_ms(),
    }
}

/// Why the config was not written.
#[derive(Debug, thiserror::Error)]
enum ConfigFailure {
    #[error(transparent)]
    Invalid(#[from] Diagnostics),
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error(transparent)]
    Secret(#[from] NothingBehind),
    #[error("raw must be an object")]
    NotObject,
    #[error("{key} {what}: it is changed on its own machine only")]
    LocalOnly {
        key: &'static str,
        what: &'static str,
    },
}

impl From<ConfigFailure> for WireError {
    fn from(failed: ConfigFailure) -> Self {
        match failed {
            ConfigFailure::Invalid(problems) => invalid(&ConfigError::Invalid(problems)),
            ConfigFailure::Edit(error) => invalid(&ConfigError::Edit(error)),
            ConfigFailure::LocalOnly { key, .. } => WireError::invalid(failed.to_string())
                .with("code", "CONFIG_LOCAL_ONLY")
                .with("remediation", format!("interlock config set {key} VALUE")),
            other => WireError::invalid(other.to_string()),
        }
    }
}

/// A new text made from the old one, and the keys that differ.
type Made = Result<(Json5Text, Vec<String>), ConfigFailure>;

/// Replaces the config by an edited one, unless another writer was faster.
async fn write(
    context: Context<'_>,
    base_hash: Option<String>,
    make: impl FnOnce(&Json5Text) -> Made + Send + 'static,
) -> Result<ConfigWritten, WireError> {
    let who = context.client.name().to_owned();
    work(context, move |gateway| {
        let author = Author::new(who).map_err(store_failed)?;
        let path = gateway.dispatcher.host.config_path();
        let exists = path.exists();
        let mut refused: Option<WireError> = None;
        let mut keys = Vec::new();
        // The hash is compared and the file is written under the same lock.
        let edited = ConfigFile::edit(path, |text| {
            let present = hash(text.text());
            let change = || -> Result<(), WireError> {
                match &base_hash {
                    None if exists => return Err(refusal::CONFIG_BASE_HASH_REQUIRED.error()),
                    Some(base) if exists && *base != present => {
                        return Err(refusal::CONFIG_CHANGED.error());
                    }
                    _ => {}
                }
                let (new, changed) = make(text)?;
                // Parsing the new text before it replaces the old one lets the method report its
                // errors.
                Config::from_text(&new).map_err(ConfigFailure::Invalid)?;
                if let Some((key, what)) = local_change(text, &new) {
                    return Err(ConfigFailure::LocalOnly { key, what }.into());
                }
                *text = new;
                keys = changed;
                Ok(())
            };
            // On such an error the text is unchanged, and so nothing is written.
            refused = change().err();
            Ok(())
        });
        if let Some(refused) = refused {
            return Err(refused);
        }
        let file = edited.map_err(|error| invalid(&error))?;
        keys.sort_unstable();
        keys.dedup();
        keys.truncate(MOST_KEYS);
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        record_config_write(gateway.dispatcher.host.state_dir(), path, &names, &author)
            .map_err(|error| unavailable(&error.into()))?;
        Ok(written(gateway, &file, &names))
    })
    .await
}

/// Returns the first key that differs and must not be changed over the wire, with the reason. A
/// client that could set such a key could run programs without a judgment, or with the rights of
/// the service.
fn local_change(old: &Json5Text, new: &Json5Text) -> Option<(&'static str, &'static str)> {
    let (old, new) = (old.value(), new.value());
    let wake = |config: &Value| config.pointer("/gateway/wake/command").cloned();
    if wake(&old) != wake(&new) {
        let what = "names a program that the gateway starts";
        return Some(("gateway.wake.command", what));
    }
    let retention = |config: &Value| config.pointer("/audit/retention").cloned();
    if retention(&old) != retention(&new) {
        let what = "moves audit records out of sight";
        return Some(("audit.retention", what));
    }
    let channels = |config: &Value| {
        let part = |pointer: &str| config.pointer(pointer).cloned();
        (part("/channels"), part("/approvals"))
    };
    if channels(&old) != channels(&new) {
        let what = "says who decides in chats, and where tokens are sent";
        return Some(("channels", what));
    }
    let what = "names the user that commands run as";
    (run_users(&old) != run_users(&new)).then_some(("tools.exec.runAs", what))
}

/// Returns the users under which all agents' runs run, in the order of the agents.
fn run_users(config: &Value) -> Vec<(Option<Value>, Option<Value>)> {
    let user = |scope: &Value| scope.pointer("/tools/exec/runAs").cloned();
    let listed = config.pointer("/agents/list").and_then(Value::as_array);
    let of_agents = listed.into_iter().flatten().filter_map(|agent| {
        let user = user(agent)?;
        Some((agent.get("id").cloned(), Some(user)))
    });
    let mut users = vec![(None, user(config))];
    users.extend(of_agents);
    users
}

fn written(gateway: &Gateway, file: &ConfigFile, keys: &[&str]) -> ConfigWritten {
    // A change of an object that contains such a key counts too.
    let is_at_start = |key: &&str| {
        let around = format!("{key}.");
        let mut known = AT_START.iter();
        known.any(|prefix| key.starts_with(prefix) || prefix.starts_with(&around))
    };
    ConfigWritten {
        ok: true,
        path: gateway.dispatcher.host.config_path().display().to_string(),
        hash: hash(file.text().text()),
        config: config_secrets::hidden(file.text()).value(),
        changed: keys.iter().map(|key| (*key).to_owned()).collect(),
        restart_required: keys.iter().any(is_at_start),
    }
}

/// Allows each client three changes in a minute.
fn limited(context: Context<'_>, method: &str) -> Result<(), WireError> {
    let client = context.client;
    let who = match (&client.device, client.address) {
        (Some(device), _) => format!("device {device}"),
        (None, Some(address)) => format!("address {address}"),
        (None, None) => "this machine".to_owned(),
    };
    let counted = context.gateway.writes.count(&who, Instant::now());
    counted.map_err(|wait| {
        let seconds = wait.as_secs().max(1);
        let rule = format!("{} per {}s", limit::MOST, limit::WINDOW.as_secs());
        WireError::unavailable(format!(
            "rate limit exceeded for {method}; retry after {seconds}s"
        ))
        .with("method", method)
        .with("limit", rule)
        .retry_after(seconds * 1000)
    })
}

/// Sets the values of a patch one by one, so that the rest of the text stays as it is written.
fn merge(
    text: &mut Json5Text,
    at: &KeyPath,
    values: &Map<String, Value>,
    replaced: &[String],
    keys: &mut Vec<String>,
) -> Result<(), EditError> {
    for (key, value) in values {
        let path = at.key(key);
        let name = path.to_string();
        match value {
            Value::Null => {
                text.unset(&path)?;
                keys.push(name);
            }
            Value::Object(inner)
                if !replaced.contains(&name)
                    && text.get(&path).is_some_and(|value| value.is_object()) =>
            {
                merge(text, &path, inner, replaced, keys)?;
            }
            value => {
                let value = without_nulls(value);
                text.set(&path, &value)?;
                name_leaves(&path, &value, keys);
            }
        }
    }
    Ok(())
}

/// Names the keys of all values that have no keys of their own.
fn name_leaves(at: &KeyPath, value: &Value, keys: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                name_leaves(&at.key(key), value, keys);
            }
        }
        _ => keys.push(at.to_string()),
    }
}

/// Removes the nulls from a value that is new, where they have nothing to remove.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            fields
                .map(|(key, value)| (key.clone(), without_nulls(value)))
                .collect::<Map<_, _>>()
                .into()
        }
        other => other.clone(),
    }
}

/// Returns the keys whose values differ, two levels deep, which is enough for an audit record.
fn different(before: &Value, after: &Value) -> Vec<String> {
    let mut keys = Vec::new();
    let top = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (old, new) = (top(before), top(after));
    for key in old.keys().chain(new.keys()) {
        let (old, new) = (old.get(key), new.get(key));
        if old == new {
            continue;
        }
        let inner = |value: Option<&Value>| value.map(top).unwrap_or_default();
        let (old_inner, new_inner) = (inner(old), inner(new));
        let before = keys.len();
        for name in old_inner.keys().chain(new_inner.keys()) {
            if old_inner.get(name) != new_inner.get(name) {
                keys.push(format!("{key}.{name}"));
            }
        }
        if keys.len() == before {
            keys.push(key.clone());
        }
    }
    keys
}

fn invalid(error: &ConfigError) -> WireError {
    let wire = match error {
        ConfigError::Invalid(_) => WireError::invalid(format!("invalid config: {error}"))
            .with("issues", json!(issues(error))),
        ConfigError::Edit(_) => WireError::invalid(error.to_string()),
        _ => WireError::unavailable(error.to_string()),
    };
    wire.with("code", error.code())
}

/// Lists every problem with its position.
fn issues(error: &ConfigError) -> Vec<ConfigIssue> {
    match error {
        ConfigError::Invalid(Diagnostics(problems)) => problems
            .iter()
            .map(|problem| ConfigIssue {
                code: problem.code.to_owned(),
                message: problem.message.clone(),
                place: Some(ConfigIssuePlace {
                    line: problem.line,
                    column: problem.column,
                    hint: problem.hint.clone(),
                }),
            })
            .collect(),
        other => vec![ConfigIssue {
            code: other.code().to_owned(),
            message: other.to_string(),
            place: None,
        }],
    }
}

fn hash(text: impl AsRef<[u8]>) -> String {
    let mut hash = String::new();
    for byte in Sha256::digest(text) {
        hash.push_str(&format!("{byte:02x}"));
    }
    hash
}
