//! Reads the chain: a filtered log for people, and a complete export for other programs.

use std::vec;

use rusqlite::Row;
use serde_json::Value;

use crate::audit::record::{AuditHead, AuditKind, AuditRecord};
use crate::audit::search::AuditSearch;
use crate::audit::verify::{RawRecord, piece};
use crate::database::Store;
use crate::error::StoreError;
use crate::json::{self, hex};
use crate::limits::MAX_PAGE;

/// Selects the kinds that have an index. The text must equal the condition of the index, or SQLite
/// does not use it.
pub(super) const IS_SELDOM: &str =
    "kind NOT IN ('verdict', 'delivery', 'run-started', 'run-ended')";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AuditOrder {
    OldestFirst,
    #[default]
    NewestFirst,
}

/// Selects audit records. The default is the newest page of all records.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    pub kind: Option<AuditKind>,
    /// Records whose body names this `agent`.
    pub agent: Option<String>,
    /// Records of this time or later.
    pub since_ms: Option<i64>,
    /// The record that the search starts with, in the direction of `order`.
    pub from_seq: Option<u64>,
    pub order: AuditOrder,
    /// The most records to return. [`MAX_PAGE`] is the upper bound.
    pub limit: Option<usize>,
}

impl AuditFilter {
    fn most(&self) -> usize {
        self.limit.unwrap_or(MAX_PAGE).min(MAX_PAGE)
    }
}

/// The records that a filter finds, and how many more there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecordPage {
    pub records: Vec<AuditRecord>,
    /// How many records match, including those before `from_seq` and beyond the limit.
    pub total: u64,
    /// The next matching record beyond the limit. A filter with this `from_seq` continues the list.
    pub next_seq: Option<u64>,
}

impl Store {
    pub fn audit_log(&self, filter: &AuditFilter) -> Result<Vec<AuditRecord>, StoreError> {
        self.read(|sql| AuditSearch::new(filter).records(sql, filter.most()))
    }

    /// Like [`Self::audit_log`], with the exact total and the next record.
    pub fn audit_page(&self, filter: &AuditFilter) -> Result<AuditRecordPage, StoreError> {
        self.read(|sql| {
            let search = AuditSearch::new(filter);
            let mut records = search.records(sql, filter.most() + 1)?;
            let next = records.split_off(records.len().min(filter.most()));
            let next_seq = next.first().map(|record| record.seq);
            let total = if next_seq.is_none() && filter.from_seq.is_none() {
                records.len() as u64
            } else {
                search.total(sql)?
            };
            Ok(AuditRecordPage {
                records,
                total,
                next_seq,
            })
        })
    }

    /// Exports every record up to the present head as a line of JSON, and that head as the last
    /// line: `{"head":{"hash":…,"seq":…}}`. The lines hold all that the hashes cover, so the export
    /// can be verified without this program.
    pub fn audit_export(&self) -> Result<AuditExport<'_>, StoreError> {
        Ok(AuditExport {
            store: self,
            head: self.audit_head()?,
            after: i64::MIN,
            piece: Vec::new().into_iter(),
            ended: false,
        })
    }
}

/// The lines of an export, without their line ends.
#[derive(Debug)]
pub struct AuditExport<'a> {
    store: &'a Store,
    head: AuditHead,
    after: i64,
    piece: vec::IntoIter<String>,
    ended: bool,
}

impl AuditExport<'_> {
    /// Returns the head that the last line will contain.
    pub fn head(&self) -> AuditHead {
        self.head
    }

    fn next_piece(&mut self) -> Result<(), StoreError> {
        let end = self.head.seq.cast_signed();
        let records = self.store.read(|sql| piece(sql, self.after, end))?;
        if let Some(last) = records.last() {
            self.after = last.seq;
        }
        let lines: Vec<String> = records.iter().map(line).collect();
        self.piece = lines.into_iter();
        Ok(())
    }
}

impl Iterator for AuditExport<'_> {
    type Item = Result<String, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(line) = self.piece.next() {
            return Some(Ok(line));
        }
        if self.ended {
            return None;
        }
        if let Err(error) = self.next_piece() {
            self.ended = true;
            return Some(Err(error));
        }
        self.piece.next().map(Ok).or_else(|| {
            self.ended = true;
            let AuditHead { seq, hash } = self.head;
            Some(Ok(format!(r#"{{"head":{{"hash":"{hash}","seq":{seq}}}}}"#)))
        })
    }
}

/// The body is embedded byte for byte, because the hash covers its bytes. A body that was damaged
/// later is written as a string, so that the line stays one line of JSON. That line does not
/// verify.
pub(super) fn line(record: &RawRecord) -> String {
    let RawRecord {
        seq,
        time_ms,
        kind,
        body,
        hash,
    } = record;
    let is_one_line = !body.contains(['\n', '\r']) && serde_json::from_str::<Value>(body).is_ok();
    let body = if is_one_line {
        body.clone()
    } else {
        Value::from(body.as_str()).to_string()
    };
    let kind = Value::from(kind.as_str());
    let hash = hex(hash);
    format!(r#"{{"body":{body},"hash":"{hash}","kind":{kind},"seq":{seq},"timeMs":{time_ms}}}"#)
}

pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<AuditRecord> {
    Ok(AuditRecord {
        seq: row.get::<_, i64>(0)?.cast_unsigned(),
        time_ms: row.get(1)?,
        kind: row.get(2)?,
        body: json::column(row, 3)?,
        hash: row.get(4)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seldom_is_found_by_its_index_and_all_kinds_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let plan = |conditions: &str| -> String {
            let connection = store.connection();
            let text = format!("EXPLAIN QUERY PLAN SELECT seq FROM audit WHERE {conditions}");
            let mut statement = connection.prepare(&text).unwrap();
            let how = |row: &Row<'_>| row.get::<_, String>("detail");
            statement.query_row(["decision"], how).unwrap()
        };
        let by_index = plan(&format!("{IS_SELDOM} AND kind = ? ORDER BY seq DESC"));
        assert!(by_index.contains("audit_seldom"), "{by_index}");
        for kind in AuditKind::ALL {
            let body = serde_json::json!({ "what": kind.as_str() });
            store
                .change(|change| change.append(kind, &body, 1))
                .unwrap();
        }
        for kind in AuditKind::ALL {
            let filter = AuditFilter {
                kind: Some(kind),
                ..AuditFilter::default()
            };
            let found = store.audit_log(&filter).unwrap();
            let kinds: Vec<AuditKind> = found.iter().map(|record| record.kind).collect();
            assert_eq!(kinds, [kind]);
        }
    }
}
