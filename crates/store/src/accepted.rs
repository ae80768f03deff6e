//! Remembers which document was checked as a whole, and by which checks, so that a short-lived
//! process need not check ten thousand entries to use one.
//!
//! The mark is a file beside the database. It names the hash of the document and is sealed with the
//! store's key. If the mark is missing or names another document, the whole document is checked
//! again.

use std::io::Write as _;

use crate::database::Store;
use crate::json::hex;

/// The name of the file in the state directory.
const ACCEPTED_NAME: &str = "approvals.accepted";

/// The name under which the mark is sealed.
const ACCEPTED: &str = "accepted";

impl Store {
    /// Whether the document with this hash passed these checks before.
    pub fn is_accepted(&self, checks: &str, hash: &str) -> bool {
        let written = std::fs::read_to_string(self.state_dir().join(ACCEPTED_NAME));
        written.is_ok_and(|written| written == self.accepted_mark(checks, hash))
    }

    /// Remembers that the document with this hash passed these checks. If the mark cannot be
    /// written, the next reader checks again.
    pub fn accept(&self, checks: &str, hash: &str) {
        let write = || -> std::io::Result<()> {
            let mut file = tempfile::Builder::new()
                .prefix(".approvals-accepted-")
                .tempfile_in(self.state_dir())?;
            file.write_all(self.accepted_mark(checks, hash).as_bytes())?;
            let path = self.state_dir().join(ACCEPTED_NAME);
            file.persist(path).map_err(|error| error.error)?;
            Ok(())
        };
        let _ = write();
    }

    fn accepted_mark(&self, checks: &str, hash: &str) -> String {
        let seal = self.key().seal(ACCEPTED, &(checks, hash));
        format!("{checks} {hash} {}\n", hex(&seal))
    }
}
