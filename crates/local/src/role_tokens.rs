//! Tokens of operators and nodes. The text of a token is shown once, when it is minted; the store
//! keeps only its SHA-256.

use interlock_plan::hex;
use interlock_store::{RoleToken, TokenRole};
use sha2::{Digest as _, Sha256};

use crate::state::{HostError, LocalState, now_ms};

/// The prefix of operator tokens.
pub const OPERATOR_TOKEN_PREFIX: &str = "interlock-operator-";

/// The longest token. A longer text is not even hashed.
const LONGEST: usize = 4096;

impl LocalState {
    /// Makes a token of this role, and returns its text.
    pub fn mint_role_token(&self, role: TokenRole) -> Result<(String, RoleToken), HostError> {
        let text = new_token(prefix(role))?;
        let (token, _) = self.store_role_token(role, &text)?;
        Ok((text, token))
    }

    /// Accepts an existing operator token, such as one of an earlier version. Only its hash is
    /// stored. Returns whether the token was unknown.
    pub fn take_over_operator_token(&self, text: &str) -> Result<bool, HostError> {
        let (_, is_new) = self.store_role_token(TokenRole::Operator, text)?;
        Ok(is_new)
    }

    fn store_role_token(
        &self,
        role: TokenRole,
        text: &str,
    ) -> Result<(RoleToken, bool), HostError> {
        let token = RoleToken {
            id: uuid::Uuid::new_v4().to_string(),
            role,
            created_at_ms: i64::try_from(now_ms()).unwrap_or(i64::MAX),
        };
        let is_new = self.store().add_role_token(&hash(text), &token)?;
        Ok((token, is_new))
    }

    /// The token with this text, or `None` if it is unknown. An empty text is never a token.
    pub fn find_role_token(&self, presented: &str) -> Result<Option<RoleToken>, HostError> {
        if presented.is_empty() || presented.len() > LONGEST {
            return Ok(None);
        }
        // The lookup is by hash, so its duration reveals nothing about the token.
        Ok(self.store().role_token(&hash(presented))?)
    }

    pub fn role_tokens(&self, role: TokenRole) -> Result<Vec<RoleToken>, HostError> {
        Ok(self.store().role_tokens(role)?)
    }

    /// Revokes the token of this role with this id. Returns whether it existed.
    pub fn revoke_role_token(&self, role: TokenRole, id: &str) -> Result<bool, HostError> {
        let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
        Ok(self.store().remove_role_token(role, id, now)?)
    }
}

/// The prefix by which a reader recognizes the role of a token.
fn prefix(role: TokenRole) -> &'static str {
    match role {
        TokenRole::Operator => OPERATOR_TOKEN_PREFIX,
        TokenRole::Node => "interlock-node-",
    }
}

/// Makes a random token text that cannot be guessed.
pub(crate) fn new_token(prefix: &str) -> Result<String, HostError> {
    let mut secret = [0_u8; 32];
    getrandom::fill(&mut secret).map_err(|error| HostError::Setup {
        code: "RANDOM_UNAVAILABLE",
        message: format!("no random numbers: {error}"),
        remedy: "try again".to_owned(),
    })?;
    Ok(format!("{prefix}{}", hex(&secret)))
}

/// The hash of a token that the store keeps.
pub(crate) fn hash(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}
