//! Tickets: the proof that a page showed an approval whole.
//!
//! A ticket is issued only with a whole view, and without it a page can allow nothing. It is
//! derived from a key of this process and names the viewer, the approval and the digest of its
//! plan. It is valid until the approval ends.

use hmac::{Hmac, KeyInit as _, Mac as _};
use interlock_approvals::PendingApproval;
use interlock_connections::Client;
use interlock_wire::{Secret, WireError};
use sha2::Sha256;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use interlock_access::token::TokenError;

#[derive(Debug)]
pub(crate) struct DecisionTickets(Secret);

impl DecisionTickets {
    pub(super) fn new() -> Result<Self, TokenError> {
        let key = Secret::generate();
        Ok(Self(
            key.map_err(|error| TokenError::Random(error.to_string()))?,
        ))
    }

    /// Issues the ticket of a viewer who was shown the whole approval.
    pub(super) fn issue(&self, client: &Client, approval: &PendingApproval) -> Secret {
        let mut mac = <Hmac<Sha256>>::new_from_slice(self.0.expose().as_bytes())
            .unwrap_or_else(|_| unreachable!("a key of any length will do"));
        let viewer = client.device.as_deref().unwrap_or(&client.connection);
        let offered = approval.offered.iter().map(|decision| decision.as_str());
        let offered = offered.collect::<Vec<_>>().join(",");
        for part in ["web", viewer, &approval.id, &approval.plan_digest, &offered] {
            mac.update(part.as_bytes());
            mac.update(b"\n");
        }
        Secret::new(URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    }

    /// Checks that a page may allow this approval.
    pub(crate) fn check(
        &self,
        client: &Client,
        approval: &PendingApproval,
        presented: Option<&str>,
    ) -> Result<(), WireError> {
        let refused = |code: &str, message: &str| {
            WireError::invalid(message)
                .with("code", code)
                .with("remediation", "open the approval, and read all of it")
        };
        match presented {
            None => Err(refused(
                "TICKET_REQUIRED",
                "a page allows only what it was shown whole",
            )),
            Some(ticket) if self.issue(client, approval).matches(ticket) => Ok(()),
            Some(_) => Err(refused(
                "TICKET_WRONG",
                "the ticket is not for this approval, this viewer and this plan",
            )),
        }
    }
}
