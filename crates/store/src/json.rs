//! JSON in one form only, so that equal values are equal bytes, and hashes of those.

use rusqlite::Row;
use rusqlite::types::Type;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// No blanks, keys sorted.
pub(crate) fn canonical(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    value.to_string()
}

/// SHA-256 in hexadecimal.
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

/// A column that holds JSON.
pub(crate) fn column(row: &Row<'_>, index: usize) -> rusqlite::Result<Value> {
    parse(&row.get::<_, String>(index)?, index)
}

/// A column that holds JSON or nothing.
pub(crate) fn column_if_any(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<Value>> {
    let text: Option<String> = row.get(index)?;
    text.map(|text| parse(&text, index)).transpose()
}

fn parse(text: &str, index: usize) -> rusqlite::Result<Value> {
    serde_json::from_str(text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
    })
}
