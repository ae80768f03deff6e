//! The sender of a call, as its transport proved it. An approval stores the sender, so that a run
//! that starts after its caller has left passes the same gates again.

use serde::{Deserialize, Serialize};

/// The sender of a call: its channel, and the names that this channel proves. A client's own
/// statements about itself do not count.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallSender {
    /// `cli`, `mcp`, `http`, `ws`, or a chat channel.
    pub channel: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
}

impl CallSender {
    pub fn new(channel: &str, id: impl Into<String>) -> Self {
        Self {
            channel: channel.to_owned(),
            id: Some(id.into()),
            username: None,
        }
    }

    /// Reads a sender that is written as `CHANNEL:SENDER`.
    pub fn of_text(text: &str) -> Self {
        let (channel, id) = text.split_once(':').unwrap_or(("", text));
        Self::new(channel, id)
    }

    /// The id of a sender that calls as an agent.
    pub fn agent_id(agent: &str) -> String {
        format!("agent:{agent}")
    }

    /// Whether a list of the config names this sender. An entry without a prefix means the id,
    /// which no sender can choose freely. A name that this channel does not prove matches nothing.
    pub fn is_among(&self, list: &[String]) -> bool {
        list.iter().any(|entry| self.is_meant_by(entry))
    }

    fn is_meant_by(&self, entry: &str) -> bool {
        if entry == "*" {
            return true;
        }
        let id = self.id.as_deref();
        let is_id = |text: &str| id == Some(text);
        let is_from = |text: &str| {
            let own = text.strip_prefix(self.channel.as_str());
            is_id(text)
                || own
                    .and_then(|rest| rest.strip_prefix(':'))
                    .is_some_and(is_id)
        };
        match entry.split_once(':') {
            Some(("id", text)) => is_id(text),
            Some(("from", text)) => is_from(text),
            Some(("username", text)) => self.username.as_deref() == Some(text),
            // A telephone number is an id of its channel in a fixed notation.
            Some(("e164", text)) => is_telephone_number(text) && is_id(text),
            // No channel of this version proves a display name or a tag.
            Some(("name" | "tag", _)) => false,
            _ => is_from(entry),
        }
    }
}

impl std::fmt::Display for CallSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let id = self.id.as_deref().unwrap_or("unknown");
        write!(f, "{}:{id}", self.channel)
    }
}

fn is_telephone_number(text: &str) -> bool {
    let digits = text.strip_prefix('+').unwrap_or_default();
    (7..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_prefix_means_one_name_of_the_sender() {
        let chat = CallSender::of_text("signal:+4915112345678");
        let local = CallSender {
            username: Some("ada".to_owned()),
            ..CallSender::new("cli", "1000")
        };
        let among = |sender: &CallSender, entry: &str| sender.is_among(&[entry.to_owned()]);
        for entry in [
            "*",
            "+4915112345678",
            "id:+4915112345678",
            "e164:+4915112345678",
            "from:+4915112345678",
            "from:signal:+4915112345678",
            "signal:+4915112345678",
        ] {
            assert!(among(&chat, entry), "{entry}");
        }
        for entry in [
            "",
            "+491511234567",
            "telegram:+4915112345678",
            "name:+4915112345678",
            "tag:+4915112345678",
            "username:+4915112345678",
            "e164:4915112345678",
        ] {
            assert!(!among(&chat, entry), "{entry}");
        }
        for entry in ["1000", "id:1000", "username:ada", "cli:1000"] {
            assert!(among(&local, entry), "{entry}");
        }
        // A name that can be chosen counts only where the list says that a name is meant.
        for entry in ["ada", "id:ada", "name:ada", "e164:1000", "from:ada"] {
            assert!(!among(&local, entry), "{entry}");
        }
        let unknown = CallSender::default();
        assert!(!among(&unknown, "") && !among(&unknown, "id:"));
    }
}
