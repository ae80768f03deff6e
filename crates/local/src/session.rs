//! The settings of a conversation, from `/exec`, `/elevated` and `sessions.patch`. Its levels join
//! the policy as one more layer, which can only make it stricter. Its host is an input of `route`.

use interlock_config::Host;
use interlock_plan::Elevation;
use interlock_policy::{Ask, Security};
use interlock_rules::{SessionLevels, now_ms};
use interlock_store::{Author, KnownSession, SessionSettings};

use crate::state::{HostError, LocalState};

/// The settings of a conversation. For absent values, the config and the document apply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionValues {
    pub label: Option<String>,
    pub host: Option<Host>,
    pub security: Option<Security>,
    pub ask: Option<Ask>,
    pub node: Option<String>,
    pub elevated: Option<Elevation>,
}

impl SessionValues {
    pub fn levels(&self) -> SessionLevels {
        SessionLevels {
            security: self.security,
            ask: self.ask,
        }
    }

    /// Reads stored settings. A word that this version does not know counts as the strictest one.
    pub fn of(settings: &SessionSettings) -> Self {
        Self {
            label: settings.label.clone(),
            host: settings
                .host
                .as_deref()
                .map(|word| host_named(word).unwrap_or(Host::Sandbox)),
            security: settings
                .security
                .as_deref()
                .map(|word| Security::parse(word).unwrap_or(Security::Deny)),
            ask: settings
                .ask
                .as_deref()
                .map(|word| Ask::parse(word).unwrap_or(Ask::Always)),
            node: settings.node.clone(),
            elevated: settings
                .elevated
                .as_deref()
                .map(|word| Elevation::parse(word).unwrap_or(Elevation::Off)),
        }
    }

    fn settings(&self) -> SessionSettings {
        SessionSettings {
            label: self.label.clone(),
            host: self.host.map(|host| host.as_str().to_owned()),
            security: self.security.map(|level| level.to_string()),
            ask: self.ask.map(|level| level.to_string()),
            node: self.node.clone(),
            elevated: self.elevated.map(|level| level.as_str().to_owned()),
        }
    }
}

/// The host with this name.
pub fn host_named(word: &str) -> Option<Host> {
    let all = [Host::Auto, Host::Sandbox, Host::Gateway, Host::Node];
    all.into_iter().find(|host| host.as_str() == word)
}

impl LocalState {
    pub fn session(&self, session_key: &str) -> Result<SessionValues, HostError> {
        let settings = self.store().session_settings(session_key)?;
        Ok(SessionValues::of(&settings))
    }

    /// Changes the settings of a conversation, and records the author. Returns the new settings.
    pub fn change_session(
        &self,
        session_key: &str,
        agent: &str,
        author: &Author,
        change: impl FnOnce(&mut SessionValues),
    ) -> Result<SessionValues, HostError> {
        let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
        Ok(self.store().change(|store| {
            let before = SessionValues::of(&store.session_settings(session_key)?);
            let mut values = before.clone();
            change(&mut values);
            if values != before {
                store.set_session_settings(session_key, agent, &values.settings(), author, now)?;
            }
            Ok::<_, interlock_store::StoreError>(values)
        })?)
    }

    /// All known conversations, the latest first.
    pub fn sessions(&self) -> Result<Vec<KnownSession>, HostError> {
        Ok(self.store().known_sessions()?)
    }
}
