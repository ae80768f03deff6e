//! Finds approvals: by what a user typed, or as a list of the pending ones.

use std::fmt;
use std::str::FromStr;

use rusqlite::{Row, params};

use crate::change::{Change, Sql};
use crate::database::Store;
use crate::error::StoreError;
use crate::json;
use crate::limits::{MAX_APPROVAL_ID_BYTES, MAX_PAGE};
use crate::pending::claim;
use crate::pending::{
    Approval, ApprovalEnd, ApprovalEnding, ApprovalError, ApprovalRequest, ApprovalSummary,
    Delivery,
};

/// The shortest beginning of an id that is looked up.
const SHORTEST_PREFIX: usize = 4;

/// A longer reference names no approval.
const LONGEST_REFERENCE: usize = MAX_APPROVAL_ID_BYTES;

/// An error message repeats at most this many characters of an unknown reference.
const SHOWN_REFERENCE: usize = 36;

/// A page of the list of undecided approvals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingPage {
    pub approvals: Vec<ApprovalSummary>,
    /// How many approvals can still be decided, on all pages.
    pub unexpired: u64,
    /// How many approvals are past their time without a recorded end.
    pub overdue: u64,
    /// Where the next page begins. `None` on the last page.
    pub next: Option<PendingCursor>,
}

/// A position in the list of undecided approvals. It stays valid when other approvals are created
/// or decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingCursor {
    expires_at_ms: i64,
    number: i64,
}

/// The text is not a position in the list of undecided approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not the nextCursor of a list of pending approvals")]
pub struct PendingCursorInvalid;

impl fmt::Display for PendingCursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.expires_at_ms, self.number)
    }
}

impl FromStr for PendingCursor {
    type Err = PendingCursorInvalid;

    fn from_str(text: &str) -> Result<Self, PendingCursorInvalid> {
        let (expires, number) = text.split_once('.').ok_or(PendingCursorInvalid)?;
        Ok(Self {
            expires_at_ms: expires.parse().map_err(|_| PendingCursorInvalid)?,
            number: number.parse().map_err(|_| PendingCursorInvalid)?,
        })
    }
}

impl Store {
    /// Finds an approval by its id, by its short id, or by a beginning of its id (four characters
    /// or more) that no other id has. Upper and lower case are equal in ids and short ids of this
    /// program. Ids that clients chose must be given as they were written.
    pub fn approval(&self, reference: &str) -> Result<Approval, StoreError> {
        self.read(|sql| find(sql, reference))
    }

    /// Returns the undecided approvals: first those that can still be decided, then those that are
    /// past their time. In each part, the approval that expires first comes first. A page has at
    /// most [`MAX_PAGE`].
    pub fn pending_approvals(
        &self,
        now_ms: i64,
        offset: usize,
        limit: usize,
    ) -> Result<PendingPage, StoreError> {
        self.read(|sql| page(sql, now_ms, offset, limit.min(MAX_PAGE)))
    }

    /// Returns a page of the approvals that can still be decided, the one that expires first in
    /// front. A page has at most [`MAX_PAGE`].
    pub fn pending_page(
        &self,
        now_ms: i64,
        after: Option<PendingCursor>,
        limit: usize,
    ) -> Result<PendingPage, StoreError> {
        let place = after.unwrap_or(PendingCursor {
            expires_at_ms: now_ms,
            number: i64::MAX,
        });
        self.read(|sql| page_after(sql, now_ms, place, limit.min(MAX_PAGE)))
    }

    /// Returns the ids of approvals of this binding whose runs on nodes were never claimed:
    /// undecided ones, and those with `allow-once` or `allow-always`. At most `most`, oldest first.
    pub fn unclaimed_on_nodes(
        &self,
        binding: &str,
        most: usize,
    ) -> Result<Vec<String>, StoreError> {
        self.read(|sql| {
            sql.all(
                "SELECT id FROM approval WHERE binding = ?1 AND node IS NOT NULL
                 AND (ending IS NULL OR ending IN ('allow-once', 'allow-always'))
                 AND NOT EXISTS (SELECT 1 FROM run_claim WHERE run_claim.approval_id = approval.id)
                 ORDER BY number LIMIT ?2",
                params![binding, i64::try_from(most).unwrap_or(i64::MAX)],
                |row| row.get(0),
            )
        })
    }

