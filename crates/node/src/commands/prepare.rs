//! `system.run.prepare`: makes the plan of a run, which the gateway shows, asks about and sends
//! back.

use std::path::Path;

use interlock_binding::BoundRole;
use interlock_command::Source;
use interlock_host::{ExecError, ExecRequest, NO_CALLER_CONTEXT, PrepareError};
use interlock_plan::{PlanBoundFile, RunPlan};
use interlock_policy::env;
use interlock_programs::{Lookup, Resolver as _};
use interlock_wire::WireError;
use interlock_wire::node::extension::PolicyLayer;
use interlock_wire::node::{
    Denial, MutableFileOperand, NodeInvokeRequest, SystemRunPlan, SystemRunPrepare,
    SystemRunPrepared, command_text,
};
use serde_json::json;

use super::call::{self, CommandCall, given};
use super::ordered::{PTY_SIZE, stdin};
use super::plan_policy::PlanPolicy;
use crate::serve::NodeService;

pub(crate) fn prepare(
    service: &NodeService,
    request: &NodeInvokeRequest,
) -> Result<SystemRunPrepared, WireError> {
    let params: SystemRunPrepare = request.read()?;
    if params.command.is_empty() {
        return Err(WireError::invalid("command required"));
    }
    let texts = command_text(&params.command, params.raw_command.as_deref());
    let texts = texts
        .map_err(|_| WireError::invalid("INVALID_REQUEST: rawCommand does not match command"))?;
    let cwd = given(params.cwd.as_deref()).map(|cwd| canonical(service, cwd));
    let cwd = cwd.transpose()?;
    // Newer reference gateways send their policy in fields of the protocol.
    let layer = params.policy_layer.clone().unwrap_or_else(|| PolicyLayer {
        security: params.security.clone(),
        ask: params.ask.clone(),
        ..PolicyLayer::default()
    });
    let mut facts = params.call_facts.clone().unwrap_or_default();
    if let (None, Some(env)) = (&params.call_facts, params.env.clone()) {
        facts.env = env;
    }
    env::check_overrides(&facts.env)
        .map_err(|rejected| WireError::invalid(rejected.to_string()))?;
    let mut call = CommandCall {
        agent: call::agent(params.agent_id.as_deref())?,
        source: call::source(&params.command),
        is_cwd_named: given(cwd.as_deref()).is_some(),
        cwd: call::directory(cwd.as_deref())?,
        env: facts.env,
        session_key: given(params.session_key.as_deref()).map(str::to_owned),
        gateway: call::gateway_layer(&layer)?,
    };
    let mut argv = params.command;
    let mut text = texts.text;
    // A command that is not a shell text names its program by the path where it was found.
    if texts.preview.is_none() && matches!(call.source, Source::Argv(_)) {
        argv[0] = stable_path(service, &call, &argv[0])?;
        text = interlock_wire::node::format_exec_command(&argv);
        call.source = Source::Argv(argv.clone());
    }
    let request = ExecRequest {
        pty: facts.pty.then_some(PTY_SIZE),
        stdin: stdin(facts.stdin_pipe),
        ..call.request(service)
    };
    let prepared = service.host.prepare_forwarded(&request);
    let prepared = prepared.map_err(|error| {
        let own = service
            .gateway_is_interlock()
            .then(|| call::own_words(&error));
        own.flatten().unwrap_or_else(|| refused(&error))
    })?;
    let gateway = service.gateway();
    let policy = if gateway.release.reads_policy_of_plans() {
        Some(PlanPolicy::of(service, &call.agent, &prepared)?)
    } else {
        None
    };
    let snapshot = policy.as_ref().and_then(|policy| policy.snapshot.as_ref());
    let plan = SystemRunPlan {
        // The plan must not claim to bind a script that is not bound.
        mutable_file_operand: prepared
            .is_bound()
            .then(|| operand(prepared.plan(), &argv, &call))
            .flatten(),
        argv,
        cwd,
        command_text: text,
        command_preview: texts.preview,
        agent_id: given(params.agent_id.as_deref()).map(str::to_owned),
        session_key: call.session_key.clone(),
        policy_snapshot: snapshot.map(|snapshot| json!(snapshot)),
    };
    let handed_out = service.host.issue_plan(&plan.digest(), &prepared);
    handed_out.map_err(|error| WireError::unavailable(error.to_string()))?;
    if !gateway.is_interlock {
        let is_allowed = prepared.is_allowed_by_allowlist();
        let prepared = &service.prepared;
        prepared.note(&call.agent, &plan.command_text, is_allowed);
    }
    let notes = gateway.is_interlock.then(|| json!(prepared.notes()));
    let policy = policy.map(|policy| (policy.exec_policy, policy.coverage));
    let (exec_policy, allow_always_coverage) = policy.unzip();
    Ok(SystemRunPrepared {
        plan,
        interlock: notes.and_then(|notes| serde_json::from_value(notes).ok()),
        exec_policy,
        allow_always_coverage,
    })
}

