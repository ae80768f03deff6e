//! Watches the approval that a command at a remote gateway waits for. The command prints its id so
//! that an approver finds it. A caller that stops waiting denies the approval, so that no run
//! starts later without a caller.

use std::time::{Duration, Instant};

use interlock_approvals::{ApprovalSummary, read_summaries, requester_at_home};
use interlock_arguments::StateArguments;
use interlock_client::GatewayClient;
use interlock_console::{Failure, output};
use interlock_host::LocalHost;
use interlock_wire::params::{ExecApprovalGet, ExecApprovalList, ExecApprovalResolve};

/// How often the command reads the inbox of the gateway.
const INBOX_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long a request on this connection may take before it fails.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason that the gateway records for an approval whose caller gave up.
const REASON: &str = "its caller does not wait any more";

/// The inbox of the gateway, reduced to the approval of one call.
pub(super) struct RemoteWait<'a> {
    state: &'a StateArguments,
    host: &'a LocalHost,
    /// The name that the gateway gave to the connection of the call.
    requester: String,
    /// A second connection, because the connection of the call waits for its answer.
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

    /// Prints the id of the approval once it exists. Failures are ignored here: the call itself
    /// reports them.
    pub(super) fn look(&mut self) {
        if self.approval.is_some() || self.looked_at.elapsed() < INBOX_POLL_INTERVAL {
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

    /// Denies the approval that the call waits for, and prints whether the call was stopped.
    pub(super) fn give_up(mut self) {
        let found = match self.approval.take() {
            Some(approval) => Ok(Some(approval)),
            None => self.find(),
        };
        let outcome = match found {
            Ok(Some(approval)) => match self.deny(&approval) {
                Ok(()) => format!("{} is denied; nothing was done", approval.short_id),
                Err(failure) => format!(
                    "{} could not be denied, and may run when it is allowed: {failure}",
                    approval.short_id
                ),
            },
            Ok(None) | Err(_) => {
                "the command may have started, and may still be running there".to_owned()
            }
        };
        output::note(&format!("interlock: {outcome}"));
    }

    fn connected(&mut self) -> Result<&mut GatewayClient, Failure> {
        if self.gateway.is_none() {
            let gateway = GatewayClient::connect_running(self.state, self.host)?;
            gateway.limit_calls(CALL_TIMEOUT)?;
            self.gateway = Some(gateway);
        }
        let gone = || Failure::refused("GATEWAY_UNREACHABLE", "the gateway gave no answer");
        self.gateway.as_mut().ok_or_else(gone)
    }

    /// Finds the pending approval that the connection of the call requested.
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
        // A connection can decide only an approval that the gateway has shown to it.
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
