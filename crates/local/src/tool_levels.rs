//! The tools that each level of the config offers to an agent.

use interlock_config::Config;
use interlock_policy::{AgentId, ToolLevel};

/// The global level and the level of the agent. Each can only restrict.
pub fn tool_levels<'a>(config: &'a Config, agent: &AgentId) -> Vec<ToolLevel<'a>> {
    let level = |tools: &'a interlock_config::types::Tools, path| ToolLevel {
        allow: tools.allow.as_deref(),
        deny: tools.deny.as_deref().unwrap_or_default(),
        path,
    };
    let mut levels = vec![level(&config.tools, "tools")];
    if let Some(own) = config.agent(agent.as_str()) {
        levels.push(level(&own.tools, "the agent's tools"));
    }
    levels
}
