//! The running gateway of a state directory: a lock that ends with the process, and the published
//! facts about the gateway.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use interlock_access::token::OperatorAccess;
use interlock_methods::GatewayError;

const LOCK: &str = "gateway.lock";

/// The published facts about a running gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayInfo {
    pub pid: u32,
    pub address: SocketAddr,
    pub socket: PathBuf,
    pub version: String,
    pub started_at_ms: u64,
    /// The fingerprint of the port's certificate, as nodes pin it; `None` if the port is plain.
    #[serde(default)]
    pub tls_fingerprint: Option<String>,
    /// The secret that operators present on the network.
    #[serde(default)]
    pub operator_access: Option<OperatorAccess>,
}

impl GatewayInfo {
    /// The address that a person types into a browser or an agent's settings.
    pub fn url(&self) -> String {
        let scheme = if self.tls_fingerprint.is_some() {
            "https"
        } else {
            "http"
        };
        let port = self.address.port();
        let shown = match self.address.ip() {
            ip if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port),
            ip => SocketAddr::new(ip, port),
        };
        format!("{scheme}://{shown}")
    }
}

/// How long processes that only inspect the lock may delay a gateway's start.
const LOOKERS: Duration = Duration::from_millis(300);

/// Held while the gateway runs.
#[derive(Debug)]
pub(super) struct GatewayLock {
    file: File,
    path: PathBuf,
}

impl GatewayLock {
    pub(super) fn take(state_dir: &Path) -> Result<Self, GatewayError> {
        let path = state_dir.join(LOCK);
        let failed = |source| GatewayError::File {
            path: path.clone(),
            source,
        };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        match lock(&file, state_dir) {
            Ok(()) => Ok(Self { file, path }),
            Err(std::fs::TryLockError::WouldBlock) => Err(GatewayError::AlreadyRuns(
                running(state_dir).map(|info| info.pid),
            )),
            Err(std::fs::TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    pub(super) fn publish(&self, info: &GatewayInfo) -> Result<(), GatewayError> {
        let text = serde_json::to_string(info).unwrap_or_default();
        let mut file = &self.file;
        let written = file
            .rewind()
            .and_then(|()| file.set_len(0))
            .and_then(|()| file.write_all(text.as_bytes()));
        written.map_err(|source| GatewayError::File {
            path: self.path.clone(),
            source,
        })
    }
}

impl Drop for GatewayLock {
    fn drop(&mut self) {
        let _ = self.file.set_len(0);
    }
}

/// Takes the lock. A process that checks for a gateway holds the lock for a moment, which is waited
/// for.
fn lock(file: &File, state_dir: &Path) -> Result<(), std::fs::TryLockError> {
    let until = Instant::now() + LOOKERS;
    loop {
        match file.try_lock() {
            Err(std::fs::TryLockError::WouldBlock)
                if Instant::now() < until && running(state_dir).is_none() =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            locked => return locked,
        }
    }
}

/// The gateway of a state directory, if one runs and can be called.
pub fn running(state_dir: &Path) -> Option<GatewayInfo> {
    let mut file = File::open(state_dir.join(LOCK)).ok()?;
    match file.try_lock_shared() {
        Err(std::fs::TryLockError::WouldBlock) => {}
        // No process holds the lock: the file is left over from a killed gateway.
        _ => return None,
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}
