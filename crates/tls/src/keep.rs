//! A certificate of its own: made once, kept in a directory that is closed to others.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};

use crate::identity::{Identity, IdentityError, read_key};

/// The certificate, for programs that are to trust it: `curl --cacert`.
pub const CERTIFICATE_FILE: &str = "gateway-cert.pem";
pub const KEY_FILE: &str = "gateway-key.pem";

impl Identity {
    /// The certificate of this directory. Where there is none yet, it is made, for these names and
    /// addresses; it does not end, since it is known by its fingerprint.
    ///
    /// One process may do this at a time. The key is written first: whatever stops this in between
    /// leaves no certificate without its key.
    pub fn kept(directory: &Path, names: &[String]) -> Result<Self, IdentityError> {
        let (certificate, key) = (directory.join(CERTIFICATE_FILE), directory.join(KEY_FILE));
        let (has_certificate, has_key) = (exists(&certificate)?, exists(&key)?);
        if has_certificate && !has_key {
            return Err(IdentityError::KeyGone { certificate, key });
        }
        if !has_key {
            let made =
                KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| made(&error))?;
            let text = pem("PRIVATE KEY", made.serialized_der());
            write(directory, &key, 0o600, &text)?;
        }
        if !has_certificate {
            let secret = read_key(&key)?;
            let unusable = |error: rcgen::Error| IdentityError::Key {
                path: key.clone(),
                reason: error.to_string(),
            };
            let secret = KeyPair::try_from(&secret).map_err(unusable)?;
            let der = self_signed(names, &secret).map_err(|error| made(&error))?;
            write(directory, &certificate, 0o644, &pem("CERTIFICATE", &der))?;
        }
        Self::read(&certificate, &key)
    }
}

fn self_signed(names: &[String], key: &KeyPair) -> Result<Vec<u8>, rcgen::Error> {
    let mut parameters = CertificateParams::new(names)?;
    parameters
        .distinguished_name
        .push(DnType::CommonName, "interlock gateway");
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(parameters.self_signed(key)?.der().to_vec())
}

fn made(error: &rcgen::Error) -> IdentityError {
    IdentityError::Make(error.to_string())
}

fn exists(path: &Path) -> Result<bool, IdentityError> {
    path.try_exists().map_err(|source| IdentityError::File {
        path: path.to_owned(),
        source,
    })
}

fn pem(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = STANDARD.encode(der);
    while !rest.is_empty() {
        let line: String = rest.drain(..rest.len().min(64)).collect();
        text.push_str(&line);
        text.push('\n');
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

/// All of it or nothing, on the disk before its name is.
fn write(directory: &Path, path: &Path, mode: u32, text: &str) -> Result<(), IdentityError> {
    let write = || -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(directory)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist_noclobber(path)?;
        std::fs::File::open(directory)?.sync_all()
    };
    write().map_err(|source| IdentityError::File {
        path: path.to_owned(),
        source,
    })
}
