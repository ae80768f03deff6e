//! Whether approvals reach chats: what the running gateway says of its accounts, targets and their keys.

use interlock_arguments::StateArguments;
use interlock_client::GatewayClient;
use interlock_config::types::Config;
use interlock_console::output::line;
use interlock_gateway::running;
use interlock_host::LocalHost;
use interlock_wire::params::ChannelsList;
use interlock_wire::results::ChannelListing;
use serde::Serialize;

/// How the channels of the config fare.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChannelHealth {
    configured: bool,
    /// What a running gateway has of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<ChannelListing>,
}

impl ChannelHealth {
    /// Starts no gateway. One that does not answer counts as none.
    pub(super) fn look(state: &StateArguments, host: &LocalHost, config: &Config) -> Self {
        let none = Config::default();
        let configured = config.channels != none.channels || config.approvals != none.approvals;
        let is_running = configured && running(host.state_dir()).is_some();
        let ask = || {
            let mut gateway = GatewayClient::connect_running(state, host).ok()?;
            gateway.request(&ChannelsList::default()).ok()
        };
        Self {
            configured,
            gateway: is_running.then(ask).flatten(),
        }
    }

    pub(super) fn text(&self, state: &StateArguments) -> String {
        if !self.configured {
            return String::new();
        }
        let Some(listed) = &self.gateway else {
            let start = state.in_command("interlock channels list");
            return format!("chats: no gateway runs, so nothing is sent; start it: {start}\n");
        };
        let failed: Vec<&str> = listed
            .targets
            .iter()
            .filter(|target| target.failed > 0 && target.sent == 0)
            .map(|target| target.target.as_str())
            .collect();
        let mut text = match listed.targets.len() {
            0 => "chats: approvals go to none\n".to_owned(),
            1 => format!(
                "chats: approvals go to {}\n",
                line(&listed.targets[0].target)
            ),
            more => format!("chats: approvals go to {more}\n"),
        };
        for problem in &listed.problems {
            text += &format!("  {} {}\n", line(&problem.key), line(&problem.why));
        }
        if !failed.is_empty() {
            let command = state.in_command("interlock channels test");
            let failed = line(&failed.join(", "));
            text += &format!("  nothing reached {failed}; try it: {command}\n");
        }
        text
    }
}
