//! Tokens that let their holder connect in one role: as an operator or as a node. Only their hashes
//! are stored.

use rusqlite::params;
use serde_json::json;

use crate::audit::AuditKind;
use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;

/// The role that a token gives to its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenRole {
    /// May do everything that an operator may do.
    Operator,
    /// May connect as a node, and nothing else.
    Node,
}

impl TokenRole {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Node => "node",
        }
    }

    fn parse(text: &str) -> rusqlite::Result<Self> {
        match text {
            "operator" => Ok(Self::Operator),
            "node" => Ok(Self::Node),
            _ => Err(rusqlite::Error::InvalidQuery),
        }
    }
}

/// A role token as the store holds it: without its secret text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleToken {
    /// The name of the token in lists and for revocation. The id proves nothing.
    pub id: String,
    pub role: TokenRole,
    pub created_at_ms: i64,
}

impl Store {
    /// Returns the token with this hash, if it may be used.
    pub fn role_token(&self, hash: &str) -> Result<Option<RoleToken>, StoreError> {
        self.read(|sql| {
            sql.optional(
                "SELECT id, role, created_at_ms FROM role_token WHERE hash = ?1",
                [hash],
                token,
            )
        })
    }

    /// Returns all tokens of a role, oldest first.
    pub fn role_tokens(&self, role: TokenRole) -> Result<Vec<RoleToken>, StoreError> {
        self.read(|sql| {
            sql.all(
                "SELECT id, role, created_at_ms FROM role_token WHERE role = ?1
                 ORDER BY created_at_ms, id",
                [role.as_str()],
                token,
            )
        })
    }

    /// Returns whether the token is new. A hash that is stored already stays unchanged.
    pub fn add_role_token(&self, hash: &str, token: &RoleToken) -> Result<bool, StoreError> {
        self.change(|change| change.add_role_token(hash, token))
    }

    /// Returns whether there was such a token of this role.
    pub fn remove_role_token(
        &self,
        role: TokenRole,
        id: &str,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        self.change(|change| change.remove_role_token(role, id, now_ms))
    }
}

impl Change<'_> {
    pub fn add_role_token(&self, hash: &str, token: &RoleToken) -> Result<bool, StoreError> {
        let added = self.sql.execute(
            "INSERT INTO role_token (hash, id, role, created_at_ms) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (hash) DO NOTHING",
            params![hash, token.id, token.role.as_str(), token.created_at_ms],
        )?;
        if added == 0 {
            return Ok(false);
        }
        let record = json!({
            "role": token.role.as_str(),
            "tokenId": token.id,
            "what": "role-token-added",
        });
        self.append(AuditKind::Pairing, &record, token.created_at_ms)?;
        Ok(true)
    }

    pub fn remove_role_token(
        &self,
        role: TokenRole,
        id: &str,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let removed = self.sql.execute(
            "DELETE FROM role_token WHERE id = ?1 AND role = ?2",
            params![id, role.as_str()],
        )?;
        if removed == 0 {
            return Ok(false);
        }
        let record = json!({
            "role": role.as_str(),
            "tokenId": id,
            "what": "role-token-removed",
        });
        self.append(AuditKind::Pairing, &record, now_ms)?;
        Ok(true)
    }
}

fn token(row: &rusqlite::Row<'_>) -> rusqlite::Result<RoleToken> {
    let role: String = row.get(1)?;
    Ok(RoleToken {
        id: row.get(0)?,
        role: TokenRole::parse(&role)?,
        created_at_ms: row.get(2)?,
    })
}
