//! `interlock approvals socket`: prints the socket and the token that a third-party companion
//! needs.

use std::process::ExitCode;

use interlock_approvals::OutsideRuns;
use interlock_approvals::companion::{SocketToken, socket_path};
use interlock_arguments::ApprovalsSocketArguments;
use interlock_console::{CommandOutcome, output};
use interlock_host::LocalHost;
use serde_json::json;

pub fn run(
    host: &LocalHost,
    arguments: &ApprovalsSocketArguments,
    outside: OutsideRuns,
) -> CommandOutcome {
    let path = socket_path(host.state_dir());
    let token = if arguments.token {
        Some(host.approvals().make_socket_token(outside)?)
    } else {
        None
    };
    let secret = token.as_ref().map(SocketToken::secret);
    if arguments.json {
        output::print_json(&json!({ "path": path, "token": secret }));
    } else {
        output::print(&format!("{}\n", path.display()));
        if let Some(secret) = secret {
            output::print(&format!("{secret}\n"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
