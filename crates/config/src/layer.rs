//! Per agent over global, field by field.

use std::collections::BTreeMap;

use interlock_policy::{Ask, Security};

use crate::choice::{ExecMode, Host, SandboxMode};
use crate::types::{AgentConfig, Config, ExecConfig};

/// Settings that can lie over more general ones: what is set replaces, the rest shows through.
///
/// Only for values where the more specific one may also be looser. Tool policy and elevated gates
/// are not such values: each of their levels only restricts, so they are read level by level.
pub trait LayeredSettings {
    #[must_use]
    fn over(&self, base: &Self) -> Self;
}

impl<T: Clone> LayeredSettings for Option<T> {
    fn over(&self, base: &Self) -> Self {
        self.clone().or_else(|| base.clone())
    }
}

/// Entry by entry: an entry replaces the one of the same name as a whole.
impl<T: Clone> LayeredSettings for BTreeMap<String, T> {
    fn over(&self, base: &Self) -> Self {
        let mut entries = base.clone();
        entries.extend(self.clone());
        entries
    }
}

/// A list replaces the other one unless it is empty.
impl<T: Clone> LayeredSettings for Vec<T> {
    fn over(&self, base: &Self) -> Self {
        if self.is_empty() {
            base.clone()
        } else {
            self.clone()
        }
    }
}

/// A name belongs to its own level.
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

/// A sandbox that the config switches on and `tools.exec.host` overrules: commands run elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverruledSandbox {
    /// The key that names the host.
    pub key: String,
    pub host: Host,
}

impl OverruledSandbox {
    /// What holds, for the owner.
    pub fn words(&self) -> String {
        format!(
            "the sandbox that the config switches on holds no command, because {} is {}",
            self.key, self.host
        )
    }

    /// The command that puts the sandbox into force.
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
    /// Whether any key switches a sandbox on, for one agent or for all.
    pub fn has_sandbox(&self) -> bool {
        let agents = self.agents.list.iter().map(|agent| &agent.sandbox);
        let mut settings = agents.chain([&self.agents.defaults.sandbox]);
        settings.any(|settings| {
            settings.required == Some(true)
                || settings.mode.is_some_and(|mode| mode != SandboxMode::Off)
        })
    }

    /// The key that keeps the commands of an agent out of the sandbox which the config switches on
    /// for it. A required sandbox is not overruled: calls are refused then.
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

    /// The agent with this id, which is compared without regard to case. `default` is an old name
    /// of `main`.
    pub fn agent(&self, id: &str) -> Option<&AgentConfig> {
        let id = known_as(id);
        let mut list = self.agents.list.iter();
        list.find(|agent| known_as(&agent.id) == id)
    }

    /// The agent that is meant when none is named: the one marked so, else `main`.
    pub fn default_agent_id(&self) -> String {
        let marked = self
            .agents
            .list
            .iter()
            .find(|agent| agent.default == Some(true));
        marked.map_or_else(|| "main".to_owned(), |agent| known_as(&agent.id))
    }

    /// What the config asks for when this agent runs commands: its own values over the global ones.
    /// `security` and `ask` are filled from `mode` where nothing more specific sets them; an
    /// agent's `mode` outranks the global `security` and `ask`, and its `security` or `ask` the
    /// global `mode`.
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

    /// The workspace of this agent: its own, else the default one.
    pub fn workspace_for(&self, agent: &str) -> Option<&str> {
        let own = self
            .agent(agent)
            .and_then(|agent| agent.workspace.as_deref());
        own.or(self.agents.defaults.workspace.as_deref())
    }
}

impl ExecConfig {
    /// Seconds until a run is ended, under either name of the key.
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
    /// What the mode stands for.
    pub fn policy(self) -> (Security, Ask) {
        match self {
            Self::Deny => (Security::Deny, Ask::Off),
            Self::Allowlist => (Security::Allowlist, Ask::Off),
            Self::Ask | Self::Auto => (Security::Allowlist, Ask::OnMiss),
            Self::Full => (Security::Full, Ask::Off),
        }
    }
}
