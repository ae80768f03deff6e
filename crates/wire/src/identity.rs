//! The identity of a device: an Ed25519 key. The device's id is the hash of its public key. It
//! proves its identity by signing its request and the nonce that the gateway chose.

use std::fmt;

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use base64::engine::{DecodePaddingMode, general_purpose};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use crate::params::{Connect, Device};
use crate::refusal::{self, WireRefusal};

mod file;

pub use file::{DeviceIdentityError, IdentityFile};

/// How far a signature's time may differ from the present, in either direction.
pub const MAX_SIGNATURE_AGE_MS: u64 = 120_000;

/// The key of a device. It is never printed.
#[derive(Clone)]
pub struct DeviceIdentity(SigningKey);

impl DeviceIdentity {
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        Ok(Self::from_seed(&seed))
    }

    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The SHA-256 of the public key in lower-case hexadecimal.
    pub fn device_id(&self) -> String {
        device_id(self.0.verifying_key().as_bytes())
    }

    /// The 32 bytes of the public key in base64url without padding.
    pub fn public_key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.verifying_key().as_bytes())
    }

    /// Signs the claim as this device.
    pub fn sign(&self, claim: &DeviceClaim<'_>, version: SignatureVersion) -> String {
        let payload = claim.payload(&self.device_id(), version);
        URL_SAFE_NO_PAD.encode(self.0.sign(payload.as_bytes()).to_bytes())
    }

    /// Signs a text that is not a device claim: base64url without padding. The caller must begin
    /// the text with a word that no claim begins with.
    pub fn sign_text(&self, text: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.0.sign(text.as_bytes()).to_bytes())
    }

    /// Adds the proof to connect parameters that are otherwise complete, because the signature
    /// covers their content. Nothing may be changed afterwards.
    pub fn prove(&self, connect: &mut Connect, nonce: &str, now_ms: u64) {
        let signature = self.sign(
            &DeviceClaim::of(connect, nonce, now_ms, connect.signed_token()),
            SignatureVersion::V3,
        );
        connect.device = Some(Device {
            id: self.device_id(),
            public_key: self.public_key(),
            signature,
            signed_at: now_ms,
            nonce: nonce.to_owned(),
        });
    }
}

impl fmt::Debug for DeviceIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DeviceIdentity")
            .field(&self.device_id())
            .finish()
    }
}

/// The fields that a signature covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureVersion {
    V2,
    /// Also covers platform and device family. Interlock makes only this version.
    V3,
}

/// The signed content, except for the id of the device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceClaim<'a> {
    pub client_id: &'a str,
    pub client_mode: &'a str,
    pub role: &'a str,
    /// In the order in which they are sent.
    pub scopes: &'a [String],
    pub signed_at_ms: u64,
    /// The token that is sent with the signature; empty if none is. Passwords are not signed.
    pub token: &'a str,
    pub nonce: &'a str,
    pub platform: Option<&'a str>,
    pub device_family: Option<&'a str>,
}

impl<'a> DeviceClaim<'a> {
    /// The claim of these parameters.
    pub fn of(connect: &'a Connect, nonce: &'a str, signed_at_ms: u64, token: &'a str) -> Self {
        Self {
            client_id: &connect.client.id,
            client_mode: &connect.client.mode,
            role: connect.role.as_deref().unwrap_or("operator"),
            scopes: connect.scopes.as_deref().unwrap_or_default(),
            signed_at_ms,
            token,
            nonce,
            platform: Some(&connect.client.platform),
            device_family: connect.client.device_family.as_deref(),
        }
    }

