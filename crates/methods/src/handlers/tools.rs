//! Agents and their tools.

use std::sync::Arc;
use std::time::Duration;

use interlock_access::ProvenCaller;
use interlock_config::ConfigFile;
use interlock_dispatch::tools::{self, Audience, CATALOG, Described, ListedSessions, ToolCall};
use interlock_host::{CallSender, CallerContext};
use interlock_policy::AgentId;
use interlock_wire::WireError;
use interlock_wire::params;
use interlock_wire::results::{
    AgentEntry, AgentListing, EffectiveTools, ToolCatalog, ToolEntry, ToolError, ToolErrorDetails,
    ToolGroup, ToolInvoked,
};
use serde::Deserialize;
use serde_json::Value;

use super::{Context, unavailable, work};
use crate::gateway::Gateway;
use crate::tool_answer;

/// Groups as the tool policy names them: the id, the label for people, and the tools.
const GROUPS: &[(&str, &str, &[&str])] = &[
    ("runtime", "Runtime", &["exec", "process"]),
    ("fs", "Files", &["apply_patch"]),
];

/// `agents.list`.
pub(super) async fn agents(
    context: Context<'_>,
    _params: params::AgentsList,
) -> Result<AgentListing, WireError> {
    work(context, |gateway| {
        let config = config(gateway)?;
        let listed = &config.config().agents.list;
        let entry = |id: &str, name: Option<&String>| AgentEntry {
            id: id.to_owned(),
            name: name.cloned(),
        };
        let agents = listed.iter();
        let agents = agents.map(|agent| entry(&agent.id, agent.name.as_ref()));
        let mut agents: Vec<AgentEntry> = agents.collect();
        if !agents.iter().any(|agent| agent.id == AgentId::MAIN) {
            agents.insert(0, entry(AgentId::MAIN, None));
        }
        Ok(AgentListing {
            default_id: config.config().default_agent_id(),
            main_key: "main".to_owned(),
            scope: "per-sender".to_owned(),
            agents,
        })
    })
    .await
}

/// `tools.catalog`: lists all tools.
pub(super) async fn catalog(
    context: Context<'_>,
    asked: params::ToolsCatalog,
) -> Result<ToolCatalog, WireError> {
    work(context, move |gateway| {
        let config = config(gateway)?;
        let (agent, _) = named(&config, asked.agent_id.as_deref(), None)?;
        Ok(ToolCatalog {
            agent_id: agent.as_str().to_owned(),
            profiles: Vec::new(),
            groups: groups(&CATALOG.iter().collect::<Vec<_>>()),
        })
    })
    .await
}

/// `tools.effective`: lists the tools that an agent may call.
pub(super) async fn effective(
    context: Context<'_>,
    asked: params::ToolsEffective,
) -> Result<EffectiveTools, WireError> {
    work(context, move |gateway| {
        let config = config(gateway)?;
        let (agent, _) = named(&config, asked.agent_id.as_deref(), Some(&asked.session_key))?;
        Ok(EffectiveTools {
            agent_id: agent.as_str().to_owned(),
            profile: "full".to_owned(),
            groups: groups(&tools::available(&config, &agent)),
        })
    })
    .await
}

/// `tools.invoke`: takes the same path as a call over HTTP.
pub(super) async fn invoke(
    context: Context<'_>,
    asked: params::ToolsInvoke,
) -> Result<ToolInvoked, WireError> {
    let gateway = Arc::clone(context.gateway);
    let (agent_id, session_key) = (asked.agent_id.clone(), asked.session_key.clone());
    let (config, (agent, session_key)) = work(context, move |gateway| {
        let config = config(gateway)?;
        let named = named(&config, agent_id.as_deref(), session_key.as_deref())?;
        Ok((config, named))
    })
    .await?;
    let call = ToolCall {
        agent,
        session_key,
        cwd: None,
        context: CallerContext::default(),
        listed: ListedSessions::OfAgent,
        // The connection that requests an approval never decides about it.
        requester: context.client.surface(),
        sender: Some(CallSender::new("ws", context.client.sender_id())),
        progress: None,
        cancellation: None,
        asking: interlock_dispatch::tools::Asking::Elsewhere,
        approval: None,
        approval_wait: asked.approval_wait_ms.map(Duration::from_millis),
        audience: Audience::Programs,
    };
    let key = asked.idempotency_key.as_deref();
    let arguments = Value::Object(asked.args.unwrap_or_default());
    let name = asked.name.clone();
    let key = key.map(|key| tools::once_key(&call, key, &name, &arguments));
    let done = async move {
        tool_answer::answer(
            tools::call(&gateway.dispatcher, &config, &name, &call, &arguments).await,
        )
    };
    let once = &context.gateway.dispatcher.once;
    let answer = once.run(key, tools::had_effect, done).await;
    let (_, body) = answer.unwrap_or_else(|reused| tool_answer::key_reused(&reused));
    let body: InvokeBody =
        serde_json::from_value(body).map_err(|error| WireError::unavailable(error.to_string()))?;
    let tool_name = asked.name;
    if !body.ok {
        let error = body.error;
        return Ok(ToolInvoked {
            tool_name,
            error: Some(ToolError {
                code: error.kind,
                message: error.message,
                details: ToolErrorDetails {
                    code: error.code,
                    field: error.field,
                    hint: error.hint,
                },
            }),
            ..ToolInvoked::default()
        });
    }
    let detail = |name: &str| body.result.get("details")?.get(name)?.as_str();
    let is_pending = detail("status") == Some("approval-pending");
    let approval_id = detail("approvalId").filter(|_| is_pending);
    Ok(ToolInvoked {
        ok: true,
        tool_name,
        source: Some("core".to_owned()),
        requires_approval: is_pending.then_some(true),
        approval_id: approval_id.map(str::to_owned),
        output: Some(body.result),
        error: None,
    })
}

/// The body that answers a tool call over HTTP.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InvokeBody {
    ok: bool,
    result: Value,
    error: InvokeBodyError,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InvokeBodyError {
    #[serde(rename = "type")]
    kind: Option<String>,
    code: Option<String>,
    message: Option<String>,
    field: Option<String>,
    hint: Option<String>,
}

fn groups(tools: &[&Described]) -> Vec<ToolGroup> {
    let entry = |tool: &&Described| ToolEntry {
        id: tool.name.to_owned(),
        label: tool.title.to_owned(),
        description: tool.description.to_owned(),
        source: "core".to_owned(),
        default_profiles: Vec::new(),
        input_schema: tool.input.clone(),
        output_schema: tool.output.clone(),
        destructive: tool.is_destructive,
    };
    let group = |(id, label, names): &(&str, &str, &[&str])| {
        let own = tools.iter().filter(|tool| names.contains(&tool.name));
        let group = ToolGroup {
            id: (*id).to_owned(),
            label: (*label).to_owned(),
            source: "core".to_owned(),
            tools: own.map(entry).collect(),
        };
        (!group.tools.is_empty()).then_some(group)
    };
    GROUPS.iter().filter_map(group).collect()
}

pub(super) fn config(gateway: &Gateway) -> Result<Arc<ConfigFile>, WireError> {
    let config = gateway.dispatcher.host.config();
    config.map_err(|error| unavailable(&error))
}

/// Resolves the agent and the session that an operator names.
pub(super) fn named(
    config: &ConfigFile,
    agent_id: Option<&str>,
    session_key: Option<&str>,
) -> Result<(AgentId, String), WireError> {
    tools::caller(config, &ProvenCaller::Operator, agent_id, session_key)
        .map_err(|error| WireError::invalid(error.to_string()))
}
