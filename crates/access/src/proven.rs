//! The caller of a transport, as the transport has proven it.

use interlock_policy::AgentId;
use interlock_transcript::SessionRecord;

/// A proven caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProvenCaller {
    /// A person who may do everything, or a program with that person's secret.
    Operator,
    /// May only call tools as this agent.
    Agent(AgentId),
    /// Inside a run. May only call tools as the agent and in the session of that run.
    Run(RunOf),
}

/// The agent and session of the run that a caller is part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOf {
    pub agent: AgentId,
    pub session_key: String,
}

impl RunOf {
    /// Reads the session's record. `None` for runs that a remote gateway ordered: they belong to
    /// that gateway's agents, which are unknown here.
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