    /// The signed text.
    pub fn payload(&self, device_id: &str, version: SignatureVersion) -> String {
        let name = match version {
            SignatureVersion::V2 => "v2",
            SignatureVersion::V3 => "v3",
        };
        let signed_at = self.signed_at_ms.to_string();
        let scopes = self.scopes.join(",");
        let plain = |text: Option<&str>| {
            text.map_or(String::new(), |text| text.trim().to_ascii_lowercase())
        };
        let (platform, family) = (plain(self.platform), plain(self.device_family));
        let mut fields = vec![
            name,
            device_id,
            self.client_id,
            self.client_mode,
            self.role,
            &scopes,
            &signed_at,
            self.token,
            self.nonce,
        ];
        if version == SignatureVersion::V3 {
            fields.extend([platform.as_str(), family.as_str()]);
        }
        fields.join("|")
    }
}

/// A device that has proved that it holds its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedDevice {
    pub device_id: String,
    /// The form to store: base64url without padding.
    pub public_key: String,
    pub version: SignatureVersion,
}

/// Checks the proof in connect parameters against the nonce of this connection. Does not check
/// whether the device is paired.
pub fn verify(
    connect: &Connect,
    nonce: &str,
    now_ms: u64,
) -> Result<VerifiedDevice, &'static WireRefusal> {
    let Some(device) = &connect.device else {
        return Err(&refusal::DEVICE_IDENTITY_REQUIRED);
    };
    let key = LENIENT.decode(&device.public_key).unwrap_or_default();
    if key.is_empty() || device_id(&key) != device.id {
        return Err(&refusal::DEVICE_AUTH_DEVICE_ID_MISMATCH);
    }
    if now_ms.abs_diff(device.signed_at) > MAX_SIGNATURE_AGE_MS {
        return Err(&refusal::DEVICE_AUTH_SIGNATURE_EXPIRED);
    }
    if device.nonce.trim().is_empty() {
        return Err(&refusal::DEVICE_AUTH_NONCE_REQUIRED);
    }
    if device.nonce != nonce {
        return Err(&refusal::DEVICE_AUTH_NONCE_MISMATCH);
    }
    let Some(version) = signed_version(connect, device, &key) else {
        return Err(&refusal::DEVICE_AUTH_SIGNATURE_INVALID);
    };
    // The form of the key is converted last: a key that has verified a signature has a form that
    // can be stored.
    Ok(VerifiedDevice {
        device_id: device.id.clone(),
        public_key: URL_SAFE_NO_PAD.encode(&key),
        version,
    })
}

/// The newest version under which the signature is valid. Keys of small order are refused, because
/// anyone can sign for them.
fn signed_version(connect: &Connect, device: &Device, key: &[u8]) -> Option<SignatureVersion> {
    let key = VerifyingKey::from_bytes(key.try_into().ok()?).ok()?;
    let signature = LENIENT.decode(&device.signature).ok()?;
    let signature = Signature::from_slice(&signature).ok()?;
    let claim = DeviceClaim::of(
        connect,
        &device.nonce,
        device.signed_at,
        connect.signed_token(),
    );
    [SignatureVersion::V3, SignatureVersion::V2]
        .into_iter()
        .find(|version| {
            let payload = claim.payload(&device.id, *version);
            key.verify_strict(payload.as_bytes(), &signature).is_ok()
        })
}

/// Whether the device with this public key signed a text that is not a claim: see
/// [`DeviceIdentity::sign_text`].
pub fn is_signed_by(public_key: &str, text: &str, signature: &str) -> bool {
    let key = LENIENT.decode(public_key).ok();
    let key: Option<[u8; 32]> = key.and_then(|key| key.try_into().ok());
    let key = key.and_then(|key| VerifyingKey::from_bytes(&key).ok());
    let signature = LENIENT.decode(signature).ok();
    let signature = signature.and_then(|bytes| Signature::from_slice(&bytes).ok());
    match (key, signature) {
        (Some(key), Some(signature)) => key.verify_strict(text.as_bytes(), &signature).is_ok(),
        _ => false,
    }
}

/// The id of the device with this public key.
pub fn device_id(public_key: &[u8]) -> String {
    crate::hash::sha256_hex(public_key)
}

/// Reads base64url with and without padding.
const LENIENT: GeneralPurpose = general_purpose::GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
