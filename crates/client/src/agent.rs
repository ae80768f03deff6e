//! The agent that a command is about. A name that neither the config nor the approvals document
//! knows is a slip more often than a wish: it would get the policy of `*`, and its entries would
//! satisfy nothing.

use interlock_config::nearest;
use interlock_console::Failure;
use interlock_console::output::line;
use interlock_host::LocalHost;
use interlock_policy::{AgentId, EVERY_AGENT};

/// The agent of this name, if it is known or the config lets in those that are not.
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

/// The same where all agents may be meant: `*` is kept.
pub fn known_scope(host: &LocalHost, name: &str) -> Result<String, Failure> {
    if name == EVERY_AGENT {
        return Ok(name.to_owned());
    }
    Ok(known_agent(host, name)?.as_str().to_owned())
}

/// `main`, those of the config, those of the approvals document.
pub fn known_agents(host: &LocalHost) -> Result<Vec<String>, Failure> {
    let file = host.config()?;
    let mut names = vec![AgentId::MAIN.to_owned()];
    let configured = file.config().agents.list.iter();
    let configured = configured.map(|agent| agent.id.to_ascii_lowercase());
    // A document that cannot be used names no agent; other commands tell of it.
    let document = host.document().map(|(document, _)| document.agents);
    let documented = document.unwrap_or_default().into_keys();
    for name in configured.chain(documented.filter(|name| name != EVERY_AGENT)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// A name that could be an agent's.
pub fn agent_id(name: &str) -> Result<AgentId, Failure> {
    AgentId::new(name).map_err(|error| Failure::usage("AGENT_INVALID", error.to_string()))
}
