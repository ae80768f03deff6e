//! Settles the file changes of a run under `cow`, for the command that waited for the run. The
//! changes are committed, or an approver decides about them: at this terminal if there is one.

use interlock_approvals::companion::CourierWaits;
use interlock_approvals::process_name;
use interlock_arguments::{ExecArguments, StateArguments};
use interlock_command::display::Secrets;
use interlock_host::{EffectReport, EffectState, LocalHost};
use interlock_inbox::approval_wait::{self, AwaitedApproval, Settled};
use interlock_supervisor::EndedRun;

/// The run whose changes are settled.
pub(super) struct SettledEffect<'a> {
    pub host: &'a LocalHost,
    pub state: &'a StateArguments,
    pub all: &'a ExecArguments,
    pub run_id: &'a str,
    /// The session of the run, and how it ended.
    pub ended: (&'a str, &'a EndedRun),
}

impl SettledEffect<'_> {
    /// Returns `None` for a run without a layer.
    pub fn settle(&self) -> Option<EffectReport> {
        let report =
            self.host
                .effects()
                .settle_effect(self.run_id, process_name(), Some(self.ended))?;
        if report.state != EffectState::ApprovalPending || self.all.no_wait {
            return Some(report);
        }
        Some(self.wait(&report).unwrap_or(report))
    }

    /// Waits for the decision. If the caller stops waiting, the approval is withdrawn and the layer
    /// is kept.
    fn wait(&self, report: &EffectReport) -> Option<EffectReport> {
        let id = report.approval_id.as_deref()?;
        let approval = self.host.approvals().approval(id, Secrets::Masked).ok()?;
        let mut signals = approval_wait::ending_signals().ok()?;
        let asked = AwaitedApproval {
            approval: &approval,
            reason: approval.reasons.first().map_or("", String::as_str),
            json: self.all.request.json,
            courier: self
                .host
                .approvals()
                .courier(&approval, CourierWaits::ForDecision),
        };
        match approval_wait::settle(self.host, self.state, asked, &mut signals) {
            Ok(Settled::Decided | Settled::Left { .. }) => {
                self.host.effects().settle_decided_effect(self.run_id)
            }
            Err(_) => None,
        }
    }
}
