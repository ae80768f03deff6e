//! Grants: what a decision for a session or a lease allows beyond the approved run.

use std::num::NonZeroU32;

use rusqlite::{Row, params};
use serde_json::{Value, json};

use crate::audit::AuditKind;
use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::limits::{self, MAX_GRANTS};
use crate::pending::{ApprovalError, NewClaim, insert_claim, new_id};

/// The longest life of a grant for a session: 24 hours. The session itself may never end.
pub const MAX_SESSION_GRANT_MS: i64 = 24 * 60 * 60 * 1000;

/// The values that a run must share with the approved run. All of them must be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantKey<'a> {
    pub content_digest: &'a str,
    pub agent: &'a str,
    pub session_key: &'a str,
    pub host: &'a str,
    pub node: Option<&'a str>,
}

/// One use of a grant: the run may start. `finish_claim` records its outcome under this run id.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct GrantUse {
    pub run_id: String,
    pub grant_id: String,
    /// The approval that created the grant. The store may have purged it already.
    pub approval_id: String,
    pub decider: String,
    /// `None` if the uses are unlimited.
    pub uses_left: Option<u32>,
}

/// A grant as the store holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub id: String,
    pub approval_id: String,
    pub content_digest: String,
    pub agent: String,
    pub session_key: String,
    pub host: String,
    pub node: Option<String>,
    pub decider: String,
    pub created_at_ms: i64,
    /// `None` if the grant holds until it is revoked, in every conversation of its agent. Grants of
    /// older versions have no end until their session ends.
    pub expires_at_ms: Option<i64>,
    pub max_uses: Option<u32>,
    pub uses: u32,
    /// The command as it was shown to the approver. Empty if it is no longer known.
    pub preview: String,
}

pub(crate) struct NewGrant<'a> {
    pub(crate) approval_id: &'a str,
    pub(crate) content_digest: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) session_key: &'a str,
    pub(crate) host: &'a str,
    pub(crate) node: Option<&'a str>,
    pub(crate) decider: &'a str,
    pub(crate) now_ms: i64,
    pub(crate) expires_at_ms: Option<i64>,
    pub(crate) max_uses: Option<NonZeroU32>,
    /// The number of the approval that creates the grant.
    pub(crate) number: i64,
}

impl Store {
    /// See [`Change::use_grant`].
    pub fn use_grant(
        &self,
        key: &GrantKey<'_>,
        claimer: &str,
        now_ms: i64,
    ) -> Result<Option<GrantUse>, StoreError> {
        self.change(|change| change.use_grant(key, claimer, now_ms))
    }

    /// See [`Change::end_session`].
    pub fn end_session(&self, session_key: &str, now_ms: i64) -> Result<usize, StoreError> {
        self.change(|change| change.end_session(session_key, now_ms))
    }

    /// See [`Change::revoke_grant`].
    pub fn revoke_grant(&self, id: &str, who: &str, now_ms: i64) -> Result<(), StoreError> {
        self.change(|change| change.revoke_grant(id, who, now_ms))
    }

    /// Returns the grants that still allow something, newest first. An agent has at most
    /// [`MAX_GRANTS`].
    pub fn grants(&self, now_ms: i64) -> Result<Vec<Grant>, StoreError> {
        let statement = format!(
            "SELECT {COLUMNS} FROM run_grant WHERE {ALIVE} ORDER BY created_at_ms DESC, id"
        );
        self.read(|sql| sql.all(&statement, [now_ms], grant))
    }
}

/// The condition for a grant that is in force. `?1` is the present time.
const ALIVE: &str =
    "(expires_at_ms IS NULL OR expires_at_ms > ?1) AND (max_uses IS NULL OR uses < max_uses)";

pub(crate) const COLUMNS: &str =
    "id, approval_id, content_digest, agent, session_key, host, node, decider,
    created_at_ms, expires_at_ms, max_uses, uses, preview, seal";

/// The name under which grants are sealed.
const GRANT: &str = "grant";

/// A grant with its seal, which is not checked yet.
pub(crate) struct SealedGrant {
    pub(crate) grant: Grant,
    seal: Option<Vec<u8>>,
}

/// Whether this program wrote the grant.
pub(crate) fn is_sealed_grant(store: &Store, SealedGrant { grant, seal }: &SealedGrant) -> bool {
    let key = store.key();
    key.is_sealed(GRANT, &sealed(grant, grant.uses), seal.as_deref())
}

