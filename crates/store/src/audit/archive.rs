//! Moves old audit records to files, and cuts the chain behind them.
//!
//! A cut names the number and hash of the last archived record. Its row is sealed with the key of
//! the store, which lies outside of the database. The chain behind the cut holds a record of kind
//! `archive` that says the same. If the two do not match, the chain is broken. So neither writing a
//! row nor restoring an older row can remove records.
//!
//! Only whole blocks of records are archived, and only if the records follow each other as they
//! were written. Broken records stay where they can be seen.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use rusqlite::params;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::approvals::Author;
use crate::audit::log::line;
use crate::audit::record::{AuditHash, AuditHead, AuditKind};
use crate::audit::search::BLOCK_RECORDS;
use crate::audit::verify::{ChainBreak, ChainProblem, RawRecord, piece};
use crate::change::{Change, Sql};
use crate::database::Store;
use crate::error::StoreError;
use crate::json::hex;

/// The name under which cuts are sealed.
const CUT: &str = "audit-cut";

/// The most blocks in one archive file. One change removes all of them, and other writers wait for
/// it.
const FILE_BLOCKS: u64 = 64;

/// The default directory of archives in the state directory.
pub const ARCHIVE_NAME: &str = "audit-archive";

/// Records that were moved to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedAudit {
    pub file: PathBuf,
    /// The number of the first record in the file.
    pub first: u64,
    /// The last record in the file.
    pub head: AuditHead,
}

/// The cut behind which the chain begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AuditCut {
    /// The last record that was archived.
    pub head: AuditHead,
    /// The number of the `archive` record that attests to the cut.
    pub record: i64,
}

/// The body of an audit record of kind `archive`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchiveBody {
    first: u64,
    last: u64,
    last_hash: String,
    file: String,
    sha256: String,
    who: String,
}

/// Why records could not be archived.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    /// Records were changed or removed, so they stay in the database.
    #[error("the chain is broken: {0}")]
    Broken(ChainBreak),
}

impl Store {
    /// Moves whole blocks of records older than `before_ms` into files of this directory, and cuts
    /// the chain behind them. Returns the archives; the list is empty if too few records are old
    /// enough. Then shrinks the database file to its content.
    ///
    /// Only the owner, and what the owner configured, may call this. No caller over the network may
    /// reach it.
    pub fn archive_audit(
        &self,
        before_ms: i64,
        directory: &Path,
        author: &Author,
        now_ms: i64,
    ) -> Result<Vec<ArchivedAudit>, ArchiveError> {
        let mut archived = Vec::new();
        while let Some(one) = self.archive_once(before_ms, directory, author, now_ms)? {
            archived.push(one);
        }
        if archived.is_empty() {
            return Ok(archived);
        }
        match self.rebuild_file() {
            // The records are archived. The next archiving shrinks the file.
            Ok(()) | Err(StoreError::Locked { .. } | StoreError::DiskFull { .. }) => Ok(archived),
            Err(error) => Err(error.into()),
        }
    }

