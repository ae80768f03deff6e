//! A message of Web Push: encrypted for one browser (RFC 8291, RFC 8188) and signed by this gateway
//! (VAPID, RFC 8292). The push service learns only when messages are sent: every message has the
//! same size.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;

/// The size to which every text is padded before it is encrypted.
pub(crate) const PADDED_BYTES: usize = 1024;

/// The size of an uncompressed public key of P-256.
const PUBLIC_KEY_BYTES: usize = 65;
const SALT_BYTES: usize = 16;
const AUTH_BYTES: usize = 16;
const TAG_BYTES: usize = 16;

/// Why a message cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PushMessageError {
    #[error("the key of the browser is not one of P-256")]
    BrowserKey,
    #[error("the secret of the browser has not 16 bytes")]
    BrowserSecret,
    #[error("the text has more than {} bytes", PADDED_BYTES - 1)]
    TooLong,
    #[error("no random numbers, or a key that cannot be used")]
    Cryptography,
}

impl From<ring::error::Unspecified> for PushMessageError {
    fn from(_: ring::error::Unspecified) -> Self {
        Self::Cryptography
    }
}

/// The keys of one browser's subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrowserKeys {
    public_key: Vec<u8>,
    secret: Vec<u8>,
}

impl BrowserKeys {
    /// Reads the keys from base64url, as browsers send them.
    pub(crate) fn read(p256dh: &str, auth: &str) -> Result<Self, PushMessageError> {
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
        let public_key = decode(p256dh)
            .filter(|key| key.len() == PUBLIC_KEY_BYTES && key.first() == Some(&4))
            .ok_or(PushMessageError::BrowserKey)?;
        let secret = decode(auth).filter(|secret| secret.len() == AUTH_BYTES);
        Ok(Self {
            public_key,
            secret: secret.ok_or(PushMessageError::BrowserSecret)?,
        })
    }

    /// Returns the body of the request to the push service.
    pub(crate) fn encrypt(&self, text: &[u8]) -> Result<Vec<u8>, PushMessageError> {
        if text.len() >= PADDED_BYTES {
            return Err(PushMessageError::TooLong);
        }
        let random = SystemRandom::new();
        let mut salt = [0; SALT_BYTES];
        random.fill(&mut salt)?;
        let own = EphemeralPrivateKey::generate(&ECDH_P256, &random)?;
        let own_public = own.compute_public_key()?;
        let browser = UnparsedPublicKey::new(&ECDH_P256, &self.public_key);
        let agreed = agree_ephemeral(own, &browser, |shared| {
            let information = [
                b"WebPush: info\0",
                self.public_key.as_slice(),
                own_public.as_ref(),
            ];
            expand::<32>(&self.secret, shared, &information)
        });
        let key_material = agreed.map_err(|_| PushMessageError::BrowserKey)??;
        let key = expand::<16>(&salt, &key_material, &[b"Content-Encoding: aes128gcm\0"])?;
        let nonce = expand::<12>(&salt, &key_material, &[b"Content-Encoding: nonce\0"])?;
        // The body is a single record: the text, the mark of the last record, and zeros.
        let mut record = text.to_vec();
        record.push(2);
        record.resize(PADDED_BYTES, 0);
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key)?);
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce, Aad::empty(), &mut record)?;
        let mut body = salt.to_vec();
        let record_bytes = u32::try_from(PADDED_BYTES + TAG_BYTES).unwrap_or(u32::MAX);
        body.extend_from_slice(&record_bytes.to_be_bytes());
        body.push(u8::try_from(PUBLIC_KEY_BYTES).unwrap_or(u8::MAX));
        body.extend_from_slice(own_public.as_ref());
        body.extend_from_slice(&record);
        Ok(body)
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF with SHA-256: extract and expand.
fn expand<const BYTES: usize>(
    salt: &[u8],
    material: &[u8],
    information: &[&[u8]],
) -> Result<[u8; BYTES], PushMessageError> {
    let extracted = Salt::new(HKDF_SHA256, salt).extract(material);
    let mut out = [0; BYTES];
    extracted
        .expand(information, Length(BYTES))?
        .fill(&mut out)?;
    Ok(out)
}