/// Returns the values that the seal covers: everything that decides what may run.
fn sealed(grant: &Grant, uses: u32) -> impl serde::Serialize {
    (
        (grant.id.clone(), grant.approval_id.clone()),
        grant.content_digest.clone(),
        (grant.agent.clone(), grant.session_key.clone()),
        (grant.host.clone(), grant.node.clone()),
        grant.decider.clone(),
        (grant.created_at_ms, grant.expires_at_ms),
        (grant.max_uses, uses),
    )
}

impl Change<'_> {
    /// Takes one use of a grant that allows this run, if there is one, and claims the run. The run
    /// may start only after this change is committed. Of several grants, an uncounted one comes
    /// first, then the one that expires first.
    pub fn use_grant(
        &self,
        key: &GrantKey<'_>,
        claimer: &str,
        now_ms: i64,
    ) -> Result<Option<GrantUse>, StoreError> {
        self.use_grant_confined(key, claimer, now_ms, None)
    }

    /// Like [`Self::use_grant`], for a run in a sandbox. The audit records of its start and end
    /// name the sandbox.
    pub fn use_grant_confined(
        &self,
        key: &GrantKey<'_>,
        claimer: &str,
        now_ms: i64,
        sandbox: Option<&Value>,
    ) -> Result<Option<GrantUse>, StoreError> {
        limits::CLAIMER.check(claimer)?;
        let statement = format!(
            "SELECT {COLUMNS} FROM run_grant
             WHERE session_key = ?2 AND content_digest = ?3 AND host = ?4 AND node IS ?5
                AND agent = ?6 AND {ALIVE}
             ORDER BY max_uses IS NOT NULL, expires_at_ms IS NULL, expires_at_ms, id LIMIT 1"
        );
        let values = params![
            now_ms,
            key.session_key,
            key.content_digest,
            key.host,
            key.node,
            key.agent
        ];
        let Some(found) = self.sql.optional(&statement, values, sealed_grant)? else {
            return Ok(None);
        };
        self.count_use(&found)?;
        let grant = found.grant;
        let run_id = new_id()?;
        insert_claim(
            self,
            &NewClaim {
                id: &run_id,
                approval_id: &grant.approval_id,
                grant_id: Some(&grant.id),
                digest: key.content_digest,
                agent: key.agent,
                session_key: key.session_key,
                host: key.host,
                node: key.node,
                claimer,
                now_ms,
                sandbox,
            },
        )?;
        Ok(Some(GrantUse {
            run_id,
            uses_left: grant.max_uses.map(|most| most - grant.uses - 1),
            grant_id: grant.id,
            approval_id: grant.approval_id,
            decider: grant.decider,
        }))
    }

    /// Ends every grant of a session and returns how many there were.
    pub fn end_session(&self, session_key: &str, now_ms: i64) -> Result<usize, StoreError> {
        let ended: Vec<Grant> = self.sql.all(
            &format!("DELETE FROM run_grant WHERE session_key = ?1 RETURNING {COLUMNS}"),
            [session_key],
            grant,
        )?;
        for grant in &ended {
            self.record_end(grant, "session-ended", None, now_ms)?;
        }
        Ok(ended.len())
    }

    /// Revokes a grant. Runs that the grant allowed before continue.
    pub fn revoke_grant(&self, id: &str, who: &str, now_ms: i64) -> Result<(), StoreError> {
        limits::DECIDER.check(who)?;
        let revoked = self.sql.optional(
            &format!("DELETE FROM run_grant WHERE id = ?1 RETURNING {COLUMNS}"),
            [id],
            grant,
        )?;
        let Some(grant) = revoked else {
            let id = id.chars().take(limits::MAX_NAME_BYTES).collect();
            return Err(ApprovalError::GrantNotFound { id }.into());
        };
        self.record_end(&grant, "revoked", Some(who), now_ms)
    }

    /// Refuses another grant for an agent that already has [`MAX_GRANTS`].
    pub(crate) fn check_grants(&self, agent: &str, now_ms: i64) -> Result<(), StoreError> {
        let statement = format!("SELECT count(*) FROM run_grant WHERE agent = ?2 AND {ALIVE}");
        let grants: i64 = self
            .sql
            .one(&statement, params![now_ms, agent], |row| row.get(0))?;
        if usize::try_from(grants).unwrap_or(usize::MAX) < MAX_GRANTS {
            return Ok(());
        }
        let agent = agent.to_owned();
        Err(ApprovalError::TooManyGrants { agent }.into())
    }

    pub(crate) fn insert_grant(&self, grant: &NewGrant<'_>) -> Result<String, StoreError> {
        let id = new_id()?;
        self.sql.execute(
            "INSERT INTO run_grant (id, approval_id, content_digest, agent, session_key, host,
                node, decider, created_at_ms, expires_at_ms, max_uses, preview)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,
                coalesce((SELECT preview FROM approval_content WHERE number = ?12), ''))",
            params![
                id,
                grant.approval_id,
                grant.content_digest,
                grant.agent,
                grant.session_key,
                grant.host,
                grant.node,
                grant.decider,
                grant.now_ms,
                grant.expires_at_ms,
                grant.max_uses.map(NonZeroU32::get),
                grant.number,
            ],
        )?;
        let statement = format!("SELECT {COLUMNS} FROM run_grant WHERE id = ?1");
        let written = self.sql.one(&statement, [&id], self::grant)?;
        self.seal_grant(&written)?;
        Ok(id)
    }

    /// Counts the approved run itself as a use of the grant that the approval created. Returns
    /// `None` if there is no such grant in force.
    pub(crate) fn take_use_of_approval(
        &self,
        approval_id: &str,
        now_ms: i64,
    ) -> Result<Option<String>, StoreError> {
        let statement =
            format!("SELECT {COLUMNS} FROM run_grant WHERE approval_id = ?2 AND {ALIVE}");
        let values = params![now_ms, approval_id];
        let found = self.sql.optional(&statement, values, sealed_grant)?;
        if let Some(found) = &found {
            self.count_use(found)?;
        }
        Ok(found.map(|found| found.grant.id))
    }

    /// Takes one use of a grant, which this program must have written. The table itself refuses
    /// more uses than the grant has.
    fn count_use(&self, found: &SealedGrant) -> Result<(), StoreError> {
        let (grant, key) = (&found.grant, self.store.key());
        if !is_sealed_grant(self.store, found) {
            let id = grant.id.clone();
            return Err(ApprovalError::GrantUnrecorded { id }.into());
        }
        // An uncounted grant needs no write for each run.
        if grant.max_uses.is_none() {
            return Ok(());
        }
        let seal = key.seal(GRANT, &sealed(grant, grant.uses + 1));
        self.sql.execute(
            "UPDATE run_grant SET uses = uses + 1, seal = ?2 WHERE id = ?1",
            params![grant.id, seal.as_slice()],
        )?;
        Ok(())
    }

    /// Seals the grants that an older version created.
    pub(crate) fn seal_grants(&self) -> Result<(), StoreError> {
        let statement = format!("SELECT {COLUMNS} FROM run_grant WHERE seal IS NULL");
        let grants: Vec<Grant> = self.sql.all(&statement, [], grant)?;
        grants.iter().try_for_each(|grant| self.seal_grant(grant))
    }

    fn seal_grant(&self, grant: &Grant) -> Result<(), StoreError> {
        let seal = self.store.key().seal(GRANT, &sealed(grant, grant.uses));
        self.sql.execute(
            "UPDATE run_grant SET seal = ?2 WHERE id = ?1",
            params![grant.id, seal.as_slice()],
        )?;
        Ok(())
    }

    fn record_end(
        &self,
        grant: &Grant,
        how: &str,
        who: Option<&str>,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let record = json!({
            "agent": grant.agent,
            "approvalId": grant.approval_id,
            "decider": who,
            "decision": how,
            "grantId": grant.id,
            "uses": grant.uses,
        });
        self.append(AuditKind::Decision, &record, now_ms)?;
        Ok(())
    }
}

pub(crate) fn sealed_grant(row: &Row<'_>) -> rusqlite::Result<SealedGrant> {
    Ok(SealedGrant {
        grant: grant(row)?,
        seal: row.get(13)?,
    })
}

pub(crate) fn grant(row: &Row<'_>) -> rusqlite::Result<Grant> {
    Ok(Grant {
        id: row.get(0)?,
        approval_id: row.get(1)?,
        content_digest: row.get(2)?,
        agent: row.get(3)?,
        session_key: row.get(4)?,
        host: row.get(5)?,
        node: row.get(6)?,
        decider: row.get(7)?,
        created_at_ms: row.get(8)?,
        expires_at_ms: row.get(9)?,
        max_uses: row.get(10)?,
        uses: row.get(11)?,
        preview: row.get(12)?,
    })
}
