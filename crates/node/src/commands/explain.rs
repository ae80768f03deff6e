//! `interlock.explain`: returns this machine's verdict on a command. Nothing is prepared, asked
//! about, run or recorded.

use interlock_config::UnboundApprovals;
use interlock_host::{NO_CALLER_CONTEXT, now_ms, plan_shield};
use interlock_policy::{
    CallerInput, Levels, Outcome, RunRequest, Verdict, can_be_approved, env, evaluate,
};
use interlock_rules::SessionLevels;
use interlock_wire::WireError;
use interlock_wire::node::NodeInvokeRequest;
use interlock_wire::node::extension::ExplainAsked;
use serde::Serialize;
use serde_json::Value;

use super::call;
use crate::serve::NodeService;

/// The verdict of the policy that would judge a run here, including the gateway's layer.
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
    let scope = host.scope(&agent).map_err(unavailable)?;
    let policy = scope.policy(SessionLevels::default(), None, Some(&layer));
    let policy = policy.map_err(unavailable)?;
    let resolver = scope.resolver(&NO_CALLER_CONTEXT);
    let judged = RunRequest {
        source: call::source(&asked.command),
        cwd,
        env: facts.env,
        input: CallerInput::from_call(facts.pty, facts.stdin_pipe),
        workspace: scope.call_workspace(&NO_CALLER_CONTEXT),
        now_ms: now_ms(),
    };
    let evaluated = scope.as_run_account(|| evaluate(judged, &policy, &resolver));
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
    let told = ExplainedVerdict {
        verdict,
        agent_id: agent.as_str(),
        cwd: &evaluation.analysis.cwd,
        policy: &policy.levels,
        shield,
        version: env!("CARGO_PKG_VERSION"),
        approval_refused: is_refused.then_some("APPROVAL_UNBOUND"),
    };
    let mut explained =
        serde_json::to_value(told).map_err(|error| WireError::unavailable(error.to_string()))?;
    if is_refused && let Value::Object(fields) = &mut explained {
        // `ask` must mean that an approver can allow the command.
        fields.insert("verdict".to_owned(), "refused".into());
    }
    Ok(explained)
}

/// The verdict and the facts that it depends on. A gateway reads it as a `NodeExplanation`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExplainedVerdict<'a> {
    #[serde(flatten)]
    verdict: &'a Verdict,
    agent_id: &'a str,
    cwd: &'a str,
    policy: &'a Levels,
    shield: String,
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_refused: Option<&'static str>,
}
