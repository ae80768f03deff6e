//! The agent and the session of a tool call, equal for every transport.

use interlock_config::ConfigFile;
use interlock_host::CallSender;
use interlock_policy::AgentId;

use crate::dispatcher::{Dispatcher, UnknownAgent};
use interlock_access::ProvenCaller;

/// A longer session key is a mistake.
const MAX_KEY_BYTES: usize = 512;

/// Why a call has no agent or no session.
#[derive(Debug, thiserror::Error)]
pub enum CallerError {
    #[error(transparent)]
    Unknown(#[from] UnknownAgent),
    /// A caller cannot leave the agent of its token or its run.
    #[error("this caller is the agent `{0}`")]
    OtherAgent(AgentId),
    /// A run must stay in its session, because another session can have looser settings.
    #[error("this caller is a run of the session `{0}`")]
    OtherSession(String),
    /// Otherwise one agent's rights would apply in a session of the other.
    #[error("agentId and sessionKey name different agents: `{0}` and `{1}`")]
    Disagree(String, String),
    #[error("sessionKey is not a session key")]
    SessionKey,
}

/// The agent and the session key of a call that names either, both or none of them.
pub fn caller(
    config: &ConfigFile,
    who: &ProvenCaller,
    agent_id: Option<&str>,
    session_key: Option<&str>,
) -> Result<(AgentId, String), CallerError> {
    let key_agent = session_key.and_then(agent_of_key);
    let own = match who {
        ProvenCaller::Operator => None,
        ProvenCaller::Agent(own) => Some(own),
        ProvenCaller::Run(run) => Some(&run.agent),
    };
    let agent = match own {
        Some(own) => {
            let fits = |name: &str| AgentId::new(name).is_ok_and(|agent| agent == *own);
            if ![agent_id, key_agent].into_iter().flatten().all(fits) {
                return Err(CallerError::OtherAgent(own.clone()));
            }
            own.clone()
        }
        None => match agent_id.or(key_agent) {
            Some(named) => Dispatcher::agent(config, named)?,
            None => Dispatcher::agent(config, &config.config().default_agent_id())?,
        },
    };
    if let Some(named) = key_agent
        && AgentId::new(named).as_ref() != Ok(&agent)
    {
        return Err(CallerError::Disagree(agent.to_string(), named.to_owned()));
    }
    let key = match session_key {
        Some(key) if key.len() > MAX_KEY_BYTES || key.chars().any(char::is_control) => {
            return Err(CallerError::SessionKey);
        }
        Some(key) if key_agent.is_some() => key.to_owned(),
        Some(name) if !name.is_empty() => format!("agent:{agent}:{name}"),
        _ => match who {
            ProvenCaller::Run(run) => run.session_key.clone(),
            _ => interlock_approvals::usual_session_key(agent.as_str()),
        },
    };
    match who {
        ProvenCaller::Run(run) if run.session_key != key => {
            Err(CallerError::OtherSession(run.session_key.clone()))
        }
        _ => Ok((agent, key)),
    }
}

/// The sender of a call on a transport, as lists of senders name it: the operator, or an agent by
/// its token. A run has no sender, because a call from within a run must not leave its sandbox.
pub fn sender(channel: &str, who: &ProvenCaller) -> Option<CallSender> {
    match who {
        ProvenCaller::Operator => Some(CallSender::new(channel, "operator")),
        ProvenCaller::Agent(agent) => {
            let id = CallSender::agent_id(agent.as_str());
            Some(CallSender::new(channel, id))
        }
        ProvenCaller::Run(_) => None,
    }
}

/// The agent in `agent:<id>:<name>`.
fn agent_of_key(key: &str) -> Option<&str> {
    let (agent, name) = key.strip_prefix("agent:")?.split_once(':')?;
    (!agent.is_empty() && !name.is_empty()).then_some(agent)
}
