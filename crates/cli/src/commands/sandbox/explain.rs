//! `interlock sandbox explain`: shows whether runs of a conversation are sandboxed, why, and what
//! they see.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use interlock_approvals::{EVERY_SESSION, Grant, process_name, usual_session_key};
use interlock_arguments::{SandboxExplainArguments, StateArguments};
use interlock_client::{caller_context, command_line_sender, known_agent, open, supervisor};
use interlock_command::Source;
use interlock_console::output::Paint;
use interlock_console::{CommandOutcome, Failure, output};
use interlock_engine::RunStatus;
use interlock_engine::sandbox::{filter_reasons, try_sandbox};
use interlock_host::{
    AgentScope, Elevation, ElevationFacts, ElevationGate, EndListener, Exec, ExecRequest,
    LocalHost, RequestedPlace, Running, SandboxCaller, SandboxStanding, Yield, check_sandbox_tool,
    tool_levels,
};
use interlock_plan::{PlanStdin, SandboxBackend, SandboxMount, SandboxPlan};
use interlock_policy::{AgentId, check_tool};
use interlock_sandbox::{LANDLOCK_LACKS, PreparedSandbox, config_notices, probe_script};
use interlock_supervisor::Waited;
use serde_json::json;

/// The time limit of a probe.
const PROBE_SECONDS: u64 = 60;

pub(super) fn run(state: &StateArguments, arguments: &SandboxExplainArguments) -> CommandOutcome {
    let host = open(state)?;
    let agent = known_agent(&host, &arguments.agent)?;
    let session_key = match &arguments.session {
        Some(key) => key.clone(),
        None => usual_session_key(agent.as_str()),
    };
    let scope = host.scope(&agent)?;
    let standing = host.sandbox_standing(&scope, &agent, &session_key);
    let notices = config_notices(scope.config().config());
    for notice in &notices {
        output::note(notice);
    }
    let settings = match &standing {
        SandboxStanding::Off(why) => {
            if arguments.verify {
                let message = format!("{session_key} is not sandboxed: {why}");
                let hint =
                    state.in_command("interlock config set agents.defaults.sandbox.mode all");
                return Err(Failure::refused("SANDBOX_UNAVAILABLE", message).with_hint(hint));
            }
            if arguments.json {
                output::print_json(&json!({ "sandboxed": false, "why": why }));
            } else {
                output::print(&format!(
                    "{} is not sandboxed: {why}\n",
                    output::line(&session_key)
                ));
            }
            return Ok(ExitCode::SUCCESS);
        }
        SandboxStanding::Active(settings) => settings,
    };
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
    let prepared = host
        .prepare_sandbox_of(&scope, settings, asked)
        .map_err(|error| Failure::Exec {
            hint: error.remedy(),
            error: Box::new(error),
        })?;
    let verified = if arguments.verify {
        Some(verify(&host, &agent, &session_key, &prepared)?)
    } else {
        None
    };
    let is_required = settings.required == Some(true);
    let overruled = scope.config().config().overruled_sandbox(agent.as_str());
    let sender = command_line_sender(&host, &agent)?;
    let elevation = ElevationFacts {
        config: scope.config().config(),
        agent: &agent,
        asked: Some(true),
        session: host.session(&session_key)?.elevated,
        sender: sender.as_ref(),
    };
    let gates = elevation.gates(is_required);
    let tools = tool_states(&scope, &agent, &session_key);
    let probe = match try_sandbox(&prepared.plan) {
        Ok(()) => "works".to_owned(),
        Err(why) => why,
    };
    let backends = super::try_backends(&host)?;
    let granted = granted_hosts(&host, &agent, &prepared.plan)?;
    if arguments.json {
        let mut value = json!({
            "sandboxed": true,
            "required": is_required,
            "sandbox": prepared.plan,
            "network": prepared.plan.summary().network,
            "grantedHosts": granted.iter().map(|grant| json!({
                "id": grant.id,
                "host": granted_host(grant),
                "sessionKey": grant.session_key,
                "decider": grant.decider,
                "expiresAtMs": grant.expires_at_ms,
            })).collect::<Vec<_>>(),
            "notices": notices,
            "probe": probe,
            "backends": backends,
            "refusedCalls": filter_reasons(),
            "tools": tools,
            "elevated": {
                "open": gates.iter().all(|gate| gate.closed.is_none()),
                "level": elevation.level(),
                "sender": sender.as_ref().map(ToString::to_string),
                "gates": gates.iter().map(|gate| json!({ "key": gate.key, "closed": gate.closed })).collect::<Vec<_>>(),
            },
        });
        if prepared.plan.backend == SandboxBackend::Landlock {
            value["lacks"] = json!(LANDLOCK_LACKS);
        }
        if let Some(overruled) = &overruled {
            value["overruled"] = json!({
                "key": overruled.key,
                "host": overruled.host,
                "fix": state.in_command(&overruled.remedy()),
            });
        }
        if let Some(verified) = &verified {
            value["verified"] = json!({ "holds": verified.holds, "tests": verified.lines });
        }
        output::print_json(&value);
    } else {
        if let Some(overruled) = &overruled {
            let fix = state.in_command(&overruled.remedy());
            let warning = format!("{}; to use it: {fix}", overruled.words());
            output::print(&format!("{}\n\n", Paint::stdout().warning(&warning)));
        }
        output::print(&text(&session_key, is_required, &prepared.plan, &granted));
        for (tool, closed) in &tools {
            let state = closed.as_deref().unwrap_or("open");
            output::print(&format!("tool {tool}: {}\n", output::line(state)));
        }
        output::print(&gates_text(&gates, elevation.level()));
        output::print(&format!("\nprobe: {}\n", output::line(&probe)));
        output::print(&format!("backends, {}:\n", chosen_by(settings.backend)));
        for one in &backends {
            let found = one.why.as_deref().unwrap_or("works");
            output::print(&format!("  {} {}\n", one.backend, output::line(found)));
        }
        output::print("system calls that are refused:\n");
        for reason in filter_reasons() {
            output::print(&format!("  {reason}\n"));
        }
        for line in verified.iter().flat_map(|verified| &verified.lines) {
            output::print(&format!("  {}\n", output::line(line)));
        }
    }
    let holds = probe == "works" && verified.is_none_or(|verified| verified.holds);
    Ok(if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Each tool, and why the conversation cannot use it, if it cannot.
fn tool_states(
    scope: &AgentScope<'_>,
    agent: &AgentId,
    session_key: &str,
) -> BTreeMap<&'static str, Option<String>> {
    let config = scope.config().config();
    let state = |tool| {
        let checked = check_tool(tool, &tool_levels(config, agent));
        let checked = checked.and_then(|()| check_sandbox_tool(config, (agent, session_key), tool));
        (tool, checked.err().map(|closed| closed.to_string()))
    };
    ["exec", "process", "apply_patch"]
        .into_iter()
        .map(state)
        .collect()
}

fn chosen_by(backend: Option<SandboxBackend>) -> &'static str {
    match backend {
        Some(_) => "of which the config names one",
        None => "of which the first that works is used",
    }
}

