//! Who decided what? The approvals, decisions, grants, claims, events and the approval socket of
//! one host, over its store.
//!
//! Read in this order: `approvals` (the handle that every surface holds), `pending` (one approval
//! as an approver reads it) with `view`, `content` (changes of a script), `manifests` (changes of
//! the files that decide what a project's programs do), `patch_plan` (a patch of protected files),
//! `effect_plan` (the changes of a run), and `network_plan` (a host that a run wants to reach);
//! `create` (stores an approval) and `stored_verdict` (the stored part of the judge's verdict);
//! `decide` (who may decide, and what a decision stores) with `always`, `fallback` and `origin`;
//! `sender` (who makes a call); `grants`; `claim` (the single use of an approval); `events` (the
//! notifications of a conversation); `remote` (approvals for runs of other hosts); `exchange`
//! (approvals for an inbox on another machine); `audit`; [`companion`] (the approval socket).
//!
//! Nothing in this crate starts or plans a run. A decision becomes a run in the pipeline of the
//! host, which holds a [`Claim`].

#![forbid(unsafe_code)]

mod always;
mod approvals;
mod audit;
mod claim;
pub mod clock;
pub mod companion;
mod content;
mod create;
mod decide;
mod effect_plan;
mod error;
mod events;
mod exchange;
mod fallback;
mod grants;
mod manifests;
mod network_plan;
mod origin;
mod patch_plan;
mod pending;
mod process;
mod remote;
mod sender;
mod shown_plan;
mod stored_verdict;
mod view;

pub use approvals::{ApprovalSettings, Approvals, THIS_HOST};
pub use claim::{
    Claim, ClaimRefusal, check_allowed, check_claim, confinement_record, forwarded_run_id,
    gateway_run_id,
};

pub use content::{ScriptDiff, pinned_scripts};
pub use create::{EXPIRES_AFTER_MS, NewApproval, UnboundRefusal, check_bound, offered_decisions};
pub use decide::{DecisionBy, StoredDecision, check_remembered};
pub use effect_plan::{
    EFFECT_BINDING, EffectDiff, EffectOrigin, EffectPlan, PreviewFacts, stored_effect_plan,
};
pub use error::ApprovalRefusal;
pub use events::{
    DENIAL_TEXT, DenialReason, EVENT_TAIL_CHARS, NotifySettings, RunningEvent, SessionRunEnd,
    clipped_command, last_characters, queue_denial, queue_finished, usual_session_key,
};
pub use exchange::{UnreadableApproval, read_summaries, summary_to_send};
pub use manifests::{add_manifest_names, read_manifests};
pub use network_plan::{NETWORK_BINDING, NetworkPlan, network_plan_of};
pub use origin::OutsideRuns;
pub use patch_plan::{
    PATCH_BINDING, PatchDiff, PatchPlan, PatchSource, ProtectedFile, stored_patch_plan,
};
pub use pending::{PendingApproval, shown_command, stored_plan};
pub use process::{
    is_unattended, process_lives, process_name, requester_at_home, requester_has_ended,
};
pub use remote::RemoteApproval;
pub use sender::CallSender;
pub use stored_verdict::{ResumeFacts, RunManner, StoredCaller, StoredVerdict, verdict_reasons};
pub use view::{
    ApprovalView, ElsewhereNotes, ElsewhereSubject, MESSAGE_BYTES, RemoteRunFacts, ViewBlock,
    ViewDetail, ViewField, ViewLabel, ViewLine, ViewPart, ViewTone, add_scripts, build_view,
};

/// The types of the store that surfaces need to show and decide approvals and to read the audit.
pub use interlock_store::{
    ARCHIVE_NAME, ApprovalDecision, ApprovalEnd, ApprovalEnding, ApprovalSummary, ArchiveError,
    AuditFilter, AuditHead, AuditKind, AuditOrder, AuditRecord, AuditVerification, EVERY_SESSION,
    EventKind, Grant, Lease, PendingCursor, PendingCursorInvalid, PendingPage, RecordedOutcome,
    RecordedStatus, SessionEvent, WaitingEvents,
};
