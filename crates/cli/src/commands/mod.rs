mod agent;
pub mod agents;
pub mod apply_patch;
mod approval_wait;
pub mod approvals;
pub mod audit;
pub mod config;
pub mod dashboard;
pub mod deny;
pub mod devices;
pub mod doctor;
pub mod events;
pub mod exec;
pub mod exec_policy;
pub mod explain;
pub mod gateway;
pub mod generate;
pub mod guard;
pub mod hook;
pub mod import;
pub mod join;
pub mod mcp;
pub mod node;
pub mod nodes;
pub mod policy;
pub mod process;
mod prompt;
mod request;
mod role_tokens;
pub mod sandbox;
pub mod security;
pub mod service;
pub mod setup;
pub mod status;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use interlock_approvals::{OutsideRuns, usual_session_key};
use interlock_config::{Host, StateEnvironment};
use interlock_host::{
    CallerContext, FirstStart, LocalHost, OpenOptions, PathSource, Route, RouteFacts, RouteRefusal,
    Starter, route,
};
use interlock_policy::{AgentId, Ask, Fallback, Joined, PolicySource, Security};
use interlock_supervisor::{SupervisorClient, SupervisorPaths};
use rustix::process::Resource;

use crate::args::{AskArgument, FallbackArgument, SecurityArgument, StateArguments};
use crate::failure::Failure;
use crate::output;
use crate::reach;

use agent::{agent_id, known_agent, known_agents, known_scope};

pub type CommandOutcome = Result<ExitCode, Failure>;

pub fn version() -> ExitCode {
    output::print(concat!("interlock ", env!("CARGO_PKG_VERSION"), "\n"));
    ExitCode::SUCCESS
}

fn open_options(state: &StateArguments) -> OpenOptions {
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
fn open(state: &StateArguments) -> Result<LocalHost, Failure> {
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
    reach::check(state, &host)?;
    Ok(host)
}

/// Opens the state also where the approvals document is not recorded.
fn open_for_repair(state: &StateArguments) -> Result<LocalHost, Failure> {
    let host = LocalHost::open_for_repair(open_options(state))?;
    reach::check(state, &host)?;
    Ok(host)
}

/// What this process brings of its own: a person started it, to work in this directory.
fn caller_context(directory: &Path) -> CallerContext {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let path = std::env::var("PATH").ok();
    CallerContext::of_program(path, &[directory.to_owned()], home.as_deref())
}

/// Where the commands of an agent go, as its session or the config say.
fn configured_host(host: &LocalHost, agent: &AgentId) -> Result<Option<Host>, Failure> {
    let session = host.session(&usual_session_key(agent.as_str()))?;
    let config = host.config()?;
    Ok(session
        .host
        .or(config.config().exec_for(agent.as_str()).host))
}

/// Where a command of an agent goes, as the call, its session and the config say.
fn routed(
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

/// Decisions are taken, and policies written, by people: never by a run.
pub(crate) fn outside_runs(state_dir: &Path) -> Result<OutsideRuns, Failure> {
    // A supervisor that is not running cannot have started this process: none is started to be
    // asked.
    let client = SupervisorClient::new(SupervisorPaths::new(state_dir), env!("CARGO_PKG_VERSION"));
    Ok(OutsideRuns::this_process(&client)?)
}

/// A server whose runs are not shielded, although its config wants them to be, says so in its first line.
fn say_guard_only(host: &LocalHost) -> Result<(), Failure> {
    let file = host.config()?;
    let config = file.config();
    let listed = config.agents.list.iter().map(|agent| agent.id.as_str());
    let mut agents = listed.chain([AgentId::MAIN]);
    // An agent may have a shield of its own.
    let reason = agents.find_map(|agent| interlock_host::guard_only(&config.exec_for(agent)));
    if let Some(reason) = reason {
        output::note(&format!(
            "warning: guard only: this system offers no shield for runs: {reason}"
        ));
    }
    Ok(())
}

/// Who decides here, as other surfaces show it.
fn decider() -> String {
    let user = rustix::process::getuid().as_raw();
    let name = std::env::var("USER").ok().filter(|name| !name.is_empty());
    match name {
        Some(name) => format!("{} (uid {user})", output::line(&name)),
        None => format!("uid {user}"),
    }
}

/// The supervisor of this state directory, started when it is needed. Its runs may have as many files open
/// as this process may now.
fn supervisor(host: &LocalHost) -> Result<SupervisorClient, Failure> {
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

impl From<AskArgument> for Ask {
    fn from(argument: AskArgument) -> Self {
        match argument {
            AskArgument::Off => Self::Off,
            AskArgument::OnMiss => Self::OnMiss,
            AskArgument::Always => Self::Always,
        }
    }
}

impl From<SecurityArgument> for Security {
    fn from(argument: SecurityArgument) -> Self {
        match argument {
            SecurityArgument::Deny => Self::Deny,
            SecurityArgument::Allowlist => Self::Allowlist,
            SecurityArgument::Full => Self::Full,
        }
    }
}

impl From<FallbackArgument> for Fallback {
    fn from(argument: FallbackArgument) -> Self {
        match argument {
            FallbackArgument::Deny => Self::Deny,
            FallbackArgument::Allowlist => Self::Allowlist,
            FallbackArgument::Full => Self::Full,
        }
    }
}

/// One row of the layers table: field, effective value, who decided, what the others say.
fn level_row<T: Copy + std::fmt::Display>(name: &str, joined: &Joined<T>) -> Vec<String> {
    let effective = &joined.effective;
    let decided = match effective.source {
        PolicySource::Default => "built-in default".to_owned(),
        PolicySource::Call => "by the call itself".to_owned(),
        source if effective.path.is_empty() => format!("by the {}", source.as_str()),
        source => format!("by {} ({})", effective.path, source.as_str()),
    };
    let others: Vec<String> = joined
        .layers
        .iter()
        .filter(|layer| layer.path != effective.path || layer.source != effective.source)
        .map(|layer| format!("{} says {}", layer.source.as_str(), layer.value))
        .collect();
    vec![
        name.to_owned(),
        effective.value.to_string(),
        decided,
        others.join(", "),
    ]
}
