//! The client end of a connection, which checks the certificate.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::fingerprint::Fingerprint;

/// Which certificates are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Only the certificate with this fingerprint. Its names and dates do not matter.
    Pinned(Fingerprint),
    /// Certificates for the called name, signed by an authority that this machine trusts (its
    /// certificate store, or the files in `SSL_CERT_FILE` and `SSL_CERT_DIR`).
    Machine,
}

/// Why no data is sent over the connection.
#[derive(Debug, thiserror::Error)]
pub enum TlsConnectError {
    #[error("`{0}` is not a name that a certificate could have")]
    Name(String),
    #[error("it shows another certificate than the pinned one: {found} instead of {expected}")]
    OtherCertificate {
        expected: Fingerprint,
        found: Fingerprint,
    },
    #[error("its certificate is not trusted: {0}")]
    Untrusted(CertificateError),
    #[error("it does not speak TLS there")]
    NotTls,
    #[error("this machine trusts no authority: no root certificates were found")]
    NoRoots,
    #[error("TLS failed: {0}")]
    Tls(Error),
    #[error(transparent)]
    Io(io::Error),
}

/// Speaks TLS over a stream. Fails unless the other end holds the key of an accepted certificate.
pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    host: &str,
    trust: Trust,
) -> Result<TlsStream<S>, TlsConnectError> {
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|_| TlsConnectError::Name(host.to_owned()))?;
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsConnectError::Tls)?;
    let shown = Arc::new(OnceLock::new());
    let config = match trust {
        Trust::Pinned(fingerprint) => {
            let verifier = PinnedVerifier {
                fingerprint,
                provider,
                shown: Arc::clone(&shown),
            };
            config
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
        }
        Trust::Machine => config.with_root_certificates(roots().await?),
    };
    let mut config = config.with_no_client_auth();
    // The configuration serves only this connection, so there is nothing to resume.
    config.resumption = Resumption::disabled();
    let connector = TlsConnector::from(Arc::new(config));
    let connected = connector.connect(name, stream).await;
    connected.map_err(|error| match (trust, shown.get()) {
        (Trust::Pinned(expected), Some(&found)) if found != expected => {
            TlsConnectError::OtherCertificate { expected, found }
        }
        _ => explained(error),
    })
}

/// The trusted authorities. The store is read for every connection, so that its owner's changes
/// take effect at once. Connections keep their authorities for as long as they live, so connections
/// with equal ones share them.
async fn roots() -> Result<Arc<RootCertStore>, TlsConnectError> {
    let loaded = tokio::task::spawn_blocking(|| {
        let mut roots = RootCertStore::empty();
        // A certificate that cannot be read is not trusted.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        shared_roots(roots)
    });
    let roots = loaded.await;
    let roots = roots.map_err(|error| TlsConnectError::Io(io::Error::other(error)))?;
    if roots.is_empty() {
        return Err(TlsConnectError::NoRoots);
    }
    Ok(roots)
}

/// Shares the authorities of the last connection if they are equal and still in use.
fn shared_roots(found: RootCertStore) -> Arc<RootCertStore> {
    static LAST: Mutex<Weak<RootCertStore>> = Mutex::new(Weak::new());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match last.upgrade() {
        Some(known) if known.roots == found.roots => known,
        _ => {
            let found = Arc::new(found);
            *last = Arc::downgrade(&found);
            found
        }
    }
}

fn explained(error: io::Error) -> TlsConnectError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner.cloned() {
        Some(Error::InvalidCertificate(error)) => TlsConnectError::Untrusted(error),
        Some(Error::InvalidMessage(_)) => TlsConnectError::NotTls,
        Some(error) => TlsConnectError::Tls(error),
        None => TlsConnectError::Io(error),
    }
}

#[derive(Debug)]
struct PinnedVerifier {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
    /// For the error message.
    shown: Arc<OnceLock<Fingerprint>>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = Fingerprint::of(certificate);
        if found == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        let _ = self.shown.set(found);
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_trust_the_same_share_it() {
        let store = |names: &[&str]| {
            let mut store = RootCertStore::empty();
            for name in names {
                let key = rcgen::KeyPair::generate().unwrap();
                let certificate = rcgen::CertificateParams::new([(*name).to_owned()]).unwrap();
                store
                    .add(certificate.self_signed(&key).unwrap().der().clone())
                    .unwrap();
            }
            store
        };
        let (one, other) = (store(&["a.test"]), store(&["a.test", "b.test"]));
        let first = shared_roots(one.clone());
        assert!(Arc::ptr_eq(&first, &shared_roots(one.clone())));
        let changed = shared_roots(other);
        assert_eq!(
            (first.len(), changed.len()),
            (1, 2),
            "a change counts from then on"
        );
        assert!(Arc::ptr_eq(&changed, &shared_roots((*changed).clone())));
        assert!(!Arc::ptr_eq(&first, &shared_roots(one)));
    }
}
