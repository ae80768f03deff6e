//! The desk: where approvals wait for an approver, and where a decision becomes a run.
//!
//! Read in this order: [`PendingApproval`] (one approval), `view` (what an approver reads of it),
//! `ask` (how an approval is stored), `decide` (who may decide, and what *always* stores),
//! `approved` (from a decision to a run: the stored plan only, once), `later` (the same when the
//! caller is gone), `forwarded` (the same for decisions that a gateway got), `handed` (runs that
//! another host makes and keeps), `exchange` (approvals as an inbox elsewhere gets them), `patch` (patches of protected files), `content` (what changed in
//! a script), `manifests` (what changed in the files that decide what a project's programs do),
//! `records` (the audit records), `events` (the events of a session), `recover` (ends of runs
//! without a waiting caller).

mod always;
mod approved;
mod ask;
mod audit;
mod claim;
mod content;
mod decide;
mod error;
mod events;
mod exchange;
mod fallback;
mod forwarded;
mod grants;
mod handed;
mod later;
mod manifests;
mod origin;
mod patch;
mod pending;
mod process;
mod records;
mod recover;
mod remote;
mod view;

use std::time::{Duration, Instant};

use interlock_store::{ApprovalEnd, PendingPage};

use crate::local::{HostError, LocalHost, now_ms};

pub use ask::UnboundRefusal;
pub use content::ScriptDiff;
pub use decide::{DecisionBy, Stored};
pub use error::DeskError;
pub use events::{DENIAL_TEXT, EVENT_TAIL_CHARS, RunningNotice, usual_session_key};
pub use exchange::{UnreadableApproval, read_summaries, summary_to_send};
pub use forwarded::{
    ApproverNotes, CarriedPlan, DriftedPart, Forwarded, ForwardedApproval, ForwardedError,
    NoSession, PreparedPlan,
};
pub use handed::HandedRun;
pub use later::{LeftRun, is_too_late};
pub use origin::OutsideRuns;
pub use pending::{Choice, PendingApproval};
pub use process::{process_name, requester_at_home, requester_has_ended};
pub use records::{EndListener, RunTicket, record_outcome};
pub use recover::RecoveredRun;
pub use remote::{NOTES, RemoteQuestion};
pub use view::{
    ApprovalView, MESSAGE_BYTES, RemoteRunFacts, ViewBlock, ViewDetail, ViewField, ViewLabel,
    ViewLine, ViewPart, ViewTone,
};

pub(crate) use ask::{ApprovalQuestion, check_bound};
pub(crate) use claim::Claim;
pub(crate) use content::pinned_scripts;
pub(crate) use events::Notify;
pub(crate) use forwarded::forwarded_id;
pub(crate) use grants::granted_files;
pub(crate) use later::LaterFacts;
pub(crate) use manifests::read_manifests;
pub(crate) use patch::AskedPatch;
pub(crate) use pending::reasons as verdict_reasons;
pub(crate) use records::{record_closed, record_verdict, started_record};
pub(crate) use recover::settle;
pub(crate) use view::RUNS_ELSEWHERE;

/// Runs on this machine; nodes have names of their own.
const HOST: &str = "gateway";

/// The first pause between two looks; each is longer than the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// The approvals of one host.
#[derive(Debug, Clone, Copy)]
pub struct Desk<'a> {
    host: &'a LocalHost,
}

impl LocalHost {
    pub fn desk(&self) -> Desk<'_> {
        Desk { host: self }
    }
}

impl Desk<'_> {
    /// Those that wait for an answer, the one that expires first in front.
    pub fn pending(self, offset: usize, limit: usize) -> Result<PendingPage, HostError> {
        let now = now();
        self.expire(now)?;
        Ok(self.host.store().pending_approvals(now, offset, limit)?)
    }

    /// Ends approvals that were not decided in time.
    pub fn expire_due(self) -> Result<(), HostError> {
        self.expire(now())
    }

    /// How an approval ended, if it has. One whose time is up is ended by this.
    pub fn ended(self, id: &str) -> Result<Option<ApprovalEnd>, HostError> {
        let approval = self.host.store().approval(id)?;
        if approval.ended.is_some() || now() < approval.request.expires_at_ms {
            return Ok(approval.ended);
        }
        self.expire(now())?;
        Ok(self.host.store().approval(id)?.ended)
    }

    /// Waits until an approval has ended; `None` when it has not in this time.
    pub fn wait(self, id: &str, timeout: Duration) -> Result<Option<ApprovalEnd>, HostError> {
        let until = Instant::now().checked_add(timeout);
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(ended) = self.ended(id)? {
                return Ok(Some(ended));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            std::thread::sleep(left.map_or(pause, |left| left.min(pause)));
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }
}

/// Milliseconds since 1970, as the store counts them.
pub(crate) fn now() -> i64 {
    i64::try_from(now_ms()).unwrap_or(i64::MAX)
}