fn denied(why: &str) -> WireError {
    WireError::invalid(format!("SYSTEM_RUN_DENIED: {why}"))
}

fn canonical(service: &NodeService, cwd: &str) -> Result<String, WireError> {
    let path = call::directory(Some(cwd))?;
    if service.gateway_is_interlock() && !Path::new(&path).is_dir() {
        return Err(call::no_directory(&path));
    }
    let canonical = std::fs::canonicalize(path);
    let canonical = canonical.map_err(|_| denied("approval requires an existing canonical cwd"))?;
    if !canonical.is_dir() {
        return Err(denied("approval requires cwd to be a directory"));
    }
    let text = canonical.into_os_string().into_string();
    text.map_err(|_| denied("approval requires an existing canonical cwd"))
}

/// The real path of a program, if its name is a version of the given one, such as `python3.11` for
/// `python3`. Otherwise the path as found: a program with many names decides by its name what to
/// do.
fn stable_path(service: &NodeService, call: &CommandCall, name: &str) -> Result<String, WireError> {
    let scope = service.host.scope(&call.agent);
    let scope = scope.map_err(|error| WireError::unavailable(error.to_string()))?;
    let resolver = scope.resolver(&NO_CALLER_CONTEXT);
    let Lookup::Found(program) = resolver.executable(name, &call.cwd) else {
        return Err(denied("approval requires a stable executable path"));
    };
    let file_name = |path: &str| {
        let name = Path::new(path).file_name();
        name.map(|name| name.to_string_lossy().into_owned())
    };
    let (found, real) = (file_name(&program.found), file_name(&program.canonical));
    let is_version = match (found, real) {
        (Some(found), Some(real)) => real.strip_prefix(&found).is_some_and(|rest| {
            rest.chars()
                .all(|c| c.is_ascii_digit() || matches!(c, '.' | '-'))
        }),
        _ => false,
    };
    Ok(if is_version {
        program.canonical
    } else {
        program.found
    })
}

/// The script that the plan is bound to, and the index of the word that names it.
fn operand(plan: &RunPlan, argv: &[String], call: &CommandCall) -> Option<MutableFileOperand> {
    let is_script = |bound: &&PlanBoundFile| matches!(bound.role, BoundRole::Script);
    let bound = plan.binding.files.iter().find(is_script)?;
    let names_it = |word: &String| {
        let path = Path::new(&call.cwd).join(word);
        std::fs::canonicalize(path).is_ok_and(|path| path == Path::new(&bound.file.canonical))
    };
    let index = match call.source {
        // The text names the script.
        Source::Text(_) => argv.len() - 1,
        Source::Argv(_) => argv
            .iter()
            .position(names_it)
            .or(bound.operand)
            .unwrap_or(0),
    };
    Some(MutableFileOperand {
        argv_index: u64::try_from(index).unwrap_or_default(),
        path: bound.file.canonical.clone(),
        sha256: bound.file.sha256.clone()?,
    })
}

/// Why there is no plan, in the texts that gateways know.
fn refused(error: &ExecError) -> WireError {
    match error {
        // An approval would not help, so the texts are those of a run.
        ExecError::Denied(verdict) => match verdict.reason.code {
            "security-deny" => WireError::invalid(Denial::SECURITY_DENY.message),
            "env-rejected" => WireError::invalid(&verdict.reason.message),
            "deny-rule" => denied(&verdict.reason.message),
            _ => WireError::invalid(Denial::ALLOWLIST_MISS.message),
        },
        ExecError::Tool(_) => WireError::invalid(Denial::SECURITY_DENY.message),
        ExecError::Unbound(refusal) => {
            let unbound = refusal.binding.unbound.as_ref();
            // Without a remedy there is no script that could be bound.
            if unbound.is_some_and(|unbound| unbound.remedies.is_empty()) {
                return denied("approval requires an existing script operand");
            }
            denied("approval cannot safely bind this interpreter/runtime command")
        }
        ExecError::Prepare(PrepareError::Missing { .. }) => {
            denied("approval requires a stable executable path")
        }
        ExecError::Prepare(PrepareError::Environment(text)) => WireError::invalid(text),
        ExecError::Host(error) => WireError::unavailable(error.to_string()),
        error => denied(&error.to_string()),
    }
}
