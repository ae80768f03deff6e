//! The origin of decisions. The judge allows what a run may do; deciding about itself is no part of
//! that.

use interlock_engine::mark;
use interlock_supervisor::{SupervisorClient, cgroup};

use crate::error::ApprovalRefusal;

/// The environment variable of every run. A run can clear it, so only its presence counts as
/// evidence.
const VARIABLE: (&str, &str) = ("INTERLOCK_SHELL", "exec");

/// The proof that this process does not descend from a run. Decisions and policy changes need it.
///
/// Between processes of one user account this check is a guard and not a wall: a run could change
/// everything that its user can change.
#[derive(Debug, Clone, Copy)]
pub struct OutsideRuns(());

impl OutsideRuns {
    /// Checks the environment, the mark that no run can remove, and the control group, and asks
    /// every living supervisor. A run cannot leave its supervisor, no matter how it detaches
    /// itself. An unknown origin is refused.
    ///
    /// A server that holds this proof must check its peers itself.
    pub fn this_process(supervisor: &SupervisorClient) -> Result<Self, ApprovalRefusal> {
        if std::env::var_os(VARIABLE.0).is_some_and(|value| value == VARIABLE.1) {
            return Err(ApprovalRefusal::FromRun(
                "its environment says so".to_owned(),
            ));
        }
        if mark::born_in_run() {
            return Err(ApprovalRefusal::FromRun(
                "it carries the mark of a run".to_owned(),
            ));
        }
        let pid = i32::try_from(std::process::id()).unwrap_or_default();
        // Without control groups this check finds nothing, but the supervisor still knows.
        if let Ok(Some(run)) = cgroup::run_of(pid) {
            return Err(ApprovalRefusal::FromRun(format!(
                "it is in the group of run {run}"
            )));
        }
        match supervisor.descends_from_run() {
            Ok(false) => Ok(Self(())),
            Ok(true) => Err(ApprovalRefusal::FromRun(
                "the supervisor says so".to_owned(),
            )),
            Err(error) => Err(ApprovalRefusal::FromRun(format!(
                "the origin of this process is unknown: {error}"
            ))),
        }
    }
}
