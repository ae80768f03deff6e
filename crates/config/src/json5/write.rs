//! Writes values in the style of the text around them.

use serde_json::Value;

/// The style of the place where a value is written.
#[derive(Debug, Clone)]
pub(super) struct Json5Style {
    /// Whether each member has its own line.
    pub(super) multiline: bool,
    /// The white space before a member.
    pub(super) indent: String,
    /// The additional indentation per level.
    pub(super) unit: String,
    pub(super) newline: &'static str,
    /// Whether keys have quotes even if they need none.
    pub(super) quoted_keys: bool,
}

impl Json5Style {
    fn deeper(&self) -> Self {
        Self {
            indent: format!("{}{}", self.indent, self.unit),
            ..self.clone()
        }
    }
}

/// The text of an item: the key and a colon if it has a key, then the value.
pub(super) fn item(key: Option<&str>, value: &Value, style: &Json5Style) -> String {
    let value = value_text(value, style);
    match key {
        None => value,
        Some(key) if !style.quoted_keys && is_plain(key) => format!("{key}: {value}"),
        Some(key) => format!("{}: {value}", Value::from(key)),
    }
}

/// The text of a value. `style.indent` is the indentation of the line on which the value begins.
pub(super) fn value_text(value: &Value, style: &Json5Style) -> String {
    let (open, close, items): (_, _, Vec<(Option<&str>, &Value)>) = match value {
        Value::Array(elements) => (
            '[',
            ']',
            elements.iter().map(|element| (None, element)).collect(),
        ),
        Value::Object(members) => (
            '{',
            '}',
            members
                .iter()
                .map(|(key, value)| (Some(key.as_str()), value))
                .collect(),
        ),
        scalar => return scalar.to_string(),
    };
    if items.is_empty() {
        return format!("{open}{close}");
    }
    let scalars = items
        .iter()
        .all(|(key, value)| key.is_none() && !value.is_array() && !value.is_object());
    let style = Json5Style {
        multiline: style.multiline && !scalars,
        ..style.clone()
    };
    let inner = style.deeper();
    let texts: Vec<String> = items
        .iter()
        .map(|(key, value)| item(*key, value, &inner))
        .collect();
    if !style.multiline {
        let blank = if open == '{' { " " } else { "" };
        return format!("{open}{blank}{}{blank}{close}", texts.join(", "));
    }
    let line = format!("{}{}", style.newline, inner.indent);
    let body = texts.join(&format!(",{line}"));
    format!("{open}{line}{body}{}{}{close}", style.newline, style.indent)
}

/// Whether every JSON5 parser accepts the key without quotes.
fn is_plain(key: &str) -> bool {
    !key.is_empty()
        && !key.starts_with(|c: char| c.is_ascii_digit())
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$'))
}
