//! Who speaks, as a transport has proven it.

use interlock_policy::AgentId;
use interlock_transcript::SessionRecord;

/// Who speaks, as proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProvenCaller {
    /// A person who may do everything, or a program that holds that person's secret.
    Operator,
    /// May call tools as this agent, and nothing else.
    Agent(AgentId),
    /// Inside a run: may call tools as the agent and in the session of that run, and nothing else.
    Run(RunOf),
}

/// The agent and session of the run that a caller is inside of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOf {
    pub agent: AgentId,
    pub session_key: String,
}

impl RunOf {
    /// Reads the session's record. Runs that a remote gateway ordered belong to agents of that
    /// gateway, which are unknown here.
    pub fn new(session: SessionRecord) -> Option<Self> {
        let agent = AgentId::new(&session.agent_id).ok()?;
        let usual = || interlock_approvals::usual_session_key(agent.as_str());
        let session_key = session.session_key.unwrap_or_else(usual);
        session
            .owner
            .is_none()
            .then_some(Self { agent, session_key })
    }
}
