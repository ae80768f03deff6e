//! From an approval to a run, and from a run to its end.
//!
//! Read in this order: `approved_run` (runs the stored plan of an approval, once, if nothing it
//! binds has changed), `approved_patch` (the same for patches of protected files), `resume` (runs
//! whose caller has left), `ask_again` (asks again about an expired approval), `node_run` (runs
//! that a gateway forwards to this host), `operator_decision` (forwarded runs that this host's own
//! operator decides about), `remote_run` (runs that another host makes), `run_records` (the audit
//! records of a run), `recovery` (ends of runs without a waiting caller), `events` (the events of a
//! conversation after those ends).

mod approved_patch;
mod approved_run;
mod ask_again;
mod events;
mod node_run;
mod operator_decision;
mod recovery;
mod remote_run;
mod resume;
mod run_records;

pub use ask_again::{ASK_AGAIN_MS, may_ask_again};
pub use node_run::{
    ApproverNotes, CarriedPlan, DriftedPart, ForwardedRun, ForwardedRunError, NoSession,
    PreparedPlan,
};
pub use recovery::{RecoveredRun, settle_background_run};
pub use remote_run::NewRemoteRun;
pub use resume::{ResumableRun, is_too_late};
pub use run_records::{EndListener, RunTicket, record_outcome};

pub(crate) use approved_patch::PatchApproval;
pub(crate) use approved_run::use_grant;
pub(crate) use resume::resume_facts;
pub(crate) use run_records::{RecordedConfinement, record_closed, record_verdict, started_record};
