//! `interlock.explain`: what this machine would say to a command. Nothing of it is prepared, asked
//! about or run, and nothing is recorded.

use interlock_approvals::can_be_approved;
use interlock_config::UnboundApprovals;
use interlock_host::{NO_CALLER_CONTEXT, RunRequest, SessionLevels, evaluate, now_ms, plan_shield};
use interlock_policy::{CallerInput, Outcome, env};
use interlock_wire::WireError;
use interlock_wire::node::NodeInvokeRequest;
use interlock_wire::node::extension::ExplainAsked;
use serde_json::{Value, json};

use super::call;
use crate::serve::NodeService;

/// The verdict of the policy that a run here would be judged by, the gateway's layer included.
pub(crate) fn explain(
    service: &NodeService,
    request: &NodeInvokeRequest,
) -> Result<Value, WireError> {
    let asked: ExplainAsked = request.read()?;
    if asked.command.is_empty() {
        return Err(WireError::invalid("command required"));
    }
    let unavailable = |error: interlock_host::HostError| WireError::unavailable(error.to_string());
    let agent = call::agent(asked.agent_id.as_deref())?;
    let facts = asked.call_facts;
    env::check_overrides(&facts.env)
        .map_err(|rejected| WireError::invalid(rejected.to_string()))?;
    let cwd = call::directory(asked.cwd.as_deref())?;
    let cwd = std::fs::canonicalize(&cwd)
        .ok()
        .filter(|path| path.is_dir())
        .and_then(|path| path.into_os_string().into_string().ok())
        .ok_or_else(|| call::no_directory(&cwd))?;
    let layer = call::gateway_layer(&asked.policy_layer)?;
    let host = &service.host;
    let policy = host.policy_in(&agent, SessionLevels::default(), None, Some(&layer));
    let policy = policy.map_err(unavailable)?;
    let resolver = host
        .resolver(&agent, &NO_CALLER_CONTEXT)
        .map_err(unavailable)?;
    let judged = RunRequest {
        source: call::source(&asked.command),
        cwd,
        env: facts.env,
        input: CallerInput::from_call(facts.pty, facts.stdin_pipe),
        workspace: host
            .call_workspace(&agent, &NO_CALLER_CONTEXT)
            .map_err(unavailable)?,
        now_ms: now_ms(),
    };
    let evaluated = host.as_run_account(&agent, || evaluate(judged, &policy, &resolver));
    let evaluation = evaluated
        .map_err(unavailable)?
        .map_err(|error| WireError::invalid(error.to_string()))?;
    let config = host.config().map_err(unavailable)?;
    let exec = config.config().exec_for(agent.as_str());
    let verdict = &evaluation.verdict;
    let shield = match plan_shield(&exec, verdict.shield) {
        Ok(shield) => shield.words().to_owned(),
        Err(missing) => missing.to_string(),
    };
    let asks_about_unbound = exec.unbound_approvals == Some(UnboundApprovals::Ask);
    let is_refused =
        verdict.outcome == Outcome::Ask && !can_be_approved(&verdict.binding, asks_about_unbound);
    let mut explained = json!(verdict);
    explained["agentId"] = agent.as_str().into();
    explained["cwd"] = evaluation.analysis.cwd.as_str().into();
    explained["policy"] = json!(policy.levels);
    explained["shield"] = shield.into();
    explained["version"] = env!("CARGO_PKG_VERSION").into();
    if is_refused {
        // `ask` always means that an approver can say yes.
        explained["verdict"] = "refused".into();
        explained["approvalRefused"] = "APPROVAL_UNBOUND".into();
    }
    Ok(explained)
}
