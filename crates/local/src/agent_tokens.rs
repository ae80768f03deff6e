//! Agent tokens. The holder of one may call tools as one agent, and do nothing else.

use interlock_policy::AgentId;
use interlock_store::AgentToken;

use crate::role_tokens::{hash, new_token};
use crate::state::{HostError, LocalState, now_ms};

/// The prefix of agent tokens, by which a reader recognizes them.
const PREFIX: &str = "interlock-agent-";

/// The rights of a token's holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRights {
    pub agent: AgentId,
    /// Whether decisions count that a user makes in a prompt of the client program.
    pub elicitation: bool,
}

impl LocalState {
    /// Makes a token. Its text is returned once and never stored.
    pub fn mint_agent_token(
        &self,
        agent: &AgentId,
        elicitation: bool,
    ) -> Result<(String, AgentToken), HostError> {
        let text = new_token(PREFIX)?;
        let token = AgentToken {
            id: uuid::Uuid::new_v4().to_string(),
            agent: agent.as_str().to_owned(),
            created_at_ms: i64::try_from(now_ms()).unwrap_or(i64::MAX),
            elicitation,
        };
        self.store().add_agent_token(&hash(&text), &token)?;
        Ok((text, token))
    }

    /// The rights of a presented token, or `None` if it is unknown.
    pub fn agent_of_token(&self, text: &str) -> Result<Option<AgentRights>, HostError> {
        if !text.starts_with(PREFIX) {
            return Ok(None);
        }
        // The lookup is by hash, so its duration reveals nothing about the token.
        let found = self.store().agent_token(&hash(text))?;
        Ok(found.and_then(|token| {
            let agent = AgentId::new(&token.agent).ok()?;
            Some(AgentRights {
                agent,
                elicitation: token.elicitation,
            })
        }))
    }

    pub fn agent_tokens(&self) -> Result<Vec<AgentToken>, HostError> {
        Ok(self.store().agent_tokens()?)
    }

    /// Revokes the token with this id. Returns whether it existed.
    pub fn revoke_agent_token(&self, id: &str) -> Result<bool, HostError> {
        let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
        Ok(self.store().remove_agent_token(id, now)?)
    }
}
