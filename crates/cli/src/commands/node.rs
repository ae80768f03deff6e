//! `interlock node`: the node host in the foreground, and what to know of one that runs.

use std::collections::BTreeMap;
use std::process::ExitCode;

use interlock_node::{
    Fingerprint, NodeError, NodeFile, NotAFingerprint, Options, Standing, Target, TargetError,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::gateway::{self, end_with_signals};
use super::{Outcome, open, open_options, supervisor};
use crate::args::{NodeCommand, NodeRunArguments, NodeStatusArguments, StateArguments};
use crate::failure::Failure;
use crate::output;

/// Wrong configuration: a service must not start it again.
const DO_NOT_RESTART: u8 = 78;

pub fn run(state: &StateArguments, command: &NodeCommand) -> Outcome {
    match command {
        NodeCommand::Run(arguments) => serve_here(state, arguments),
        NodeCommand::Status(arguments) => status(state, arguments),
    }
}

fn serve_here(state: &StateArguments, arguments: &NodeRunArguments) -> Outcome {
    let host = open(state)?;
    super::outside_runs(host.state_dir())?;
    let configured = host
        .config()?
        .config()
        .gateway
        .remote
        .tls_fingerprint
        .clone();
    let target = target(arguments, configured)?;
    let client = supervisor(&host)?;
    drop(host);
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let options = Options {
        host: open_options(state),
        supervisor: client,
        target,
        display_name: arguments.display_name.clone(),
        node_id: arguments.node_id.clone(),
        environment,
        version: env!("CARGO_PKG_VERSION"),
    };
    let runtime = gateway::runtime(&interlock_gateway::LogLines::default())?;
    let stop = CancellationToken::new();
    let served = runtime.block_on(async {
        end_with_signals(&stop)
            .map_err(|error| Failure::refused("SIGNALS_UNUSABLE", error.to_string()))?;
        Ok::<_, Failure>(interlock_node::run(options, stop).await)
    });
    // Runs that a gateway still waits for belong to the supervisor.
    runtime.shutdown_background();
    match served? {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.is_final() => {
            failed(&error).report(false);
            Ok(ExitCode::from(DO_NOT_RESTART))
        }
        Err(NodeError::Host(error)) => Err(error.into()),
        Err(error) => Err(failed(&error)),
    }
}

fn target(arguments: &NodeRunArguments, configured: Option<String>) -> Result<Target, Failure> {
    let wrong = |error: TargetError| {
        Failure::usage(error.code(), error.to_string()).with_hint(error.remedy())
    };
    let fingerprint = match (
        arguments.tls,
        arguments.tls_fingerprint.clone().or(configured),
    ) {
        (false, _) => None,
        (true, Some(text)) => Some(Fingerprint::parse(&text).map_err(|error| wrong(error.into()))?),
        (true, None) => {
            let message = "--tls needs the fingerprint of the gateway's certificate";
            let failure = Failure::usage("FINGERPRINT_MISSING", message);
            return Err(failure.with_hint(TargetError::from(NotAFingerprint).remedy()));
        }
    };
    Target::new(&arguments.host, arguments.port, fingerprint).map_err(wrong)
}

fn failed(error: &NodeError) -> Failure {
    let failure = Failure::refused(error.code(), error.to_string());
    match error.remedy() {
        Some(remedy) => failure.with_hint(remedy),
        None => failure,
    }
}

fn status(state: &StateArguments, arguments: &NodeStatusArguments) -> Outcome {
    let host = open(state)?;
    let file = NodeFile::read(host.state_dir());
    let info = interlock_node::running(host.state_dir());
    let code = ExitCode::from(u8::from(info.is_none()));
    if arguments.json {
        let mut value = info.as_ref().map_or_else(|| json!({}), |info| json!(info));
        value["running"] = info.is_some().into();
        value["node"] = json!(file);
        output::print_json(&value);
        return Ok(code);
    }
    let Some(info) = info else {
        let known = match &file {
            Some(file) => format!(" --host {} --port {}", file.gateway.host, file.gateway.port),
            None => " --host HOST".to_owned(),
        };
        let run = state.in_command(&format!("interlock node run{known}"));
        output::print(&format!(
            "no node runs for this state directory; start one: {run}\n"
        ));
        return Ok(code);
    };
    let standing = match (info.standing, &info.pairing_request) {
        (Standing::Connected, _) => "connected".to_owned(),
        (Standing::Connecting, _) => "connecting".to_owned(),
        (Standing::PairingRequired, request) => format!(
            "waits to be let in: interlock devices approve {}",
            request.as_deref().unwrap_or("REQUEST")
        ),
    };
    output::print(&format!(
        "a node of version {} runs (pid {}) for {}: {standing}\ndevice {}\n",
        info.version, info.pid, info.gateway, info.device_id
    ));
    Ok(code)
}