    /// Returns the ids of approvals whose runs on this host were never claimed: undecided ones, and
    /// those that were allowed. At most `most` of those requested before `asked_before_ms`, oldest
    /// first.
    pub fn unclaimed_here(
        &self,
        host: &str,
        asked_before_ms: i64,
        most: usize,
    ) -> Result<Vec<String>, StoreError> {
        self.read(|sql| {
            sql.all(
                "SELECT id FROM approval WHERE host = ?1 AND node IS NULL AND created_at_ms < ?2
                 AND (ending IS NULL OR ending IN
                     ('allow-once', 'allow-session', 'allow-always', 'lease', 'fallback-allow'))
                 AND NOT EXISTS (SELECT 1 FROM run_claim WHERE run_claim.id = approval.id)
                 ORDER BY number LIMIT ?3",
                params![
                    host,
                    asked_before_ms,
                    i64::try_from(most).unwrap_or(i64::MAX)
                ],
                |row| row.get(0),
            )
        })
    }

    /// See [`Change::overdue_approvals`].
    pub fn overdue_approvals(&self, now_ms: i64, most: usize) -> Result<Vec<String>, StoreError> {
        self.read(|sql| overdue(sql, now_ms, most))
    }
}

impl Change<'_> {
    /// See [`Store::approval`].
    pub fn approval(&self, reference: &str) -> Result<Approval, StoreError> {
        find(&self.sql, reference)
    }

    /// Returns the request under this full id and how it ended. The result has neither deliveries
    /// nor a claim.
    pub fn asked(&self, id: &str) -> Result<Approval, StoreError> {
        asked(&self.sql, ApprovalKey::Id, id)?.ok_or_else(|| not_found(id))
    }

    /// Returns the ids of undecided approvals whose time is up, at most `most`, those that expired
    /// first in front. How many other approvals are pending makes no difference.
    pub fn overdue_approvals(&self, now_ms: i64, most: usize) -> Result<Vec<String>, StoreError> {
        overdue(&self.sql, now_ms, most)
    }
}

pub(super) fn overdue(sql: &Sql<'_>, now_ms: i64, most: usize) -> Result<Vec<String>, StoreError> {
    sql.all(
        "SELECT id FROM approval WHERE ending IS NULL AND expires_at_ms <= ?1
         ORDER BY expires_at_ms, number LIMIT ?2",
        params![now_ms, i64::try_from(most).unwrap_or(i64::MAX)],
        |row| row.get(0),
    )
}

/// The name under which the ends of approvals are sealed.
const DECISION: &str = "decision";

/// The small row of an approval, with everything that decides what may happen to it.
pub(crate) struct ApprovalState {
    pub(crate) number: i64,
    pub(crate) short_id: String,
    pub(crate) plan_digest: String,
    pub(crate) content_digest: String,
    pub(crate) agent: String,
    pub(crate) session_key: String,
    pub(crate) host: String,
    pub(crate) node: Option<String>,
    pub(crate) requester: String,
    pub(crate) expires_at_ms: i64,
    pub(crate) ended: Option<ApprovalEnd>,
    /// The seal over how the approval ended.
    pub(crate) seal: Option<Vec<u8>>,
}

impl ApprovalState {
    /// Whether this program wrote how the approval ended. Without its seal, an approval lets
    /// nothing run.
    pub(crate) fn is_sealed(&self, store: &Store, id: &str) -> bool {
        let seal = self.seal.as_deref();
        self.ended.as_ref().is_some_and(|ended| {
            store
                .key()
                .is_sealed(DECISION, &self.sealed(id, ended), seal)
        })
    }

    pub(crate) fn seal(&self, store: &Store, id: &str, ended: &ApprovalEnd) -> [u8; 32] {
        store.key().seal(DECISION, &self.sealed(id, ended))
    }

    /// Returns the values that the seal covers: everything that decides what may run.
    fn sealed(&self, id: &str, ended: &ApprovalEnd) -> impl serde::Serialize {
        (
            id.to_owned(),
            self.plan_digest.clone(),
            self.content_digest.clone(),
            (self.agent.clone(), self.session_key.clone()),
            (self.host.clone(), self.node.clone()),
            ended.ending.as_str(),
            ended.ending.lease_columns(),
            ended.decider.clone(),
            ended.at_ms,
        )
    }
}

/// Finds an approval by its exact id only: operations that change something must never guess which
/// approval is meant.
pub(crate) fn state_of(sql: &Sql<'_>, id: &str) -> Result<ApprovalState, StoreError> {
    let state = sql.optional(
        "SELECT ending, lease_for_ms, lease_max_uses, decider, ended_at_ms, deny_reason, number,
            short_id, plan_digest, content_digest, agent, session_key, host, node, requester, expires_at_ms,
            seal
         FROM approval WHERE id = ?1",
        [id],
        |row| {
            Ok(ApprovalState {
                ended: ended(row)?,
                number: row.get(6)?,
                short_id: row.get(7)?,
                plan_digest: row.get(8)?,
                content_digest: row.get(9)?,
                agent: row.get(10)?,
                session_key: row.get(11)?,
                host: row.get(12)?,
                node: row.get(13)?,
                requester: row.get(14)?,
                expires_at_ms: row.get(15)?,
                seal: row.get(16)?,
            })
        },
    )?;
    state.ok_or_else(|| not_found(id))
}

