//! Which agent a client calls as.

use std::path::PathBuf;
use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use interlock_access::tcp::PeerStanding;
use interlock_access::{ProvenCaller, bearer, refusal};
use interlock_config::ConfigFile;
use interlock_dispatch::Dispatcher;
use interlock_dispatch::tools;
use interlock_host::CallSender;
use interlock_policy::AgentId;
use sha2::{Digest as _, Sha256};

/// The header that names the agent, for clients that may choose one.
pub(super) const AGENT_HEADER: &str = "x-interlock-agent";

/// The header that names the conversation, for clients that share one or return to theirs.
pub(super) const SESSION_HEADER: &str = "x-interlock-session";

/// The channel of MCP clients in lists of senders.
pub(super) const CHANNEL: &str = "mcp";

#[derive(Debug, Clone)]
pub(super) struct McpCaller {
    pub(super) agent: AgentId,
    /// The session key of the run that the client is part of, or of the conversation that it
    /// requested.
    pub(super) session_key: Option<String>,
    /// Identifies the secret or the connection of the client. State that one client received is of
    /// no use to another.
    pub(super) owner: String,
    /// Whether decisions count that the client shows to a person. The operator has to switch this
    /// on.
    pub(super) elicitation: bool,
    /// The directory of a client on this machine.
    pub(super) cwd: Option<PathBuf>,
    /// The client program, if the owner started it on this machine. `None` for clients inside a run
    /// or behind the network, whose environment is not the owner's.
    pub(super) program: Option<ClientProgram>,
    /// The sender of the client's calls; `None` for a client inside a run.
    pub(super) sender: Option<CallSender>,
}

/// A client program that the owner started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientProgram {
    pub(super) path: Option<String>,
}

impl McpCaller {
    /// The caller of an HTTP request.
    pub(super) fn of_request(
        dispatcher: &Dispatcher,
        who: &ProvenCaller,
        standing: Option<&PeerStanding>,
        headers: &HeaderMap,
    ) -> Result<Self, Box<Response>> {
        let agent = agent(dispatcher, who, headers)?;
        let (owner, elicitation) = match who {
            ProvenCaller::Operator => ("operator".to_owned(), false),
            ProvenCaller::Run(run) => (format!("run:{}", run.session_key), false),
            ProvenCaller::Agent(_) => match bearer(headers) {
                Some(token) => {
                    let rights = dispatcher.host.agent_of_token(token).ok().flatten();
                    // A client whose process is unknown may be a run, which would answer its own
                    // prompts.
                    let elicitation = standing == Some(&PeerStanding::Trusted)
                        && rights.is_some_and(|rights| rights.elicitation);
                    (digest(token), elicitation)
                }
                None => ("anybody".to_owned(), false),
            },
        };
        Ok(Self {
            owner: format!("{owner}/{agent}"),
            session_key: session_key(dispatcher, who, &agent, headers)?,
            agent,
            elicitation,
            cwd: None,
            program: None,
            sender: tools::sender(CHANNEL, who),
        })
    }
}

/// The conversation of a run, or the one that a client requests. Other clients have their own.
pub(super) fn session_key(
    dispatcher: &Dispatcher,
    who: &ProvenCaller,
    agent: &AgentId,
    headers: &HeaderMap,
) -> Result<Option<String>, Box<Response>> {
    let asked = match headers.get(SESSION_HEADER).map(|value| value.to_str()) {
        None => None,
        Some(Ok(key)) if !key.is_empty() => Some(key),
        Some(_) => {
            let message = format!("{SESSION_HEADER} is not a session key");
            let response = refusal(StatusCode::BAD_REQUEST, "invalid_request", &message);
            return Err(Box::new(response));
        }
    };
    if asked.is_none() && !matches!(who, ProvenCaller::Run(_)) {
        return Ok(None);
    }
    let config = config(dispatcher)?;
    let named = tools::caller(&config, who, Some(agent.as_str()), asked);
    let (_, key) = named.map_err(|error| {
        Box::new(refusal(
            StatusCode::FORBIDDEN,
            "forbidden",
            &error.to_string(),
        ))
    })?;
    Ok(Some(key))
}

/// The agent of a caller. A token's own agent, or a run's agent, cannot be changed; operators may
/// choose.
pub(super) fn agent(
    dispatcher: &Dispatcher,
    who: &ProvenCaller,
    headers: &HeaderMap,
) -> Result<AgentId, Box<Response>> {
    let forbidden = |message: &str| {
        let response = refusal(StatusCode::FORBIDDEN, "forbidden", message);
        Err(Box::new(response))
    };
    let asked = match headers.get(AGENT_HEADER).map(|value| value.to_str()) {
        None => None,
        Some(Ok(name)) => Some(name),
        Some(Err(_)) => return forbidden("the name of the agent is not one"),
    };
    let own = match who {
        ProvenCaller::Operator => {
            let config = config(dispatcher)?;
            let usual = config.config().default_agent_id();
            let chosen = Dispatcher::agent(&config, asked.unwrap_or(&usual));
            return chosen.map_err(|error| {
                let message = error.to_string();
                Box::new(refusal(
                    StatusCode::BAD_REQUEST,
                    "invalid_request",
                    &message,
                ))
            });
        }
        ProvenCaller::Agent(own) => own.clone(),
        ProvenCaller::Run(run) => run.agent.clone(),
    };
    match asked {
        Some(name) if AgentId::new(name).as_ref() != Ok(&own) => {
            forbidden(&format!("this caller is the agent `{own}`"))
        }
        _ => Ok(own),
    }
}

fn config(dispatcher: &Dispatcher) -> Result<Arc<ConfigFile>, Box<Response>> {
    dispatcher.host.config().map_err(|error| {
        Box::new(refusal(
            StatusCode::INTERNAL_SERVER_ERROR,
            error.code(),
            &error.to_string(),
        ))
    })
}

/// A digest that distinguishes tokens without revealing them.
fn digest(token: &str) -> String {
    let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    let (first, _) = hash.split_at(16);
    format!(
        "{:032x}",
        u128::from_be_bytes(first.try_into().unwrap_or_default())
    )
}
