//! The server end of a connection: its certificate, chain and key.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, Error, InconsistentKeys, RootCertStore, ServerConfig,
};

use crate::fingerprint::Fingerprint;

/// A longer file is no certificate or key.
const MAX_BYTES: u64 = 1024 * 1024;

/// The mode bits that a key file must not have. Its group may read it, as some systems require.
/// Others must not read it, and only its owner may write it.
const CLOSED_TO_OTHERS: u32 = 0o027;

/// The only protocol within TLS.
const PROTOCOL: &[u8] = b"http/1.1";

/// A certificate with its key, ready for connections.
#[derive(Debug, Clone)]
pub struct Identity {
    config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
}

/// The validity of a certificate for clients that check dates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    Valid,
    NotYet,
    Expired,
}

/// Why there is no certificate for connections.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: not a file, or longer than {MAX_BYTES} bytes", .0.display())]
    NotAFile(PathBuf),
    #[error("{}: holds no certificate in PEM form", .0.display())]
    NoCertificate(PathBuf),
    #[error("{}: holds no private key in PEM form that could be used without a password", .0.display())]
    NoKey(PathBuf),
    #[error("{}: not PEM: {reason}", path.display())]
    NotPem { path: PathBuf, reason: String },
    #[error("{}: others may read or change the private key (mode {mode:04o})", path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("{}: the certificate cannot be used: {reason}", path.display())]
    Certificate { path: PathBuf, reason: String },
    #[error("{}: the private key cannot be used: {reason}", path.display())]
    Key { path: PathBuf, reason: String },
    #[error("{} is not the key of the certificate in {}", key.display(), certificate.display())]
    Mismatch { certificate: PathBuf, key: PathBuf },
    #[error("{} is there, and its key {} is not", certificate.display(), key.display())]
    KeyGone { certificate: PathBuf, key: PathBuf },
    #[error("no certificate can be made: {0}")]
    Make(String),
}

impl IdentityError {
    /// What to do.
    pub fn remedy(&self) -> String {
        match self {
            Self::Open { path, .. } => format!("chmod 600 {}", path.display()),
            Self::KeyGone { certificate, .. } => format!(
                "put the key back; or remove {} to have a new certificate made, whose fingerprint every node then needs",
                certificate.display()
            ),
            Self::Mismatch { .. } => {
                "name the two that belong together in gateway.tls.certPath and gateway.tls.keyPath"
                    .to_owned()
            }
            Self::Make(_) => {
                "name files in gateway.tls.certPath and gateway.tls.keyPath".to_owned()
            }
            _ => "gateway.tls.certPath is a certificate with its chain, gateway.tls.keyPath the key to it, both as PEM"
                .to_owned(),
        }
    }
}

impl Identity {
    /// Reads the owner's files: a chain that begins with the certificate, and its key.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, IdentityError> {
        let text = read(certificate)?;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|error| not_pem(certificate, &error))?;
        let Some(first) = chain.first().cloned() else {
            return Err(IdentityError::NoCertificate(certificate.to_owned()));
        };
        ParsedCertificate::try_from(&first).map_err(|error| IdentityError::Certificate {
            path: certificate.to_owned(),
            reason: error.to_string(),
        })?;
        let secret = read_key(key)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, secret));
        let mut config = config.map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => IdentityError::Mismatch {
                certificate: certificate.to_owned(),
                key: key.to_owned(),
            },
            error => IdentityError::Key {
                path: key.to_owned(),
                reason: error.to_string(),
            },
        })?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            certificate: first,
        })
    }

    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// Whether the certificate is for this name or address.
    pub fn is_for(&self, host: &str) -> bool {
        let name = ServerName::try_from(host);
        let parsed = ParsedCertificate::try_from(&self.certificate);
        match (parsed, name) {
            (Ok(parsed), Ok(name)) => verify_server_name(&parsed, &name).is_ok(),
            _ => false,
        }
    }

    /// The validity by the certificate's dates and this machine's clock. Clients accept a pinned
    /// certificate regardless of its dates.
    pub fn validity(&self) -> Validity {
        let Ok(parsed) = ParsedCertificate::try_from(&self.certificate) else {
            return Validity::Valid;
        };
        // Without a trusted authority this call always fails, but it checks the dates first.
        let verified = verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &RootCertStore::empty(),
            &[],
            UnixTime::now(),
            ring::default_provider()
                .signature_verification_algorithms
                .all,
        );
        match verified {
            Err(Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            )) => Validity::Expired,
            Err(Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            )) => Validity::NotYet,
            _ => Validity::Valid,
        }
    }

    /// The acceptor for incoming connections.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

/// Reads a private key, and refuses a key that other accounts may have read.
pub(crate) fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, IdentityError> {
    let text = read(path)?;
    let mode = fs::metadata(path).map_err(|source| IdentityError::File {
        path: path.to_owned(),
        source,
    })?;
    let mode = mode.mode() & 0o7777;
    if mode & CLOSED_TO_OTHERS != 0 {
        return Err(IdentityError::Open {
            path: path.to_owned(),
            mode,
        });
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => IdentityError::NoKey(path.to_owned()),
        error => not_pem(path, &error),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, IdentityError> {
    let failed = |source| IdentityError::File {
        path: path.to_owned(),
        source,
    };
    // Checked before the file is opened: opening a pipe would block.
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(IdentityError::NotAFile(path.to_owned()));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}

/// The error does not contain the text of the file, which may be part of a key.
fn not_pem(path: &Path, error: &pem::Error) -> IdentityError {
    let reason = match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no end",
        pem::Error::IllegalSectionStart { .. } => "a section begins with a broken line",
        pem::Error::Base64Decode(_) => "a section is not base64",
        _ => "a section cannot be read",
    };
    IdentityError::NotPem {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}
