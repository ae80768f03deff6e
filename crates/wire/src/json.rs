//! Detects keys that a JSON text contains twice. Parsers differ in the value that they choose, so
//! two readers of one message could see two messages. Every transport refuses such a text.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// The code of the refusal.
pub const DUPLICATE_KEY: &str = "DUPLICATE_KEY";

/// The error text for a key that appears twice.
pub fn duplicate_key_message(key: &str) -> String {
    let shown: String = key.chars().take(100).flat_map(char::escape_debug).collect();
    format!("{DUPLICATE_KEY}: the key `{shown}` is given twice in one object; send it once")
}

/// The first key that an object in this text contains twice, at any depth. `None` for a text that
/// is not JSON, which its reader reports.
pub fn duplicate_key(json: &[u8]) -> Option<String> {
    let mut duplicate = None;
    let mut text = serde_json::Deserializer::from_slice(json);
    // The error is either the duplicate or a syntax error.
    let _ = DuplicateKeyVisitor(&mut duplicate).deserialize(&mut text);
    duplicate
}

/// Walks through a value and stops at the first duplicate.
struct DuplicateKeyVisitor<'a>(&'a mut Option<String>);

impl<'de> DeserializeSeed<'de> for DuplicateKeyVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DuplicateKeyVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if keys.contains(&key) {
                *self.0 = Some(key);
                return Err(A::Error::custom(DUPLICATE_KEY));
            }
            keys.insert(key);
            map.next_value_seed(DuplicateKeyVisitor(self.0))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list
            .next_element_seed(DuplicateKeyVisitor(self.0))?
            .is_some()
        {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_given_twice_is_found_at_any_depth() {
        for (text, key) in [
            (r#"{"a":1,"a":1}"#, "a"),
            (r#"{"a":1,"b":2,"\u0061":3}"#, "a"),
            (r#"[0,[{"x":{"y":[{"k":null,"k":true}]}}]]"#, "k"),
            (r#"{"":1,"":2}"#, ""),
            (r#"{"a":1,"a":2"#, "a"),
        ] {
            assert_eq!(
                duplicate_key(text.as_bytes()).as_deref(),
                Some(key),
                "{text}"
            );
        }
    }

    #[test]
    fn the_same_key_in_different_objects_is_none() {
        for text in [
            r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}],"A":1}"#,
            r#""a""#,
            "[1.5e300, -1, 18446744073709551615, \"a\\nb\"]",
            "{",
            "",
            "\u{feff}{}",
        ] {
            assert_eq!(duplicate_key(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn the_message_shows_control_characters_spelled_out() {
        assert_eq!(
            duplicate_key_message("a\nb"),
            "DUPLICATE_KEY: the key `a\\nb` is given twice in one object; send it once"
        );
    }
}
