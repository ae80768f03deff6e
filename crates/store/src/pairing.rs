//! The devices that may connect, and the commands of nodes that may be used. Each change has an
//! audit record.

use std::collections::BTreeMap;

use rusqlite::params;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::audit::AuditKind;
use crate::change::{Change, Sql};
use crate::database::Store;
use crate::error::StoreError;

/// A device that an operator approved.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PairedDevice {
    pub device_id: String,
    pub public_key: String,
    pub display_name: Option<String>,
    pub platform: Option<String>,
    pub device_family: Option<String>,
    pub client_id: Option<String>,
    pub client_mode: Option<String>,
    pub roles: Vec<String>,
    pub scopes: Vec<String>,
    /// The tokens of the device by role.
    pub tokens: BTreeMap<String, DeviceToken>,
    pub created_at_ms: u64,
    pub approved_at_ms: u64,
    /// The address that the device last connected from, unless it was this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_ip: Option<String>,
    /// Where the notifications of the device go. Removing the device removes it too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<PushSubscription>,
}

/// The subscription of a browser at a push service. Its keys and its address are secrets of the
/// browser.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PushSubscription {
    pub endpoint: String,
    /// The public key of the browser, in Base64url. `auth` is a secret in the same form.
    pub p256dh: String,
    pub auth: String,
    pub subscribed_at_ms: u64,
}

impl std::fmt::Debug for PushSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PushSubscription").finish_non_exhaustive()
    }
}

/// The token of a device for one role. The gateway derives the token's text from one of its keys
/// and these values.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceToken {
    /// Differs for every token that was ever issued.
    pub generation: String,
    pub scopes: Vec<String>,
    pub created_at_ms: u64,
    pub revoked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotated_at_ms: Option<u64>,
    /// The time of the revocation. From then on, the token is worthless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at_ms: Option<u64>,
}

/// A node whose commands an operator approved.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PairedNode {
    pub node_id: String,
    pub display_name: Option<String>,
    pub platform: Option<String>,
    pub version: Option<String>,
    pub device_family: Option<String>,
    pub caps: Vec<String>,
    pub commands: Vec<String>,
    pub permissions: BTreeMap<String, bool>,
    pub created_at_ms: u64,
    pub approved_at_ms: u64,
    pub last_seen_at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_connected_at_ms: Option<u64>,
}

/// The pairings under one id: the device that may connect, and the node whose commands may be used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Paired {
    pub device: Option<PairedDevice>,
    pub node: Option<PairedNode>,
}

/// A device or node that waits for an operator's approval.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PairingRequest {
    pub request_id: String,
    /// The id of the device, which is also the id of the node.
    pub device_id: String,
    pub public_key: String,
    pub display_name: Option<String>,
    pub platform: Option<String>,
    pub device_family: Option<String>,
    pub version: Option<String>,
    pub client_id: Option<String>,
    pub client_mode: Option<String>,
    pub role: String,
    pub scopes: Vec<String>,
    pub caps: Vec<String>,
    pub commands: Vec<String>,
    pub permissions: BTreeMap<String, bool>,
    pub remote_ip: Option<String>,
    pub reason: String,
    pub ts: u64,
}

/// The kind of a pairing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// A device may connect.
    Device,
    /// The commands of a node may be used.
    Node,
}

impl Pairing {
    fn as_str(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Node => "node",
        }
    }
}

impl Store {
    pub fn device(&self, id: &str) -> Result<Option<PairedDevice>, StoreError> {
        self.read(|sql| one(sql, "SELECT body FROM device WHERE id = ?1", id))
    }

    pub fn devices(&self) -> Result<Vec<PairedDevice>, StoreError> {
        self.read(|sql| all(sql, "SELECT body FROM device ORDER BY id"))
    }

    pub fn node(&self, id: &str) -> Result<Option<PairedNode>, StoreError> {
        self.read(|sql| one(sql, "SELECT body FROM node WHERE id = ?1", id))
    }

    pub fn nodes(&self) -> Result<Vec<PairedNode>, StoreError> {
        self.read(|sql| all(sql, "SELECT body FROM node ORDER BY id"))
    }

    /// Returns the device and the node of each id, if they are paired. All results come from one
    /// snapshot.
    pub fn paired(&self, ids: &[&str]) -> Result<Vec<Paired>, StoreError> {
        self.read(|sql| {
            let paired = ids.iter().map(|id| {
                Ok(Paired {
                    device: one(sql, "SELECT body FROM device WHERE id = ?1", id)?,
                    node: one(sql, "SELECT body FROM node WHERE id = ?1", id)?,
                })
            });
            paired.collect()
        })
    }

    /// Returns the pending requests, oldest first.
    pub fn pairing_requests(&self, pairing: Pairing) -> Result<Vec<PairingRequest>, StoreError> {
        let (devices, nodes) = (
            "SELECT body FROM pairing_request WHERE kind = 'device' ORDER BY number",
            "SELECT body FROM pairing_request WHERE kind = 'node' ORDER BY number",
        );
        self.read(|sql| match pairing {
            Pairing::Device => all(sql, devices),
            Pairing::Node => all(sql, nodes),
        })
    }
}

