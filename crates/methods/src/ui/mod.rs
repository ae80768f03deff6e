//! The Control UI: pages for browsers.
//!
//! The gateway's HTTP serves one document without data. A page is an operator's client like any
//! other: it connects with a key of its own, logs in with a code or a token (`codes`, `phones`),
//! and calls the methods that all clients call. `ui.open` renders a view (`open`, with
//! `approval_views`, `sandbox_view` and `views` for each page). `patches` sends what changes in a
//! view, and `allowed_runs` how runs go on. `receipts` records to which browsers an approval was
//! sent. A page can allow only what it was shown whole, which a ticket proves (`tickets`).

pub mod allowed_runs;
mod approval_views;
mod codes;
mod explain;
pub mod open;
mod patches;
pub mod phones;
pub mod receipts;
mod sandbox_view;
mod screens;
mod tickets;
mod views;

use std::net::SocketAddr;
use std::sync::OnceLock;

use hmac::{Hmac, KeyInit as _, Mac as _};
use interlock_wire::Secret;
use interlock_wire::identity::DeviceIdentity;
use sha2::Sha256;

use self::codes::LoginCodes;
use self::phones::PhoneCodes;
use self::screens::ScreenFollowers;
use self::tickets::DecisionTickets;
use interlock_access::token::TokenError;

pub(crate) use patches::{receipts_changed, tell_end, tell_question};

/// The state that all pages share.
#[derive(Debug)]
pub struct ControlUi {
    pub codes: LoginCodes,
    pub phones: PhoneCodes,
    pub(crate) tickets: DecisionTickets,
    screens: ScreenFollowers,
    /// Proves to a browser that it talks to the gateway with which it was paired.
    pub key: DeviceIdentity,
    /// The address of the pages, known once the port is open.
    address: OnceLock<String>,
    /// The address of the open port, and whether it speaks TLS.
    bound: OnceLock<(SocketAddr, bool)>,
    /// The path below which the pages are served. Empty for `/`.
    base: OnceLock<String>,
}

impl ControlUi {
    pub fn new(device_key: &Secret) -> Result<Self, TokenError> {
        let mut mac = <Hmac<Sha256>>::new_from_slice(device_key.expose().as_bytes())
            .unwrap_or_else(|_| unreachable!("a key of any length will do"));
        mac.update(b"interlock control ui key v1");
        let seed: [u8; 32] = mac.finalize().into_bytes().into();
        Ok(Self {
            codes: LoginCodes::default(),
            phones: PhoneCodes::default(),
            tickets: DecisionTickets::new()?,
            screens: ScreenFollowers::default(),
            key: DeviceIdentity::from_seed(&seed),
            address: OnceLock::new(),
            bound: OnceLock::new(),
            base: OnceLock::new(),
        })
    }

    /// Remembers the address when the port is open.
    pub fn opened(&self, bound: SocketAddr, has_tls: bool, base: &str) {
        let _ = self.bound.set((bound, has_tls));
        let _ = self.base.set(base.to_owned());
        let mut reached = bound;
        if bound.ip().is_unspecified() {
            reached.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        let scheme = if has_tls { "https" } else { "http" };
        let _ = self.address.set(format!("{scheme}://{reached}{base}/"));
    }

    pub fn bound(&self) -> Option<(SocketAddr, bool)> {
        self.bound.get().copied()
    }

    pub fn base(&self) -> &str {
        self.base.get().map_or("", String::as_str)
    }

    pub fn address(&self) -> &str {
        self.address.get().map_or("", String::as_str)
    }
}
