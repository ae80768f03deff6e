//! How a node introduces itself: its identity, its commands, and the proof that it may connect.

use std::collections::BTreeMap;
use std::path::PathBuf;

use interlock_host::LocalHost;
use interlock_wire::node::extension::INTERLOCK;
use interlock_wire::node::{
    SYSTEM_EXEC_APPROVALS_GET, SYSTEM_EXEC_APPROVALS_SET, SYSTEM_RUN, SYSTEM_RUN_PREPARE,
    SYSTEM_WHICH,
};
use interlock_wire::params::{Auth, Client as ClientParams};
use interlock_wire::{Connect, OLDEST_NODE_PROTOCOL, PROTOCOL, Secret};

use crate::node::NodeError;
use crate::state::{DeviceTokens, NodeFile, ROLE};

/// The commands that a gateway is offered.
const COMMANDS: &[&str] = &[
    SYSTEM_RUN_PREPARE,
    SYSTEM_RUN,
    SYSTEM_WHICH,
    SYSTEM_EXEC_APPROVALS_GET,
    SYSTEM_EXEC_APPROVALS_SET,
];

/// The environment variables that may hold the gateway's token or password. Runs do not get them.
pub const TOKEN_VARIABLES: [&str; 2] = ["INTERLOCK_GATEWAY_TOKEN", "OPENCLAW_GATEWAY_TOKEN"];
pub const PASSWORD_VARIABLES: [&str; 2] =
    ["INTERLOCK_GATEWAY_PASSWORD", "OPENCLAW_GATEWAY_PASSWORD"];

/// The introduction of a node at every connection.
#[derive(Debug)]
pub(crate) struct Introduction {
    connect: Connect,
    /// If the shared secret is known, the device's own token is only used if the gateway asks for
    /// it.
    shared: SharedCredentials,
    pub(crate) tokens: DeviceTokens,
}

/// Which proof a node presents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Shared,
    DeviceToken,
}

impl Introduction {
    pub(crate) fn new(
        file: &NodeFile,
        version: &str,
        path: String,
        shared: SharedCredentials,
        tokens: DeviceTokens,
    ) -> Self {
        Self {
            connect: connect(file, version, path),
            shared,
            tokens,
        }
    }

    pub(crate) fn connect(&self, by: By) -> Connect {
        let mut connect = self.connect.clone();
        let auth = match by {
            By::Shared if self.shared != SharedCredentials::default() => Auth {
                token: self.shared.token.clone(),
                password: self.shared.password.clone(),
                ..Auth::default()
            },
            _ => Auth {
                device_token: self.tokens.get(),
                ..Auth::default()
            },
        };
        if auth != Auth::default() {
            connect.auth = Some(auth);
        }
        connect
    }
}

/// The credentials that all clients of the gateway share. The gateway asks for one of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SharedCredentials {
    token: Option<Secret>,
    password: Option<Secret>,
}

impl SharedCredentials {
    pub(crate) fn of(
        host: &LocalHost,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, NodeError> {
        let remote = host.config()?.config().gateway.remote.clone();
        Ok(Self {
            token: secret(environment, TOKEN_VARIABLES, remote.token_file)?,
            password: secret(environment, PASSWORD_VARIABLES, remote.password_file)?,
        })
    }
}

/// The secret of the environment, or else of the file that the config names.
fn secret(
    environment: &BTreeMap<String, String>,
    names: [&str; 2],
    file: Option<String>,
) -> Result<Option<Secret>, NodeError> {
    let mut given = names.iter().filter_map(|name| environment.get(*name));
    if let Some(secret) = given.find(|secret| !secret.trim().is_empty()) {
        return Ok(Some(Secret::new(secret.trim())));
    }
    let Some(path) = file.map(PathBuf::from) else {
        return Ok(None);
    };
    let text = std::fs::read_to_string(&path).map_err(NodeError::file(&path))?;
    let secret = text.trim();
    Ok((!secret.is_empty()).then(|| Secret::new(secret)))
}

fn connect(file: &NodeFile, version: &str, path: String) -> Connect {
    Connect {
        min_protocol: OLDEST_NODE_PROTOCOL,
        max_protocol: PROTOCOL,
        client: ClientParams {
            id: "node-host".to_owned(),
            version: version.to_owned(),
            // Both values are pinned when a device is paired, so they must never change.
            platform: "linux".to_owned(),
            device_family: Some("Linux".to_owned()),
            mode: "node".to_owned(),
            display_name: Some(file.display_name.clone()),
            instance_id: Some(file.node_id.clone()),
            ..ClientParams::default()
        },
        role: Some(ROLE.to_owned()),
        scopes: Some(Vec::new()),
        // The second capability tells an Interlock gateway that this is an Interlock node.
        caps: Some(vec!["system".to_owned(), INTERLOCK.to_owned()]),
        commands: Some(COMMANDS.iter().map(|&command| command.to_owned()).collect()),
        path_env: Some(path),
        ..Connect::default()
    }
}
