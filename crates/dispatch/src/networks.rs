//! Answers which hosts sandboxed runs may reach: the gateway has the store, and its approvers can
//! be asked.

use std::sync::Arc;

use interlock_approvals::NetworkPlan;
use interlock_host::{LocalHost, NetworkAsker};
use interlock_supervisor::SupervisorClient;

use crate::dispatcher::Dispatcher;

impl NetworkAsker for Dispatcher {
    fn host(&self) -> &LocalHost {
        &self.host
    }

    fn supervisor(&self) -> &SupervisorClient {
        &self.supervisor
    }

    fn can_ask(&self) -> bool {
        true
    }

    fn has_asked(&self, _plan: &NetworkPlan, _short_id: &str) {
        self.approvals.look_now();
    }
}

/// Connects with supervisors that this gateway does not answer yet, and withdraws approvals that no
/// run waits for.
pub(crate) fn look_after(dispatcher: &Arc<Dispatcher>) {
    dispatcher.network_links.link(dispatcher);
    let supervisor = &dispatcher.supervisor;
    if let Err(error) = dispatcher.host.withdraw_ended_hosts(supervisor) {
        tracing::warn!(%error, "approvals of hosts cannot be taken back");
    }
}
