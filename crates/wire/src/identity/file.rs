//! The stored form of a device identity: `{version, deviceId, publicKeyPem, privateKeyPem,
//! createdAtMs}`, with the keys as PEM of SPKI and PKCS#8. Clients of the protocol share this form,
//! so a machine can keep its identity.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::DeviceIdentity;

/// The DER prefix of an Ed25519 public key of 32 bytes.
const SPKI: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
/// The DER prefix of an Ed25519 private key of 32 bytes.
const PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// The DER prefix of a private key that is followed by its public key, as some programs write it.
const PKCS8_WITH_PUBLIC: [u8; 16] = [
    0x30, 0x51, 0x02, 0x01, 0x01, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
const PUBLIC_MARK: [u8; 3] = [0x81, 0x21, 0x00];

/// Why a file contains no identity. The text never repeats the content of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceIdentityError {
    #[error("not an identity file: {0}")]
    Json(String),
    #[error("identity file has version {0}, only 1 is known")]
    Version(u64),
    #[error("{0} is not an Ed25519 key in PEM")]
    Key(&'static str),
    #[error("publicKeyPem and privateKeyPem do not belong together")]
    KeysDiffer,
    #[error("deviceId is not the one of the key")]
    DeviceIdDiffers,
}

/// The content of the file. It contains the private key, so it must be written with mode 0600.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityFile {
    pub version: u64,
    pub device_id: String,
    pub public_key_pem: String,
    pub private_key_pem: String,
    pub created_at_ms: u64,
}

impl fmt::Debug for IdentityFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityFile")
            .field("device_id", &self.device_id)
            .field("created_at_ms", &self.created_at_ms)
            .finish_non_exhaustive()
    }
}

impl IdentityFile {
    pub fn of(identity: &DeviceIdentity, created_at_ms: u64) -> Self {
        let public = [&SPKI[..], identity.0.verifying_key().as_bytes()].concat();
        let private = [&PKCS8[..], identity.0.as_bytes()].concat();
        Self {
            version: 1,
            device_id: identity.device_id(),
            public_key_pem: to_pem("PUBLIC KEY", &public),
            private_key_pem: to_pem("PRIVATE KEY", &private),
            created_at_ms,
        }
    }

    /// Reads the text of a file. All parts must be consistent: a contradictory file is not
    /// repaired.
    pub fn parse(text: &str) -> Result<(Self, DeviceIdentity), DeviceIdentityError> {
        let file: Self = serde_json::from_str(text).map_err(|error| {
            DeviceIdentityError::Json(format!(
                "{:?} error in line {}",
                error.classify(),
                error.line()
            ))
        })?;
        let identity = file.identity()?;
        Ok((file, identity))
    }

    pub fn identity(&self) -> Result<DeviceIdentity, DeviceIdentityError> {
        if self.version != 1 {
            return Err(DeviceIdentityError::Version(self.version));
        }
        let private = from_pem("PRIVATE KEY", &self.private_key_pem).and_then(|der| seed(&der));
        let private = private.ok_or(DeviceIdentityError::Key("privateKeyPem"))?;
        let public = from_pem("PUBLIC KEY", &self.public_key_pem);
        let public = public.and_then(|der| der.strip_prefix(&SPKI).map(<[u8]>::to_vec));
        let public = public.ok_or(DeviceIdentityError::Key("publicKeyPem"))?;
        let identity = DeviceIdentity::from_seed(&private);
        if public != identity.0.verifying_key().as_bytes() {
            return Err(DeviceIdentityError::KeysDiffer);
        }
        if self.device_id != identity.device_id() {
            return Err(DeviceIdentityError::DeviceIdDiffers);
        }
        Ok(identity)
    }

    /// Two-space JSON with a final newline.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

fn seed(der: &[u8]) -> Option<[u8; 32]> {
    if let Some(seed) = der.strip_prefix(&PKCS8) {
        return seed.try_into().ok();
    }
    let (seed, rest) = der.strip_prefix(&PKCS8_WITH_PUBLIC)?.split_at_checked(32)?;
    let public = rest.strip_prefix(&PUBLIC_MARK)?;
    (public.len() == 32).then(|| seed.try_into().ok()).flatten()
}

fn to_pem(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for (index, character) in body.char_indices() {
        if index > 0 && index % 64 == 0 {
            pem.push('\n');
        }
        pem.push(character);
    }
    pem.push_str(&format!("\n-----END {label}-----\n"));
    pem
}

fn from_pem(label: &str, pem: &str) -> Option<Vec<u8>> {
    let begin = format!("-----BEGIN {label}-----");
    let end = format!("-----END {label}-----");
    let body = pem.trim().strip_prefix(&begin)?.strip_suffix(&end)?;
    let body: String = body.split_whitespace().collect();
    STANDARD.decode(body).ok()
}
