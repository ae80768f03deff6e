//! Checks the audit chain from its start.

use std::fmt;

use rusqlite::params;

use crate::audit::archive::attests;
use crate::audit::record::AuditHead;
use crate::change::Sql;
use crate::database::Store;
use crate::error::StoreError;

/// Records are read in pieces, so that other processes can use the database meanwhile.
const PIECE_RECORDS: usize = 512;

/// A piece ends early when it holds this many bytes.
const PIECE_BYTES: usize = 4 * 1024 * 1024;

/// The result of a check of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum AuditVerification {
    /// Every record up to this head is as it was written.
    Intact(AuditHead),
    Broken(ChainBreak),
}

/// The first record that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainBreak {
    pub seq: u64,
    pub problem: ChainProblem,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainProblem {
    /// The record at this number does not match its hash.
    Changed,
    /// The records from this number through `through` are missing.
    Removed { through: u64 },
    /// The record that belongs at this number stands at another number.
    Moved { now_at: i64 },
    /// A record with an impossible number stands before the first record.
    Foreign { number: i64 },
    /// The chain ends before the head that was published.
    Cut { head: AuditHead },
    /// The chain is consistent, but its hashes differ from the published head.
    Rewritten { head: AuditHead },
    /// The cut where the chain begins was not made by this program, or no `archive` record attests
    /// to it.
    FalseCut,
    /// The record of the published head is in an archive.
    Archived { head: AuditHead },
    /// The records are whole, but searches by agent, kind or time may miss some of them.
    NotIndexed { through: u64 },
}

impl fmt::Display for ChainBreak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seq = self.seq;
        match &self.problem {
            ChainProblem::Changed => write!(
                f,
                "record {seq} does not match its hash: it was changed, or records before it were removed and it was given another number"
            ),
            ChainProblem::Removed { through } if *through == seq => {
                write!(f, "record {seq} was removed")
            }
            ChainProblem::Removed { through } => {
                write!(f, "records {seq} to {through} were removed")
            }
            ChainProblem::Moved { now_at } => {
                write!(f, "record {seq} was moved: it stands at {now_at} now")
            }
            ChainProblem::Foreign { number } => {
                write!(
                    f,
                    "a record with the impossible number {number} was put before record {seq}"
                )
            }
            ChainProblem::Cut { head } => write!(
                f,
                "records from {seq} on were cut off: record {} was published",
                head.seq
            ),
            ChainProblem::Rewritten { head } => write!(
                f,
                "record {seq} is not the one whose hash was published: {}",
                head.hash
            ),
            ChainProblem::FalseCut => write!(
                f,
                "the chain begins behind record {seq}, and no archive was made there: records were removed"
            ),
            ChainProblem::Archived { head } => write!(
                f,
                "record {} was archived: compare its hash with the archive file that holds it, and verify with a newer head",
                head.seq
            ),
            ChainProblem::NotIndexed { through } => write!(
                f,
                "the search index of records {seq} to {through} was changed: the records are whole, but a filtered log may not show all of them"
            ),
        }
    }
}

/// A row as it stands in the database. It may have been tampered with.
pub(super) struct RawRecord {
    pub(super) seq: i64,
    pub(super) time_ms: i64,
    pub(super) kind: String,
    pub(super) body: String,
    pub(super) hash: Vec<u8>,
}

impl RawRecord {
    /// Whether this is the record that followed `previous` when it was written.
    fn belongs_after(&self, previous: AuditHead) -> bool {
        self.hash == self.hash_after(previous).hash.0
    }

    fn hash_after(&self, previous: AuditHead) -> AuditHead {
        previous.next(self.time_ms, &self.kind, &self.body)
    }
}

