//! Paths as JSON text, even if they are not valid UTF-8.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A path, written as text in which `%`, and every byte that is not part of valid UTF-8, becomes
/// `%` with two hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathText(pub(crate) PathBuf);

impl Serialize for PathText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::new();
        for chunk in self.0.as_os_str().as_bytes().utf8_chunks() {
            text.push_str(&chunk.valid().replace('%', "%25"));
            for byte in chunk.invalid() {
                let _ = write!(text, "%{byte:02x}"); // writing to a string cannot fail
            }
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for PathText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut parts = text.split('%');
        let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            let wrong = || de::Error::custom("`%` without two hexadecimal digits in a path");
            let (digits, rest) = part.split_at_checked(2).ok_or_else(wrong)?;
            bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
            bytes.extend_from_slice(rest.as_bytes());
        }
        Ok(Self(PathBuf::from(OsString::from_vec(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_survives_being_written_down() {
        let cases: [(&[u8], &str); 4] = [
            (b"/a b/c", "\"/a b/c\""),
            (b"100%", "\"100%25\""),
            (b"x\xff\xfey%zz", "\"x%ff%fey%25zz\""),
            ("/ä/\u{1f600}".as_bytes(), "\"/ä/\u{1f600}\""),
        ];
        for (bytes, text) in cases {
            let path = PathText(PathBuf::from(OsString::from_vec(bytes.to_vec())));
            assert_eq!(serde_json::to_string(&path).unwrap(), text);
            assert_eq!(serde_json::from_str::<PathText>(text).unwrap(), path);
        }
        for text in ["\"%\"", "\"%1\"", "\"%zz\"", "\"%é\""] {
            assert!(serde_json::from_str::<PathText>(text).is_err(), "{text}");
        }
    }
}
