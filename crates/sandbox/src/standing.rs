//! Whether a conversation is sandboxed, by config alone.

use std::time::Duration;

use interlock_config::types::{AgentConfig, Sandbox, SandboxDocker, SandboxSsh};
use interlock_config::{Config, LayeredSettings as _, SandboxMode, SandboxScope};

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

    /// Whether no run may leave the sandbox.
    pub fn is_required(&self) -> bool {
        matches!(self, Self::Active(settings) if settings.required == Some(true))
    }
}

/// Returns whether runs of an agent in a conversation are sandboxed.
pub fn standing_of(config: &Config, agent: &str, session_key: &str) -> SandboxStanding {
    let settings = settings_of(config, agent);
    let mode = settings.mode.unwrap_or(SandboxMode::Off);
    let main = format!("agent:{}:main", agent.to_ascii_lowercase());
    let is_main = is_main(agent, session_key);
    // No mode can turn off a required sandbox.
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

/// Returns how long a sandboxed run of an agent may take, by the sandbox's own limit.
pub fn time_limit(config: &Config, agent: &str) -> Option<Duration> {
    let seconds = settings_of(config, agent).limits.timeout?;
    Some(Duration::from_secs(seconds))
}

/// Merges the agent's own settings over the defaults.
pub(crate) fn settings_of(config: &Config, agent: &str) -> Sandbox {
    let defaults = &config.agents.defaults.sandbox;
    let Some(own) = config.agent(agent) else {
        return defaults.clone();
    };
    let mut settings = own.sandbox.over(defaults);
    if settings.scope == Some(SandboxScope::Shared) {
        // A shared sandbox has one backend; `config_notices` says that the agent's own has no
        // effect.
        settings.backend = defaults.backend;
        settings.docker = defaults.docker.clone();
        settings.ssh = defaults.ssh.clone();
    }
    settings
}

/// Returns notices for the owner about sandbox settings that have no effect.
pub fn config_notices(config: &Config) -> Vec<String> {
    let defaults = (
        "agents.defaults".to_owned(),
        &config.agents.defaults.sandbox,
    );
    let listed = config.agents.list.iter().enumerate();
    let own = listed.map(|(index, agent)| (format!("agents.list[{index}]"), &agent.sandbox));
    let own: Vec<(String, &Sandbox)> = own.collect();
    let mut notices = Vec::new();
    for (place, settings) in std::iter::once(&defaults).chain(&own) {
        if settings.browser.is_some() {
            notices.push(format!(
                "{place}.sandbox.browser has no effect: Interlock drives no browser"
            ));
        }
    }
    for (place, settings) in &own {
        let scope = settings.over(defaults.1).scope;
        let has_own = settings.backend.is_some()
            || settings.docker != SandboxDocker::default()
            || settings.ssh != SandboxSsh::default();
        if scope == Some(SandboxScope::Shared) && has_own {
            notices.push(format!(
                "backend, docker and ssh of {place}.sandbox have no effect: with `scope: \"shared\"` those of agents.defaults.sandbox count"
            ));
        }
    }
    notices
}

/// The conversations of an agent that are sandboxed, and the config key that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxCoverage {
    pub conversations: SandboxMode,
    /// The key as the owner would set it, such as `agents.defaults.sandbox.mode`.
    pub key: String,
    pub value: String,
}

impl SandboxCoverage {
    /// Returns what the config says about an agent. `None` if no key of it is about a sandbox.
    pub fn of_agent(config: &Config, agent: &str) -> Option<Self> {
        let settings = settings_of(config, agent);
        let is_required = settings.required == Some(true);
        let mode = settings.mode.unwrap_or(SandboxMode::Off);
        if settings.mode.is_none() && !is_required {
            return None;
        }
        if let Some(overruled) = config.overruled_sandbox(agent) {
            return Some(Self {
                conversations: SandboxMode::Off,
                key: overruled.key,
                value: overruled.host.as_str().to_owned(),
            });
        }
        // A required sandbox covers every conversation. If the mode does too, the mode is named.
        if is_required && mode != SandboxMode::All {
            let is_own = |own: &AgentConfig| own.sandbox.required.is_some();
            return Some(Self {
                conversations: SandboxMode::All,
                key: key_of(
                    config,
                    agent,
                    is_own,
                    "agents.defaults.",
                    "sandbox.required",
                ),
                value: "true".to_owned(),
            });
        }
        let is_own = |own: &AgentConfig| own.sandbox.mode.is_some();
        Some(Self {
            conversations: mode,
            key: key_of(config, agent, is_own, "agents.defaults.", "sandbox.mode"),
            value: mode.as_str().to_owned(),
        })
    }

