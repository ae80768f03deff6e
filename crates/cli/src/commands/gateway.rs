//! `interlock gateway`: the server in the foreground, and what to know of one that runs.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use interlock_gateway::{GatewayError, Info, LogLines, Options, Ready, TokenFile, running, serve};
use interlock_host::{LocalHost, PathSource};
use interlock_policy::quote;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::{Outcome, open, open_options, supervisor};
use crate::args::{GatewayCommand, GatewayRunArguments, GatewayStatusArguments, StateArguments};
use crate::failure::Failure;
use crate::output;

/// How long a gateway may take to end.
const STOP_TIME: Duration = Duration::from_secs(10);

/// Network threads; work that waits has threads of its own.
const THREADS: usize = 2;

/// Threads for work that waits: more than calls that wait for runs, follow output and are subscribed to it
/// can hold, so that there is always one for those who look and decide.
const WAITING_THREADS: usize = 2048;

pub fn run(state: &StateArguments, command: &GatewayCommand) -> Outcome {
    match command {
        GatewayCommand::Run(arguments) => serve_here(state, arguments),
        GatewayCommand::Status(arguments) => status(state, arguments),
        GatewayCommand::Stop => stop(state),
        GatewayCommand::Token => token(state),
    }
}

fn serve_here(state: &StateArguments, arguments: &GatewayRunArguments) -> Outcome {
    if arguments.detach {
        // Fails only for who leads a session already.
        let _ = rustix::process::setsid();
    }
    let host = open(state)?;
    super::outside_runs(host.state_dir())?;
    let client = supervisor(&host)?;
    let has_port = host.config()?.config().gateway.port.is_some();
    drop(host);
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let logs = LogLines::default();
    let options = |port| {
        let mut host = open_options(state);
        host.path_source = PathSource::LoginShell {
            shell: std::env::var_os("SHELL").map(Into::into),
        };
        Options {
            host,
            supervisor: client.clone(),
            port,
            tick_ms: arguments.tick_ms,
            environment: environment.clone(),
            version: env!("CARGO_PKG_VERSION"),
            logs: logs.clone(),
        }
    };
    let runtime = runtime(&logs)?;
    let stop = CancellationToken::new();
    let served = runtime.block_on(async {
        end_with_signals(&stop)
            .map_err(|error| Failure::refused("SIGNALS_UNUSABLE", error.to_string()))?;
        let tell = |ready: &Ready| tell_ready(state, arguments, ready);
        let served = serve(options(arguments.port), stop.clone(), tell).await;
        match served {
            // Who started it in the background comes by the socket: any port will do.
            Err(GatewayError::Listen { source, .. })
                if arguments.detach && !has_port && source.kind() == ErrorKind::AddrInUse =>
            {
                serve(options(Some(0)), stop, tell).await
            }
            served => served,
        }
        .map_err(|error| failed(&error))
    });
    // Runs that calls still wait for belong to the supervisor.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

/// The log to stderr, and the threads of a server.
pub(super) fn runtime(logs: &LogLines) -> Result<tokio::runtime::Runtime, Failure> {
    log_to_stderr(logs);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(WAITING_THREADS)
        .enable_all()
        .build()
        .map_err(|error| Failure::refused("RUNTIME_UNAVAILABLE", error.to_string()))
}

/// What clients say is theirs: the library that reads it tells only what went wrong.
fn log_to_stderr(logs: &LogLines) {
    let kept = logs.clone();
    let levels = Targets::new()
        .with_default(LevelFilter::INFO)
        .with_target("rmcp", LevelFilter::ERROR);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(move || kept.writer())
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

fn tell_ready(state: &StateArguments, arguments: &GatewayRunArguments, ready: &Ready) {
    if arguments.json {
        let mut line = json!(ready.info);
        line["port"] = ready.info.address.port().into();
        line["url"] = ready.url().into();
        line["tokenFile"] = ready.token_file.display().to_string().into();
        line["ready"] = true.into();
        // One line, so that programs can wait for it.
        output::print_bytes(format!("{line}\n").as_bytes());
    } else {
        let token = state.in_command("interlock agents token main");
        let entry = json!({ "mcpServers": { "interlock": {
            "url": format!("{}/mcp", ready.url()),
            "headers": { "Authorization": "Bearer AGENT_TOKEN" },
        } } });
        let text = format!(
            "ready: {url} (pid {pid})\n\
             operator token: {file}\n\
             an agent\u{2019}s token: {token}\n\
             for an MCP client: {entry}\n",
            url = ready.url(),
            pid = ready.info.pid,
            file = quote(&ready.token_file.display().to_string()),
        );
        output::print_bytes(text.as_bytes());
    }
}

fn status(state: &StateArguments, arguments: &GatewayStatusArguments) -> Outcome {
    let host = open(state)?;
    let Some(info) = running(host.state_dir()) else {
        if arguments.json {
            output::print_json(&json!({ "running": false }));
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
        let mut value = json!(info);
        value["running"] = true.into();
        value["port"] = info.address.port().into();
        value["supervisorPid"] = supervisor.map(|about| about.pid).into();
        output::print_json(&value);
    } else {
        output::print(&format!(
            "a gateway of version {} runs (pid {}) at {}, socket {}\n",
            info.version,
            info.pid,
            info.address,
            info.socket.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn stop(state: &StateArguments) -> Outcome {
    let host = open(state)?;
    super::outside_runs(host.state_dir())?;
    let Some(info) = running(host.state_dir()) else {
        return Err(Failure::refused(
            "GATEWAY_NOT_RUNNING",
            "no gateway runs for this state directory",
        ));
    };
    end(&host, &info)?;
    output::note(&format!(
        "interlock: the gateway (pid {}) has ended",
        info.pid
    ));
    Ok(ExitCode::SUCCESS)
}

fn end(host: &LocalHost, info: &Info) -> Result<(), Failure> {
    let pid = i32::try_from(info.pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or_else(|| Failure::refused("GATEWAY_NOT_RUNNING", "its pid is not one"))?;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)
        .map_err(|error| Failure::refused("GATEWAY_NOT_STOPPED", error.to_string()))?;
    let began = Instant::now();
    while running(host.state_dir()).is_some_and(|other| other.pid == info.pid) {
        if began.elapsed() > STOP_TIME {
            let message = format!("the gateway (pid {}) does not end", info.pid);
            return Err(Failure::refused("GATEWAY_NOT_STOPPED", message));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn token(state: &StateArguments) -> Outcome {
    let host = open(state)?;
    super::outside_runs(host.state_dir())?;
    let config = host.config()?;
    let file = config.config().gateway.auth.token_file.clone();
    let token = TokenFile::of(host.state_dir(), file.as_deref()).read_or_create();
    let token = token.map_err(|error| failed(&error.into()))?;
    output::print(&format!("{token}\n"));
    Ok(ExitCode::SUCCESS)
}

fn failed(error: &GatewayError) -> Failure {
    let failure = Failure::refused(error.code(), error.to_string());
    match error.remedy() {
        Some(remedy) => failure.with_hint(remedy),
        None => failure,
    }
}
