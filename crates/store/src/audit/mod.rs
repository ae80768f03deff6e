//! The audit: a chain of records, each of which names the record before it by its hash.
//!
//! `record` defines a record and adds it to the chain, `verify` checks the chain, `log` reads and
//! exports it, `search` finds records among many, and `archive` moves old records to files. Records
//! are never changed. They are removed only with a sealed cut, which names the last removed one.

mod archive;
mod log;
mod record;
mod search;
mod verify;

pub use archive::{ARCHIVE_NAME, ArchiveError, ArchivedAudit};
pub use log::{AuditExport, AuditFilter, AuditOrder, AuditRecordPage};
pub use record::{AuditHash, AuditHead, AuditHeadInvalid, AuditKind, AuditRecord};
pub(crate) use record::{chained_record, newest_of};
pub use verify::{AuditVerification, ChainBreak, ChainProblem};
