//! Pending approvals: what was requested, where it was shown, how it ended, and the one run it
//! allows.
//!
//! Read `record` for what is stored, then follow the life of an approval: `create`, `deliver`,
//! `decide`, `claim`, `purge`; `find` looks approvals up. The store does not interpret plans and
//! verdicts: to the store they are texts, and a plan is identified by its digest.

mod claim;
mod create;
mod decide;
mod deliver;
mod ending;
mod error;
mod find;
mod history;
mod outcome;
mod purge;
mod record;
mod scripts;

pub use claim::{CLAIM_WINDOW_MS, Claiming, ForwardedClaim, NotAllowed};
pub(crate) use claim::{NewClaim, insert as insert_claim};
pub use create::CreatedApproval;
pub(crate) use create::new_id;
pub use decide::{ApprovalAnswer, Decided, ExpiredApproval, FallbackAnswer};
pub use ending::{ApprovalDecision, ApprovalEnd, ApprovalEnding, Lease};
pub use error::ApprovalError;
pub(crate) use find::state_of;
pub use find::{PendingCursor, PendingCursorInvalid, PendingPage};
pub use history::EndedPage;
pub use outcome::{
    NullableField, RecordedFile, RecordedFileChange, RecordedOutcome, RecordedStatus,
};
pub use purge::{MAX_ENDED, MAX_ENDED_BYTES, Purged};
pub use record::{
    Approval, ApprovalClaim, ApprovalRequest, ApprovalSummary, ClaimState, Delivery, DeliveryState,
};
pub use scripts::PinnedScript;
