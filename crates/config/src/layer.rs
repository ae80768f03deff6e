//! Combines settings of an agent with the global ones, field by field.

use std::collections::BTreeMap;

use interlock_policy::{Ask, Security};

use crate::choice::{ExecMode, Host, SandboxMode};
use crate::types::{AgentConfig, Config, ExecConfig};

/// Settings that can override more general ones: set values replace them, the others stay.
///
/// This is only for values that the more specific level may also loosen. Tool policy and elevated
/// gates must not be combined in this way: each of their levels only restricts, so every level is
/// checked.
pub trait LayeredSettings {
    #[must_use]
    fn over(&self, base: &Self) -> Self;
}

impl<T: Clone> LayeredSettings for Option<T> {
    fn over(&self, base: &Self) -> Self {
        self.clone().or_else(|| base.clone())
    }
}

/// An entry replaces the whole entry with the same name.
impl<T: Clone> LayeredSettings for BTreeMap<String, T> {
    fn over(&self, base: &Self) -> Self {
        let mut entries = base.clone();
        entries.extend(self.clone());
        entries
    }
}

/// A list replaces the other one, unless it is empty.
impl<T: Clone> LayeredSettings for Vec<T> {
    fn over(&self, base: &Self) -> Self {
        if self.is_empty() {
            base.clone()
        } else {
            self.clone()
        }
    }
}

/// A name always comes from its own level.
impl LayeredSettings for String {
    fn over(&self, _base: &Self) -> Self {
        self.clone()
    }
}

fn known_as(id: &str) -> String {
    match id.to_ascii_lowercase() {
        old if old == "default" => "main".to_owned(),
        id => id,
    }
}

/// A sandbox that the config turns on but `tools.exec.host` overrules, so that commands run
/// elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverruledSandbox {
    /// The key that names the host.
    pub key: String,
    pub host: Host,
}

impl OverruledSandbox {
    /// Describes the problem for the owner.
    pub fn words(&self) -> String {
        format!(
            "the sandbox that the config switches on holds no command, because {} is {}",
            self.key, self.host
        )
    }

    /// The command that makes the sandbox effective.
    pub fn remedy(&self) -> String {
        let is_plain = |character: char| character.is_ascii_alphanumeric() || character == '.';
        if self.key.chars().all(is_plain) {
            format!("interlock config set {} auto", self.key)
        } else {
            format!("interlock config set '{}' auto", self.key)
        }
    }
}

impl Config {
    /// Whether any key turns a sandbox on, for one agent or for all.
    pub fn has_sandbox(&self) -> bool {
        let agents = self.agents.list.iter().map(|agent| &agent.sandbox);
        let mut settings = agents.chain([&self.agents.defaults.sandbox]);
        settings.any(|settings| {
            settings.required == Some(true)
                || settings.mode.is_some_and(|mode| mode != SandboxMode::Off)
        })
    }

    /// The key that keeps the commands of an agent out of the sandbox that the config turns on for
    /// it. A required sandbox cannot be overruled: calls are refused instead.
    pub fn overruled_sandbox(&self, agent: &str) -> Option<OverruledSandbox> {
        let own = self.agent(agent);
        let defaults = &self.agents.defaults.sandbox;
        let settings = own.map_or_else(|| defaults.clone(), |own| own.sandbox.over(defaults));
        let is_on = settings.mode.is_some_and(|mode| mode != SandboxMode::Off);
        let host = self.exec_for(agent).host?;
        if !is_on || settings.required == Some(true) || !matches!(host, Host::Gateway | Host::Node)
        {
            return None;
        }
        let own = own.filter(|own| own.tools.exec.host.is_some());
        let index = own.and_then(|own| self.agents.list.iter().position(|one| one.id == own.id));
        let key = match index {
            Some(index) => format!("agents.list[{index}].tools.exec.host"),
            None => "tools.exec.host".to_owned(),
        };
        Some(OverruledSandbox { key, host })
    }

    /// The agent with this id, in any case. `default` is an old name of `main`.
    pub fn agent(&self, id: &str) -> Option<&AgentConfig> {
        let id = known_as(id);
        let mut list = self.agents.list.iter();
        list.find(|agent| known_as(&agent.id) == id)
    }

    /// The agent that is used if none is named: the one marked as default, or else `main`.
    pub fn default_agent_id(&self) -> String {
        let marked = self
            .agents
            .list
            .iter()
            .find(|agent| agent.default == Some(true));
        marked.map_or_else(|| "main".to_owned(), |agent| known_as(&agent.id))
    }

    /// The exec settings of an agent: its own values override the global ones. `mode` sets
    /// `security` and `ask` if nothing more specific does: an agent's `mode` overrides the global
    /// `security` and `ask`, and an agent's `security` or `ask` overrides the global `mode`.
    pub fn exec_for(&self, agent: &str) -> ExecConfig {
        let global = &self.tools.exec;
        let Some(own) = self.agent(agent).map(|agent| &agent.tools.exec) else {
            return global.with_mode_applied();
        };
        let own = own.with_mode_applied();
        let speaks_of_policy = own.security.is_some() || own.ask.is_some();
        let mut merged = own.over(&global.with_mode_applied());
        if speaks_of_policy {
            merged.mode = own.mode;
        }
        if own.timeout().is_some() {
            (merged.timeout_sec, merged.timeout_seconds) = (own.timeout_sec, own.timeout_seconds);
        }
        merged
    }

    /// The workspace of this agent: its own, or else the default one.
    pub fn workspace_for(&self, agent: &str) -> Option<&str> {
        let own = self
            .agent(agent)
            .and_then(|agent| agent.workspace.as_deref());
        own.or(self.agents.defaults.workspace.as_deref())
    }
}

impl ExecConfig {
    /// The time limit of a run in seconds, from either name of the key.
    pub fn timeout(&self) -> Option<u64> {
        self.timeout_seconds.or(self.timeout_sec)
    }

    fn with_mode_applied(&self) -> Self {
        let implied = self.mode.map(ExecMode::policy);
        Self {
            security: self.security.or(implied.map(|(security, _)| security)),
            ask: self.ask.or(implied.map(|(_, ask)| ask)),
            ..self.clone()
        }
    }
}

impl ExecMode {
    /// The two levels that the mode means.
    pub fn policy(self) -> (Security, Ask) {
        match self {
            Self::Deny => (Security::Deny, Ask::Off),
            Self::Allowlist => (Security::Allowlist, Ask::Off),
            Self::Ask | Self::Auto => (Security::Allowlist, Ask::OnMiss),
            Self::Full => (Security::Full, Ask::Off),
        }
    }
}