impl Store {
    /// Checks every record, from the start of the chain or from the cut behind archived records.
    /// With a published head, also checks that its record is still there and unchanged. Without a
    /// published head, a chain whose tail was cut off looks whole.
    pub fn verify_audit(
        &self,
        published: Option<&AuditHead>,
    ) -> Result<AuditVerification, StoreError> {
        let end = self.read(last_number)?;
        let cut = match self.read(|sql| self.sealed_cut(sql))? {
            Ok(cut) => cut,
            Err(broken) => return Ok(AuditVerification::Broken(broken)),
        };
        let mut previous = cut.map_or(AuditHead::START, |cut| cut.head);
        if let Some(broken) = rewritten(previous, published) {
            return Ok(AuditVerification::Broken(broken));
        }
        if let Some(head) = published.filter(|head| head.seq < previous.seq) {
            let problem = ChainProblem::Archived { head: *head };
            let seq = head.seq;
            return Ok(AuditVerification::Broken(ChainBreak { seq, problem }));
        }
        let mut is_attested = cut.is_none();
        let mut after = i64::MIN;
        loop {
            let piece = self.read(|sql| piece(sql, after, end))?;
            let Some(last) = piece.last() else { break };
            after = last.seq;
            for record in piece {
                let next = record.hash_after(previous);
                if record.seq != next.seq.cast_signed() || record.hash != next.hash.0 {
                    let broken = self.describe(previous, &record)?;
                    return Ok(AuditVerification::Broken(broken));
                }
                is_attested |= cut.is_some_and(|cut| attests(&cut, &record));
                previous = next;
                if let Some(broken) = rewritten(previous, published) {
                    return Ok(AuditVerification::Broken(broken));
                }
            }
        }
        if let Some(cut) = cut.filter(|_| !is_attested) {
            return Ok(AuditVerification::Broken(ChainBreak {
                seq: cut.head.seq,
                problem: ChainProblem::FalseCut,
            }));
        }
        Ok(match published {
            Some(head) if head.seq > previous.seq => AuditVerification::Broken(ChainBreak {
                seq: previous.seq + 1,
                problem: ChainProblem::Cut { head: *head },
            }),
            _ => match self.wrongly_indexed()? {
                Some(broken) => AuditVerification::Broken(broken),
                None => AuditVerification::Intact(previous),
            },
        })
    }

    /// Describes the break after `previous`, where `found` is the next record.
    fn describe(&self, previous: AuditHead, found: &RawRecord) -> Result<ChainBreak, StoreError> {
        let seq = previous.seq + 1;
        let broken = |problem| Ok(ChainBreak { seq, problem });
        if found.seq <= 0 {
            return broken(ChainProblem::Foreign { number: found.seq });
        }
        let end = self.read(last_number)?;
        let mut after = i64::MIN;
        loop {
            let piece = self.read(|sql| piece(sql, after, end))?;
            let Some(last) = piece.last() else { break };
            after = last.seq;
            if let Some(moved) = piece.iter().find(|record| record.belongs_after(previous)) {
                return broken(ChainProblem::Moved { now_at: moved.seq });
            }
        }
        if found.seq.cast_unsigned() > seq {
            let through = found.seq.cast_unsigned() - 1;
            return broken(ChainProblem::Removed { through });
        }
        broken(ChainProblem::Changed)
    }
}

fn rewritten(reached: AuditHead, published: Option<&AuditHead>) -> Option<ChainBreak> {
    let head = *published?;
    (head.seq == reached.seq && head.hash != reached.hash).then_some(ChainBreak {
        seq: reached.seq,
        problem: ChainProblem::Rewritten { head },
    })
}

/// Returns the highest record number, even if it is an impossible one.
fn last_number(sql: &Sql<'_>) -> Result<i64, StoreError> {
    sql.one("SELECT coalesce(max(seq), 0) FROM audit", [], |row| {
        row.get(0)
    })
}

/// Returns the next records after a number, up to and including `end`.
pub(super) fn piece(sql: &Sql<'_>, after: i64, end: i64) -> Result<Vec<RawRecord>, StoreError> {
    let mut bytes = 0;
    sql.until(
        "SELECT seq, time_ms, kind, body, hash FROM audit
         WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3",
        params![after, end, PIECE_RECORDS.cast_signed()],
        |row| {
            Ok(RawRecord {
                seq: row.get(0)?,
                time_ms: row.get(1)?,
                kind: row.get(2)?,
                body: row.get(3)?,
                hash: row.get(4)?,
            })
        },
        |record| {
            bytes += record.body.len();
            bytes >= PIECE_BYTES
        },
    )
}
