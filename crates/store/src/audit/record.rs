//! One audit record, and how it is added to the chain.

use std::fmt;
use std::str::FromStr;

use rusqlite::params;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::audit::search;
use crate::change::{Change, Sql};
use crate::database::Store;
use crate::error::StoreError;
use crate::json::{canonical, hex};
use crate::limits;

/// Separates the hashes of this chain from every other use of SHA-256.
const DOMAIN: &[u8] = b"interlock audit record v1\0";

/// The subject of an audit record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuditKind {
    Verdict,
    /// An approval was requested.
    Prompt,
    Delivery,
    /// An approver, expiry or the fallback ended an approval, or a grant ended.
    Decision,
    RunStarted,
    RunEnded,
    PolicyWrite,
    Pairing,
    Patch,
    /// A sandboxed run reached a host, or was kept from reaching it.
    Connection,
    /// What happened to the changes that a run made under `cow`.
    Effect,
    /// Old records were moved to a file.
    Archive,
    /// An attempt was refused before the policy or an approver decided.
    Refusal,
}

impl AuditKind {
    pub const ALL: [Self; 13] = [
        Self::Verdict,
        Self::Prompt,
        Self::Delivery,
        Self::Decision,
        Self::RunStarted,
        Self::RunEnded,
        Self::PolicyWrite,
        Self::Pairing,
        Self::Patch,
        Self::Connection,
        Self::Effect,
        Self::Archive,
        Self::Refusal,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Verdict => "verdict",
            Self::Prompt => "prompt",
            Self::Delivery => "delivery",
            Self::Decision => "decision",
            Self::RunStarted => "run-started",
            Self::RunEnded => "run-ended",
            Self::PolicyWrite => "policy-write",
            Self::Pairing => "pairing",
            Self::Patch => "patch",
            Self::Connection => "connection",
            Self::Effect => "effect",
            Self::Archive => "archive",
            Self::Refusal => "refusal",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl FromSql for AuditKind {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::from_word(value.as_str()?).ok_or(FromSqlError::InvalidType)
    }
}

/// SHA-256 of a record and of all records before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuditHash(pub(super) [u8; 32]);

impl fmt::Display for AuditHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for AuditHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuditHash({self})")
    }
}

impl FromSql for AuditHash {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let bytes = value.as_blob()?;
        let bytes = bytes.try_into().map_err(|_| FromSqlError::InvalidType)?;
        Ok(Self(bytes))
    }
}

/// The last record of a chain. A copy that is kept elsewhere reveals later whether the tail was cut
/// off or the chain was rewritten. As text: the number, a colon, the hash in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuditHead {
    /// 0 if there is no record yet.
    pub seq: u64,
    pub hash: AuditHash,
}

impl AuditHead {
    pub(super) const START: Self = Self {
        seq: 0,
        hash: AuditHash([0; 32]),
    };

    /// Returns the head after one more record. Every part of the hashed bytes has a fixed length or
    /// is preceded by its length, so no two records give the same bytes.
    pub(super) fn next(self, time_ms: i64, kind: &str, body: &str) -> Self {
        let seq = self.seq + 1;
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        hash.update(self.hash.0);
        hash.update(seq.to_be_bytes());
        hash.update(time_ms.to_be_bytes());
        for text in [kind, body] {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
        }
        Self {
            seq,
            hash: AuditHash(hash.finalize().into()),
        }
    }
}

impl fmt::Display for AuditHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

/// The text is not an audit head.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an audit head is written NUMBER:HASH, the hash with 64 hexadecimal digits")]
pub struct AuditHeadInvalid;

impl FromStr for AuditHead {
    type Err = AuditHeadInvalid;

    fn from_str(text: &str) -> Result<Self, AuditHeadInvalid> {
        let (seq, digits) = text.split_once(':').ok_or(AuditHeadInvalid)?;
        let digits = digits.as_bytes();
        if digits.len() != 64 {
            return Err(AuditHeadInvalid);
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let nibble = |digit: u8| char::from(digit).to_digit(16).ok_or(AuditHeadInvalid);
            let value = nibble(pair[0])? * 16 + nibble(pair[1])?;
            *byte = u8::try_from(value).map_err(|_| AuditHeadInvalid)?;
        }
        Ok(Self {
            seq: seq.parse().map_err(|_| AuditHeadInvalid)?,
            hash: AuditHash(hash),
        })
    }
}

/// An audit record as it is read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    pub seq: u64,
    pub time_ms: i64,
    pub kind: AuditKind,
    pub body: Value,
    pub hash: AuditHash,
}

