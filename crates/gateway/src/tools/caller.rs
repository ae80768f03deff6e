//! As whom a tool is called: the agent and the session of a call, the same at every door.

use interlock_config::ConfigFile;
use interlock_policy::AgentId;

use crate::access::Who;
use crate::gateway::{Gateway, UnknownAgent};

/// Longer session keys are mistakes.
const MAX_KEY_BYTES: usize = 512;

/// Why a call has no agent or no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallerError {
    #[error(transparent)]
    Unknown(#[from] UnknownAgent),
    /// A token's own agent cannot be left for another one.
    #[error("this token is for the agent `{0}`")]
    OtherAgent(AgentId),
    #[error("sessionKey is not a session key")]
    SessionKey,
}

/// The agent and the session key of a call that names either, both or none of them.
pub(crate) fn caller(
    config: &ConfigFile,
    who: &Who,
    agent_id: Option<&str>,
    session_key: Option<&str>,
) -> Result<(AgentId, String), CallerError> {
    let key_agent = session_key.and_then(agent_of_key);
    let agent = match who {
        Who::Agent(own) => {
            let fits = |name: &str| AgentId::new(name).is_ok_and(|agent| agent == *own);
            if ![agent_id, key_agent].into_iter().flatten().all(fits) {
                return Err(CallerError::OtherAgent(own.clone()));
            }
            own.clone()
        }
        Who::Operator | Who::Run => {
            Gateway::agent(config, agent_id.or(key_agent).unwrap_or(AgentId::MAIN))?
        }
    };
    let key = match session_key {
        Some(key) if key.len() > MAX_KEY_BYTES || key.chars().any(char::is_control) => {
            return Err(CallerError::SessionKey);
        }
        Some(key) if key_agent.is_some() => key.to_owned(),
        Some(name) if !name.is_empty() => format!("agent:{agent}:{name}"),
        _ => interlock_host::usual_session_key(agent.as_str()),
    };
    Ok((agent, key))
}

/// The agent in `agent:<id>:<name>`.
fn agent_of_key(key: &str) -> Option<&str> {
    let (agent, name) = key.strip_prefix("agent:")?.split_once(':')?;
    (!agent.is_empty() && !name.is_empty()).then_some(agent)
}
