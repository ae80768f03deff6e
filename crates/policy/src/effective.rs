//! The layers of the policy: where each value comes from, and which value decides.
//!
//! Within one source the most specific value wins (agent, then `*`, then defaults). Between sources
//! the stricter value wins: no source can loosen another.

use serde::{Deserialize, Serialize};

use crate::agent::AgentId;
use crate::allowlist::EntryLists;
use crate::document::{Document, EVERY_AGENT, Scope, agent_path};
use crate::entry::{DenyRule, Entry};
use crate::level::{Ask, Fallback, Security, Strictness};

/// A source of policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicySource {
    Config,
    Host,
    Session,
    Call,
    /// The gateway that forwards a run to this node.
    Gateway,
    Default,
}

impl PolicySource {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Host => "host",
            Self::Session => "session",
            Self::Call => "call",
            Self::Gateway => "gateway",
            Self::Default => "default",
        }
    }
}

/// A value and its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sourced<T> {
    pub value: T,
    pub source: PolicySource,
    /// A key path such as `tools.exec.security` or `agents.main.ask`.
    pub path: String,
}

/// The values of one source. Absent fields set nothing.
#[derive(Debug, Clone, Default)]
pub struct Layer {
    pub security: Option<Sourced<Security>>,
    pub ask: Option<Sourced<Ask>>,
    pub ask_fallback: Option<Sourced<Fallback>>,
}

impl Layer {
    /// A layer whose values share one origin, such as a session's directive.
    pub fn new(
        source: PolicySource,
        path: &str,
        security: Option<Security>,
        ask: Option<Ask>,
    ) -> Self {
        fn at<T>(
            source: PolicySource,
            path: &str,
            key: &str,
            value: Option<T>,
        ) -> Option<Sourced<T>> {
            value.map(|value| Sourced {
                value,
                source,
                path: format!("{path}{key}"),
            })
        }
        Self {
            security: at(source, path, "security", security),
            ask: at(source, path, "ask", ask),
            ask_fallback: None,
        }
    }

    /// The layer of the host's document for an agent.
    pub fn of_document(document: &Document, agent: &AgentId) -> Self {
        let scopes = document.scopes(agent);
        Self {
            security: pick(&scopes, "security", |scope| scope.security),
            ask: pick(&scopes, "ask", |scope| scope.ask),
            ask_fallback: pick(&scopes, "askFallback", |scope| scope.ask_fallback),
        }
    }
}

/// Returns the value of the most specific scope that sets one.
fn pick<T>(
    scopes: &[(String, &Scope)],
    key: &str,
    get: impl Fn(&Scope) -> Option<T>,
) -> Option<Sourced<T>> {
    scopes.iter().find_map(|(path, scope)| {
        get(scope).map(|value| Sourced {
            value,
            source: PolicySource::Host,
            path: format!("{path}.{key}"),
        })
    })
}

/// One field, joined over all sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined<T> {
    /// The strictest value, or the default if no source sets the field.
    pub effective: Sourced<T>,
    /// Every source that sets the field, in the order given.
    pub layers: Vec<Sourced<T>>,
}

impl<T: Strictness> Joined<T> {
    /// Joins the layers. The strictest value decides; among equal values, the first source.
    pub fn join(layers: Vec<Sourced<T>>, default: T) -> Self {
        let strictest = layers.iter().map(|layer| layer.value).reduce(T::join);
        let effective = strictest
            .and_then(|value| layers.iter().find(|layer| layer.value == value).cloned())
            .unwrap_or_else(|| Sourced {
                value: default,
                source: PolicySource::Default,
                path: "built-in default".to_owned(),
            });
        Self { effective, layers }
    }

    pub fn value(&self) -> T {
        self.effective.value
    }
}

/// The effective levels for one agent and one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Levels {
    pub security: Joined<Security>,
    pub ask: Joined<Ask>,
    pub ask_fallback: Joined<Fallback>,
}

