//! TLS: both ends of an encrypted connection, and which certificates they accept.
//!
//! Read in this order: [`Fingerprint`] (a certificate, by its SHA-256), [`connect`] (the end that
//! asks: the pinned certificate, or one that this machine trusts), [`Identity`] (the end that shows
//! one: the owner's files, or one of its own that it keeps).
//!
//! No socket is opened here; both ends are handed a stream.

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
