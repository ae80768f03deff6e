//! The levels of an agent, from every source that sets them: config, document, session and call.

use interlock_config::Config;
use interlock_config::types::ExecConfig;
use interlock_policy::{AgentId, Ask, Document, Layer, Levels, PolicySource, Security, Sourced};

/// The levels of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionLevels {
    pub security: Option<Security>,
    pub ask: Option<Ask>,
}

/// The joined levels of the config, the document and the call.
pub fn levels(
    config: &Config,
    document: &Document,
    agent: &AgentId,
    call_ask: Option<Ask>,
) -> Levels {
    levels_in(config, document, agent, SessionLevels::default(), call_ask)
}

/// Like [`levels`], with the levels of a conversation.
pub fn levels_in(
    config: &Config,
    document: &Document,
    agent: &AgentId,
    session: SessionLevels,
    call_ask: Option<Ask>,
) -> Levels {
    Levels::join(&layers_in(config, document, agent, session, call_ask))
}

/// The layers of the config, the document, the conversation and the call.
pub fn layers_in(
    config: &Config,
    document: &Document,
    agent: &AgentId,
    session: SessionLevels,
    call_ask: Option<Ask>,
) -> [Layer; 4] {
    [
        requested(config, agent),
        Layer::of_document(document, agent),
        Layer::new(
            PolicySource::Session,
            "/exec ",
            session.security,
            session.ask,
        ),
        Layer::new(PolicySource::Call, "", None, call_ask),
    ]
}

/// The layers of a run that leaves its sandbox with `elevated` at `full`: those of a run on the
/// host, without the prompts of the config. Denials of the config stay, and the document, the
/// conversation and the call apply unchanged.
pub fn layers_without_config_prompts(
    config: &Config,
    document: &Document,
    agent: &AgentId,
    session: SessionLevels,
    call_ask: Option<Ask>,
) -> [Layer; 4] {
    let mut layers = layers_in(config, document, agent, session, call_ask);
    let [of_config, ..] = &mut layers;
    let asks = |ask: &Sourced<Ask>| ask.value != Ask::Off;
    if let Some(ask) = of_config.ask.as_mut().filter(|ask| asks(ask)) {
        ask.value = Ask::Off;
        "elevated full".clone_into(&mut ask.path);
        // A command that misses this allowlist would prompt.
        if let Some(security) = &mut of_config.security
            && security.value == Security::Allowlist
        {
            security.value = Security::Full;
            "elevated full".clone_into(&mut security.path);
        }
    }
    layers
}

/// The layers of a sandboxed run. `tools.sandbox.exec` replaces `tools.exec`. The levels of the
/// document are for unconfined runs on the host, so only its strictest values also apply inside:
/// `security: "deny"` and `ask: "always"`.
pub fn sandbox_layers_in(
    config: &Config,
    document: &Document,
    agent: &AgentId,
    session: SessionLevels,
    call_ask: Option<Ask>,
) -> [Layer; 4] {
    let own = config.agent(agent.as_str());
    let own = own.map(|own| &own.tools.sandbox.exec);
    let global = &config.tools.sandbox.exec;
    let security = own.and_then(|own| own.security).or(global.security);
    let ask = own.and_then(|own| own.ask).or(global.ask);
    let mut of_document = Layer::of_document(document, agent);
    of_document.security = of_document
        .security
        .filter(|level| level.value == Security::Deny);
    of_document.ask = of_document.ask.filter(|level| level.value == Ask::Always);
    [
        Layer::new(
            PolicySource::Config,
            "tools.sandbox.exec.",
            security.or(Some(Security::Full)),
            ask.or(Some(Ask::Off)),
        ),
        of_document,
        Layer::new(
            PolicySource::Session,
            "/exec ",
            session.security,
            session.ask,
        ),
        Layer::new(PolicySource::Call, "", None, call_ask),
    ]
}

/// The layer of the config, with the key of each value.
fn requested(config: &Config, agent: &AgentId) -> Layer {
    let merged = config.exec_for(agent.as_str());
    let own = config
        .agents
        .list
        .iter()
        .position(|entry| entry.id.eq_ignore_ascii_case(agent.as_str()));
    let path = |is_set: &dyn Fn(&ExecConfig) -> bool, key: &str| {
        let of = |exec: &ExecConfig, prefix: String| {
            if is_set(exec) {
                Some(format!("{prefix}tools.exec.{key}"))
            } else if exec.mode.is_some() {
                Some(format!("{prefix}tools.exec.mode"))
            } else {
                None
            }
        };
        own.and_then(|index| {
            of(
                &config.agents.list[index].tools.exec,
                format!("agents.list[{index}]."),
            )
        })
        .or_else(|| of(&config.tools.exec, String::new()))
        .unwrap_or_default()
    };
    let security: Option<Sourced<Security>> = merged.security.map(|value| Sourced {
        value,
        source: PolicySource::Config,
        path: path(&|exec| exec.security.is_some(), "security"),
    });
    let ask: Option<Sourced<Ask>> = merged.ask.map(|value| Sourced {
        value,
        source: PolicySource::Config,
        path: path(&|exec| exec.ask.is_some(), "ask"),
    });
    Layer {
        security,
        ask,
        ask_fallback: None,
    }
}
