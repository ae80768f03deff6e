//! Decisions about hosts that sandboxed runs reach. They hold for a run, a conversation or an agent, and are
//! looked up for every connection: no use is counted, and nothing is claimed.

use rusqlite::params;

use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::grant::{COLUMNS, Grant, GrantKey, NewGrant, is_sealed_grant, sealed_grant};
use crate::limits;
use crate::pending::{ApprovalEnding, ApprovalError, state_of};

/// In place of the conversation, of a grant that holds in every one of its agent. No conversation has this
/// key: theirs begin with `agent:`.
pub const EVERY_SESSION: &str = "*";

impl Store {
    /// The grant by which this content is allowed now, in this conversation or in every one.
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

    /// Whether there is, or was, an approval with this id.
    pub fn knows_approval(&self, id: &str) -> Result<bool, StoreError> {
        let statement = "SELECT EXISTS (SELECT 1 FROM approval WHERE id = ?1)";
        self.read(|sql| sql.one(statement, [id], |row| row.get(0)))
    }

    /// How an approval ended, if this program wrote that. `None` while it is pending.
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

    /// The pending approvals of one kind, the oldest first.
    pub fn pending_of_kind(&self, binding: &str) -> Result<Vec<String>, StoreError> {
        let statement =
            "SELECT id FROM approval WHERE ending IS NULL AND binding = ?1 ORDER BY number";
        self.read(|sql| sql.all(statement, [binding], |row| row.get(0)))
    }
}

impl Change<'_> {
    /// How many approvals of one kind of an agent are pending.
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

    /// Lets what an approval is about hold in every conversation of its agent. For the same change that
    /// decides it.
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
