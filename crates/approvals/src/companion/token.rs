//! The secret that host and companion share: `socket.token` of the approvals document.

use std::fmt;

use interlock_plan::hex;
use interlock_policy::Socket;

use crate::approvals::Approvals;
use crate::origin::OutsideRuns;
use interlock_rules::{RulesError, document_in_force};

/// The number of random bytes of a token, which is written as twice as many hexadecimal digits.
const BYTES: usize = 32;

/// A shorter token, which another program may have written, could be guessed.
const SHORTEST: usize = 16;

/// The shared token. It is shown only to an owner who asks for it by name.
#[derive(Clone, PartialEq, Eq)]
pub struct SocketToken(String);

impl SocketToken {
    pub(super) fn new(text: String) -> Option<Self> {
        (text.len() >= SHORTEST).then_some(Self(text))
    }

    /// The token, for another companion of this user.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SocketToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SocketToken(…)")
    }
}

impl Approvals<'_> {
    /// The token in force, if there is one of sufficient length.
    pub(super) fn socket_token(self) -> Result<Option<SocketToken>, RulesError> {
        let (document, _) = document_in_force(self.store)?;
        let token = document.socket.and_then(|socket| socket.token);
        Ok(token.and_then(SocketToken::new))
    }

    /// The token in force. The first companion creates it.
    pub fn make_socket_token(self, _outside: OutsideRuns) -> Result<SocketToken, RulesError> {
        if let Some(token) = self.socket_token()? {
            return Ok(token);
        }
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(|error| RulesError::Edit {
            code: "NO_RANDOMNESS",
            message: format!("cannot make a token: {error}"),
            remedy: "try again".to_owned(),
        })?;
        let new = hex(&bytes);
        let edited = interlock_rules::edit_document(self.store, |document| {
            let socket = document.socket.get_or_insert_with(Socket::default);
            // Another process may have created a token first.
            let present = socket.token.take().and_then(SocketToken::new);
            let token = present.unwrap_or_else(|| SocketToken(new.clone()));
            socket.token = Some(token.0.clone());
            Ok(token)
        });
        Ok(edited?.0)
    }
}