    fn archive_once(
        &self,
        before_ms: i64,
        directory: &Path,
        author: &Author,
        now_ms: i64,
    ) -> Result<Option<ArchivedAudit>, ArchiveError> {
        let cut = self.read(|sql| self.sealed_cut(sql))?;
        let cut = cut.map_err(ArchiveError::Broken)?;
        let start = cut.map_or(AuditHead::START, |cut| cut.head);
        let last = self.read(|sql| last_old_block(sql, start.seq, before_ms))?;
        let Some(last) = last else {
            return Ok(None);
        };
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| ArchiveError::File { path, error }
        };
        make_private(directory).map_err(at(directory))?;
        let first = start.seq + 1;
        let path = directory.join(format!("audit-{first:012}-{last:012}.jsonl"));
        let file = tempfile::Builder::new()
            .prefix(".audit-archive-")
            .tempfile_in(directory)
            .map_err(at(directory))?;
        let (head, sha256) = self.write_archive(file.as_file(), &path, start, last)?;
        // A file of that name was left by a process that ended before it made the cut.
        file.persist(&path)
            .map_err(|error| at(&path)(error.error))?;
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(at(directory))?;
        let body = ArchiveBody {
            first,
            last: head.seq,
            last_hash: head.hash.to_string(),
            file: path.display().to_string(),
            sha256,
            who: author.as_str().to_owned(),
        };
        let made = self.change(|change| change.cut_audit(start, head, &body, now_ms))?;
        Ok(made.then_some(ArchivedAudit {
            file: path,
            first,
            head,
        }))
    }

    /// Writes the records behind `start` up to a number. Each record must follow the one before it.
    fn write_archive(
        &self,
        file: &File,
        path: &Path,
        start: AuditHead,
        last: u64,
    ) -> Result<(AuditHead, String), ArchiveError> {
        let at = |error| ArchiveError::File {
            path: path.to_owned(),
            error,
        };
        let mut out = BufWriter::new(file);
        let mut hash = Sha256::new();
        let mut put = |text: String| {
            let text = text + "\n";
            hash.update(text.as_bytes());
            out.write_all(text.as_bytes()).map_err(at)
        };
        let AuditHead { seq, hash: of } = start;
        put(format!(r#"{{"after":{{"hash":"{of}","seq":{seq}}}}}"#))?;
        let mut head = start;
        while head.seq < last {
            let after = head.seq.cast_signed();
            let records = self.read(|sql| piece(sql, after, last.cast_signed()))?;
            if records.is_empty() {
                let problem = ChainProblem::Removed { through: last };
                return Err(broken(head.seq + 1, problem));
            }
            for record in &records {
                head = follow(head, record)?;
                put(line(record))?;
            }
        }
        let AuditHead { seq, hash: of } = head;
        put(format!(r#"{{"head":{{"hash":"{of}","seq":{seq}}}}}"#))?;
        out.flush().map_err(at)?;
        drop(out);
        file.sync_all().map_err(at)?;
        Ok((head, hex(&hash.finalize())))
    }

    /// Returns where the chain begins, or `None` if it was never cut. A cut that this program did
    /// not make is a break of the chain.
    pub(super) fn sealed_cut(
        &self,
        sql: &Sql<'_>,
    ) -> Result<Result<Option<AuditCut>, ChainBreak>, StoreError> {
        let found = sql.optional("SELECT seq, hash, record, seal FROM audit_cut", [], |row| {
            let seq = row.get::<_, i64>(0)?.cast_unsigned();
            let hash: AuditHash = row.get(1)?;
            let head = AuditHead { seq, hash };
            let record = row.get(2)?;
            Ok((AuditCut { head, record }, row.get::<_, Vec<u8>>(3)?))
        })?;
        let Some((cut, seal)) = found else {
            return Ok(Ok(None));
        };
        let is_sealed = self.key().is_sealed(CUT, &sealed(&cut), Some(&seal));
        Ok(if is_sealed && cut.head.seq.is_multiple_of(BLOCK_RECORDS) {
            Ok(Some(cut))
        } else {
            Err(ChainBreak {
                seq: cut.head.seq,
                problem: ChainProblem::FalseCut,
            })
        })
    }
}

impl Change<'_> {
    /// Removes the records up to `head`, which are in an archive. Returns `false` if another
    /// process changed the cut first.
    fn cut_audit(
        &self,
        start: AuditHead,
        head: AuditHead,
        body: &ArchiveBody,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let present = self.store.sealed_cut(&self.sql)?;
        let present = present.map(|cut| cut.map_or(AuditHead::START, |cut| cut.head));
        if present != Ok(start) {
            return Ok(false);
        }
        // The approvals document is valid only by a record in the chain, so it needs a record that
        // stays.
        self.record_document_again(head.seq + 1, &body.who)?;
        let record = self.append(AuditKind::Archive, &json!(body), now_ms)?;
        let cut = AuditCut {
            head,
            record: record.seq.cast_signed(),
        };
        let seal = self.store.key().seal(CUT, &sealed(&cut));
        self.sql.execute(
            "INSERT INTO audit_cut (only_row, seq, hash, record, seal) VALUES (1, ?1, ?2, ?3, ?4)
             ON CONFLICT (only_row) DO UPDATE SET seq = ?1, hash = ?2, record = ?3, seal = ?4",
            params![
                head.seq.cast_signed(),
                head.hash.0.as_slice(),
                cut.record,
                seal.as_slice()
            ],
        )?;
        let last = head.seq.cast_signed();
        self.sql
            .execute("DELETE FROM audit WHERE seq <= ?1", [last])?;
        let blocks = (head.seq / BLOCK_RECORDS).cast_signed();
        self.sql
            .execute("DELETE FROM audit_block WHERE block < ?1", [blocks])?;
        Ok(true)
    }
}

/// Whether this record attests to the cut.
pub(super) fn attests(cut: &AuditCut, record: &RawRecord) -> bool {
    let is_named = record.seq == cut.record && record.kind == AuditKind::Archive.as_str();
    let body = serde_json::from_str::<ArchiveBody>(&record.body);
    is_named
        && body.is_ok_and(|body| {
            body.last == cut.head.seq && body.last_hash == cut.head.hash.to_string()
        })
}

/// Returns the values that the seal of a cut covers.
fn sealed(cut: &AuditCut) -> (String, i64) {
    (cut.head.to_string(), cut.record)
}

/// Returns the head after a record. Fails if the record does not follow `head`.
fn follow(head: AuditHead, record: &RawRecord) -> Result<AuditHead, ArchiveError> {
    let next = head.next(record.time_ms, &record.kind, &record.body);
    if record.seq != next.seq.cast_signed() || record.hash != next.hash.0 {
        return Err(broken(next.seq, ChainProblem::Changed));
    }
    Ok(next)
}

fn broken(seq: u64, problem: ChainProblem) -> ArchiveError {
    ArchiveError::Broken(ChainBreak { seq, problem })
}

/// Returns the last record of the last block behind `start` whose records are all older than
/// `before_ms`. The blocks between are as old. The result spans at most the blocks of one file.
fn last_old_block(sql: &Sql<'_>, start: u64, before_ms: i64) -> Result<Option<u64>, StoreError> {
    let mut last = None;
    for block in 1..=FILE_BLOCKS {
        let end = start + block * BLOCK_RECORDS;
        let (records, newest) = sql.one(
            "SELECT count(*), max(time_ms) FROM audit WHERE seq > ?1 AND seq <= ?2",
            [(end - BLOCK_RECORDS).cast_signed(), end.cast_signed()],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?)),
        )?;
        let is_whole = records.cast_unsigned() == BLOCK_RECORDS;
        if !is_whole || newest.is_none_or(|newest| newest >= before_ms) {
            break;
        }
        last = Some(end);
    }
    Ok(last)
}

/// Creates the directory for its owner only: an archive is as private as the audit was.
fn make_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}
