//! `interlock gateway`: runs the server in the foreground, and manages a running one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use interlock_arguments::{
    GatewayCommand, GatewayInstallArguments, GatewayRunArguments, GatewayStatusArguments,
    GatewayTokenArguments, ServiceArguments, StateArguments,
};
use interlock_client::{open, open_options, supervisor};
use interlock_console::{CommandOutcome, Failure, output};
use interlock_gateway::{
    GatewayError, GatewayInfo, GatewayOptions, LogLines, OperatorAccess, ReadyGateway, read_secret,
    running, serve,
};
use interlock_host::{HostError, LocalHost, PathSource, TokenRole};
use interlock_plan::RunAccount;
use interlock_policy::{AgentId, quote};
use rustix::process::{Resource, Rlimit};
use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::role_tokens::RoleTokens;
use super::service::{self, KeptProcess, ServiceDefinition, ServiceKind};

/// The config key of the account that commands run as.
const RUN_AS: &str = "tools.exec.runAs";

/// How long a server may take to end.
const STOP_TIME: Duration = Duration::from_secs(10);

/// How long an idle thread stays alive. It is short, because periodic checks use idle threads in
/// turn and would otherwise keep all of them alive.
const THREAD_KEPT: Duration = Duration::from_secs(1);

/// The most threads for blocking work. There must be more than all calls that wait for runs or
/// follow output can occupy, so that one is always free for reads and decisions.
const WAITING_THREADS: usize = 2048;

pub fn run(state: &StateArguments, command: &GatewayCommand) -> CommandOutcome {
    match command {
        GatewayCommand::Run(arguments) => serve_here(state, arguments),
        GatewayCommand::Status(arguments) => status(state, arguments),
        GatewayCommand::Stop(arguments) => stop(state, arguments),
        GatewayCommand::Install(arguments) => install(state, arguments),
        GatewayCommand::Uninstall(arguments) => {
            service::uninstall(state, &open(state)?, ServiceKind::Gateway, None, arguments)
        }
        GatewayCommand::Start(arguments) => {
            let host = open(state)?;
            service::start(state, &host, &ServingGateway(&host), arguments)
        }
        GatewayCommand::Restart(arguments) => restart(state, arguments),
        GatewayCommand::Token(arguments) => token(state, arguments),
    }
}

fn serve_here(state: &StateArguments, arguments: &GatewayRunArguments) -> CommandOutcome {
    if arguments.detach {
        // This fails only if the process already leads a session.
        let _ = rustix::process::setsid();
    }
    let host = open(state)?;
    interlock_client::outside_runs(host.state_dir())?;
    let client = supervisor(&host)?;
    let has_port = host.config()?.config().gateway.port.is_some();
    warn_guard_only(&host)?;
    let policy = about_policy(state, &host)?;
    drop(host);
    let environment = environment();
    let logs = LogLines::default();
    let options = |port| {
        let mut host = open_options(state);
        host.path_source = PathSource::LoginShell {
            shell: std::env::var_os("SHELL").map(Into::into),
        };
        GatewayOptions {
            host,
            supervisor: client.clone(),
            port,
            tick_ms: arguments.tick_ms,
            environment: environment.clone(),
            version: env!("CARGO_PKG_VERSION"),
            logs: logs.clone(),
        }
    };
    let kept = logs.clone();
    let runtime = runtime(move || kept.writer())?;
    let stop = CancellationToken::new();
    let served = runtime.block_on(async {
        end_with_signals(&stop)
            .map_err(|error| Failure::refused("SIGNALS_UNUSABLE", error.to_string()))?;
        let on_ready = |ready: &ReadyGateway| print_ready(state, arguments, &policy, ready);
        let served = serve(options(arguments.port), stop.clone(), on_ready).await;
        match served {
            // A command that starts a gateway in the background uses its socket, so any port is
            // fine.
            Err(GatewayError::Listen { source, .. })
                if arguments.detach && !has_port && source.kind() == ErrorKind::AddrInUse =>
            {
                serve(options(Some(0)), stop, on_ready).await
            }
            served => served,
        }
        .map_err(|error| failed(&error))
    });
    // Do not wait for threads that wait for runs: the runs belong to the supervisor.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Sets up the log and the threads of a server: one thread for the network, which must never block,
/// and others for blocking work.
pub(super) fn runtime(
    log: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> Result<tokio::runtime::Runtime, Failure> {
    log_to(log);
    raise_open_files();
    tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(WAITING_THREADS)
        .thread_keep_alive(THREAD_KEPT)
        .enable_all()
        .build()
        .map_err(|error| Failure::refused("RUNTIME_UNAVAILABLE", error.to_string()))
}

/// Raises the limit of open files, because each connection needs one. Runs do not get this limit:
/// see [`supervisor`].
fn raise_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // If this fails, the server has room for fewer clients.
    let _ = rustix::process::setrlimit(Resource::Nofile, raised);
}

/// Sets up the log. The MCP library may log only errors: its other lines contain messages of
/// clients.
fn log_to(log: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    let levels = Targets::new()
        .with_default(LevelFilter::INFO)
        .with_target("rmcp", LevelFilter::ERROR);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(log)
        .with_ansi(false)
        .with_filter(levels);
    let _ = tracing_subscriber::registry().with(lines).try_init();
}

pub(super) fn end_with_signals(stop: &CancellationToken) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let (mut signals, stop) = (signal(kind)?, stop.clone());
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                stop.cancel();
            }
        });
    }
    Ok(())
}

