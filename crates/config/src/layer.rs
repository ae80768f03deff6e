//! Per agent over global, field by field.

use std::collections::BTreeMap;

use interlock_policy::{Ask, Security};

use crate::choice::ExecMode;
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

impl Config {
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
