//! Answers which hosts a sandboxed run may reach, while the command waits for the run. A gateway does
//! the same for its runs. The command asks for an approval only if an approver can see it: at the
//! terminal, or through a running gateway that shows it.

use std::io::IsTerminal as _;
use std::sync::Arc;

use interlock_approvals::NetworkPlan;
use interlock_arguments::StateArguments;
use interlock_client::open;
use interlock_console::output;
use interlock_host::{LocalHost, NetworkAsker, NetworkLinks};
use interlock_supervisor::SupervisorClient;

/// The command that waits for a run and answers for its network.
struct WaitingCommand {
    host: LocalHost,
    supervisor: SupervisorClient,
    state: StateArguments,
    is_read: bool,
}

impl NetworkAsker for WaitingCommand {
    fn host(&self) -> &LocalHost {
        &self.host
    }

    fn supervisor(&self) -> &SupervisorClient {
        &self.supervisor
    }

    fn can_ask(&self) -> bool {
        // The approval is stored, so a running gateway shows it too.
        self.is_read || interlock_gateway::running(self.host.state_dir()).is_some()
    }

    fn has_asked(&self, plan: &NetworkPlan, short_id: &str) {
        let short = short_id;
        let approve = self
            .state
            .in_command(&format!("interlock approvals approve {short}"));
        output::note(&format!(
            "interlock: {} wants to {} and waits up to 30 seconds; allow it elsewhere: {approve}",
            output::line(&plan.session),
            output::line(&plan.title())
        ));
    }
}

/// Starts to answer; the answers end with this process. If `has_terminal`, the run owns the
/// terminal, and a note there would not be read.
pub fn begin(
    state: &StateArguments,
    supervisor: &SupervisorClient,
    json: bool,
    has_terminal: bool,
) {
    // Without a store there are no answers, and every name is refused.
    let Ok(host) = open(state) else { return };
    let is_person = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let asker = Arc::new(WaitingCommand {
        host,
        supervisor: supervisor.clone(),
        state: state.clone(),
        is_read: is_person && !json && !has_terminal,
    });
    Arc::<NetworkLinks>::default().link(&asker);
}
