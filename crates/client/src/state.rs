//! Opens the state of this machine for a command, and describes the command's caller to it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use interlock_approvals::{OutsideRuns, usual_session_key};
use interlock_arguments::StateArguments;
use interlock_config::{Host, StateEnvironment};
use interlock_console::{Failure, output};
use interlock_host::{
    CallSender, CallerContext, ElevationFacts, FirstStart, LocalHost, OpenOptions, PathSource,
    Route, RouteFacts, RouteRefusal, RoutedCall, Starter, route, route_call,
};
use interlock_plan::RunAccount;
use interlock_policy::AgentId;
use interlock_supervisor::{SupervisorClient, SupervisorPaths};
use rustix::process::Resource;

use crate::local_only::check_reach;

/// The options for opening the state, from the flags and the environment of this process.
pub fn open_options(state: &StateArguments) -> OpenOptions {
    OpenOptions {
        state_dir: state.state_dir.clone(),
        config: state.config.clone(),
        environment: StateEnvironment {
            interlock_state_dir: std::env::var_os("INTERLOCK_STATE_DIR"),
            xdg_state_home: std::env::var_os("XDG_STATE_HOME"),
            home: std::env::var_os("HOME"),
        },
        path: std::env::var("PATH").ok(),
        path_source: PathSource::Process,
        home: std::env::var("HOME").ok(),
        data_home: std::env::var("XDG_DATA_HOME").ok(),
        starter: starter(),
    }
}

/// What a first start writes. Images and provisioning tools that install a policy set
/// `INTERLOCK_BASE=none` to get no base rules.
fn starter() -> Starter {
    match std::env::var("INTERLOCK_BASE") {
        Ok(value) if value == "none" => Starter::Bare,
        _ => Starter::ReadOnly,
    }
}

/// Opens the state of this host. The first start prints what it wrote.
pub fn open(state: &StateArguments) -> Result<LocalHost, Failure> {
    check_named_config(state)?;
    // A shielded run sees an empty, read-only directory, so the plain error would not explain
    // anything.
    let opened = LocalHost::open(open_options(state)).map_err(|error| {
        if !interlock_engine::mark::born_in_run() {
            return Failure::from(error);
        }
        let message = format!(
            "a run can neither decide nor use the state of Interlock, which does not exist inside its shield ({error})"
        );
        Failure::refused("DECISION_FROM_RUN", message).with_hint("call it outside of the run")
    });
    let (host, FirstStart(first)) = opened?;
    if first {
        let base = match starter() {
            Starter::Bare => String::new(),
            Starter::ReadOnly => format!(
                ", with the base: commands that only read the workspace run unasked (see {})",
                state.in_command("interlock policy base show")
            ),
        };
        output::note(&format!(
            "interlock: wrote the cautious policy to {} (allowlist, ask on a miss){base}; for no questions at all: {}",
            host.state_dir().display(),
            state.in_command("interlock exec-policy preset yolo"),
        ));
    }
    check_reach(state, &host)?;
    Ok(host)
}

/// Fails if `--config` names a missing file: a wrong path must not mean a config without any rules.
pub fn check_named_config(state: &StateArguments) -> Result<(), Failure> {
    let named = state.config.as_deref();
    named.map_or(Ok(()), |path| check_config_exists(state, path))
}

/// Fails if the file does not exist.
pub fn check_config_exists(state: &StateArguments, path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        _ => return Ok(()),
    }
    let message = format!("config {}: there is no such file", path.display());
    let begin = state.in_command("interlock config set tools.exec.ask on-miss");
    Err(Failure::refused("CONFIG_MISSING", message)
        .with_hint(format!("correct the path, or begin the file: {begin}")))
}

/// Opens the state even if the last change of the approvals document is not recorded.
pub fn open_for_repair(state: &StateArguments) -> Result<LocalHost, Failure> {
    let host = LocalHost::open_for_repair(open_options(state))?;
    check_reach(state, &host)?;
    Ok(host)
}

/// The context of a caller that works in this directory: the home and PATH of this process.
pub fn caller_context(directory: &Path) -> CallerContext {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let path = std::env::var("PATH").ok();
    CallerContext::of_program(path, &[directory.to_owned()], home.as_deref())
}

