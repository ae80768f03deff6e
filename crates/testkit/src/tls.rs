//! The other end of TLS: certificates for a test, and a client and a server that contain no code of
//! Interlock.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    crypto,
};

use crate::mcp::{Reply, read_reply};

pub type ClientStream = StreamOwned<ClientConnection, TcpStream>;
pub type ServerStream = StreamOwned<ServerConnection, TcpStream>;

/// A certificate with its key, and the authority that signed it.
pub struct Certified {
    pub authority: CertificateDer<'static>,
    pub certificate: CertificateDer<'static>,
    pub key: KeyPair,
}

impl Certified {
    /// Creates a certificate that an authority of its own signed.
    pub fn for_names(names: &[&str]) -> Self {
        Self::with(names, |_| {})
    }

    pub fn with(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority =
            CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        change(&mut parameters);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &authority).unwrap();
        Self {
            authority: authority.as_ref().der().clone(),
            certificate: certificate.der().clone(),
            key,
        }
    }

    pub fn chain_pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate) + &self.authority_pem()
    }

    pub fn authority_pem(&self) -> String {
        pem("CERTIFICATE", &self.authority)
    }

    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", self.key.serialized_der())
    }

    /// Accepts a connection as a server that presents this certificate.
    pub fn accept(&self, stream: TcpStream) -> ServerStream {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], key)
            .unwrap();
        let connection = ServerConnection::new(Arc::new(config)).unwrap();
        StreamOwned::new(connection, stream)
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

/// Connects to a port of this machine by a name. Only a certificate that the authority signed for
/// this name is accepted.
pub fn connect(port: u16, name: &str, authority: &CertificateDer<'static>) -> ClientStream {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    StreamOwned::new(connection, stream)
}

pub fn certificate(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

/// Returns the public key of a certificate, with its algorithm, as DER.
pub fn public_key(certificate: &CertificateDer<'static>) -> Vec<u8> {
    let parsed = ParsedCertificate::try_from(certificate).unwrap();
    parsed.subject_public_key_info().as_ref().to_vec()
}

/// Sends a request and reads until the server ends its answer.
pub fn ask(stream: &mut (impl Read + Write), request: &[u8]) -> Reply {
    stream.write_all(request).unwrap();
    read_reply(stream)
}
