//! Tokens for agents: their holders may call tools as one agent, and nothing else.

use interlock_policy::AgentId;
use interlock_store::AgentToken;

use crate::role_tokens::{hash, new_token};
use crate::state::{HostError, LocalState, now_ms};

/// Tells people what they are looking at.
const PREFIX: &str = "interlock-agent-";

/// What a token lets its holder do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRights {
    pub agent: AgentId,
    /// Prompts that its client program shows to a person count.
    pub elicitation: bool,
}

impl LocalState {
    /// Makes a token. Its text is returned once and stored nowhere.
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

    /// What a presented token allows; nothing if there is none like it.
    pub fn agent_of_token(&self, text: &str) -> Result<Option<AgentRights>, HostError> {
        if !text.starts_with(PREFIX) {
            return Ok(None);
        }
        // Looked up by its hash: how long that takes tells nothing of the token.
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

    /// Whether there was one with this id.
    pub fn revoke_agent_token(&self, id: &str) -> Result<bool, HostError> {
        let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
        Ok(self.store().remove_agent_token(id, now)?)
    }
}
