//! The audit: a chain of records, each of which names the one before it by its hash.
//!
//! `record` says what a record is and how the chain grows, `verify` how it is checked, `log` how
//! it is read and exported, `search` how records are found among many, `archive` how old ones are moved to files. Records are never
//! changed, and removed only behind a sealed cut.

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