/// The key by which push services know this gateway.
pub(crate) struct VapidKey(EcdsaKeyPair);

impl std::fmt::Debug for VapidKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("VapidKey").field(&self.public_key()).finish()
    }
}

impl VapidKey {
    /// Returns a new key as text for a file.
    pub(crate) fn generate() -> Result<String, PushMessageError> {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)?;
        Ok(URL_SAFE_NO_PAD.encode(made.as_ref()))
    }

    pub(crate) fn read(text: &str) -> Result<Self, PushMessageError> {
        let pkcs8 = URL_SAFE_NO_PAD.decode(text);
        let pkcs8 = pkcs8.map_err(|_| PushMessageError::Cryptography)?;
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8, &random);
        Ok(Self(key.map_err(|_| PushMessageError::Cryptography)?))
    }

    /// Returns the public key in the form that a browser needs for a subscription.
    pub(crate) fn public_key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.public_key().as_ref())
    }

    /// Returns the header `Authorization` for the push service that the signature names.
    pub(crate) fn authorization(
        &self,
        origin: &str,
        contact: &str,
        until_seconds: u64,
    ) -> Result<String, PushMessageError> {
        let head = URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"ES256"}"#);
        let claims = json!({ "aud": origin, "exp": until_seconds, "sub": contact });
        let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes())?;
        let signature = URL_SAFE_NO_PAD.encode(signature.as_ref());
        Ok(format!(
            "vapid t={signed}.{signature}, k={}",
            self.public_key()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_has_one_size_and_another_content() {
        let random = SystemRandom::new();
        let browser = EphemeralPrivateKey::generate(&ECDH_P256, &random).unwrap();
        let public = URL_SAFE_NO_PAD.encode(browser.compute_public_key().unwrap());
        let keys = BrowserKeys::read(&public, &URL_SAFE_NO_PAD.encode([7; 16])).unwrap();
        let one = keys.encrypt(b"short").unwrap();
        let other = keys.encrypt(&[b'x'; PADDED_BYTES - 1]).unwrap();
        assert_eq!(one.len(), other.len());
        assert_ne!(one, keys.encrypt(b"short").unwrap());
        let long = keys.encrypt(&[b'x'; PADDED_BYTES]);
        assert_eq!(long, Err(PushMessageError::TooLong));
    }

    #[test]
    fn broken_keys_are_refused() {
        let auth = URL_SAFE_NO_PAD.encode([7; 16]);
        for key in ["", "x", "BAAA", &URL_SAFE_NO_PAD.encode([4; 64])] {
            let read = BrowserKeys::read(key, &auth);
            assert_eq!(read, Err(PushMessageError::BrowserKey), "{key}");
        }
        let point = URL_SAFE_NO_PAD.encode([4; 65]);
        let short = BrowserKeys::read(&point, "AAAA");
        assert_eq!(short, Err(PushMessageError::BrowserSecret));
        // The key has the right length but is not a point of the curve.
        let keys = BrowserKeys::read(&point, &auth).unwrap();
        assert_eq!(keys.encrypt(b"x"), Err(PushMessageError::BrowserKey));
    }

    #[test]
    fn the_key_is_read_again_from_its_text() {
        let text = VapidKey::generate().unwrap();
        let (one, again) = (
            VapidKey::read(&text).unwrap(),
            VapidKey::read(&text).unwrap(),
        );
        assert_eq!(one.public_key(), again.public_key());
        assert!(VapidKey::read("nonsense").is_err());
        let header = one
            .authorization("https://push.example", "https://box.example", 5)
            .unwrap();
        assert!(header.starts_with("vapid t=ey") && header.contains(", k=B"));
    }
}
