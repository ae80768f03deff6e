//! How a command reaches what it asks: the state of this machine, or a gateway.
//!
//! `state` opens the state directory and says what this process is to it; `gateway_client` calls the
//! gateway, which `join` finds or starts, or the one elsewhere that `remote_gateway` knows; `local_only`
//! refuses what must not answer for it. `request` and `agent` read what the words of a command name,
//! `config_file` edits the config. Start reading at [`open`] and [`GatewayClient::connect`].

#![forbid(unsafe_code)]

mod agent;
pub mod config_file;
mod gateway_client;
mod join;
mod local_only;
mod remote_gateway;
pub mod request;
mod state;

pub use agent::{agent_id, known_agent, known_agents, known_scope};
pub use gateway_client::{CallFailure, GatewayClient, read_relayed, read_result};
pub use join::{Absent, join};
pub use local_only::note_reach;
pub use remote_gateway::RemoteGateway;
pub use state::{
    caller_context, check_config_exists, check_named_config, command_line_sender, configured_host,
    decider, open, open_for_repair, open_options, outside_runs, routed, routed_call, supervisor,
};
