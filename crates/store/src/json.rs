//! Canonical JSON, in which equal values are equal bytes, and hashes of it.

use rusqlite::Row;
use rusqlite::types::Type;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Returns the JSON without blanks and with sorted keys.
pub(crate) fn canonical(value: &Value) -> String {
    // The keys of most values are in order already.
    if is_sorted(value) {
        return text(value);
    }
    let mut value = value.clone();
    value.sort_all_objects();
    text(&value)
}

fn is_sorted(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.keys().is_sorted() && fields.values().all(is_sorted),
        Value::Array(values) => values.iter().all(is_sorted),
        _ => true,
    }
}

fn text(value: &Value) -> String {
    // All keys are strings, and serialization cannot fail for any other reason.
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns the SHA-256 of a text in hexadecimal.
pub(crate) fn sha256_hex(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

/// Reads a field of JSON that another program, or another version of this program, wrote. A value
/// of another type counts as absent, so that the other fields stay readable.
pub fn lenient_field<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Reads a column that holds JSON.
pub(crate) fn column<T: DeserializeOwned>(row: &Row<'_>, index: usize) -> rusqlite::Result<T> {
    parse(&row.get::<_, String>(index)?, index)
}

/// Reads a column that holds JSON or `NULL`.
pub(crate) fn column_if_any(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<Value>> {
    let text: Option<String> = row.get(index)?;
    text.map(|text| parse(&text, index)).transpose()
}

fn parse<T: DeserializeOwned>(text: &str, index: usize) -> rusqlite::Result<T> {
    serde_json::from_str(text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_values_are_equal_texts_whatever_their_order() {
        let sorted = json!({ "a": [{ "b": 1, "c": null }], "d": "é" });
        let other = json!({ "d": "é", "a": [{ "c": null, "b": 1 }] });
        let text = r#"{"a":[{"b":1,"c":null}],"d":"é"}"#;
        assert_eq!(canonical(&sorted), text);
        assert_eq!(canonical(&other), text);
    }
}
