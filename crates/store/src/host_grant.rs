//! Decisions about the hosts that sandboxed runs reach. Such a decision holds for a run, a
//! conversation or an agent, and is looked up for every connection. Uses are not counted, and
//! nothing is claimed.

use rusqlite::params;

use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::grant::{COLUMNS, Grant, GrantKey, NewGrant, is_sealed_grant, sealed_grant};
use crate::limits;
use crate::pending::{ApprovalEnding, ApprovalError, state_of};

/// The session key of a grant that holds in every conversation of its agent. No conversation has
/// this key: their keys begin with `agent:`.
pub const EVERY_SESSION: &str = "*";

impl Store {
    /// Returns the grant that allows this content now, in this conversation or in every
    /// conversation of the agent.
    pub fn standing_grant(
        &self,
        key: &GrantKey<'_>,
        now_ms: i64,
    ) -> Result<Option<Grant>, StoreError> {
        let statement = format!(
            "SELECT {COLUMNS} FROM run_grant
             WHERE session_key IN (?2, ?7) AND content_digest = ?3 AND host = ?4 AND node IS ?5
                AND agent = ?6 AND (expires_at_ms IS NULL OR expires_at_ms > ?1)
                AND max_uses IS NULL
             ORDER BY expires_at_ms IS NOT NULL, expires_at_ms DESC, id LIMIT 1"
        );
        let values = params![
            now_ms,
            key.session_key,
            key.content_digest,
            key.host,
            key.node,
            key.agent,
            EVERY_SESSION
        ];
        let found = self.read(|sql| sql.optional(&statement, values, sealed_grant))?;
        match found {
            Some(found) if !is_sealed_grant(self, &found) => {
                let id = found.grant.id;
                Err(ApprovalError::GrantUnrecorded { id }.into())
            }
            found => Ok(found.map(|found| found.grant)),
        }
    }

    /// Whether an approval with this id is pending or has ended.
    pub fn knows_approval(&self, id: &str) -> Result<bool, StoreError> {
        let statement = "SELECT EXISTS (SELECT 1 FROM approval WHERE id = ?1)";
        self.read(|sql| sql.one(statement, [id], |row| row.get(0)))
    }

    /// Returns how an approval ended, or `None` while it is pending. An ending that allows
    /// something is an error if this program did not write it.
    pub fn sealed_end(&self, id: &str) -> Result<Option<ApprovalEnding>, StoreError> {
        let approval = self.read(|sql| state_of(sql, id))?;
        let Some(ended) = &approval.ended else {
            return Ok(None);
        };
        if ended.ending.allows() && !approval.is_sealed(self, id) {
            let short_id = approval.short_id;
            return Err(ApprovalError::Unrecorded { short_id }.into());
        }
        Ok(Some(ended.ending))
    }

    /// Returns the ids of the pending approvals of one kind, oldest first.
    pub fn pending_of_kind(&self, binding: &str) -> Result<Vec<String>, StoreError> {
        let statement =
            "SELECT id FROM approval WHERE ending IS NULL AND binding = ?1 ORDER BY number";
        self.read(|sql| sql.all(statement, [binding], |row| row.get(0)))
    }
}

impl Change<'_> {
    /// Counts an agent's pending approvals of one kind.
    pub fn count_pending_of_kind(
        &self,
        agent: &str,
        binding: &str,
        now_ms: i64,
    ) -> Result<usize, StoreError> {
        let waiting: i64 = self.sql.one(
            "SELECT count(*) FROM approval
             WHERE ending IS NULL AND agent = ?1 AND binding = ?2 AND expires_at_ms > ?3",
            params![agent, binding, now_ms],
            |row| row.get(0),
        )?;
        Ok(usize::try_from(waiting).unwrap_or(usize::MAX))
    }

    /// Grants what an approval is about in every conversation of its agent. Call this in the change
    /// that decides the approval.
    pub fn grant_every_session(
        &self,
        id: &str,
        decider: &str,
        now_ms: i64,
        expires_at_ms: Option<i64>,
    ) -> Result<String, StoreError> {
        limits::DECIDER.check(decider)?;
        let approval = state_of(&self.sql, id)?;
        self.check_grants(&approval.agent, now_ms)?;
        self.insert_grant(&NewGrant {
            approval_id: id,
            content_digest: &approval.content_digest,
            agent: &approval.agent,
            session_key: EVERY_SESSION,
            host: &approval.host,
            node: approval.node.as_deref(),
            decider,
            now_ms,
            expires_at_ms,
            max_uses: None,
            number: approval.number,
        })
    }
}
