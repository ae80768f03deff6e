//! While a command waits for a sandboxed run, it answers which hosts the run reaches, as a gateway does. It asks
//! only where a person at the terminal reads it, or a gateway shows it.

use std::io::IsTerminal as _;
use std::sync::Arc;

use interlock_approvals::NetworkPlan;
use interlock_arguments::StateArguments;
use interlock_client::open;
use interlock_console::output;
use interlock_host::{LocalHost, NetworkAsker, NetworkLinks};
use interlock_supervisor::SupervisorClient;

/// This process, as it answers.
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
        // What is asked here is stored, and a gateway shows it.
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

/// Answers from now on, until this process ends. `has_terminal`: the run has the terminal, and what is said
/// there is not read.
pub fn begin(
    state: &StateArguments,
    supervisor: &SupervisorClient,
    json: bool,
    has_terminal: bool,
) {
    // Without a store nothing can be answered, and names are refused.
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
