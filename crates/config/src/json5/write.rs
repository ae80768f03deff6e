//! Values as text, in the style of the text around them.

use serde_json::Value;

/// How the place where a value goes is written.
#[derive(Debug, Clone)]
pub(super) struct Json5Style {
    /// Members on lines of their own.
    pub(super) multiline: bool,
    /// White space in front of a member.
    pub(super) indent: String,
    /// What one more level adds.
    pub(super) unit: String,
    pub(super) newline: &'static str,
    /// Keys in quotes although they need none.
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

/// The key with its colon (for a member), then the value.
pub(super) fn item(key: Option<&str>, value: &Value, style: &Json5Style) -> String {
    let value = value_text(value, style);
    match key {
        None => value,
        Some(key) if !style.quoted_keys && is_plain(key) => format!("{key}: {value}"),
        Some(key) => format!("{}: {value}", Value::from(key)),
    }
}

/// `style.indent` is the indentation of the line on which the value begins.
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

/// Keys that every reader of JSON5 takes without quotes.
fn is_plain(key: &str) -> bool {
    !key.is_empty()
        && !key.starts_with(|c: char| c.is_ascii_digit())
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$'))
}