/// Reads the end of an approval from the first six columns.
fn ended(row: &Row<'_>) -> rusqlite::Result<Option<ApprovalEnd>> {
    let Some(word) = row.get::<_, Option<String>>(0)? else {
        return Ok(None);
    };
    let ending = ApprovalEnding::from_columns(&word, row.get(1)?, row.get(2)?);
    Ok(Some(ApprovalEnd {
        ending: ending.ok_or_else(|| {
            rusqlite::Error::InvalidColumnType(0, word, rusqlite::types::Type::Text)
        })?,
        decider: row.get(3)?,
        at_ms: row.get(4)?,
        reason: row.get(5)?,
    }))
}

fn not_found(reference: &str) -> StoreError {
    let reference = reference.chars().take(SHOWN_REFERENCE).collect();
    ApprovalError::NotFound { reference }.into()
}

/// The column that identifies an approval.
#[derive(Debug, Clone, Copy)]
enum ApprovalKey {
    Id,
    Number,
}

macro_rules! asked_columns {
    () => {
        "SELECT ending, lease_for_ms, lease_max_uses, decider, ended_at_ms, deny_reason, id, short_id,
            plan, plan_digest, content_digest, verdict, binding, preview, agent, session_key, host, node,
            requester, created_at_ms, expires_at_ms, always
         FROM approval JOIN approval_content USING (number)"
    };
}

/// Returns the request of the approval with this key, and how it ended. Its deliveries and its
/// claim are in other tables.
fn asked(
    sql: &Sql<'_>,
    key: ApprovalKey,
    value: impl rusqlite::ToSql,
) -> Result<Option<Approval>, StoreError> {
    let statement = match key {
        ApprovalKey::Id => concat!(asked_columns!(), " WHERE id = ?1"),
        ApprovalKey::Number => concat!(asked_columns!(), " WHERE number = ?1"),
    };
    sql.optional(statement, [value], |row| {
        Ok(Approval {
            ended: ended(row)?,
            id: row.get(6)?,
            short_id: row.get(7)?,
            request: ApprovalRequest {
                plan: row.get(8)?,
                plan_digest: row.get(9)?,
                content_digest: row.get(10)?,
                verdict: json::column(row, 11)?,
                binding: row.get(12)?,
                preview: row.get(13)?,
                agent: row.get(14)?,
                session_key: row.get(15)?,
                host: row.get(16)?,
                node: row.get(17)?,
                requester: row.get(18)?,
                created_at_ms: row.get(19)?,
                expires_at_ms: row.get(20)?,
                always: json::column_if_any(row, 21)?,
            },
            deliveries: Vec::new(),
            claim: None,
        })
    })
}

fn find(sql: &Sql<'_>, reference: &str) -> Result<Approval, StoreError> {
    let number = resolve(sql, reference)?;
    let mut approval =
        asked(sql, ApprovalKey::Number, number)?.ok_or_else(|| not_found(reference))?;
    approval.deliveries = sql.all(
        "SELECT surface, state, at_ms, detail FROM approval_delivery WHERE number = ?1
         ORDER BY at_ms, surface, state",
        [number],
        |row| {
            Ok(Delivery {
                surface: row.get(0)?,
                state: row.get(1)?,
                at_ms: row.get(2)?,
                detail: row.get(3)?,
            })
        },
    )?;
    approval.claim = claim::find(sql, &approval.id)?;
    Ok(approval)
}

/// Returns the number of the one approval that a user's text names, as written or in lower case.
fn resolve(sql: &Sql<'_>, reference: &str) -> Result<i64, StoreError> {
    let lower = reference.to_ascii_lowercase();
    // The id as it was written counts first: ids of clients may differ by case alone.
    let exact = sql.optional(
        "SELECT number FROM approval WHERE id IN (?1, ?2) OR short_id = ?2
         ORDER BY id = ?1 DESC, short_id = ?2 LIMIT 1",
        [reference, &lower],
        |row| row.get(0),
    )?;
    if let Some(number) = exact {
        return Ok(number);
    }
    let is_prefix = (SHORTEST_PREFIX..LONGEST_REFERENCE).contains(&reference.len())
        && reference.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_prefix {
        return Err(not_found(reference));
    }
    // `~` sorts after every character of an id.
    let numbers: Vec<i64> = sql.all(
        "SELECT number FROM approval WHERE (id >= ?1 AND id < ?1 || '~')
            OR (id >= ?2 AND id < ?2 || '~') LIMIT 2",
        [reference, &lower],
        |row| row.get(0),
    )?;
    match numbers[..] {
        [] => Err(not_found(reference)),
        [number] => Ok(number),
        _ => Err(ApprovalError::Ambiguous {
            reference: reference.to_owned(),
        }
        .into()),
    }
}

