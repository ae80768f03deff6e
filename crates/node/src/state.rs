//! The identity of this node, and its state in the state directory: its key, the token from a
//! gateway, the gateway, and a lock that ends with the process.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use interlock_host::now_ms;
use interlock_wire::Secret;
use interlock_wire::identity::{DeviceIdentity, IdentityFile};
use serde::{Deserialize, Serialize};

use crate::node::NodeError;
use crate::target::GatewayTarget;

const LOCK: &str = "node.lock";
const NODE_FILE: &str = "node.json";
const DEVICE: &str = "identity/device.json";
const DEVICE_AUTH: &str = "identity/device-auth.json";
pub(crate) const ROLE: &str = "node";

/// The key of this device. The first start creates it. A key that cannot be read is never replaced:
/// the gateway knows this node by its key.
pub fn identity(state_dir: &Path) -> Result<DeviceIdentity, NodeError> {
    let path = state_dir.join(DEVICE);
    match fs::read_to_string(&path) {
        Ok(text) => {
            let read = IdentityFile::parse(&text);
            let (_, identity) = read.map_err(|problem| NodeError::Identity {
                path,
                problem: problem.to_string(),
            })?;
            Ok(identity)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let identity = DeviceIdentity::generate().map_err(|error| NodeError::Identity {
                path: path.clone(),
                problem: error.to_string(),
            })?;
            let file = IdentityFile::of(&identity, now_ms());
            let text = file.to_text().unwrap_or_default();
            write_private(&path, &text).map_err(NodeError::file(&path))?;
            Ok(identity)
        }
        Err(error) => Err(NodeError::file(&path)(error)),
    }
}

/// The tokens that gateways gave to this device.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeviceAuth {
    version: u64,
    device_id: String,
    /// The tokens by gateway key: the token of one gateway is never shown to another.
    #[serde(default)]
    gateways: BTreeMap<String, StoredRoleToken>,
}

/// Version 1 did not record the gateway of a token, so it is no longer used.
const DEVICE_AUTH_VERSION: u64 = 2;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredRoleToken {
    token: Secret,
    role: String,
    scopes: Vec<String>,
    updated_at_ms: u64,
}

/// The stored tokens of this device. A token of another device or another gateway is not used.
#[derive(Debug)]
pub(crate) struct DeviceTokens {
    path: PathBuf,
    device_id: String,
    /// See [`crate::GatewayTarget::key`].
    gateway: String,
}

impl DeviceTokens {
    pub(crate) fn new(state_dir: &Path, device_id: &str, gateway: String) -> Self {
        Self {
            path: state_dir.join(DEVICE_AUTH),
            device_id: device_id.to_owned(),
            gateway,
        }
    }

    /// The token that the gateway gave this device as a node, if there is one.
    pub(crate) fn get(&self) -> Option<Secret> {
        let token = self.read()?.gateways.remove(&self.gateway)?.token;
        (!token.is_empty()).then_some(token)
    }

    pub(crate) fn keep(&self, token: &Secret, scopes: &[String]) -> Result<(), NodeError> {
        if self.get().as_ref() == Some(token) {
            return Ok(());
        }
        let mut auth = self.read().unwrap_or_else(|| DeviceAuth {
            version: DEVICE_AUTH_VERSION,
            device_id: self.device_id.clone(),
            gateways: BTreeMap::new(),
        });
        auth.gateways.insert(
            self.gateway.clone(),
            StoredRoleToken {
                token: token.clone(),
                role: ROLE.to_owned(),
                scopes: scopes.to_vec(),
                updated_at_ms: now_ms(),
            },
        );
        write_json(&self.path, &auth)
    }

    fn read(&self) -> Option<DeviceAuth> {
        let text = fs::read_to_string(&self.path).ok()?;
        let auth: DeviceAuth = serde_json::from_str(&text).ok()?;
        let is_ours = auth.version == DEVICE_AUTH_VERSION && auth.device_id == self.device_id;
        is_ours.then_some(auth)
    }
}

