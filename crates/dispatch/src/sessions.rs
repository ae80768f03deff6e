//! Sessions: their settings, who may change them, and which sessions were used.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use interlock_config::{Config, Host};
use interlock_host::{CallSender, Elevation, ElevationRefusal, SessionValues, may_set_level};
use interlock_policy::{AgentId, Ask, Security};
use interlock_wire::results::SessionOverrides;

/// How many used sessions are remembered, besides those in the store.
const MAX_SEEN: usize = 4_096;

/// A change of one value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SessionEdit<T> {
    #[default]
    Keep,
    Clear,
    Set(T),
}

impl<T> SessionEdit<T> {
    fn apply(self, value: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Clear => *value = None,
            Self::Set(new) => *value = Some(new),
        }
    }
}

/// Changes of a session's values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edits {
    pub label: SessionEdit<String>,
    pub host: SessionEdit<Host>,
    pub security: SessionEdit<Security>,
    pub ask: SessionEdit<Ask>,
    pub node: SessionEdit<String>,
    pub elevated: SessionEdit<Elevation>,
}

impl Edits {
    pub fn apply(self, values: &mut SessionValues) {
        self.label.apply(&mut values.label);
        self.host.apply(&mut values.host);
        self.security.apply(&mut values.security);
        self.ask.apply(&mut values.ask);
        self.node.apply(&mut values.node);
        self.elevated.apply(&mut values.elevated);
    }

    /// Whether the change would let a session leave its sandbox.
    fn elevates(&self) -> bool {
        matches!(
            self.elevated,
            SessionEdit::Set(Elevation::On | Elevation::Full)
        )
    }
}

/// Why a caller may not change a setting of a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingNotAuthorized {
    #[error("`{0}` is not one of the owners in commands.ownerAllowFrom")]
    NotOwner(String),
    #[error(transparent)]
    Elevation(#[from] ElevationRefusal),
}

/// Checks whether these changes are permitted: to the calling operator if no sender is named,
/// otherwise to that sender of a channel, as `CHANNEL:SENDER`. Every level of the config can only
/// restrict.
pub fn authorize(
    config: &Config,
    agent: &AgentId,
    edits: &Edits,
    sender: Option<&str>,
) -> Result<(), SettingNotAuthorized> {
    if let Some(sender) = sender {
        let owners = config.commands.owner_allow_from.iter().flatten();
        if !is_among(sender, owners.map(String::as_str)) {
            return Err(SettingNotAuthorized::NotOwner(sender.to_owned()));
        }
    }
    if !edits.elevates() {
        return Ok(());
    }
    let sender = sender.map(CallSender::of_text);
    Ok(may_set_level(config, agent, sender.as_ref())?)
}

/// Whether a list names a sender. Lists name senders with or without their channel; `*` means every
/// sender.
fn is_among<'a>(sender: &str, mut list: impl Iterator<Item = &'a str>) -> bool {
    let name = sender.split_once(':').map_or(sender, |(_, name)| name);
    list.any(|one| one == "*" || one == sender || one == name)
}

/// The values in the form for clients.
pub fn view(values: &SessionValues) -> SessionOverrides {
    SessionOverrides {
        label: values.label.clone(),
        elevated_level: values.elevated.map(|level| level.as_str().to_owned()),
        exec_host: values.host.map(|host| host.as_str().to_owned()),
        exec_security: values.security.map(|level| level.as_str().to_owned()),
        exec_ask: values.ask.map(|level| level.as_str().to_owned()),
        exec_node: values.node.clone(),
    }
}

/// The values in the form for people.
pub fn text(values: &SessionValues) -> String {
    let or = |word: Option<&str>| word.unwrap_or("default").to_owned();
    format!(
        "exec: host={} security={} ask={} node={}; elevated={}",
        or(values.host.map(Host::as_str)),
        or(values.security.map(Security::as_str)),
        or(values.ask.map(Ask::as_str)),
        or(values.node.as_deref()),
        or(values.elevated.map(Elevation::as_str)),
    )
}

/// When sessions last called a tool, by their keys.
#[derive(Debug, Default)]
pub struct SeenSessions(Mutex<HashMap<String, (String, u64)>>);

impl SeenSessions {
    pub fn note(&self, session_key: &str, agent: &str, now_ms: u64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MAX_SEEN && !seen.contains_key(session_key) {
            let oldest = seen.iter().min_by_key(|(_, (_, at))| *at);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                seen.remove(&oldest);
            }
        }
        seen.insert(session_key.to_owned(), (agent.to_owned(), now_ms));
    }

    /// Key, agent and time of each session.
    pub fn all(&self) -> Vec<(String, String, u64)> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = seen.iter();
        rows.map(|(key, (agent, at))| (key.clone(), agent.clone(), *at))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::from_text(&interlock_config::Json5Text::parse("test", text).unwrap()).unwrap()
    }

    fn elevate() -> Edits {
        Edits {
            elevated: SessionEdit::Set(Elevation::Full),
            ..Edits::default()
        }
    }

    #[test]
    fn a_sender_must_be_an_owner_and_the_operator_itself_is_one() {
        let config = config("{ commands: { ownerAllowFrom: ['slack:U1', 'bob'] } }");
        let main = AgentId::new("main").unwrap();
        let may = |sender| authorize(&config, &main, &Edits::default(), sender).is_ok();
        assert!(may(None));
        assert!(may(Some("slack:U1")));
        assert!(may(Some("discord:bob")));
        assert!(!may(Some("discord:U1")));
        assert!(!may(Some("slack:mallory")));
    }

    #[test]
    fn leaving_the_sandbox_takes_the_switch_and_for_senders_the_list() {
        let off = config("{}");
        let main = AgentId::new("main").unwrap();
        let refused = authorize(&off, &main, &elevate(), None).unwrap_err();
        assert!(refused.to_string().contains("tools.elevated.enabled"));
        let on = config(
            "{ commands: { ownerAllowFrom: ['*'] },
               tools: { elevated: { enabled: true, allowFrom: { slack: ['U1', 'U2'] } } },
               agents: { list: [
                 { id: 'shy', tools: { elevated: { enabled: false } } },
                 { id: 'picky', tools: { elevated: { allowFrom: { slack: ['U2'] } } } } ] } }",
        );
        let may = |agent, sender| {
            let agent = AgentId::new(agent).unwrap();
            authorize(&on, &agent, &elevate(), sender).is_ok()
        };
        assert!(may("main", None));
        assert!(may("main", Some("slack:U1")));
        assert!(!may("main", Some("slack:U3")));
        assert!(!may("main", Some("discord:U1")));
        assert!(!may("shy", None));
        assert!(!may("picky", Some("slack:U1")));
        assert!(may("picky", Some("slack:U2")));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let seen = SeenSessions::default();
        for number in 0..MAX_SEEN as u64 + 10 {
            seen.note(&format!("agent:main:{number}"), "main", number);
        }
        let all = seen.all();
        assert_eq!(all.len(), MAX_SEEN);
        assert!(all.iter().all(|(_, _, at)| *at >= 10));
    }
}
