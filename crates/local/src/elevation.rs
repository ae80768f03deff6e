//! Decides whether a run may leave its sandbox. Every gate must be open; each closed gate names the
//! config key that closes it. A call, a conversation and the config can ask for a level, but only
//! the owner's config can open a gate.

use interlock_approvals::CallSender;
use interlock_config::Config;
use interlock_config::types::Elevated;
use interlock_plan::Elevation;
use interlock_policy::{AgentId, check_tool};

use crate::tool_levels::tool_levels;

/// The facts that decide whether a call leaves its sandbox.
#[derive(Debug, Clone, Copy)]
pub struct ElevationFacts<'a> {
    pub config: &'a Config,
    pub agent: &'a AgentId,
    /// The `elevated` of the call.
    pub asked: Option<bool>,
    /// The level that `/elevated` set for the conversation.
    pub session: Option<Elevation>,
    /// The sender of the call. A caller that belongs to a run or is unknown has no sender.
    pub sender: Option<&'a CallSender>,
}

/// A condition for leaving the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElevationGate {
    /// The config key that opens or closes the gate.
    pub key: String,
    /// Why the gate is closed; `None` if it is open.
    pub closed: Option<String>,
}

/// Why an elevated call may not leave its sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("elevated is not allowed: {reason} ({key})")]
pub struct ElevationRefusal {
    pub key: String,
    pub reason: String,
}

impl ElevationRefusal {
    pub const CODE: &'static str = "ELEVATED_NOT_ALLOWED";

    pub fn remedy(&self) -> String {
        format!(
            "leave out `elevated`: the command then runs in its sandbox; or have the owner change {}",
            self.key
        )
    }
}

impl ElevationFacts<'_> {
    /// The level at which the call leaves its sandbox. If a gate is closed, a call that asks to
    /// leave is refused, and another call stays inside.
    pub(crate) fn resolve(&self, is_required: bool) -> Result<Elevation, ElevationRefusal> {
        let level = self.level();
        if !level.leaves() && self.asked != Some(true) {
            return Ok(Elevation::Off);
        }
        let closed = self.gates(is_required).into_iter().find_map(|gate| {
            let reason = gate.closed?;
            Some(ElevationRefusal {
                key: gate.key,
                reason,
            })
        });
        match closed {
            None => Ok(level),
            Some(refusal) if self.asked == Some(true) => Err(refusal),
            Some(_) => Ok(Elevation::Off),
        }
    }

    /// The level if every gate is open. A call cannot raise the level of the conversation or the
    /// config. If neither sets one, a call may ask for `on`.
    pub fn level(&self) -> Elevation {
        match (self.asked, self.set_level()) {
            (Some(false), _) | (None, None) => Elevation::Off,
            (Some(true), None) => Elevation::On,
            (_, Some(level)) => level,
        }
    }

    /// The level of the conversation, or else that of the config.
    fn set_level(&self) -> Option<Elevation> {
        let usual = self.config.agents.defaults.elevated_default;
        self.session.or(usual)
    }

    /// All gates, in the order in which a refusal names the first closed one.
    pub fn gates(&self, is_required: bool) -> Vec<ElevationGate> {
        let mut gates = Vec::new();
        let mut gate = |key: String, closed: Option<String>| {
            gates.push(ElevationGate { key, closed });
        };
        let tools = tool_levels(self.config, self.agent);
        let denied = check_tool("exec", &tools).err();
        gate(
            "tools.allow, tools.deny".to_owned(),
            denied.map(|refusal| refusal.to_string()),
        );
        gate(
            self.key_of(|own| own.sandbox.required.is_some(), "sandbox.required"),
            is_required.then(|| "no run leaves this sandbox".to_owned()),
        );
        let global = &self.config.tools.elevated;
        let is_off = global.enabled != Some(true);
        gate(
            "tools.elevated.enabled".to_owned(),
            is_off.then(|| "it is not enabled".to_owned()),
        );
        let own = self.own_gate();
        if let Some((index, own)) = own {
            let is_off = own.enabled == Some(false);
            gate(
                format!("agents.list[{index}].tools.elevated.enabled"),
                is_off.then(|| format!("it is off for the agent {}", self.agent)),
            );
        }
        let channel = self.sender.map_or("CHANNEL", |sender| &sender.channel);
        gate(
            format!("tools.elevated.allowFrom.{channel}"),
            self.not_listed(global),
        );
        if let Some((index, own)) = own
            && !own.allow_from.is_empty()
        {
            gate(
                format!("agents.list[{index}].tools.elevated.allowFrom.{channel}"),
                self.not_listed(own),
            );
        }
        let is_off = self.set_level() == Some(Elevation::Off);
        let key = match self.session {
            Some(_) => "/elevated",
            None => "agents.defaults.elevatedDefault",
        };
        gate(
            key.to_owned(),
            is_off.then(|| "the level of this conversation is off".to_owned()),
        );
        gates
    }

    fn not_listed(&self, elevated: &Elevated) -> Option<String> {
        let Some(sender) = self.sender else {
            return Some("the caller is a run, or is not known".to_owned());
        };
        let list = elevated.allow_from.get(&sender.channel);
        let is_listed = list.is_some_and(|list| sender.is_among(list));
        (!is_listed).then(|| format!("{sender} is not listed"))
    }

    fn own_gate(&self) -> Option<(usize, &Elevated)> {
        let mut list = self.config.agents.list.iter().enumerate();
        let (index, own) =
            list.find(|(_, own)| own.id.eq_ignore_ascii_case(self.agent.as_str()))?;
        Some((index, &own.tools.elevated))
    }

    fn key_of(
        &self,
        is_own: impl Fn(&interlock_config::types::AgentConfig) -> bool,
        key: &str,
    ) -> String {
        let mut list = self.config.agents.list.iter();
        let own =
            list.position(|own| own.id.eq_ignore_ascii_case(self.agent.as_str()) && is_own(own));
        match own {
            Some(index) => format!("agents.list[{index}].{key}"),
            None => format!("agents.defaults.{key}"),
        }
    }
}