/// The host that the conversation or the config of an agent sets for its commands.
pub fn configured_host(host: &LocalHost, agent: &AgentId) -> Result<Option<Host>, Failure> {
    let session = host.session(&usual_session_key(agent.as_str()))?;
    let config = host.config()?;
    Ok(session
        .host
        .or(config.config().exec_for(agent.as_str()).host))
}

/// Where a command of an agent runs that is not elevated, by the call, the conversation and the
/// config.
pub fn routed(
    host: &LocalHost,
    agent: &AgentId,
    asked: Option<Host>,
) -> Result<Result<Route, RouteRefusal>, Failure> {
    let session_key = usual_session_key(agent.as_str());
    let session = host.session(&session_key)?;
    let scope = host.scope(agent)?;
    let sandbox = host.sandbox_standing(&scope, agent, &session_key);
    Ok(route(RouteFacts {
        asked,
        session: session.host,
        exec: scope.exec(),
        sandbox: &sandbox,
    }))
}

/// Where a call from the command line runs, which may be elevated.
pub fn routed_call(
    host: &LocalHost,
    agent: &AgentId,
    (asked, elevated): (Option<Host>, Option<bool>),
    sender: Option<&CallSender>,
) -> Result<Result<RoutedCall, RouteRefusal>, Failure> {
    let session_key = usual_session_key(agent.as_str());
    let session = host.session(&session_key)?;
    let scope = host.scope(agent)?;
    let sandbox = host.sandbox_standing(&scope, agent, &session_key);
    let facts = RouteFacts {
        asked,
        session: session.host,
        exec: scope.exec(),
        sandbox: &sandbox,
    };
    let elevation = ElevationFacts {
        config: scope.config().config(),
        agent,
        asked: elevated,
        session: session.elevated,
        sender,
    };
    Ok(route_call(facts, &elevation))
}

/// The sender of a call from the command line, if a sandbox holds the conversation: the user of
/// this process. A process of a run gets `None`, because a run must not leave its sandbox.
pub fn command_line_sender(
    host: &LocalHost,
    agent: &AgentId,
) -> Result<Option<CallSender>, Failure> {
    let scope = host.scope(agent)?;
    let session_key = usual_session_key(agent.as_str());
    let is_held = host
        .sandbox_standing(&scope, agent, &session_key)
        .is_active();
    if !is_held || outside_runs(host.state_dir()).is_err() {
        return Ok(None);
    }
    let user = rustix::process::getuid().as_raw();
    Ok(Some(CallSender {
        username: RunAccount::user_name(user),
        ..CallSender::new("cli", user.to_string())
    }))
}

/// Proof that this process belongs to no run. A run must neither decide approvals nor write
/// policies.
pub fn outside_runs(state_dir: &Path) -> Result<OutsideRuns, Failure> {
    // A supervisor that does not run cannot have started this process, so none is started to ask.
    let client = SupervisorClient::new(SupervisorPaths::new(state_dir), env!("CARGO_PKG_VERSION"));
    Ok(OutsideRuns::this_process(&client)?)
}

/// The name of the user of this process, which records and other surfaces show as the decider.
pub fn decider() -> String {
    let user = rustix::process::getuid().as_raw();
    let name = std::env::var("USER").ok().filter(|name| !name.is_empty());
    match name {
        Some(name) => format!("{} (uid {user})", output::line(&name)),
        None => format!("uid {user}"),
    }
}

/// The supervisor of this state directory, which is started when it is needed. Its runs get the
/// limit of open files that this process has now.
pub fn supervisor(host: &LocalHost) -> Result<SupervisorClient, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::refused("SUPERVISOR_UNAVAILABLE", format!("this program: {error}"))
    })?;
    let place = SupervisorPaths::new(host.state_dir());
    let mut arguments = vec![
        OsString::from("guard"),
        "--state-dir".into(),
        host.state_dir().into(),
    ];
    if let Some(limit) = rustix::process::getrlimit(Resource::Nofile).current {
        arguments.extend(["--open-files".into(), limit.to_string().into()]);
    }
    Ok(SupervisorClient::new(place, env!("CARGO_PKG_VERSION")).starting(program, arguments))
}