fn page(
    sql: &Sql<'_>,
    now_ms: i64,
    offset: usize,
    limit: usize,
) -> Result<PendingPage, StoreError> {
    let (unexpired, overdue) = counts(sql, now_ms)?;
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut approvals = summaries(sql, ">", now_ms, offset, limit)?;
    let rest = limit - approvals.len().cast_signed() as i64;
    if rest > 0 {
        let offset = offset.saturating_sub(unexpired).max(0);
        approvals.extend(summaries(sql, "<=", now_ms, offset, rest)?);
    }
    Ok(PendingPage {
        approvals,
        unexpired: unexpired.cast_unsigned(),
        overdue: overdue.cast_unsigned(),
        next: None,
    })
}

/// Counts the approvals that can still be decided, and those that are past their time.
fn counts(sql: &Sql<'_>, now_ms: i64) -> Result<(i64, i64), StoreError> {
    let count = |statement| sql.one(statement, [now_ms], |row| row.get::<_, i64>(0));
    Ok((
        count("SELECT count(*) FROM approval WHERE ending IS NULL AND expires_at_ms > ?1")?,
        count("SELECT count(*) FROM approval WHERE ending IS NULL AND expires_at_ms <= ?1")?,
    ))
}

fn page_after(
    sql: &Sql<'_>,
    now_ms: i64,
    after: PendingCursor,
    limit: usize,
) -> Result<PendingPage, StoreError> {
    let (unexpired, overdue) = counts(sql, now_ms)?;
    // One row more than the page has shows that there is a next page.
    let wanted = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut rows = sql.all(
        "WITH page AS (
            SELECT number FROM approval WHERE ending IS NULL
            AND expires_at_ms > ?1 AND (expires_at_ms, number) > (?2, ?3)
            ORDER BY expires_at_ms, number LIMIT ?4)
         SELECT id, short_id, plan_digest, binding, preview, agent, session_key, host, node,
            requester, created_at_ms, expires_at_ms, content_digest, number
         FROM page JOIN approval USING (number) JOIN approval_content USING (number)
         ORDER BY expires_at_ms, number",
        params![now_ms, after.expires_at_ms, after.number, wanted],
        |row| Ok((summary(row)?, row.get(13)?)),
    )?;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().map(|(last, number)| PendingCursor {
        expires_at_ms: last.expires_at_ms,
        number: *number,
    });
    Ok(PendingPage {
        approvals: rows.into_iter().map(|(summary, _)| summary).collect(),
        unexpired: unexpired.cast_unsigned(),
        overdue: overdue.cast_unsigned(),
        next: next.filter(|_| has_more),
    })
}

fn summary(row: &Row<'_>) -> rusqlite::Result<ApprovalSummary> {
    Ok(ApprovalSummary {
        id: row.get(0)?,
        short_id: row.get(1)?,
        plan_digest: row.get(2)?,
        binding: row.get(3)?,
        preview: row.get(4)?,
        agent: row.get(5)?,
        session_key: row.get(6)?,
        host: row.get(7)?,
        node: row.get(8)?,
        requester: row.get(9)?,
        created_at_ms: row.get(10)?,
        expires_at_ms: row.get(11)?,
        content_digest: row.get(12)?,
    })
}

/// Chooses the page by the index alone, and then reads only the rows of the page.
fn summaries(
    sql: &Sql<'_>,
    side: &str,
    now_ms: i64,
    offset: i64,
    limit: i64,
) -> Result<Vec<ApprovalSummary>, StoreError> {
    let statement = format!(
        "WITH page AS (
            SELECT number FROM approval WHERE ending IS NULL AND expires_at_ms {side} ?1
            ORDER BY expires_at_ms, number LIMIT ?2 OFFSET ?3)
         SELECT id, short_id, plan_digest, binding, preview, agent, session_key, host, node,
            requester, created_at_ms, expires_at_ms, content_digest
         FROM page JOIN approval USING (number) JOIN approval_content USING (number)
         ORDER BY expires_at_ms, number"
    );
    sql.all(&statement, params![now_ms, limit, offset], summary)
}
