//! TLS: both ends of an encrypted connection, and the certificates that they accept.
//!
//! Read in this order: [`Fingerprint`] (a certificate's SHA-256), [`connect`] (the client end:
//! accepts the pinned certificate, or one that this machine trusts), [`Identity`] (the server end:
//! the owner's files, or Interlock's own certificate).
//!
//! This crate opens no socket; both ends receive a stream.

#![forbid(unsafe_code)]

mod client;
mod fingerprint;
mod identity;
mod keep;

pub use client::{TlsConnectError, Trust, connect};
pub use fingerprint::{Fingerprint, NotAFingerprint};
pub use identity::{Identity, IdentityError, Validity};
pub use keep::{AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE};
pub use tokio_rustls::{TlsAcceptor, client::TlsStream as ClientStream, server::TlsStream};
