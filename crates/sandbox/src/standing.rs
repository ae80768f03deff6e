//! Whether a conversation is sandboxed, by config alone.

use std::time::Duration;

use interlock_config::types::Sandbox;
use interlock_config::{Config, LayeredSettings as _, SandboxMode};

/// What the config says about one conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum SandboxStanding {
    /// Its runs are not sandboxed; the text says why.
    Off(String),
    /// Its runs are sandboxed by these settings.
    Active(Box<Sandbox>),
}

impl SandboxStanding {
    pub fn is_active(&self) -> bool {
        matches!(self, Self::Active(_))
    }

    /// No run leaves the sandbox.
    pub fn is_required(&self) -> bool {
        matches!(self, Self::Active(settings) if settings.required == Some(true))
    }
}

/// Whether runs of an agent in a conversation are sandboxed. Only the agent's own main conversation is
/// the main one: the key of another agent's is not.
pub fn standing_of(config: &Config, agent: &str, session_key: &str) -> SandboxStanding {
    let settings = settings_of(config, agent);
    let mode = settings.mode.unwrap_or(SandboxMode::Off);
    let main = format!("agent:{}:main", agent.to_ascii_lowercase());
    let is_main = session_key.to_ascii_lowercase() == main;
    // What is required is not left by a mode, either.
    match mode {
        SandboxMode::Off if settings.required == Some(true) => {
            SandboxStanding::Active(Box::new(settings))
        }
        SandboxMode::Off => SandboxStanding::Off("sandbox.mode is off".to_owned()),
        SandboxMode::NonMain if is_main && settings.required != Some(true) => SandboxStanding::Off(
            format!("sandbox.mode is non-main, and {main} is the main one"),
        ),
        SandboxMode::NonMain | SandboxMode::All => SandboxStanding::Active(Box::new(settings)),
    }
}

/// How long a sandboxed run of an agent may take, by the sandbox's own limit.
pub fn time_limit(config: &Config, agent: &str) -> Option<Duration> {
    let seconds = settings_of(config, agent).limits.timeout?;
    Some(Duration::from_secs(seconds))
}

/// The agent's own settings over the defaults.
pub(crate) fn settings_of(config: &Config, agent: &str) -> Sandbox {
    let defaults = &config.agents.defaults.sandbox;
    match config.agent(agent) {
        Some(own) => own.sandbox.over(defaults),
        None => defaults.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn only_the_main_conversation_of_the_agent_itself_is_outside_with_non_main() {
        let config =
            config(r#"{ "agents": { "defaults": { "sandbox": { "mode": "non-main" } } } }"#);
        let active = |agent, key| standing_of(&config, agent, key).is_active();
        assert!(!active("main", "agent:main:main"));
        assert!(!active("main", "agent:MAIN:main"));
        for key in [
            "agent:other:main",
            "agent:main:chat",
            "main",
            "",
            "agent:main:main ",
        ] {
            assert!(active("main", key), "{key}");
        }
        assert!(active("other", "agent:main:main"));
    }

    #[test]
    fn an_agent_lies_over_the_defaults_field_by_field() {
        let config = config(
            r#"{ "agents": { "defaults": { "sandbox": { "mode": "all", "view": "host" } },
                 "list": [{ "id": "a", "sandbox": { "workspaceAccess": "rw" } },
                          { "id": "b", "sandbox": { "mode": "off" } },
                          { "id": "c", "sandbox": { "mode": "off", "required": true } }] } }"#,
        );
        let SandboxStanding::Active(a) = standing_of(&config, "a", "agent:a:main") else {
            panic!("a is sandboxed");
        };
        assert_eq!(a.view, Some(interlock_plan::SandboxView::Host));
        assert!(!standing_of(&config, "b", "agent:b:x").is_active());
        assert!(standing_of(&config, "c", "agent:c:main").is_active());
    }
}
