//! The gateway's interface for channels: it reads approvals, decides about them in a single
//! function, and carries out what else an answer can request.

use std::fmt;
use std::sync::Arc;

use interlock_approvals::{ApprovalRefusal, PendingApproval, StoredDecision};
use interlock_config::ConfigFile;
use interlock_store::{ApprovalDecision, Store};

/// A decision that counts.
#[derive(Debug, Clone, Copy)]
pub struct ChatDecision<'a> {
    pub id: &'a str,
    pub plan_digest: &'a str,
    pub decision: ApprovalDecision,
    /// The approver by the platform's id, such as `matrix:@ada:example.org`.
    pub decider: &'a str,
    /// The target that showed the approval.
    pub surface: &'a str,
    pub reason: Option<&'a str>,
}

/// The gateway as channels see it. Its functions may wait for the disk.
pub trait ApprovalDesk: fmt::Debug + Send + Sync {
    fn store(&self) -> &Store;

    fn config(&self) -> Option<Arc<ConfigFile>>;

    /// Returns an approval by its id or short id, with secrets masked.
    fn approval(&self, reference: &str) -> Result<PendingApproval, ApprovalRefusal>;

    fn decide(&self, decision: ChatDecision<'_>) -> Result<StoredDecision, ApprovalRefusal>;

    /// Carries out `/exec` or `/elevated` if its sender may use it. The text is the reply.
    fn directive(&self, sender: &str, session_key: &str, text: &str) -> Result<String, String>;

    /// Whether a surface other than chats shows the approval, or could show it.
    fn is_shown_elsewhere(&self, approval: &PendingApproval) -> bool;

    /// Lets `askFallback` decide, because every target failed.
    fn fall_back(&self, id: &str);

    /// Notifies the gateway that a receipt was written.
    fn receipts_changed(&self, id: &str);

    /// Returns the address of a page, for people.
    fn page(&self, path: &str) -> Option<String>;

    /// Returns a variable of the gateway's environment.
    fn variable(&self, name: &str) -> Option<String>;

    /// Resolves a path of the config, where `~` is the user's home directory.
    fn path(&self, text: &str) -> std::path::PathBuf;
}
