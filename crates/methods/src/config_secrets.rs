//! Secrets in a config: hidden from remote readers, and put back when they write it.
//!
//! A config should contain no secrets, and the schema refuses the usual ones. Values that may still
//! be secret are hidden: values of environment variables, values whose keys sound like secrets, and
//! addresses that contain a password or a query.

use interlock_config::{EditError, Json5Text, KeyPath, PathSegment};
use serde_json::Value;

/// Replaces a value that is not shown.
pub(crate) const HIDDEN: &str = "__INTERLOCK_HIDDEN__";

const SECRET_WORDS: &[&str] = &[
    "token",
    "password",
    "secret",
    "apikey",
    "passphrase",
    "credential",
];

/// A client wrote the mark at a key that has no hidden value.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {HIDDEN} stands for a value that is there already, and there is none")]
pub(crate) struct NothingBehind(String);

/// Returns the text with every such value hidden. The rest stays as it was written.
pub(crate) fn hidden(text: &Json5Text) -> Json5Text {
    let mut shown = text.clone();
    for path in paths(text, &|path, value| is_secret(path, value)) {
        if shown.set(&path, &HIDDEN.into()).is_err() {
            // If a secret cannot be replaced in the text, nothing of the text is shown.
            return Json5Text::parse(text.name(), "{}").unwrap_or(shown);
        }
    }
    shown
}

/// Returns the text with the hidden values of the present config put back.
pub(crate) fn restored(
    mut text: Json5Text,
    present: &Json5Text,
) -> Result<Json5Text, NothingBehind> {
    for path in paths(&text, &|_, value| value == HIDDEN) {
        let nothing = || NothingBehind(path.to_string());
        let value = present.get(&path).ok_or_else(nothing)?;
        text.set(&path, &value).map_err(|_: EditError| nothing())?;
    }
    Ok(text)
}

/// Returns the key paths of all strings for which `holds` is true.
fn paths(text: &Json5Text, holds: &dyn Fn(&KeyPath, &str) -> bool) -> Vec<KeyPath> {
    let mut found = Vec::new();
    walk(&text.value(), &KeyPath::root(), &mut |path, value| {
        if holds(path, value) {
            found.push(path.clone());
        }
    });
    found
}

/// Visits every string. The parser of the text limits the depth.
fn walk(value: &Value, at: &KeyPath, see: &mut impl FnMut(&KeyPath, &str)) {
    match value {
        Value::String(text) => see(at, text),
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                walk(value, &at.index(index), see);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                walk(value, &at.key(key), see);
            }
        }
        _ => {}
    }
}

fn is_secret(path: &KeyPath, value: &str) -> bool {
    let keys: Vec<String> = path
        .segments()
        .iter()
        .filter_map(|segment| match segment {
            PathSegment::Key(key) => Some(key.to_lowercase()),
            PathSegment::Index(_) => None,
        })
        .collect();
    let (last, above) = match keys.as_slice() {
        [.., above, last] => (last.as_str(), above.as_str()),
        [last] => (last.as_str(), ""),
        [] => return false,
    };
    let sounds_secret = SECRET_WORDS.iter().any(|word| last.contains(word));
    let is_file = last.ends_with("file");
    let is_address = last.ends_with("url") && (value.contains('@') || value.contains('?'));
    above == "env" || (sounds_secret && !is_file) || is_address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Json5Text {
        Json5Text::parse("test", text).unwrap()
    }

    const TEXT: &str = "{\n  // kept\n  gateway: {\n    wake: { url: 'http://u:hunter2@h/x?key=k' },\n    auth: { tokenFile: '/t' },\n  },\n  agents: { defaults: { sandbox: { docker: { env: { API: 'abc' } } } } },\n}\n";

    #[test]
    fn what_may_be_secret_is_hidden_and_put_back_when_it_is_written() {
        let shown = hidden(&parse(TEXT));
        assert!(!shown.text().contains("hunter2"));
        assert!(!shown.text().contains("abc"));
        assert!(shown.text().contains("// kept"));
        assert!(shown.text().contains("tokenFile: '/t'"));
        let back = restored(shown, &parse(TEXT)).unwrap();
        assert_eq!(back.value(), parse(TEXT).value());
    }

    #[test]
    fn a_mark_without_a_value_behind_it_is_refused() {
        let text = parse(&format!("{{ gateway: {{ wake: {{ url: '{HIDDEN}' }} }} }}"));
        let error = restored(text, &parse("{}")).unwrap_err().to_string();
        assert!(error.starts_with("gateway.wake.url: "), "{error}");
    }
}
