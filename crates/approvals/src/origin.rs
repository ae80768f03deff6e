//! Where a decision comes from. What a run may do was judged; to judge itself was no part of that.

use interlock_engine::mark;
use interlock_supervisor::{SupervisorClient, cgroup};

use crate::error::ApprovalRefusal;

/// Set for every run. A run can clear it, so it is a hint that is believed only one way.
const VARIABLE: (&str, &str) = ("INTERLOCK_SHELL", "exec");

/// This process does not descend from a run. Only a holder of this takes decisions and writes
/// policies.
///
/// Between processes of one user account this is a guard and not a wall: a run could change what
/// its user can change.
#[derive(Debug, Clone, Copy)]
pub struct OutsideRuns(());

impl OutsideRuns {
    /// Looks at the environment, at the mark that no run can take off, at the control group, and
    /// asks every living supervisor, whose runs cannot leave it however they detach themselves. What
    /// cannot be found out is a no.
    ///
    /// A server that holds this must check its peers by itself.
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
        // Without control groups there is nothing to read, and the supervisor still knows.
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
