//! The state of this machine, as a command opens it, and what this process is to it.

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

/// What opening the state needs to know of this process and its flags.
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

/// What a first start writes. Images and provisioning tools that bring a policy of their own ask for none.
fn starter() -> Starter {
    match std::env::var("INTERLOCK_BASE") {
        Ok(value) if value == "none" => Starter::Bare,
        _ => Starter::ReadOnly,
    }
}

/// Opens the state of this host; the first start says what it wrote.
pub fn open(state: &StateArguments) -> Result<LocalHost, Failure> {
    check_named_config(state)?;
    // A shielded run finds an empty directory that cannot be written to: that says nothing to it.
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

/// A config that was named must be there: a wrong path must not mean a config without any rule.
pub fn check_named_config(state: &StateArguments) -> Result<(), Failure> {
    let named = state.config.as_deref();
    named.map_or(Ok(()), |path| check_config_exists(state, path))
}

/// Fails where there is no such file.
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

/// Opens the state also where the approvals document is not recorded.
pub fn open_for_repair(state: &StateArguments) -> Result<LocalHost, Failure> {
    let host = LocalHost::open_for_repair(open_options(state))?;
    check_reach(state, &host)?;
    Ok(host)
}

/// What this process brings of its own: a person started it, to work in this directory.
pub fn caller_context(directory: &Path) -> CallerContext {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let path = std::env::var("PATH").ok();
    CallerContext::of_program(path, &[directory.to_owned()], home.as_deref())
}

/// Where the commands of an agent go, as its session or the config say.
pub fn configured_host(host: &LocalHost, agent: &AgentId) -> Result<Option<Host>, Failure> {
    let session = host.session(&usual_session_key(agent.as_str()))?;
    let config = host.config()?;
    Ok(session
        .host
        .or(config.config().exec_for(agent.as_str()).host))
}

/// Where a command of an agent goes that is not elevated, as the call, its session and the config say.
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

/// Where a call of the command line goes, which may be elevated.
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

/// The caller at this command line, where a sandbox holds its calls: the user of this process, unless it
/// is part of a run, which leaves no sandbox.
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

/// Decisions are taken, and policies written, by people: never by a run.
pub fn outside_runs(state_dir: &Path) -> Result<OutsideRuns, Failure> {
    // A supervisor that is not running cannot have started this process: none is started to be
    // asked.
    let client = SupervisorClient::new(SupervisorPaths::new(state_dir), env!("CARGO_PKG_VERSION"));
    Ok(OutsideRuns::this_process(&client)?)
}

/// Who decides here, as other surfaces show it.
pub fn decider() -> String {
    let user = rustix::process::getuid().as_raw();
    let name = std::env::var("USER").ok().filter(|name| !name.is_empty());
    match name {
        Some(name) => format!("{} (uid {user})", output::line(&name)),
        None => format!("uid {user}"),
    }
}

/// The supervisor of this state directory, started when it is needed. Its runs may have as many files open
/// as this process may now.
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
