//! `interlock sandbox bind`: makes one more path visible to the runs of one conversation, so that
//! an approver need not let a run leave the sandbox.

use std::process::ExitCode;

use interlock_approvals::usual_session_key;
use interlock_arguments::{SandboxBindArguments, StateArguments};
use interlock_client::{caller_context, decider, known_agent, open, outside_runs};
use interlock_console::{CommandOutcome, Failure, output};
use interlock_host::{Author, SandboxCaller, SandboxStanding};

pub(super) fn run(state: &StateArguments, arguments: &SandboxBindArguments) -> CommandOutcome {
    let host = open(state)?;
    let _outside = outside_runs(host.state_dir())?;
    let agent = known_agent(&host, &arguments.agent)?;
    let session_key = match &arguments.session {
        Some(key) => key.clone(),
        None => usual_session_key(agent.as_str()),
    };
    let bind = bind_of(&arguments.path)?;
    let author = Author::new(decider())
        .map_err(|error| Failure::refused("AUTHOR_INVALID", error.to_string()))?;
    if arguments.remove {
        let conversation = (session_key.as_str(), &agent);
        if !host.change_session_bind(conversation, &bind, false, &author)? {
            let message = format!("{} has no such bind", output::line(&session_key));
            return Err(Failure::refused("SANDBOX_BIND", message));
        }
        output::print("removed\n");
        return Ok(ExitCode::SUCCESS);
    }
    let scope = host.scope(&agent)?;
    let SandboxStanding::Active(settings) = host.sandbox_standing(&scope, &agent, &session_key)
    else {
        let message = format!("{} is not sandboxed", output::line(&session_key));
        return Err(Failure::refused("SANDBOX_UNAVAILABLE", message)
            .with_hint("see why: interlock sandbox explain"));
    };
    // Check the bind by the rules of the config before it is stored.
    let mut settings = *settings;
    settings.binds.get_or_insert_default().push(bind.clone());
    let directory = std::env::current_dir()
        .map_err(|error| Failure::refused("WORKDIR_UNUSABLE", error.to_string()))?;
    let caller = caller_context(&directory);
    let asked = SandboxCaller {
        agent: &agent,
        session_key: &session_key,
        caller: &caller,
        cwd: None,
        effects: interlock_plan::SandboxEffects::Direct,
    };
    host.prepare_sandbox_of(&scope, &settings, asked)
        .map_err(|error| Failure::Exec {
            hint: error.remedy(),
            error: Box::new(error),
        })?;
    if !host.change_session_bind((&session_key, &agent), &bind, true, &author)? {
        let message = format!(
            "{} has this bind, or too many of them",
            output::line(&session_key)
        );
        return Err(Failure::refused("SANDBOX_BIND", message));
    }
    output::print(&format!(
        "runs of {} see {} from now on\n",
        output::line(&session_key),
        output::line(&arguments.path)
    ));
    Ok(ExitCode::SUCCESS)
}

/// Converts `PATH[:ro|rw]` to a bind of the config, at the same path inside the sandbox.
fn bind_of(text: &str) -> Result<String, Failure> {
    let (path, access) = match text.rsplit_once(':') {
        Some((path, access @ ("ro" | "rw"))) => (path, access),
        _ => (text, "ro"),
    };
    if !path.starts_with('/') || path.contains(':') {
        let message = format!(
            "`{}` is not an absolute path without colons",
            output::line(path)
        );
        return Err(Failure::usage("SANDBOX_BIND", message));
    }
    Ok(format!("{path}:{path}:{access}"))
}
