//! A store with a chain of audit records, and a hand that changes it.

use interlock_store::{
    AuditFilter, AuditHead, AuditKind, AuditVerification, ChainProblem, DATABASE_NAME, Store,
    StoreError,
};
use serde_json::json;

use super::NOW;

pub struct Chain {
    pub directory: tempfile::TempDir,
    pub store: Store,
}

impl Chain {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        Self { directory, store }
    }

    /// With so many verdicts of the agents `a0`, `a1`, `a2` in turn.
    pub fn of(records: i64) -> Self {
        let chain = Self::new();
        let append = |change: &interlock_store::Change<'_>| {
            (0..records).try_for_each(|number| {
                let body = json!({ "agent": format!("a{}", number % 3), "n": number });
                change
                    .append(AuditKind::Verdict, &body, NOW + number)
                    .map(drop)
            })
        };
        chain
            .store
            .change(append)
            .unwrap_or_else(|error: StoreError| panic!("{error}"));
        chain
    }

    /// Acts as a process that can write the file.
    pub fn tamper(&self, statements: &str) {
        rusqlite::Connection::open(self.directory.path().join(DATABASE_NAME))
            .unwrap()
            .execute_batch(statements)
            .unwrap();
    }

    pub fn broken(&self, head: Option<&AuditHead>) -> (u64, ChainProblem, String) {
        match self.store.verify_audit(head).unwrap() {
            AuditVerification::Broken(broken) => {
                let message = broken.to_string();
                (broken.seq, broken.problem, message)
            }
            AuditVerification::Intact(head) => panic!("intact up to {head}"),
        }
    }

    pub fn numbers(&self, filter: &AuditFilter) -> Vec<u64> {
        let log = self.store.audit_log(filter).unwrap();
        log.iter().map(|record| record.seq).collect()
    }
}
