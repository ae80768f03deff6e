//! The approval that a command at a gateway elsewhere waits for. It is named, so that an approver finds it.
//! A caller that stops waiting denies it, so that nothing runs later that nothing waits for.

use std::time::{Duration, Instant};

use interlock_approvals::{ApprovalSummary, read_summaries, requester_at_home};
use interlock_arguments::StateArguments;
use interlock_client::GatewayClient;
use interlock_console::{Failure, output};
use interlock_host::LocalHost;
use interlock_wire::params::{ExecApprovalGet, ExecApprovalList, ExecApprovalResolve};

/// Between two looks at the inbox of the gateway.
const INBOX_LOOK: Duration = Duration::from_secs(1);

/// A gateway that takes longer for an answer is not asked again by this call.
const MOST_TIME: Duration = Duration::from_secs(10);

/// What the record of the gateway says of an approval that is given up.
const REASON: &str = "its caller does not wait any more";

/// The inbox of the gateway, as far as one call is concerned.
pub(super) struct RemoteWait<'a> {
    state: &'a StateArguments,
    host: &'a LocalHost,
    /// How the gateway names the connection of the call.
    requester: String,
    /// A connection of its own: that of the call waits for its answer.
    gateway: Option<GatewayClient>,
    looked_at: Instant,
    approval: Option<ApprovalSummary>,
}

impl<'a> RemoteWait<'a> {
    pub(super) fn new(state: &'a StateArguments, host: &'a LocalHost, requester: String) -> Self {
        Self {
            state,
            host,
            requester,
            gateway: None,
            looked_at: Instant::now(),
            approval: None,
        }
    }

    /// Names the approval when there is one, once. What fails here, the call itself sees.
    pub(super) fn look(&mut self) {
        if self.approval.is_some() || self.looked_at.elapsed() < INBOX_LOOK {
            return;
        }
        self.looked_at = Instant::now();
        if let Ok(Some(approval)) = self.find() {
            let id = &approval.short_id;
            let approve = format!("interlock approvals approve {id}");
            output::note(&format!(
                "interlock: {id} waits for a decision at the gateway; allow it: {}",
                self.state.in_command(&approve)
            ));
            self.approval = Some(approval);
        }
    }

    /// Denies the approval that is waited for, and says what became of the call.
    pub(super) fn give_up(mut self) {
        let found = match self.approval.take() {
            Some(approval) => Ok(Some(approval)),
            None => self.find(),
        };
        let said = match found {
            Ok(Some(approval)) => match self.deny(&approval) {
                Ok(()) => format!("{} is denied; nothing was done", approval.short_id),
                Err(failure) => format!(
                    "{} could not be denied, and may run when it is allowed: {failure}",
                    approval.short_id
                ),
            },
            Ok(None) | Err(_) => "the command may have begun, and may go on there".to_owned(),
        };
        output::note(&format!("interlock: {said}"));
    }

    fn connected(&mut self) -> Result<&mut GatewayClient, Failure> {
        if self.gateway.is_none() {
            let gateway = GatewayClient::connect_running(self.state, self.host)?;
            gateway.limit_calls(MOST_TIME)?;
            self.gateway = Some(gateway);
        }
        let gone = || Failure::refused("GATEWAY_UNREACHABLE", "the gateway gave no answer");
        self.gateway.as_mut().ok_or_else(gone)
    }

    /// The approval that the connection of the call asked for.
    fn find(&mut self) -> Result<Option<ApprovalSummary>, Failure> {
        let mut cursor = None;
        loop {
            let asked = ExecApprovalList {
                summary: Some(true),
                limit: None,
                cursor,
            };
            let listed = self.connected()?.request(&asked)?.into_rows();
            let approvals = read_summaries(listed.approvals)
                .map_err(|error| Failure::refused("GATEWAY_REFUSED", error.to_string()))?;
            let mut approvals = approvals.into_iter();
            let own = |one: &ApprovalSummary| requester_at_home(&one.requester).0 == self.requester;
            if let Some(found) = approvals.find(own) {
                return Ok(Some(found));
            }
            if listed.next_cursor.is_none() {
                return Ok(None);
            }
            cursor = listed.next_cursor;
        }
    }

    fn deny(&mut self, approval: &ApprovalSummary) -> Result<(), Failure> {
        let gateway = self.connected()?;
        // Only what a connection was shown can be decided by it.
        gateway.request_json(&ExecApprovalGet {
            id: approval.id.clone(),
            inbox: Some(true),
            reveal: None,
        })?;
        gateway.request_json(&ExecApprovalResolve {
            id: approval.id.clone(),
            decision: "deny".to_owned(),
            plan_digest: Some(approval.plan_digest.clone()),
            reason: Some(REASON.to_owned()),
            ..ExecApprovalResolve::default()
        })?;
        Ok(())
    }
}