/// Prints that the gateway is ready. The text has five lines: the address, how to watch, how to
/// connect an agent, how to mint a token, and the policy; with TLS also the fingerprint for nodes.
fn print_ready(
    state: &StateArguments,
    arguments: &GatewayRunArguments,
    policy: &str,
    ready: &ReadyGateway,
) {
    if arguments.json {
        let line = json!(ReadyGatewayJson {
            info: &ready.info,
            port: ready.info.address.port(),
            url: ready.info.url(),
            ready: true,
        });
        // The JSON is one line, so that programs can wait for it.
        output::print_bytes(format!("{line}\n").as_bytes());
    } else {
        let token = state.in_command("interlock agents token main");
        let entry = json!({ "mcpServers": { "interlock": {
            "type": "http",
            "url": format!("{}/mcp", ready.info.url()),
            "headers": { "Authorization": "Bearer AGENT_TOKEN" },
        } } });
        let text = format!(
            "ready: {url} (pid {pid}), socket {socket}\n\
             watch and decide: {watch}\n\
             connect an agent: {setup}, or another MCP client: {entry}\n\
             tokens: {token} for an agent; {access}\n\
             {policy}\n{tls}",
            url = ready.info.url(),
            pid = ready.info.pid,
            socket = output::line(&ready.info.socket.display().to_string()),
            watch = state.in_command("interlock approvals watch"),
            setup = state.in_command("interlock setup claude-code"),
            access = about_access(state, ready.info.operator_access.as_ref()),
            tls = about_certificate(&ready.info),
        );
        output::print_bytes(text.as_bytes());
    }
}

/// Describes the policy of the main agent in one line.
fn about_policy(state: &StateArguments, host: &LocalHost) -> Result<String, Failure> {
    let levels = host.levels(&AgentId::default(), None)?;
    Ok(format!(
        "policy: security {}, ask {}, askFallback {}; every layer of it: {}",
        levels.security.value(),
        levels.ask.value(),
        levels.ask_fallback.value(),
        state.in_command("interlock exec-policy show"),
    ))
}

/// Describes which secret operators need at the port, and where it comes from.
fn about_access(state: &StateArguments, access: Option<&OperatorAccess>) -> String {
    let mint = state.in_command("interlock gateway token --new");
    match access {
        Some(OperatorAccess::PasswordFile(path)) => {
            let file = quote(&path.display().to_string());
            format!("an operator\u{2019}s password is in {file}")
        }
        Some(OperatorAccess::PasswordVariable(name)) => {
            format!("an operator\u{2019}s password is in the gateway\u{2019}s variable {name}")
        }
        Some(OperatorAccess::TokenVariable(name)) => {
            format!("{mint} for an operator, or the one in the gateway\u{2019}s variable {name}")
        }
        Some(OperatorAccess::MintedToken) | None => format!("{mint} for an operator"),
    }
}