impl Change<'_> {
    /// Adds a record that is committed together with the rest of this change. Several records in
    /// one change cost one durable commit.
    pub fn append(
        &self,
        kind: AuditKind,
        body: &Value,
        now_ms: i64,
    ) -> Result<AuditHead, StoreError> {
        let body = canonical(body);
        limits::AUDIT_BODY.check(&body)?;
        let last = match self.last_record.get() {
            Some(last) => last,
            None => head(&self.sql)?,
        };
        let next = last.next(now_ms, kind.as_str(), &body);
        self.sql.execute(
            "INSERT INTO audit (seq, time_ms, kind, body, hash) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                next.seq.cast_signed(),
                now_ms,
                kind.as_str(),
                body,
                next.hash.0.as_slice()
            ],
        )?;
        search::index_complete_blocks(&self.sql, next.seq)?;
        self.last_record.set(Some(next));
        Ok(next)
    }
}

impl Store {
    /// Adds one record, and returns when it is on the disk.
    pub fn append(
        &self,
        kind: AuditKind,
        body: &Value,
        now_ms: i64,
    ) -> Result<AuditHead, StoreError> {
        self.change(|change| change.append(kind, body, now_ms))
    }

    /// Returns the last record, for publication where this machine's user cannot change it. The
    /// record is on the disk, whichever process wrote it.
    pub fn audit_head(&self) -> Result<AuditHead, StoreError> {
        let last = self.read(head)?;
        self.sync()?;
        Ok(last)
    }
}

pub(super) fn head(sql: &Sql<'_>) -> Result<AuditHead, StoreError> {
    let last = sql.optional(
        "SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1",
        [],
        |row| {
            Ok(AuditHead {
                seq: row.get::<_, i64>(0)?.cast_unsigned(),
                hash: row.get(1)?,
            })
        },
    )?;
    match last {
        // No chain grows to this number. It was written by hand, and no record can follow it.
        Some(head) if head.seq >= i64::MAX.cast_unsigned() => {
            Err(sql.corrupt("the last audit record has an impossible number"))
        }
        head => Ok(head.unwrap_or(AuditHead::START)),
    }
}

/// A record's place in the chain, with its kind and its body.
pub(crate) type ChainedRecord = (AuditHead, (String, String));

/// Returns a record with its kind and body if its hash follows from the record before it. Returns
/// `None` if either record is missing or was changed.
pub(crate) fn chained_record(sql: &Sql<'_>, seq: i64) -> Result<Option<ChainedRecord>, StoreError> {
    // The hash of the last archived record is in the row of the cut, whose seal is not checked
    // here. The record after it is believed only if its hash fits, and the caller must check a seal
    // of its own over that hash.
    let hash_of = |seq: i64| {
        let statement = "SELECT hash FROM audit WHERE seq = ?1
            UNION ALL SELECT hash FROM audit_cut WHERE seq = ?1 LIMIT 1";
        sql.optional(statement, [seq], |row| row.get::<_, AuditHash>(0))
    };
    let before = match seq.checked_sub(1) {
        Some(0) => Some(AuditHead::START),
        Some(number) if number > 0 => hash_of(number)?.map(|hash| AuditHead {
            seq: number.cast_unsigned(),
            hash,
        }),
        _ => None,
    };
    let Some(before) = before else {
        return Ok(None);
    };
    let found = sql.optional(
        "SELECT time_ms, kind, body, hash FROM audit WHERE seq = ?1",
        [seq],
        |row| {
            let hash: AuditHash = row.get(3)?;
            Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, hash))
        },
    )?;
    Ok(found.and_then(|(time_ms, kind, body, hash)| {
        let (kind, body): (String, String) = (kind, body);
        let head = before.next(time_ms, &kind, &body);
        (head.hash == hash).then_some((head, (kind, body)))
    }))
}

/// Returns the number of the newest record of a kind whose body `is_wanted`. The kind must be one
/// of the seldom kinds, which have an index.
pub(crate) fn newest_of(
    sql: &Sql<'_>,
    kind: AuditKind,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Option<i64>, StoreError> {
    let statement = format!(
        "SELECT seq, body FROM audit WHERE kind = ?1 AND {} ORDER BY seq DESC",
        super::log::IS_SELDOM
    );
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?));
    let found = sql.until(&statement, [kind.as_str()], read, |(_, body)| {
        is_wanted(body)
    })?;
    let last = found.last().filter(|(_, body)| is_wanted(body));
    Ok(last.map(|(seq, _)| *seq))
}
