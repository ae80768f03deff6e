//! Values of chats with two forms: a secret or the variable that holds it, and a switch or `auto`.

use std::fmt;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A secret of a channel. Its text must never be printed.
#[derive(Clone, PartialEq, Eq)]
pub enum ChatSecret {
    /// The secret is in the config itself. The security audit reports that.
    Inline(String),
    /// The secret is in this variable of the gateway's environment.
    Variable(String),
}

impl fmt::Debug for ChatSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("Inline(…)"),
            Self::Variable(name) => f.debug_tuple("Variable").field(name).finish(),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretSource {
    source: String,
    id: String,
}

impl Serialize for ChatSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Inline(text) => serializer.serialize_str(text),
            Self::Variable(id) => {
                let (source, id) = ("env".to_owned(), id.clone());
                SecretSource { source, id }.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for ChatSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ChatSecretForms;
        impl<'de> Visitor<'de> for ChatSecretForms {
            type Value = ChatSecret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or { source: \"env\", id: NAME }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ChatSecret, E> {
                Ok(ChatSecret::Inline(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ChatSecret, A::Error> {
                let read = SecretSource::deserialize(de::value::MapAccessDeserializer::new(map))?;
                if read.source == "env" {
                    Ok(ChatSecret::Variable(read.id))
                } else {
                    Err(de::Error::custom("source must be \"env\""))
                }
            }
        }
        deserializer.deserialize_any(ChatSecretForms)
    }
}

/// Whether a channel accepts decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChatSwitch {
    On,
    Off,
    /// On if the channel has approvers.
    #[default]
    Auto,
}

impl Serialize for ChatSwitch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::On => serializer.serialize_bool(true),
            Self::Off => serializer.serialize_bool(false),
            Self::Auto => serializer.serialize_str("auto"),
        }
    }
}

impl<'de> Deserialize<'de> for ChatSwitch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ChatSwitchForms;
        impl Visitor<'_> for ChatSwitchForms {
            type Value = ChatSwitch;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or \"auto\"")
            }

            fn visit_bool<E: de::Error>(self, is_on: bool) -> Result<ChatSwitch, E> {
                Ok(if is_on {
                    ChatSwitch::On
                } else {
                    ChatSwitch::Off
                })
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<ChatSwitch, E> {
                match word {
                    "auto" => Ok(ChatSwitch::Auto),
                    _ => Err(de::Error::custom("the word must be \"auto\"")),
                }
            }
        }
        deserializer.deserialize_any(ChatSwitchForms)
    }
}
