//! The schema of the config. The table [`CONFIG`] is the source of the check of a file, the JSON
//! schema and the reference page.

mod check;
mod json_schema;
mod missing;
mod page;
mod rules;
#[rustfmt::skip] // one row per line reads better than five
mod table;

pub use check::check;
pub use json_schema::json_schema;
pub use missing::{KEY_NOT_AVAILABLE, MissingFeature, SANDBOX_UNAVAILABLE};
pub use page::reference_page;
pub use rules::TextRule;
pub use rules::byte_size;
pub use table::CONFIG;
use table::SECRET_SOURCE;

/// A key, the values that it accepts, and its description.
#[derive(Debug)]
pub struct ConfigField {
    pub key: &'static str,
    pub kind: ConfigKind,
    /// The default as JSON, or empty if there is none.
    pub default: &'static str,
    /// A description in one line.
    pub about: &'static str,
    pub required: bool,
}

/// The kind of a key's values.
#[derive(Debug, Clone, Copy)]
pub enum ConfigKind {
    Bool,
    /// A whole number in this range, both ends included.
    Integer(u64, u64),
    /// Any number in this range, both ends included.
    Number(f64, f64),
    Text(TextRule),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One of the first words. The second words are known but refused, because this version lacks
    /// their feature.
    ChoiceWithout(
        &'static [&'static str],
        &'static [&'static str],
        &'static MissingFeature,
    ),
    /// True, false, or one of these words.
    BoolOr(&'static [&'static str]),
    /// A secret: its text, or the name of the environment variable that contains it.
    SecretText,
    List(&'static ConfigKind),
    /// Names that the owner chooses, each with a value of the same kind.
    Map(TextRule, &'static ConfigKind),
    Object(&'static [ConfigField]),
    /// A known key that is deliberately refused. The text says what to do instead.
    Refused(&'static str),
    /// A key whose feature this version does not have. It must be refused, never ignored.
    NotAvailable(&'static MissingFeature),
    /// A key of the reference that is read and has no effect, of which the owner is notified.
    Unused,
}

impl ConfigKind {
    /// Whether the key may be set. Every key that may be set must have an effect, which a test
    /// checks.
    pub fn is_accepted(&self) -> bool {
        !matches!(
            self,
            Self::Refused(_) | Self::NotAvailable(_) | Self::Unused
        )
    }

    /// The expected value with an article, for messages.
    fn expected(&self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::BoolOr(_) => "true, false or a word",
            Self::SecretText => "a string, or { source: \"env\", id: NAME }",
            Self::Integer(..) => "a whole number",
            Self::Number(..) => "a number",
            Self::Text(_) | Self::Choice(_) | Self::ChoiceWithout(..) => "a string",
            Self::List(_) => "a list",
            Self::Map(..) | Self::Object(_) => "an object",
            Self::Refused(_) | Self::NotAvailable(_) => "absent",
            Self::Unused => "anything",
        }
    }
}

const fn field(
    key: &'static str,
    kind: ConfigKind,
    default: &'static str,
    about: &'static str,
) -> ConfigField {
    ConfigField {
        key,
        kind,
        default,
        about,
        required: false,
    }
}

const fn required(key: &'static str, kind: ConfigKind, about: &'static str) -> ConfigField {
    ConfigField {
        key,
        kind,
        default: "",
        about,
        required: true,
    }
}

const fn not_available(key: &'static str, feature: &'static MissingFeature) -> ConfigField {
    ConfigField {
        key,
        kind: ConfigKind::NotAvailable(feature),
        default: "",
        about: "",
        required: false,
    }
}
