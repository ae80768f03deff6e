//! Checks the agent that a command names. An agent that neither the config nor the approvals
//! document knows is usually a typing error: it would get the policy of `*`, and its entries would
//! match no call.

use interlock_config::nearest;
use interlock_console::Failure;
use interlock_console::output::line;
use interlock_host::LocalHost;
use interlock_policy::{AgentId, EVERY_AGENT};

/// The agent of this name, if it is known or the config allows unknown agents.
pub fn known_agent(host: &LocalHost, name: &str) -> Result<AgentId, Failure> {
    let agent = agent_id(name)?;
    let file = host.config()?;
    let agents = &file.config().agents;
    let known = known_agents(host)?;
    if agents.allow_unknown == Some(true) || known.iter().any(|known| known == agent.as_str()) {
        return Ok(agent);
    }
    let message = format!("there is no agent `{}`", line(name));
    let near = nearest(agent.as_str(), known.iter().map(String::as_str));
    let add = format!(
        "interlock config set 'agents.list[{}].id' {agent}",
        agents.list.len()
    );
    let hint = match near {
        Some(near) => format!("did you mean `{near}`? To add it: {add}"),
        None => format!("known are {}; to add it: {add}", known.join(", ")),
    };
    Err(Failure::usage("AGENT_UNKNOWN", message).with_hint(hint))
}

/// Like [`known_agent`], but also accepts `*` for all agents.
pub fn known_scope(host: &LocalHost, name: &str) -> Result<String, Failure> {
    if name == EVERY_AGENT {
        return Ok(name.to_owned());
    }
    Ok(known_agent(host, name)?.as_str().to_owned())
}

/// `main`, the agents of the config, and the agents of the approvals document.
pub fn known_agents(host: &LocalHost) -> Result<Vec<String>, Failure> {
    let file = host.config()?;
    let mut names = vec![AgentId::MAIN.to_owned()];
    let configured = file.config().agents.list.iter();
    let configured = configured.map(|agent| agent.id.to_ascii_lowercase());
    // A document that cannot be read names no agent. Other commands report the error.
    let document = host.document().map(|(document, _)| document.agents);
    let documented = document.unwrap_or_default().into_keys();
    for name in configured.chain(documented.filter(|name| name != EVERY_AGENT)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Checks that a name is a valid agent id. The agent may still be unknown.
pub fn agent_id(name: &str) -> Result<AgentId, Failure> {
    AgentId::new(name).map_err(|error| Failure::usage("AGENT_INVALID", error.to_string()))
}
