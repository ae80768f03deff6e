//! Agents and their tools.

use std::sync::Arc;
use std::time::Duration;

use interlock_config::ConfigFile;
use interlock_host::CallerContext;
use interlock_policy::AgentId;
use interlock_wire::params;
use interlock_wire::{Request, WireError};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Context, MethodAnswer, read, unavailable, work};
use crate::access::ProvenCaller;
use crate::gateway::Gateway;
use crate::http::invoke;
use crate::tools::{self, Audience, CATALOG, Described, ListedSessions, ToolCall};

/// Groups as the tool policy names them: id, what people call it, its tools.
const GROUPS: &[(&str, &str, &[&str])] = &[
    ("runtime", "Runtime", &["exec", "process"]),
    ("fs", "Files", &["apply_patch"]),
];

/// `agents.list`.
pub(super) async fn agents(context: Context<'_>, request: &Request) -> MethodAnswer {
    read::<params::AgentsList>(request)?;
    work(context, |gateway| {
        let config = config(gateway)?;
        let listed = &config.config().agents.list;
        let mut agents: Vec<Value> = listed
            .iter()
            .map(|agent| json!({ "id": agent.id, "name": agent.name }))
            .collect();
        let is_main = |agent: &Value| agent["id"] == AgentId::MAIN;
        if !agents.iter().any(is_main) {
            agents.insert(0, json!({ "id": AgentId::MAIN, "name": null }));
        }
        Ok(json!({
            "defaultId": config.config().default_agent_id(),
            "mainKey": "main",
            "scope": "per-sender",
            "agents": agents,
        }))
    })
    .await
}

/// `tools.catalog`: all tools.
pub(super) async fn catalog(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::ToolsCatalog = read(request)?;
    work(context, move |gateway| {
        let config = config(gateway)?;
        let (agent, _) = named(&config, asked.agent_id.as_deref(), None)?;
        let groups = groups(&CATALOG.iter().collect::<Vec<_>>());
        Ok(json!({ "agentId": agent.as_str(), "profiles": [], "groups": groups }))
    })
    .await
}

/// `tools.effective`: those that an agent may call.
pub(super) async fn effective(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::ToolsEffective = read(request)?;
    work(context, move |gateway| {
        let config = config(gateway)?;
        let (agent, _) = named(&config, asked.agent_id.as_deref(), Some(&asked.session_key))?;
        let groups = groups(&tools::available(&config, &agent));
        Ok(json!({ "agentId": agent.as_str(), "profile": "full", "groups": groups }))
    })
    .await
}

/// `tools.invoke`: the same path as that of HTTP.
pub(super) async fn invoke(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::ToolsInvoke = read(request)?;
    let gateway = Arc::clone(context.gateway);
    let (agent_id, session_key) = (asked.agent_id.clone(), asked.session_key.clone());
    let (agent, session_key) = work(context, move |gateway| {
        let config = config(gateway)?;
        named(&config, agent_id.as_deref(), session_key.as_deref())
    })
    .await?;
    let call = ToolCall {
        agent,
        session_key,
        cwd: None,
        context: CallerContext::default(),
        listed: ListedSessions::OfAgent,
        // The connection that asks never decides.
        requester: context.client.surface(),
        progress: None,
        cancelled: CancellationToken::new(),
        asking: crate::tools::Asking::Elsewhere,
        approval: None,
        approval_wait: asked.approval_wait_ms.map(Duration::from_millis),
        audience: Audience::Programs,
    };
    let key = asked.idempotency_key.as_deref();
    let arguments = Value::Object(asked.args.unwrap_or_default());
    let name = asked.name.clone();
    let key = key.map(|key| tools::once_key(&call, key, &name, &arguments));
    let done = async move { invoke::answer(tools::call(&gateway, &name, &call, &arguments).await) };
    let once = &context.gateway.once;
    let answer = once.run(key, tools::had_effect, done).await;
    let (_, mut body) = answer.unwrap_or_else(|reused| invoke::key_reused(&reused));
    if body["ok"] == true {
        let output = body["result"].take();
        let details = &output["details"];
        let pending = details["status"] == "approval-pending";
        let mut answer = json!({ "ok": true, "toolName": asked.name, "source": "core" });
        if pending {
            answer["requiresApproval"] = true.into();
            answer["approvalId"] = details["approvalId"].clone();
        }
        answer["output"] = output;
        return Ok(answer);
    }
    let mut error = body["error"].take();
    let code = error["type"].take();
    Ok(json!({
        "ok": false,
        "toolName": asked.name,
        "error": {
            "code": code,
            "message": error["message"],
            "details": { "code": error["code"], "field": error["field"], "hint": error["hint"] },
        },
    }))
}

fn groups(tools: &[&Described]) -> Vec<Value> {
    let view = |tool: &&Described| {
        json!({
            "id": tool.name,
            "label": tool.title,
            "description": tool.description,
            "source": "core",
            "defaultProfiles": [],
            "inputSchema": tool.input,
            "outputSchema": tool.output,
            "destructive": tool.is_destructive,
        })
    };
    let group = |(id, label, names): &(&str, &str, &[&str])| {
        let own = tools.iter().filter(|tool| names.contains(&tool.name));
        let own: Vec<Value> = own.map(view).collect();
        let group = json!({ "id": id, "label": label, "source": "core", "tools": own });
        (!own.is_empty()).then_some(group)
    };
    GROUPS.iter().filter_map(group).collect()
}

pub(super) fn config(gateway: &Gateway) -> Result<Arc<ConfigFile>, WireError> {
    let config = gateway.host.config();
    config.map_err(|error| unavailable(&error))
}

/// The agent and the session that an operator names.
pub(super) fn named(
    config: &ConfigFile,
    agent_id: Option<&str>,
    session_key: Option<&str>,
) -> Result<(AgentId, String), WireError> {
    tools::caller(config, &ProvenCaller::Operator, agent_id, session_key)
        .map_err(|error| WireError::invalid(error.to_string()))
}