/// The stored options of a node's start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFile {
    pub version: u64,
    pub node_id: String,
    pub display_name: String,
    pub gateway: NodeGateway,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeGateway {
    pub host: String,
    pub port: u16,
    pub tls: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_fingerprint: Option<String>,
}

impl NodeFile {
    pub fn read(state_dir: &Path) -> Option<Self> {
        let text = fs::read_to_string(state_dir.join(NODE_FILE)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The options to store: those of this start, or else the previous ones.
    pub(crate) fn of(
        state_dir: &Path,
        target: &GatewayTarget,
        display_name: Option<String>,
        node_id: Option<String>,
    ) -> Self {
        let (old_id, old_name) = Self::read(state_dir).map_or((None, None), |file| {
            (Some(file.node_id), Some(file.display_name))
        });
        Self {
            version: 1,
            node_id: node_id
                .or(old_id)
                .unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
            display_name: display_name.or(old_name).unwrap_or_else(machine_name),
            gateway: NodeGateway {
                host: target.host.clone(),
                port: target.port,
                tls: target.tls.is_some(),
                tls_fingerprint: target.tls.map(|fingerprint| fingerprint.to_string()),
            },
        }
    }

    pub(crate) fn write(&self, state_dir: &Path) -> Result<(), NodeError> {
        write_json(&state_dir.join(NODE_FILE), self)
    }
}

fn machine_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "node".to_owned(),
        name => name.to_owned(),
    }
}

/// The state of a running node's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeStanding {
    Connecting,
    /// The gateway's operator has to approve this device.
    PairingRequired,
    Connected,
}

/// The published state of a running node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    pub pid: u32,
    pub version: String,
    pub started_at_ms: u64,
    pub device_id: String,
    pub gateway: String,
    pub standing: NodeStanding,
    /// When the present standing began.
    pub since_ms: u64,
    /// The request that the operator of the gateway has to approve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairing_request: Option<String>,
    /// The request that the operator has to approve before the gateway uses the commands of this
    /// node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands_request: Option<String>,
}

/// Held while the node runs.
#[derive(Debug)]
pub(crate) struct NodeLock {
    file: File,
    path: PathBuf,
    longest: Mutex<usize>,
}

impl NodeLock {
    pub(crate) fn take(state_dir: &Path) -> Result<Self, NodeError> {
        let path = state_dir.join(LOCK);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(NodeError::file(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                let pid = running(state_dir).map(|info| info.pid);
                return Err(NodeError::AlreadyRuns(pid));
            }
            Err(fs::TryLockError::Error(error)) => return Err(NodeError::file(&path)(error)),
        }
        file.set_len(0).map_err(NodeError::file(&path))?;
        Ok(Self {
            file,
            path,
            longest: Mutex::new(0),
        })
    }

    /// Publishes the state in one write that covers the whole old text: a reader gets either the
    /// old text or the new one.
    pub(crate) fn publish(&self, info: &NodeInfo) -> Result<(), NodeError> {
        let mut text = serde_json::to_string(info).unwrap_or_default();
        let mut longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        while text.len() < *longest {
            text.push(' ');
        }
        *longest = text.len();
        let written = self.file.write_all_at(text.as_bytes(), 0);
        written.map_err(NodeError::file(&self.path))
    }
}

impl Drop for NodeLock {
    fn drop(&mut self) {
        let _ = self.file.set_len(0);
    }
}

/// The running node of a state directory, if there is one.
pub fn running(state_dir: &Path) -> Option<NodeInfo> {
    let mut file = File::open(state_dir.join(LOCK)).ok()?;
    match file.try_lock_shared() {
        Err(fs::TryLockError::WouldBlock) => {}
        // No process holds the lock: the file is left over from a killed node.
        _ => return None,
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(text.trim_end()).ok()
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), NodeError> {
    let text = serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    write_private(path, &text).map_err(NodeError::file(path))
}

/// Writes a file that only this user may read. The file is complete before it gets its name.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    if !directory.is_dir() {
        fs::DirBuilder::new().mode(0o700).create(directory)?;
    }
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
