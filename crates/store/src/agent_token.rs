//! Tokens that let their holder call tools as one agent, and nothing else. Only their hashes are
//! stored.

use rusqlite::params;
use serde_json::json;

use crate::audit::AuditKind;
use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;

/// A token as the store holds it: without its secret text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentToken {
    /// The name of the token in lists and for revocation. The id is not the token.
    pub id: String,
    pub agent: String,
    pub created_at_ms: i64,
    /// Whether an operator declared that the client program shows approval prompts to a person.
    pub elicitation: bool,
}

impl Store {
    /// Returns the token with this hash, if it may be used.
    pub fn agent_token(&self, hash: &str) -> Result<Option<AgentToken>, StoreError> {
        self.read(|sql| {
            sql.optional(
                "SELECT id, agent, created_at_ms, elicitation FROM agent_token WHERE hash = ?1",
                [hash],
                token,
            )
        })
    }

    pub fn agent_tokens(&self) -> Result<Vec<AgentToken>, StoreError> {
        self.read(|sql| {
            sql.all(
                "SELECT id, agent, created_at_ms, elicitation FROM agent_token
                 ORDER BY created_at_ms, id",
                [],
                token,
            )
        })
    }

    pub fn add_agent_token(&self, hash: &str, token: &AgentToken) -> Result<(), StoreError> {
        self.change(|change| change.add_agent_token(hash, token))
    }

    /// Returns whether there was such a token.
    pub fn remove_agent_token(&self, id: &str, now_ms: i64) -> Result<bool, StoreError> {
        self.change(|change| change.remove_agent_token(id, now_ms))
    }
}

impl Change<'_> {
    pub fn add_agent_token(&self, hash: &str, token: &AgentToken) -> Result<(), StoreError> {
        self.sql.execute(
            "INSERT INTO agent_token (hash, id, agent, created_at_ms, elicitation)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                hash,
                token.id,
                token.agent,
                token.created_at_ms,
                token.elicitation
            ],
        )?;
        let record = json!({
            "agent": token.agent,
            "elicitation": token.elicitation,
            "tokenId": token.id,
            "what": "agent-token-added",
        });
        self.append(AuditKind::Pairing, &record, token.created_at_ms)?;
        Ok(())
    }

    pub fn remove_agent_token(&self, id: &str, now_ms: i64) -> Result<bool, StoreError> {
        let removed = self
            .sql
            .execute("DELETE FROM agent_token WHERE id = ?1", [id])?;
        if removed == 0 {
            return Ok(false);
        }
        let record = json!({ "tokenId": id, "what": "agent-token-removed" });
        self.append(AuditKind::Pairing, &record, now_ms)?;
        Ok(true)
    }
}

fn token(row: &rusqlite::Row<'_>) -> rusqlite::Result<AgentToken> {
    Ok(AgentToken {
        id: row.get(0)?,
        agent: row.get(1)?,
        created_at_ms: row.get(2)?,
        elicitation: row.get(3)?,
    })
}