/// Describes the gates that an elevated call of this command line passes, or the keys that close
/// them.
fn gates_text(gates: &[ElevationGate], level: Elevation) -> String {
    let is_open = gates.iter().all(|gate| gate.closed.is_none());
    let how = match (is_open, level) {
        (false, _) => "closed: no call of this command line leaves the sandbox".to_owned(),
        (true, level) => format!("open: a call with `elevated` leaves the sandbox at `{level}`"),
    };
    let rows: Vec<Vec<String>> = gates
        .iter()
        .map(|gate| {
            let state = gate.closed.as_deref();
            let state = state.map_or("open".to_owned(), |why| format!("closed: {why}"));
            vec![output::line(&gate.key), output::line(&state)]
        })
        .collect();
    format!("\nelevated: {how}\n{}", output::table(&rows, "  "))
}

/// The hosts that approvers let runs of this agent reach. They matter only for a network that asks.
fn granted_hosts(
    host: &LocalHost,
    agent: &AgentId,
    plan: &SandboxPlan,
) -> Result<Vec<Grant>, Failure> {
    match &plan.network {
        Some(rules) if rules.ask => Ok(host.granted_hosts(agent.as_str())?),
        _ => Ok(Vec::new()),
    }
}

fn granted_host(grant: &Grant) -> &str {
    grant
        .preview
        .strip_prefix("reach ")
        .unwrap_or(&grant.preview)
}

