//! What is remembered?
//!
//! Everything durable lies in one SQLite file of the state directory. Read [`approvals`] for what
//! can be asked of it, `database` for how it is opened, `error` for what can go wrong.

#![forbid(unsafe_code)]

mod approvals;
mod database;
mod error;

pub use approvals::{ApprovalsStore, MAX_DOCUMENT_BYTES, StoredDocument};
pub use database::{DATABASE_NAME, Store};
pub use error::StoreError;
