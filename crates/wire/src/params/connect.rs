//! `connect`: a client's first request, in which it describes itself.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::hello::HelloOk;
use crate::schema::{COUNT, POSITIVE, PropertyKind, STRING, TEXT, TEXTS};
use crate::secret::Secret;

/// The programs that may connect. The list is closed: any other name is refused.
pub const CLIENT_IDS: &[&str] = &[
    "webchat-ui",
    "openclaw-control-ui",
    "openclaw-tui",
    "webchat",
    "cli",
    "gateway-client",
    "openclaw-macos",
    "openclaw-ios",
    "openclaw-android",
    "node-host",
    "test",
    "fingerprint",
    "openclaw-probe",
    // Newer clients.
    "openclaw-browser-copilot",
    "openclaw-linux",
    "openclaw-watchos",
    "openclaw-worker",
];

/// The modes of a connected program. This list is closed as well.
pub const CLIENT_MODES: &[&str] = &[
    "webchat", "cli", "ui", "backend", "node", "probe", "test", // Newer clients.
    "worker",
];

params! {
    /// The first request.
    Connect for "connect" -> HelloOk {
        required {
            min_protocol "minProtocol": u64 = POSITIVE,
            max_protocol "maxProtocol": u64 = POSITIVE,
            client "client": Client = PropertyKind::Object(&Client::SHAPE),
        }
        optional {
            /// The capabilities of a node, or the surfaces of an operator.
            caps "caps": Vec<String> = TEXTS,
            /// The commands that a node offers.
            commands "commands": Vec<String> = TEXTS,
            permissions "permissions": BTreeMap<String, bool> = PropertyKind::Map(&PropertyKind::Boolean),
            /// The PATH of a node.
            path_env "pathEnv": String = STRING,
            /// `operator` or `node`; the default is `operator`.
            role "role": String = TEXT,
            scopes "scopes": Vec<String> = TEXTS,
            device "device": Device = PropertyKind::Object(&Device::SHAPE),
            auth "auth": Auth = PropertyKind::Object(&Auth::SHAPE),
            locale "locale": String = STRING,
            user_agent "userAgent": String = STRING,
            /// Sent by newer clients; not used.
            computer_use "computerUse": Value = PropertyKind::Any,
            /// Sent by newer clients; not used.
            worker_runs "workerRuns": Value = PropertyKind::Any,
        }
    }
}

object! {
    /// The program.
    Client {
        required {
            id "id": String = PropertyKind::OneOf(CLIENT_IDS),
            version "version": String = TEXT,
            platform "platform": String = TEXT,
            mode "mode": String = PropertyKind::OneOf(CLIENT_MODES),
        }
        optional {
            display_name "displayName": String = TEXT,
            device_family "deviceFamily": String = TEXT,
            model_identifier "modelIdentifier": String = TEXT,
            instance_id "instanceId": String = TEXT,
            build_id "buildId": String = PropertyKind::Text(1, 96),
            time_zone "timeZone": String = PropertyKind::Text(1, 64),
        }
    }
}

object! {
    /// The proof that the client holds the key of a device.
    Device {
        required {
            id "id": String = TEXT,
            public_key "publicKey": String = TEXT,
            signature "signature": String = TEXT,
            signed_at "signedAt": u64 = COUNT,
            nonce "nonce": String = TEXT,
        }
    }
}

object! {
    /// Secrets that the client knows.
    Auth {
        optional {
            token "token": Secret = STRING,
            bootstrap_token "bootstrapToken": Secret = STRING,
            device_token "deviceToken": Secret = STRING,
            password "password": Secret = STRING,
            approval_runtime_token "approvalRuntimeToken": Secret = STRING,
            agent_runtime_identity_token "agentRuntimeIdentityToken": Secret = STRING,
        }
    }
}

impl Connect {
    /// The token that the device signature covers: the first of those present, or else an empty
    /// text.
    pub fn signed_token(&self) -> &str {
        let Some(auth) = &self.auth else { return "" };
        let tokens = [&auth.token, &auth.device_token, &auth.bootstrap_token];
        let present = tokens.into_iter().flatten();
        present.map(Secret::expose).next().unwrap_or_default()
    }

    /// The protocol version within the client's range that this gateway uses, if there is one.
    /// Nodes and probes may use an older version.
    pub fn speaks(&self) -> Option<u64> {
        let range = self.min_protocol..=self.max_protocol;
        let old = matches!(self.client.mode.as_str(), "node" | "probe");
        if range.contains(&crate::PROTOCOL) {
            return Some(crate::PROTOCOL);
        }
        (old && range.contains(&crate::OLDEST_NODE_PROTOCOL)).then_some(crate::OLDEST_NODE_PROTOCOL)
    }
}