impl Levels {
    /// The values of an unset policy: everything may run without an approval. If an approval is
    /// required for another reason, the fallback is to deny.
    pub const DEFAULTS: (Security, Ask, Fallback) = (Security::Full, Ask::Off, Fallback::Deny);

    pub fn join(layers: &[Layer]) -> Self {
        let (security, ask, fallback) = Self::DEFAULTS;
        Self {
            security: Joined::join(
                layers.iter().filter_map(|l| l.security.clone()).collect(),
                security,
            ),
            ask: Joined::join(layers.iter().filter_map(|l| l.ask.clone()).collect(), ask),
            ask_fallback: Joined::join(
                layers
                    .iter()
                    .filter_map(|l| l.ask_fallback.clone())
                    .collect(),
                fallback,
            ),
        }
    }

    /// The `ask` level without what the call or its session set.
    pub fn ask_without_caller(&self) -> Ask {
        let layers = self.ask.layers.iter();
        layers
            .filter(|layer| !matches!(layer.source, PolicySource::Session | PolicySource::Call))
            .map(|layer| layer.value)
            .reduce(Ask::join)
            .unwrap_or(Self::DEFAULTS.1)
    }
}

/// The allowlist entries of the agent and of every agent, with their origins.
pub fn entries(document: &Document, agent: &AgentId) -> Vec<(Entry, String)> {
    let scopes = document.scopes(agent);
    let entries = scopes.iter().flat_map(|(path, scope)| {
        let list = scope.allowlist.iter().enumerate();
        list.map(move |(index, entry)| (entry.clone(), format!("{path}.allowlist[{index}]")))
    });
    entries.collect()
}

/// Like [`entries`], but moves the entries out of a document that is no longer needed, because they
/// are many and large.
pub fn take_entries(document: &mut Document, agent: &AgentId) -> EntryLists {
    let mut lists = EntryLists::default();
    for name in [agent.as_str(), EVERY_AGENT] {
        if let Some(scope) = document.agents.get_mut(name) {
            let path = format!("{}.allowlist", agent_path(name));
            lists.push(path, std::mem::take(&mut scope.allowlist));
        }
    }
    let defaults = std::mem::take(&mut document.defaults.allowlist);
    lists.push("defaults.allowlist".to_owned(), defaults);
    lists
}

/// The deny rules of every scope that applies.
pub fn deny_rules(document: &Document, agent: &AgentId) -> Vec<(DenyRule, String)> {
    let scopes = document.scopes(agent);
    let rules = scopes.iter().flat_map(|(path, scope)| {
        let list = scope.deny.iter().enumerate();
        list.map(move |(index, rule)| (rule.clone(), format!("{path}.deny[{index}]")))
    });
    rules.collect()
}

/// Whether skill programs count as allowlisted. The most specific value decides.
pub fn auto_allow_skills(document: &Document, agent: &AgentId) -> bool {
    let scopes = document.scopes(agent);
    let set = scopes.iter().find_map(|(_, scope)| scope.auto_allow_skills);
    set.unwrap_or(false)
}

/// Named combinations of levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    Yolo,
    Cautious,
    DenyAll,
}

impl Preset {
    pub const ALL: &'static [Self] = &[Self::Yolo, Self::Cautious, Self::DenyAll];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Yolo => "yolo",
            Self::Cautious => "cautious",
            Self::DenyAll => "deny-all",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|preset| preset.as_str() == text)
    }

    pub fn levels(self) -> (Security, Ask, Fallback) {
        match self {
            Self::Yolo => (Security::Full, Ask::Off, Fallback::Full),
            Self::Cautious => (Security::Allowlist, Ask::OnMiss, Fallback::Deny),
            Self::DenyAll => (Security::Deny, Ask::Off, Fallback::Deny),
        }
    }

    pub fn scope(self) -> Scope {
        let (security, ask, fallback) = self.levels();
        Scope {
            security: Some(security),
            ask: Some(ask),
            ask_fallback: Some(fallback),
            ..Scope::default()
        }
    }
}
