//! `interlock node`: runs the node host in the foreground, and manages a running one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use interlock_arguments::{
    NodeCommand, NodeInstallArguments, NodeRunArguments, NodeStatusArguments, ServiceArguments,
    StateArguments,
};
use interlock_client::{open, open_options, supervisor};
use interlock_console::{CommandOutcome, Failure, output};
use interlock_host::{LocalHost, OPERATOR_TOKEN_PREFIX};
use interlock_node::{
    Fingerprint, GatewayTarget, NodeError, NodeFile, NodeInfo, NodeOptions, NodeStanding,
    NotAFingerprint, PASSWORD_VARIABLES, Secret, TOKEN_VARIABLES, TargetError,
};
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::gateway::{self, end_with_signals};
use super::service::{self, DO_NOT_RESTART, KeptProcess, ServiceDefinition, ServiceKind};

/// The file in the state directory in which `install` stores a token from the environment.
const TOKEN_FILE: &str = "node.token";

pub fn run(state: &StateArguments, command: &NodeCommand) -> CommandOutcome {
    match command {
        NodeCommand::Run(arguments) => serve_here(state, arguments),
        NodeCommand::Status(arguments) => status(state, arguments),
        NodeCommand::Install(arguments) => install(state, arguments),
        NodeCommand::Uninstall(arguments) => {
            let host = open(state)?;
            let secret = host.state_dir().join(TOKEN_FILE);
            service::uninstall(state, &host, ServiceKind::Node, Some(&secret), arguments)
        }
        NodeCommand::Start(arguments) => {
            let host = open(state)?;
            service::start(state, &host, &ServingNode(&host), arguments)
        }
        NodeCommand::Stop(arguments) => stop(state, arguments),
        NodeCommand::Restart(arguments) => {
            let host = open(state)?;
            service::restart(state, &host, &ServingNode(&host), arguments)
        }
    }
}

fn serve_here(state: &StateArguments, arguments: &NodeRunArguments) -> CommandOutcome {
    let host = open(state)?;
    interlock_client::outside_runs(host.state_dir())?;
    gateway::warn_guard_only(&host)?;
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
    let mut environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    if let Some(path) = &arguments.token_file {
        let token = std::fs::read_to_string(path).map_err(unusable(path))?;
        environment.insert(TOKEN_VARIABLES[0].to_owned(), token.trim().to_owned());
    }
    let device_token = match &arguments.device_token_file {
        Some(path) => Some(std::fs::read_to_string(path).map_err(unusable(path))?),
        None => None,
    };
    let options = NodeOptions {
        host: open_options(state),
        supervisor: client,
        target,
        display_name: arguments.display_name.clone(),
        node_id: arguments.node_id.clone(),
        environment,
        device_token: device_token.map(|token| Secret::new(token.trim())),
        version: env!("CARGO_PKG_VERSION"),
    };
    let runtime = gateway::runtime(std::io::stderr)?;
    let stop = CancellationToken::new();
    let served = runtime.block_on(async {
        end_with_signals(&stop)
            .map_err(|error| Failure::refused("SIGNALS_UNUSABLE", error.to_string()))?;
        Ok::<_, Failure>(interlock_node::run(options, stop).await)
    });
    // Do not wait for threads that wait for runs: the runs belong to the supervisor.
    runtime.shutdown_background();
    match served? {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.is_final() => {
            failed(&error).report_at(state, false);
            Ok(ExitCode::from(DO_NOT_RESTART))
        }
        Err(NodeError::Host(error)) => Err(error.into()),
        Err(error) => Err(failed(&error)),
    }
}

/// The refusal of an operator token. A node needs only the rights of a node, so a file must not
/// hold a token with more rights.
fn no_operator_token() -> Failure {
    let message =
        "the token in the environment is an operator's, and no file may hold one of those";
    Failure::refused("TOKEN_ROLE", message)
        .with_hint("mint a token for nodes, on the gateway: interlock nodes enroll")
}