/// The certificate fingerprint that nodes pin, if the port uses TLS.
fn about_certificate(info: &GatewayInfo) -> String {
    let Some(fingerprint) = &info.tls_fingerprint else {
        return String::new();
    };
    let port = info.address.port();
    format!(
        "certificate fingerprint (SHA-256): {fingerprint}\n\
         for a node: interlock node run --host HOST --port {port} --tls --tls-fingerprint {fingerprint}\n"
    )
}

/// The JSON line that announces a ready gateway.
#[derive(Serialize)]
struct ReadyGatewayJson<'a> {
    #[serde(flatten)]
    info: &'a GatewayInfo,
    port: u16,
    url: String,
    ready: bool,
}

/// The JSON status of a running gateway.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RunningGatewayJson<'a> {
    #[serde(flatten)]
    info: &'a GatewayInfo,
    running: bool,
    port: u16,
    url: String,
    supervisor_pid: Option<i32>,
    service: Value,
}

fn status(state: &StateArguments, arguments: &GatewayStatusArguments) -> CommandOutcome {
    let host = open(state)?;
    let Some(info) = running(host.state_dir()) else {
        if arguments.json {
            let service = service::status(&host, ServiceKind::Gateway);
            output::print_json(&json!({ "running": false, "service": service }));
        } else {
            let run = state.in_command("interlock gateway run");
            output::print(&format!(
                "no gateway runs for this state directory; start one: {run}\n"
            ));
        }
        return Ok(ExitCode::from(1));
    };
    let supervisors = supervisor(&host)?.supervisors();
    let supervisor = supervisors.iter().find(|about| !about.draining);
    if arguments.json {
        output::print_json(&RunningGatewayJson {
            info: &info,
            running: true,
            port: info.address.port(),
            url: info.url(),
            supervisor_pid: supervisor.map(|about| about.pid),
            service: service::status(&host, ServiceKind::Gateway),
        });
    } else {
        output::print(&format!(
            "a gateway of version {} runs (pid {}) at {}, socket {}\n{}",
            info.version,
            info.pid,
            info.address,
            info.socket.display(),
            about_certificate(&info)
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Restarts the service, or else the running gateway: most gateways were started in the background
/// by the first command that needed one.
fn restart(state: &StateArguments, arguments: &ServiceArguments) -> CommandOutcome {
    let host = open(state)?;
    let serving = ServingGateway(&host);
    let Some(pid) = serving
        .pid()
        .filter(|_| !service::is_installed(&host, &serving, arguments))
    else {
        return service::restart(state, &host, &serving, arguments);
    };
    interlock_client::outside_runs(host.state_dir())?;
    serving.end()?;
    output::note(&format!("interlock: the gateway (pid {pid}) has ended"));
    let info = interlock_client::join(state, &host, interlock_client::Absent::Start)?;
    if arguments.json {
        output::print_json(&info);
    }
    Ok(ExitCode::SUCCESS)
}

fn stop(state: &StateArguments, arguments: &ServiceArguments) -> CommandOutcome {
    let host = open(state)?;
    let not_running = || {
        Failure::refused(
            "GATEWAY_NOT_RUNNING",
            "no gateway runs for this state directory",
        )
        .with_hint("nothing is left to stop; start one: interlock gateway run")
    };
    service::stop(&host, &ServingGateway(&host), not_running, arguments)
}

fn install(state: &StateArguments, arguments: &GatewayInstallArguments) -> CommandOutcome {
    let host = open(state)?;
    if let Some(user) = &arguments.run_as {
        RunAccount::named(user).map_err(HostError::from)?;
        if !arguments.install.print {
            interlock_client::config_file::set(state, RUN_AS, &json!(user))?;
            output::note(&format!("interlock: commands run as {user} ({RUN_AS})"));
        }
    }
    if arguments.run_as.is_none() {
        service::warn_root(state, &host, "interlock gateway install --run-as USER")?;
    }
    let mut command: Vec<OsString> = vec!["gateway".into(), "run".into()];
    if let Some(port) = arguments.port {
        command.extend(["--port".into(), port.to_string().into()]);
    }
    let service = ServiceDefinition::new(ServiceKind::Gateway, state, &host, &command)?;
    service::install(
        state,
        &service,
        &ServingGateway(&host),
        None,
        &arguments.install,
    )
}

/// The gateway process of this state directory, if one runs.
struct ServingGateway<'a>(&'a LocalHost);

impl KeptProcess for ServingGateway<'_> {
    fn kind(&self) -> ServiceKind {
        ServiceKind::Gateway
    }

    fn pid(&self) -> Option<u32> {
        running(self.0.state_dir()).map(|info| info.pid)
    }

    fn end(&self) -> Result<(), Failure> {
        match running(self.0.state_dir()) {
            Some(info) => end(self.0, &info),
            None => Ok(()),
        }
    }
}

fn end(host: &LocalHost, info: &GatewayInfo) -> Result<(), Failure> {
    let is_there = || running(host.state_dir()).is_some_and(|other| other.pid == info.pid);
    end_process(info.pid, is_there).map_err(|problem| {
        let message = format!("the gateway (pid {}): {problem}", info.pid);
        Failure::refused("GATEWAY_NOT_STOPPED", message)
    })
}

/// Asks a server to end, and waits until it has ended.
pub(super) fn end_process(pid: u32, is_there: impl Fn() -> bool) -> Result<(), String> {
    let pid = i32::try_from(pid).ok();
    let pid = pid.and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or("its pid is invalid")?;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)
        .map_err(|error| error.to_string())?;
    let began = Instant::now();
    while is_there() {
        if began.elapsed() > STOP_TIME {
            return Err("it does not end".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn token(state: &StateArguments, arguments: &GatewayTokenArguments) -> CommandOutcome {
    let host = open(state)?;
    let of_operators = RoleTokens {
        role: TokenRole::Operator,
        list: "interlock gateway token",
    };
    if let Some(id) = &arguments.revoke {
        return of_operators.revoke(state, &host, id, arguments.json);
    }
    if let Some(path) = &arguments.import {
        interlock_client::outside_runs(host.state_dir())?;
        let token = read_secret(path).map_err(|error| failed(&error.into()))?;
        let is_new = host.take_over_operator_token(&token)?;
        if arguments.json {
            output::print_json(&json!({ "imported": is_new }));
        } else {
            let file = quote(&path.display().to_string());
            output::note(&format!(
                "interlock: the hash of the token is kept; remove {file}"
            ));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.new {
        let mint = state.in_command("interlock gateway token --new");
        return of_operators.list(&host, arguments.json, &format!("mint one: {mint}"));
    }
    let minted = of_operators.mint(&host)?;
    of_operators.tell(state, &minted, arguments.json, None);
    Ok(ExitCode::SUCCESS)
}

fn failed(error: &GatewayError) -> Failure {
    let failure = Failure::refused(error.code(), error.to_string());
    match error.remedy() {
        Some(remedy) => failure.with_hint(remedy),
        None => failure,
    }
}

/// Warns if the config wants runs to be shielded but this system offers no shield.
pub(super) fn warn_guard_only(host: &LocalHost) -> Result<(), Failure> {
    let file = host.config()?;
    let config = file.config();
    let listed = config.agents.list.iter().map(|agent| agent.id.as_str());
    let mut agents = listed.chain([AgentId::MAIN]);
    // Each agent can set its own shield.
    let reason = agents.find_map(|agent| interlock_host::guard_only(&config.exec_for(agent)));
    if let Some(reason) = reason {
        output::note(&format!(
            "warning: guard only: this system offers no shield for runs: {reason}"
        ));
    }
    Ok(())
}
