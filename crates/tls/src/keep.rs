//! Interlock's own certificate, and the small authority that signed it. Both are made once and kept
//! in a directory that is closed to others.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
    PKCS_ECDSA_P256_SHA256,
};
use time::OffsetDateTime;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::identity::{Identity, IdentityError, read_key};

/// The certificate, for programs that should trust it: `curl --cacert`.
pub const CERTIFICATE_FILE: &str = "gateway-cert.pem";
pub const KEY_FILE: &str = "gateway-key.pem";
/// The authority of the certificate, for phones that should trust it.
pub const AUTHORITY_FILE: &str = "gateway-ca.pem";

/// Phones reject certificates that are valid for more than 825 days. A program that pinned the
/// fingerprint accepts the certificate even after that.
const CERTIFICATE_DAYS: i64 = 820;
const AUTHORITY_DAYS: i64 = 3650;
const DAY_SECONDS: u64 = 86_400;

impl Identity {
    /// Reads the certificate of this directory. If there is none, makes one for these names and
    /// addresses, signed by an authority that can only sign for them.
    ///
    /// Only one process may do this at a time. The key is written first, so that an interruption
    /// never leaves a certificate without its key.
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
            let chain = signed(directory, names, &secret)?;
            write(directory, &certificate, 0o644, &chain)?;
        }
        Self::read(&certificate, &key)
    }

    /// The certificate of the authority that signed the kept certificate. `None` if an earlier
    /// version made the certificate without an authority.
    pub fn kept_authority(directory: &Path) -> Option<Vec<u8>> {
        let text = std::fs::read(directory.join(AUTHORITY_FILE)).ok()?;
        let der = CertificateDer::from_pem_slice(&text).ok()?;
        Some(der.to_vec())
    }
}

/// A certificate for this key, followed by the authority that signed it, as PEM. The authority's
/// key is never written anywhere, so it never signs another certificate.
fn signed(directory: &Path, names: &[String], key: &KeyPair) -> Result<String, IdentityError> {
    let make = || -> Result<(String, String), rcgen::Error> {
        let secret = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let authority = authority(names);
        let own = pem("CERTIFICATE", authority.self_signed(&secret)?.der());
        let issuer = Issuer::new(authority, secret);
        let mut parameters = CertificateParams::new(names)?;
        parameters
            .distinguished_name
            .push(DnType::CommonName, "interlock gateway");
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        parameters.use_authority_key_identifier_extension = true;
        (parameters.not_before, parameters.not_after) = (day(-1), day(CERTIFICATE_DAYS));
        let certificate = pem("CERTIFICATE", parameters.signed_by(key, &issuer)?.der());
        Ok((certificate, own))
    };
    let (certificate, own) = make().map_err(|error| made(&error))?;
    let path = directory.join(AUTHORITY_FILE);
    match std::fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(IdentityError::File { path, source });
        }
        _ => {}
    }
    write(directory, &path, 0o644, &own)?;
    Ok(certificate + &own)
}

/// An authority that can only sign for these names and addresses, no matter which programs trust
/// it.
fn authority(names: &[String]) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    let name = "Interlock gateway, this machine only";
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (parameters.not_before, parameters.not_after) = (day(-1), day(AUTHORITY_DAYS));
    let permitted = names.iter().map(|name| match name.parse::<IpAddr>() {
        Ok(address) => {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(address, bits))
        }
        Err(_) => GeneralSubtree::DnsName(name.clone()),
    });
    parameters.name_constraints = Some(NameConstraints {
        permitted_subtrees: permitted.collect(),
        excluded_subtrees: Vec::new(),
    });
    parameters
}

/// Midnight, this many days from today.
fn day(from_today: i64) -> OffsetDateTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let today = since.map_or(0, |since| since.as_secs() / DAY_SECONDS);
    let days = i64::try_from(today).unwrap_or(0) + from_today;
    OffsetDateTime::UNIX_EPOCH + Duration::from_secs(DAY_SECONDS * days.max(0).unsigned_abs())
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

/// Writes a file completely or not at all. Its content is on disk before it gets its name.
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
