//! The audit: a chain of records, each of which names the one before it by its hash.
//!
//! `record` says what a record is and how the chain grows, `verify` how it is checked, `log` how
//! it is read and exported, `search` how records are found among many. Records are never changed or removed by this program.

mod log;
mod record;
mod search;
mod verify;

pub use log::{AuditExport, AuditFilter, AuditOrder, AuditRecordPage};
pub use record::{AuditHash, AuditHead, AuditHeadInvalid, AuditKind, AuditRecord};
pub(crate) use record::{chained_record, newest_of};
pub use verify::{AuditVerification, ChainBreak, ChainProblem};
