//! How a command reaches the state of this machine or a gateway.
//!
//! `state` opens the state directory and describes the caller of the command. `gateway_client`
//! calls the gateway of this machine, which `join` finds or starts, or the one that
//! `remote_gateway` describes. `local_only` refuses commands that act on this machine only while
//! the owner follows a remote gateway. `request` and `agent` read the arguments of a command, and
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