impl Change<'_> {
    pub fn device(&self, id: &str) -> Result<Option<PairedDevice>, StoreError> {
        one(&self.sql, "SELECT body FROM device WHERE id = ?1", id)
    }

    pub fn node(&self, id: &str) -> Result<Option<PairedNode>, StoreError> {
        one(&self.sql, "SELECT body FROM node WHERE id = ?1", id)
    }

    pub fn put_device(&self, device: &PairedDevice) -> Result<(), StoreError> {
        self.sql.execute(
            "INSERT INTO device (id, body) VALUES (?1, ?2)
             ON CONFLICT (id) DO UPDATE SET body = excluded.body",
            params![device.device_id, text(device)],
        )?;
        Ok(())
    }

    pub fn put_node(&self, node: &PairedNode) -> Result<(), StoreError> {
        self.sql.execute(
            "INSERT INTO node (id, body) VALUES (?1, ?2)
             ON CONFLICT (id) DO UPDATE SET body = excluded.body",
            params![node.node_id, text(node)],
        )?;
        Ok(())
    }

    /// Returns whether there was such a device.
    pub fn remove_device(&self, id: &str) -> Result<bool, StoreError> {
        Ok(self.sql.execute("DELETE FROM device WHERE id = ?1", [id])? > 0)
    }

    pub fn remove_node(&self, id: &str) -> Result<bool, StoreError> {
        Ok(self.sql.execute("DELETE FROM node WHERE id = ?1", [id])? > 0)
    }

    /// Stores a request. A new request of a device replaces its earlier one of the same kind. Of
    /// all requests, at most the `most` newest are kept.
    pub fn put_pairing_request(
        &self,
        pairing: Pairing,
        request: &PairingRequest,
        most: usize,
    ) -> Result<(), StoreError> {
        self.sql.execute(
            "DELETE FROM pairing_request WHERE kind = ?1 AND device_id = ?2",
            params![pairing.as_str(), request.device_id],
        )?;
        self.sql.execute(
            "INSERT INTO pairing_request (id, kind, device_id, at_ms, body)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                request.request_id,
                pairing.as_str(),
                request.device_id,
                i64::try_from(request.ts).unwrap_or(i64::MAX),
                text(request)
            ],
        )?;
        self.sql.execute(
            "DELETE FROM pairing_request WHERE number IN
                (SELECT number FROM pairing_request ORDER BY number DESC LIMIT -1 OFFSET ?1)",
            [i64::try_from(most).unwrap_or(i64::MAX)],
        )?;
        Ok(())
    }

    /// Removes a request and returns it to the caller that answers it.
    pub fn take_pairing_request(
        &self,
        pairing: Pairing,
        id: &str,
    ) -> Result<Option<PairingRequest>, StoreError> {
        let request = self.sql.optional(
            "DELETE FROM pairing_request WHERE id = ?1 AND kind = ?2 RETURNING body",
            params![id, pairing.as_str()],
            |row| row.get::<_, String>(0),
        )?;
        request.map(|body| parse(&self.sql, &body)).transpose()
    }

    /// Returns the pending request of a device, if there is one.
    pub fn pairing_request_of(
        &self,
        pairing: Pairing,
        device_id: &str,
    ) -> Result<Option<PairingRequest>, StoreError> {
        let request = self.sql.optional(
            "SELECT body FROM pairing_request WHERE device_id = ?1 AND kind = ?2",
            params![device_id, pairing.as_str()],
            |row| row.get::<_, String>(0),
        )?;
        request.map(|body| parse(&self.sql, &body)).transpose()
    }

    /// Forgets requests that are older than this time.
    pub fn drop_pairing_requests(
        &self,
        pairing: Pairing,
        before_ms: u64,
    ) -> Result<usize, StoreError> {
        let before = i64::try_from(before_ms).unwrap_or(i64::MAX);
        self.sql.execute(
            "DELETE FROM pairing_request WHERE kind = ?1 AND at_ms < ?2",
            params![pairing.as_str(), before],
        )
    }

    /// Records the outcome of a pairing request in the audit.
    pub fn record_pairing(&self, body: &Value, now_ms: u64) -> Result<(), StoreError> {
        let now = i64::try_from(now_ms).unwrap_or(i64::MAX);
        self.append(AuditKind::Pairing, body, now)?;
        Ok(())
    }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| json!(null).to_string())
}

fn one<T: DeserializeOwned>(
    sql: &Sql<'_>,
    statement: &str,
    id: &str,
) -> Result<Option<T>, StoreError> {
    let body = sql.optional(statement, [id], |row| row.get::<_, String>(0))?;
    body.map(|body| parse(sql, &body)).transpose()
}

fn all<T: DeserializeOwned>(sql: &Sql<'_>, statement: &str) -> Result<Vec<T>, StoreError> {
    let bodies = sql.all(statement, [], |row| row.get::<_, String>(0))?;
    bodies.iter().map(|body| parse(sql, body)).collect()
}

fn parse<T: DeserializeOwned>(sql: &Sql<'_>, body: &str) -> Result<T, StoreError> {
    serde_json::from_str(body).map_err(|error| sql.corrupt(&format!("a pairing record: {error}")))
}