/// Formats the explanation as text.
fn text(session_key: &str, is_required: bool, plan: &SandboxPlan, granted: &[Grant]) -> String {
    let leave = if is_required {
        "no run leaves it (required)"
    } else {
        "a configured tools.exec.host places runs outside of it, and an elevated call leaves it"
    };
    let user = plan.user;
    let mut text = format!(
        "{} is sandboxed; {leave}\n\nscope      {} ({})\nbackend    {}\nview       {}\nworkspace  {} ({})\nuser       {} inside, {} on the host\nnetwork    {}; unix sockets: {}\n{}",
        output::line(session_key),
        output::line(&plan.scope),
        plan.scope_id,
        plan.backend,
        plan.view,
        output::line(&plan.workspace),
        plan.workspace_access,
        user.uid,
        user.host_uid,
        match &plan.network {
            Some(rules) => format!("a loopback, and {rules}"),
            None if plan.backend == SandboxBackend::Landlock => "none".to_owned(),
            None => "none but a loopback".to_owned(),
        },
        plan.unix_sockets,
        match plan.backend {
            SandboxBackend::Landlock => "",
            _ =>
                "           sockets of the host that a mount shows are covered when a run starts; later ones are not\n",
        },
    );
    for grant in granted {
        let where_to = match grant.session_key.as_str() {
            EVERY_SESSION => "always".to_owned(),
            key => format!("in {}", output::line(key)),
        };
        let id = &grant.id;
        text.push_str(&format!(
            "           {} {where_to}, by {}; take it back: interlock approvals revoke {id}\n",
            output::line(granted_host(grant)),
            output::line(&grant.decider),
        ));
    }
    if let Some(container) = &plan.container {
        text.push_str(&format!(
            "container  {}, made by {} at {}; runs see its root, and have namespaces, user and limits of Interlock\nimage      {} ({})\n",
            output::line(&container.name),
            plan.backend,
            output::line(&container.socket),
            output::line(&container.image),
            container.image_id,
        ));
    }
    if let Some(ssh) = &plan.ssh {
        text.push_str(&format!(
            "machine    {}, by {}\n           the workspace there, {}, is a copy that was made once; nothing is copied back\n           the far side is not confined by Interlock: its account, files and network are those of that machine\n           runs end as a whole where that machine can make PID namespaces; else a process that clears its environment and leaves its session stays\n",
            output::line(&ssh.host),
            output::line(&ssh.client.canonical),
            output::line(&ssh.workspace()),
        ));
    }
    if plan.backend == SandboxBackend::Landlock {
        text.push_str("lacks      what the other backends promise:\n");
        for lack in LANDLOCK_LACKS {
            text.push_str(&format!("           {lack}\n"));
        }
    }
    if plan.executables.is_some() {
        text.push_str("programs   only programs that a command names, their interpreters and helpers, and those of allowlist entries; none that can be written to\n");
    }
    let limits = &plan.limits;
    let shown = |value: Option<u64>| value.map_or("none".to_owned(), |value| value.to_string());
    text.push_str(&format!(
        "limits     memory {}, pids {}, cpus {}/1000, output {}, each private file system {} bytes, {} bytes of a disk stay free\n\nwhat a run sees, in the order in which it is mounted\n",
        shown(limits.memory_bytes),
        shown(limits.pids),
        shown(limits.milli_cpus),
        shown(limits.output_bytes),
        limits.tmp_bytes,
        shown(limits.disk_free_bytes),
    ));
    let rows: Vec<Vec<String>> = plan.mounts.iter().map(row).collect();
    text.push_str(&output::table(&rows, "  "));
    text
}

fn row(mount: &SandboxMount) -> Vec<String> {
    let (how, reason) = mount.words();
    vec![
        output::line(mount.target()),
        how.to_owned(),
        output::line(&reason),
    ]
}

/// The result of a probe.
struct ProbeReport {
    holds: bool,
    lines: Vec<String>,
}

/// Runs the probe like any other run of the conversation.
fn verify(
    host: &LocalHost,
    agent: &AgentId,
    session_key: &str,
    prepared: &PreparedSandbox,
) -> Result<ProbeReport, Failure> {
    let state_dir = host.state_dir().display().to_string();
    let script = probe_script(&prepared.plan, &state_dir);
    let client = supervisor(host)?;
    let cwd = prepared.host_cwd.clone();
    let caller = caller_context(Path::new(&prepared.plan.workspace));
    let base_env = BTreeMap::new();
    let request = ExecRequest {
        agent,
        config: None,
        caller: &caller,
        source: Source::Text(script),
        cwd,
        env: BTreeMap::new(),
        ask: None,
        gateway: None,
        timeout_seconds: Some(PROBE_SECONDS),
        base_env: &base_env,
        session_key: Some(session_key),
        pty: None,
        stdin: PlanStdin::Null,
        yields: Yield::Never,
        show_chars: None,
        requester: process_name(),
        runs_later: false,
        place: RequestedPlace {
            host: None,
            needs_sandbox: true,
            ..RequestedPlace::default()
        },
    };
    let begun = host
        .exec(&request, &client)
        .map_err(|error| Failure::Exec {
            hint: error.remedy(),
            error: Box::new(error),
        })?;
    let Exec::Started(running) = begun else {
        let message = "the policy inside asks an approver about every run, also about the probe";
        return Err(Failure::refused("SANDBOX_NOT_VERIFIED", message));
    };
    let Running {
        conversation,
        ticket,
        ..
    } = *running;
    let waited = conversation.wait();
    let session = conversation.started().session.name.clone();
    // Settle the layer of the probe. It contains no changes.
    let _ = host
        .effects()
        .settle_effect(&ticket.run_id, process_name(), None);
    let recorded = host.record_end(&ticket, &session, waited.as_ref(), EndListener::Caller);
    recorded?;
    let ended = match waited {
        Ok(Waited::Ended(ended)) => ended,
        Ok(Waited::Yielded) => {
            let message = "the probe did not end";
            return Err(Failure::refused("SANDBOX_NOT_VERIFIED", message));
        }
        Err(error) => {
            return Err(Failure::Exec {
                error: Box::new(error.into()),
                hint: None,
            });
        }
    };
    let lines: Vec<String> = ended.shown.text.lines().map(str::to_owned).collect();
    let holds = ended.outcome.status == RunStatus::Exited(0)
        && !lines.is_empty()
        && lines.iter().all(|line| line.starts_with("ok "));
    let _ = conversation.taken();
    Ok(ProbeReport { holds, lines })
}