/// Checks whether a sender may set a conversation to a level that leaves its sandbox. An operator
/// who does this without a channel has no sender and need not be on a list.
pub fn may_set_level(
    config: &Config,
    agent: &AgentId,
    sender: Option<&CallSender>,
) -> Result<(), ElevationRefusal> {
    let facts = ElevationFacts {
        config,
        agent,
        asked: None,
        session: None,
        sender,
    };
    let is_about_sender = |key: &str| key.contains("tools.elevated.allowFrom.");
    let mut gates = facts.gates(false).into_iter();
    let closed = gates.find_map(|gate| {
        let counts = gate.key.contains("tools.elevated.")
            && (sender.is_some() || !is_about_sender(&gate.key));
        let reason = gate.closed.filter(|_| counts)?;
        Some(ElevationRefusal {
            key: gate.key,
            reason,
        })
    });
    closed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        serde_json::from_str(text).unwrap()
    }

    fn agent(name: &str) -> AgentId {
        AgentId::new(name).unwrap()
    }

    const OPEN: &str = r#"{ "tools": { "elevated": { "enabled": true, "allowFrom": { "mcp": ["id:agent:main", "id:agent:shy", "id:agent:picky"] } } },
        "agents": { "list": [
            { "id": "shy", "tools": { "elevated": { "enabled": false } } },
            { "id": "picky", "tools": { "elevated": { "allowFrom": { "mcp": ["id:agent:other"] } } } },
            { "id": "closed", "tools": { "deny": ["exec"] } } ] } }"#;

    fn resolved(
        text: &str,
        name: &str,
        asked: Option<bool>,
        session: Option<Elevation>,
        is_required: bool,
    ) -> Result<Elevation, String> {
        let (config, agent) = (config(text), agent(name));
        let sender = CallSender::new("mcp", CallSender::agent_id(name));
        let facts = ElevationFacts {
            config: &config,
            agent: &agent,
            asked,
            session,
            sender: Some(&sender),
        };
        facts.resolve(is_required).map_err(|refusal| refusal.key)
    }

    /// A call can ask for `on` at most. The conversation and the config set the level, and their
    /// `off` wins.
    #[test]
    fn a_call_never_raises_the_level_that_others_set() {
        use Elevation::{Full, Off, On};
        for (asked, session, expected) in [
            (None, None, Ok(Off)),
            (Some(false), None, Ok(Off)),
            (Some(true), None, Ok(On)),
            (None, Some(On), Ok(On)),
            (None, Some(Full), Ok(Full)),
            (Some(true), Some(On), Ok(On)),
            (Some(true), Some(Full), Ok(Full)),
            (Some(false), Some(Full), Ok(Off)),
            (None, Some(Off), Ok(Off)),
            (Some(true), Some(Off), Err("/elevated".to_owned())),
        ] {
            let found = resolved(OPEN, "main", asked, session, false);
            assert_eq!(found, expected, "{asked:?} {session:?}");
        }
        for (word, asked, expected) in [
            (
                "off",
                Some(true),
                Err("agents.defaults.elevatedDefault".to_owned()),
            ),
            ("on", None, Ok(On)),
            ("ask", None, Ok(On)),
            ("full", None, Ok(Full)),
            ("full", Some(false), Ok(Off)),
        ] {
            let text = OPEN.replace(
                r#""agents": {"#,
                &format!(r#""agents": {{ "defaults": {{ "elevatedDefault": "{word}" }},"#),
            );
            assert_eq!(
                resolved(&text, "main", asked, None, false),
                expected,
                "{word}"
            );
        }
        // The level of the conversation wins over that of the config.
        let text = OPEN.replace(
            r#""agents": {"#,
            r#""agents": { "defaults": { "elevatedDefault": "full" },"#,
        );
        assert_eq!(resolved(&text, "main", None, Some(On), false), Ok(On));
        assert_eq!(resolved(&text, "main", None, Some(Off), false), Ok(Off));
    }

    /// Each closed gate refuses a call that asks to leave, with the gate's key, and keeps other
    /// calls inside.
    #[test]
    fn every_gate_closes_with_its_key() {
        let not_enabled = r#"{ "tools": { "elevated": { "allowFrom": { "mcp": ["*"] } } } }"#;
        let no_list = r#"{ "tools": { "elevated": { "enabled": true } } }"#;
        let other_channel =
            r#"{ "tools": { "elevated": { "enabled": true, "allowFrom": { "cli": ["*"] } } } }"#;
        for (text, name, is_required, key) in [
            ("{}", "main", false, "tools.elevated.enabled"),
            (not_enabled, "main", false, "tools.elevated.enabled"),
            (no_list, "main", false, "tools.elevated.allowFrom.mcp"),
            (other_channel, "main", false, "tools.elevated.allowFrom.mcp"),
            (OPEN, "stranger", false, "tools.elevated.allowFrom.mcp"),
            (OPEN, "shy", false, "agents.list[0].tools.elevated.enabled"),
            (
                OPEN,
                "picky",
                false,
                "agents.list[1].tools.elevated.allowFrom.mcp",
            ),
            (OPEN, "closed", false, "tools.allow, tools.deny"),
            (OPEN, "main", true, "agents.defaults.sandbox.required"),
        ] {
            let asks = resolved(text, name, Some(true), None, is_required);
            assert_eq!(asks, Err(key.to_owned()), "{text} {name}");
            let set = resolved(text, name, None, Some(Elevation::Full), is_required);
            assert_eq!(set, Ok(Elevation::Off), "{text} {name}");
        }
    }

    #[test]
    fn a_caller_without_a_sender_stays_inside() {
        let (config, agent) = (
            config(&OPEN.replace(r#""mcp": ["#, r#""mcp": ["*", "#)),
            agent("main"),
        );
        let facts = |asked, session| ElevationFacts {
            config: &config,
            agent: &agent,
            asked,
            session,
            sender: None,
        };
        assert!(facts(Some(true), None).resolve(false).is_err());
        let set = facts(None, Some(Elevation::Full)).resolve(false);
        assert_eq!(set, Ok(Elevation::Off));
    }
}
