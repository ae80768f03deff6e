//! Tokens for operators and for nodes. The text of a token is shown once, when it is minted; the
//! store keeps its SHA-256.

use interlock_plan::hex;
use interlock_store::{RoleToken, TokenRole};
use sha2::{Digest as _, Sha256};

use crate::state::{HostError, LocalState, now_ms};

/// Begins the tokens of operators.
pub const OPERATOR_TOKEN_PREFIX: &str = "interlock-operator-";

/// No token is longer; a longer text is not even hashed.
const LONGEST: usize = 4096;

impl LocalState {
    /// Makes a token of this role, and gives its text.
    pub fn mint_role_token(&self, role: TokenRole) -> Result<(String, RoleToken), HostError> {
        let text = new_token(prefix(role))?;
        let (token, _) = self.store_role_token(role, &text)?;
        Ok((text, token))
    }

    /// Lets an operator token of an earlier version be used further; only its hash is kept. Says
    /// whether it was unknown.
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

    /// The role token that was presented; none if there is none like it. An empty text is none.
    pub fn find_role_token(&self, presented: &str) -> Result<Option<RoleToken>, HostError> {
        if presented.is_empty() || presented.len() > LONGEST {
            return Ok(None);
        }
        // Looked up by its hash: how long that takes tells nothing of the token.
        Ok(self.store().role_token(&hash(presented))?)
    }

    pub fn role_tokens(&self, role: TokenRole) -> Result<Vec<RoleToken>, HostError> {
        Ok(self.store().role_tokens(role)?)
    }

    /// Whether there was one of this role with this id.
    pub fn revoke_role_token(&self, role: TokenRole, id: &str) -> Result<bool, HostError> {
        let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
        Ok(self.store().remove_role_token(role, id, now)?)
    }
}

/// Tells a reader what kind of token is in front of them.
fn prefix(role: TokenRole) -> &'static str {
    match role {
        TokenRole::Operator => OPERATOR_TOKEN_PREFIX,
        TokenRole::Node => "interlock-node-",
    }
}

/// A text that cannot be guessed.
pub(crate) fn new_token(prefix: &str) -> Result<String, HostError> {
    let mut secret = [0_u8; 32];
    getrandom::fill(&mut secret).map_err(|error| HostError::Setup {
        code: "RANDOM_UNAVAILABLE",
        message: format!("no random numbers: {error}"),
        remedy: "try again".to_owned(),
    })?;
    Ok(format!("{prefix}{}", hex(&secret)))
}

/// What the store keeps of a token.
pub(crate) fn hash(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}