    /// Whether the sandbox covers a conversation of the agent.
    pub fn holds(&self, agent: &str, session_key: &str) -> bool {
        match self.conversations {
            SandboxMode::Off => false,
            SandboxMode::NonMain => !is_main(agent, session_key),
            SandboxMode::All => true,
        }
    }
}

/// Returns the key of a setting: the agent's own if that has a value, otherwise that of all agents.
fn key_of(
    config: &Config,
    agent: &str,
    is_own: impl Fn(&AgentConfig) -> bool,
    of_all: &str,
    key: &str,
) -> String {
    let mut list = config.agents.list.iter();
    let own = config.agent(agent).filter(|own| is_own(own));
    let index = own.and_then(|own| list.position(|one| one.id == own.id));
    match index {
        Some(index) => format!("agents.list[{index}].{key}"),
        None => format!("{of_all}{key}"),
    }
}

/// Whether this is the agent's own main conversation. The key of another agent's main one is not.
fn is_main(agent: &str, session_key: &str) -> bool {
    let main = format!("agent:{}:main", agent.to_ascii_lowercase());
    session_key.to_ascii_lowercase() == main
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

    #[test]
    fn what_is_shared_has_one_backend_and_the_owner_is_notified() {
        let config = config(
            r#"{ "agents": { "defaults": { "sandbox": { "mode": "all", "scope": "shared", "browser": { "enabled": true } } },
                 "list": [{ "id": "a", "sandbox": { "backend": "bwrap", "docker": { "image": "x" } } },
                          { "id": "b", "sandbox": { "scope": "agent", "backend": "bwrap" } }] } }"#,
        );
        let backend = |agent| settings_of(&config, agent).backend;
        assert_eq!(backend("a"), None);
        assert_eq!(settings_of(&config, "a").docker.image, None);
        assert_eq!(backend("b"), Some(interlock_plan::SandboxBackend::Bwrap));
        let notices = config_notices(&config);
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert!(notices[0].starts_with("agents.defaults.sandbox.browser "));
        assert!(notices[1].contains("agents.list[0].sandbox"), "{notices:?}");
    }

    #[test]
    fn the_key_that_decides_is_named() {
        let config = config(
            r#"{ "tools": { "exec": { "host": "auto" } },
                 "agents": { "defaults": { "sandbox": { "mode": "non-main" } },
                 "list": [{ "id": "a", "sandbox": { "mode": "all" } },
                          { "id": "b", "sandbox": { "mode": "off" } },
                          { "id": "c", "sandbox": { "required": true } },
                          { "id": "d", "tools": { "exec": { "host": "gateway" } } }] } }"#,
        );
        for (agent, conversations, key, value) in [
            (
                "main",
                SandboxMode::NonMain,
                "agents.defaults.sandbox.mode",
                "non-main",
            ),
            ("a", SandboxMode::All, "agents.list[0].sandbox.mode", "all"),
            ("b", SandboxMode::Off, "agents.list[1].sandbox.mode", "off"),
            (
                "c",
                SandboxMode::All,
                "agents.list[2].sandbox.required",
                "true",
            ),
            (
                "d",
                SandboxMode::Off,
                "agents.list[3].tools.exec.host",
                "gateway",
            ),
        ] {
            let expected = SandboxCoverage {
                conversations,
                key: key.to_owned(),
                value: value.to_owned(),
            };
            assert_eq!(SandboxCoverage::of_agent(&config, agent), Some(expected));
        }
        assert_eq!(SandboxCoverage::of_agent(&Config::default(), "main"), None);
    }
}
