//! Creates a pending approval.

use rusqlite::params;
use serde_json::json;

use crate::audit::AuditKind;
use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::json::canonical;
use crate::limits;
use crate::pending::{ApprovalError, ApprovalRequest};

/// The letters of short ids. Without a to f, no short id is the beginning of an id. Without vowels,
/// none is a word. Of letters that look alike, alone or in pairs, only one is used (i j l, o q, u
/// v, m rn, w vv).
const LETTERS: &[u8] = b"ghjkmnpstwxyz";

const SHORT_ID_LENGTH: usize = 5;

/// The most attempts to draw a free short id. With half of all short ids taken, all of them fail
/// once in 10^19.
const DRAWS: usize = 64;

/// The ids of a new approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedApproval {
    pub id: String,
    pub short_id: String,
}

impl Store {
    /// Stores a pending approval. When this returns, the approval survives a restart.
    pub fn create_approval(
        &self,
        request: &ApprovalRequest,
    ) -> Result<CreatedApproval, StoreError> {
        self.change(|change| change.create_approval(request))
    }
}

impl Change<'_> {
    pub fn create_approval(
        &self,
        request: &ApprovalRequest,
    ) -> Result<CreatedApproval, StoreError> {
        self.create_approval_as(&new_id()?, request)
    }

    /// Like [`Self::create_approval`], under an id that the caller has chosen. The id must not be
    /// taken: see [`Change::has_approval`].
    pub fn create_approval_as(
        &self,
        id: &str,
        request: &ApprovalRequest,
    ) -> Result<CreatedApproval, StoreError> {
        request.check()?;
        limits::APPROVAL_ID.check(id)?;
        let (number, short_id) = self.insert_under_free_short_id(id, request)?;
        self.is_awaited.set(true);
        self.sql.execute(
            "INSERT INTO approval_content (number, preview, verdict, always, plan)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                number,
                request.preview,
                canonical(&request.verdict),
                request.always.as_ref().map(canonical),
                request.plan,
            ],
        )?;
        let record = json!({
            "agent": request.agent,
            "approvalId": id,
            "binding": request.binding,
            "expiresAtMs": request.expires_at_ms,
            "host": request.host,
            "node": request.node,
            "planDigest": request.plan_digest,
            "preview": request.preview,
            "requester": request.requester,
            "sessionKey": request.session_key,
            "shortId": short_id,
        });
        self.append(AuditKind::Prompt, &record, request.created_at_ms)?;
        self.queue_chat_messages(number, request.created_at_ms)?;
        let bytes = request.plan.len() + request.preview.len();
        self.keep_ended_within_room(&request.agent, number, bytes)?;
        Ok(CreatedApproval {
            id: id.to_owned(),
            short_id,
        })
    }

    /// Refuses another approval for an agent that already has `most` pending ones: an agent must
    /// not bury what an approver has to read. Call this in the change that creates the approval.
    pub fn check_pending(&self, agent: &str, most: usize, now_ms: i64) -> Result<(), StoreError> {
        let limit = i64::try_from(most).unwrap_or(i64::MAX);
        let waiting: i64 = self.sql.one(
            "SELECT count(*) FROM (SELECT 1 FROM approval
                WHERE ending IS NULL AND agent = ?1 AND expires_at_ms > ?2 LIMIT ?3)",
            params![agent, now_ms, limit],
            |row| row.get(0),
        )?;
        if waiting < limit {
            return Ok(());
        }
        let agent = agent.to_owned();
        Err(ApprovalError::TooManyPending { agent, most }.into())
    }

    /// Whether a pending or an ended approval has this id.
    pub fn has_approval(&self, id: &str) -> Result<bool, StoreError> {
        self.sql.one(
            "SELECT EXISTS (SELECT 1 FROM approval WHERE id = ?1)",
            [id],
            |row| row.get(0),
        )
    }

    /// The short id is unique among all stored approvals, including ended ones. Otherwise a late
    /// decision could reach another approval that got the same short id.
    fn insert_under_free_short_id(
        &self,
        id: &str,
        request: &ApprovalRequest,
    ) -> Result<(i64, String), StoreError> {
        for _ in 0..DRAWS {
            let short_id = draw_short_id()?;
            let number = self.sql.insert(
                "INSERT INTO approval (id, short_id, plan_digest, content_digest, binding, agent,
                    session_key, host, node, requester, created_at_ms, expires_at_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
                 ON CONFLICT (short_id) DO NOTHING",
                params![
                    id,
                    short_id,
                    request.plan_digest,
                    request.content_digest,
                    request.binding,
                    request.agent,
                    request.session_key,
                    request.host,
                    request.node,
                    request.requester,
                    request.created_at_ms,
                    request.expires_at_ms,
                ],
            )?;
            if let Some(number) = number {
                return Ok((number, short_id));
            }
        }
        Err(ApprovalError::TooMany.into())
    }
}

/// A random UUID.
pub(crate) fn new_id() -> Result<String, StoreError> {
    let mut bytes = [0; 16];
    fill_random(&mut bytes)?;
    let id = uuid::Builder::from_random_bytes(bytes).into_uuid();
    Ok(id.hyphenated().to_string())
}

fn draw_short_id() -> Result<String, StoreError> {
    let count = LETTERS.len();
    // Bytes past the last whole multiple are drawn again, so that every letter is equally likely.
    let fair = 256 - 256 % count;
    let mut letters = String::with_capacity(SHORT_ID_LENGTH);
    while letters.len() < SHORT_ID_LENGTH {
        let mut bytes = [0; 8];
        fill_random(&mut bytes)?;
        let drawn = bytes
            .into_iter()
            .map(usize::from)
            .filter(|&byte| byte < fair);
        letters.extend(
            drawn
                .take(SHORT_ID_LENGTH - letters.len())
                .map(|byte| char::from(LETTERS[byte % count])),
        );
    }
    Ok(letters)
}

fn fill_random(bytes: &mut [u8]) -> Result<(), StoreError> {
    getrandom::fill(bytes).map_err(|error| StoreError::Random {
        problem: error.to_string(),
    })
}
