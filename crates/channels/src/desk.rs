//! What the gateway offers to channels: approvals to read, the one function that decides, and what else
//! an answer can ask for.

use std::fmt;
use std::sync::Arc;

use interlock_approvals::{ApprovalRefusal, PendingApproval, StoredDecision};
use interlock_config::ConfigFile;
use interlock_store::{ApprovalDecision, Store};

/// A decision that counts, as it is handed over.
#[derive(Debug, Clone, Copy)]
pub struct ChatDecision<'a> {
    pub id: &'a str,
    pub plan_digest: &'a str,
    pub decision: ApprovalDecision,
    /// The approver by the platform's id: `matrix:@ada:example.org`.
    pub decider: &'a str,
    /// The target that showed it.
    pub surface: &'a str,
    pub reason: Option<&'a str>,
}

/// The gateway, as channels see it. Its functions may wait for the disk.
pub trait ApprovalDesk: fmt::Debug + Send + Sync {
    fn store(&self) -> &Store;

    fn config(&self) -> Option<Arc<ConfigFile>>;

    /// An approval by its id or short id, with secrets masked.
    fn approval(&self, reference: &str) -> Result<PendingApproval, ApprovalRefusal>;

    fn decide(&self, decision: ChatDecision<'_>) -> Result<StoredDecision, ApprovalRefusal>;

    /// Carries out `/exec` or `/elevated` of a sender, if that sender may; the text is the answer.
    fn directive(&self, sender: &str, session_key: &str, text: &str) -> Result<String, String>;

    /// Whether another surface than the chats shows the approval, or could.
    fn is_shown_elsewhere(&self, approval: &PendingApproval) -> bool;

    /// Every target failed: `askFallback` decides.
    fn fall_back(&self, id: &str);

    /// A receipt was written.
    fn receipts_changed(&self, id: &str);

    /// The address of a page, for people.
    fn page(&self, path: &str) -> Option<String>;

    /// A variable of the gateway's environment.
    fn variable(&self, name: &str) -> Option<String>;

    /// A path of the config, where `~` is the user's home directory.
    fn path(&self, text: &str) -> std::path::PathBuf;
}