fn install(state: &StateArguments, arguments: &NodeInstallArguments) -> CommandOutcome {
    let host = open(state)?;
    let run = &arguments.run;
    let configured = host.config()?.config().gateway.remote.clone();
    // Report an invalid target now: the service would end at once.
    target(run, configured.tls_fingerprint.clone())?;
    let mut given = TOKEN_VARIABLES
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .map(|token| token.trim().to_owned())
        .filter(|token| !token.is_empty());
    let kept = host.state_dir().join(TOKEN_FILE);
    let (token_file, secret) = match (&run.token_file, given.next()) {
        (Some(path), _) => {
            let path = std::fs::canonicalize(path).map_err(unusable(path))?;
            (Some(path), None)
        }
        (None, Some(token)) if token.starts_with(OPERATOR_TOKEN_PREFIX) => {
            return Err(no_operator_token());
        }
        (None, Some(token)) => (Some(kept.clone()), Some(token)),
        // An earlier `install` has stored a token.
        (None, None) if kept.exists() => (Some(kept.clone()), None),
        (None, None) => (None, None),
    };
    let device_token_file = match &run.device_token_file {
        Some(path) => Some(std::fs::canonicalize(path).map_err(unusable(path))?),
        None => None,
    };
    let has_password = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if let Some(name) = PASSWORD_VARIABLES.iter().find(|name| has_password(name))
        && configured.password_file.is_none()
    {
        output::note(&format!(
            "hint: the service does not get {name}: put the password into a file of mode 0600 and name it in gateway.remote.passwordFile"
        ));
    }
    let mut command: Vec<OsString> = vec!["node".into(), "run".into()];
    let mut flag = |name: &str, value: Option<OsString>| {
        if let Some(value) = value {
            command.extend([name.into(), value]);
        }
    };
    let text = |text: &Option<String>| text.clone().map(OsString::from);
    flag("--host", Some(run.host.clone().into()));
    flag("--port", Some(run.port.to_string().into()));
    flag("--tls-fingerprint", text(&run.tls_fingerprint));
    flag("--display-name", text(&run.display_name));
    flag("--node-id", text(&run.node_id));
    flag("--token-file", token_file.map(Into::into));
    flag("--device-token-file", device_token_file.map(Into::into));
    if run.tls {
        command.push("--tls".into());
    }
    let service = ServiceDefinition::new(ServiceKind::Node, state, &host, &command)?;
    let secret = secret.as_deref().map(|secret| (kept.as_path(), secret));
    service::warn_root(state, &host, "interlock config set tools.exec.runAs USER")?;
    service::install(
        state,
        &service,
        &ServingNode(&host),
        secret,
        &arguments.install,
    )
}

fn unusable(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| {
        let message = format!("{}: {error}", path.display());
        Failure::usage("TOKEN_FILE_UNUSABLE", message)
    }
}

fn stop(state: &StateArguments, arguments: &ServiceArguments) -> CommandOutcome {
    let host = open(state)?;
    let not_running =
        || Failure::refused("NODE_NOT_RUNNING", "no node runs for this state directory");
    service::stop(&host, &ServingNode(&host), not_running, arguments)
}

/// The node host process of this state directory, if one runs.
struct ServingNode<'a>(&'a LocalHost);

impl KeptProcess for ServingNode<'_> {
    fn kind(&self) -> ServiceKind {
        ServiceKind::Node
    }

    fn pid(&self) -> Option<u32> {
        interlock_node::running(self.0.state_dir()).map(|info| info.pid)
    }

    fn end(&self) -> Result<(), Failure> {
        let Some(pid) = self.pid() else { return Ok(()) };
        gateway::end_process(pid, || self.pid() == Some(pid)).map_err(|problem| {
            let message = format!("the node (pid {pid}): {problem}");
            Failure::refused("NODE_NOT_STOPPED", message)
        })
    }
}

fn target(
    arguments: &NodeRunArguments,
    configured: Option<String>,
) -> Result<GatewayTarget, Failure> {
    let wrong = |error: TargetError| {
        Failure::usage(error.code(), error.to_string()).with_hint(error.remedy())
    };
    // A pinned certificate means TLS, even without `--tls`.
    let fingerprint = match arguments.tls_fingerprint.clone().or(configured) {
        Some(text) => Some(Fingerprint::parse(&text).map_err(|error| wrong(error.into()))?),
        None if arguments.tls => {
            let message = "--tls needs the fingerprint of the gateway's certificate";
            let failure = Failure::usage("FINGERPRINT_MISSING", message);
            return Err(failure.with_hint(TargetError::from(NotAFingerprint).remedy()));
        }
        None => None,
    };
    GatewayTarget::new(&arguments.host, arguments.port, fingerprint).map_err(wrong)
}

fn failed(error: &NodeError) -> Failure {
    let failure = Failure::refused(error.code(), error.to_string());
    match error.remedy() {
        Some(remedy) => failure.with_hint(remedy),
        None => failure,
    }
}

/// The JSON status of the node host.
#[derive(Serialize)]
struct NodeStatusJson {
    #[serde(flatten)]
    info: Option<NodeInfo>,
    running: bool,
    node: Option<NodeFile>,
    service: Value,
}

fn status(state: &StateArguments, arguments: &NodeStatusArguments) -> CommandOutcome {
    let host = open(state)?;
    let file = NodeFile::read(host.state_dir());
    let info = interlock_node::running(host.state_dir());
    let code = ExitCode::from(u8::from(info.is_none()));
    if arguments.json {
        output::print_json(&NodeStatusJson {
            running: info.is_some(),
            info,
            node: file,
            service: service::status(&host, ServiceKind::Node),
        });
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
        (NodeStanding::Connected, _) => match &info.commands_request {
            Some(request) => format!(
                "connected; the gateway does not use its commands yet: interlock nodes approve {request}"
            ),
            None => "connected".to_owned(),
        },
        (NodeStanding::Connecting, _) => "connecting".to_owned(),
        (NodeStanding::PairingRequired, request) => format!(
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
